use std::collections::HashSet;

use proptest::prelude::*;

use super::*;

/// Returns every division of at most `total` in which no member has more than it wants.
fn divisions(total: u64, wants: &[u64]) -> Vec<Vec<u64>> {
    let Some((&first, others)) = wants.split_first() else {
        return vec![Vec::new()];
    };
    let mut all = Vec::new();
    for part in 0..=first.min(total) {
        for mut rest in divisions(total - part, others) {
            rest.insert(0, part);
            all.push(rest);
        }
    }
    all
}

fn sorted(mut parts: Vec<u64>) -> Vec<u64> {
    parts.sort_unstable();
    parts
}

proptest! {
    /// Max-min fairness by its definition: of all divisions, the one whose smallest part is largest, then its second
    /// smallest, and so on.
    #[test]
    fn shares_are_the_best_of_all_divisions(total in 0..12_u64, wants in prop::collection::vec(0..8_u64, 1..5)) {
        let shares = fair(total, &wants);
        prop_assert!(shares.iter().zip(&wants).all(|(share, want)| share <= want));
        let best = divisions(total, &wants).into_iter().map(sorted).max();
        prop_assert_eq!(Some(sorted(shares)), best);
    }

    #[test]
    fn each_member_that_wants_an_equal_part_gets_it(total in 0..u64::MAX, wants in prop::collection::vec(any::<u64>(), 1..9)) {
        let equal = total / wants.len() as u64;
        let shares = fair(total, &wants);
        prop_assert!(shares.iter().zip(&wants).all(|(&share, &want)| share >= equal.min(want)));
        prop_assert!(shares.iter().map(|&share| u128::from(share)).sum::<u128>() <= u128::from(total));
    }
}

/// A state of a pool: the account of each member, `None` for one that has not joined.
type Members = Vec<Option<Account>>;

fn look(total: u64, members: &Members, me: usize) -> Members {
    let mut accounts: Vec<_> = members.iter().flatten().copied().collect();
    let index = members[..me].iter().flatten().count();
    settle(total, &mut accounts, index);
    let mut after = accounts.into_iter();
    members
        .iter()
        .map(|member| member.and_then(|_| after.next()))
        .collect()
}

fn with(members: &Members, me: usize, account: Option<Account>) -> Members {
    let mut after = members.clone();
    after[me] = account;
    after
}

/// Returns every state that may follow.
fn next(total: u64, members: &Members) -> Vec<Members> {
    let mut all = Vec::new();
    for me in 0..members.len() {
        let Some(account) = members[me] else {
            let most = [total, 1];
            all.extend(most.map(|most| {
                let new = Account {
                    most,
                    ..Account::default()
                };
                with(members, me, Some(new))
            }));
            continue;
        };
        // The member leaves, or is killed.
        all.push(with(members, me, None));
        for wanted in 0..=total {
            let account = Account { wanted, ..account };
            all.push(look(total, &with(members, me, Some(account)), me));
        }
        if account.keep < account.held {
            let account = Account {
                held: account.keep,
                ..account
            };
            all.push(with(members, me, Some(account)));
        }
    }
    all
}

fn is_settled(total: u64, members: &Members) -> bool {
    let accounts: Vec<_> = members.iter().flatten().collect();
    let wants: Vec<_> = accounts.iter().map(|a| a.wanted.min(a.most)).collect();
    let shares = fair(total, &wants);
    let mut all = accounts.iter().zip(&shares);
    all.all(|(account, &share)| account.keep == account.held && account.held >= share)
}

/// Goes through every state that three members of a small pool can reach. The members never hold more slabs than the pool
/// has. From each state, all have their fair share after a few steps of each member, in any order.
#[test]
fn no_member_has_too_much_and_each_gets_its_share() {
    for total in 0..=3 {
        let start: Members = vec![None; 3];
        let mut seen = HashSet::from([start.clone()]);
        let mut open = vec![start];
        while let Some(members) = open.pop() {
            let held: u64 = members.iter().flatten().map(|a| a.held).sum();
            assert!(held <= total, "{members:?} of {total}");
            let sane = |a: &Account| a.keep <= a.held && a.held <= a.most.max(a.held);
            assert!(members.iter().flatten().all(sane));
            for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2]] {
                let mut later = members.clone();
                for _ in 0..4 {
                    for me in order {
                        if let Some(account) = later[me] {
                            let given = Account {
                                held: account.keep,
                                ..account
                            };
                            later = look(total, &with(&later, me, Some(given)), me);
                        }
                    }
                }
                assert!(is_settled(total, &later), "{members:?} became {later:?}");
            }
            for after in next(total, &members) {
                if seen.insert(after.clone()) {
                    open.push(after);
                }
            }
        }
        println!("{total} slabs: {} states", seen.len());
    }
}

#[test]
fn what_others_leave_idle_is_borrowed_and_given_back() {
    let account = |wanted| Account {
        wanted,
        most: 8,
        ..Account::default()
    };
    let mut accounts = [account(8), account(2)];
    settle(8, &mut accounts, 0);
    assert_eq!(accounts[0].held, 6, "the other wants two");
    settle(8, &mut accounts, 1);
    assert_eq!(accounts[1].held, 2);
    accounts[1].wanted = 8;
    settle(8, &mut accounts, 1);
    assert_eq!((accounts[1].held, accounts[0].keep), (2, 6));
    settle(8, &mut accounts, 0);
    assert_eq!((accounts[0].held, accounts[0].keep), (6, 4));
    settle(8, &mut accounts, 1);
    assert_eq!(accounts[1].held, 2, "it is not there yet");
    accounts[0].held = 4;
    settle(8, &mut accounts, 1);
    assert_eq!(accounts[1].held, 4);
}

#[test]
fn accounts_that_no_member_wrote_overflow_nothing() {
    let account = |held, keep| Account {
        wanted: u64::MAX,
        most: u64::MAX,
        held,
        keep,
    };
    let mut accounts = [
        account(u64::MAX, 0),
        account(u64::MAX, u64::MAX),
        account(3, 9),
        account(2, 2),
    ];
    for me in 0..accounts.len() {
        settle(8, &mut accounts, me);
    }
    assert_eq!(accounts[3].held, 2);
}

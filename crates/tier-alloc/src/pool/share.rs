//! How much each member may have: max-min fair shares, reached without any member ever exceeding what is free.
//!
//! Pure arithmetic over all members' accounts, in slabs. A member changes nothing but its own account, and only while
//! no other member does; so every step is one transition, and `tests` goes through all of them.

/// The bytes that one member wants and has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Account {
    /// Bytes that the member has a use for. Others may have to give back so that it gets this much of its fair share.
    pub(super) wanted: u64,
    /// Bytes that the member takes at most.
    pub(super) most: u64,
    /// Bytes that the member has, and may be using.
    pub(super) held: u64,
    /// Bytes that the member goes on having. The rest is being emptied, to be given back.
    pub(super) keep: u64,
}

/// The max-min fair division: no member gets more than it wants, and none could get more unless one that has no more than
/// that got less (water-filling: the smallest wants are served first, the rest share what is left).
pub(super) fn fair(total: u64, wants: &[u64]) -> Vec<u64> {
    let mut order: Vec<usize> = (0..wants.len()).collect();
    order.sort_by_key(|&member| wants[member]);
    let mut shares = vec![0; wants.len()];
    let mut left = total;
    for (served, &member) in order.iter().enumerate() {
        let others = (wants.len() - served) as u64;
        shares[member] = wants[member].min(left / others);
        left -= shares[member];
    }
    shares
}

/// Member `me` reads all accounts, and changes its own: takes what is free and its fair share, or promises
/// to give back what others lack of theirs.
///
/// Any member may hold bytes that no other lacks: a member that wants less holds up to an equal part, so that it need not ask
/// again soon, and borrowed slabs are kept for as long as no member lacks them.
pub(super) fn settle(total: u64, accounts: &mut [Account], me: usize) {
    let wants: Vec<u64> = accounts.iter().map(|a| a.wanted.min(a.most)).collect();
    let shares = fair(total, &wants);
    let held: u64 = accounts.iter().map(|a| a.held).sum();
    let lacks = |accounts: &[Account]| -> u64 {
        let lacks = accounts.iter().zip(&shares);
        lacks.map(|(a, share)| share.saturating_sub(a.held)).sum()
    };
    let mut free = total.saturating_sub(held);
    let mine = accounts[me];
    if mine.keep == mine.held {
        let equal = (total / accounts.len() as u64).min(mine.most);
        let spare = free.saturating_sub(lacks(accounts));
        let fair_part = shares[me].saturating_sub(mine.held).min(free);
        let above = equal.saturating_sub(mine.held + fair_part).min(spare);
        let take = fair_part + above;
        accounts[me].held += take;
        accounts[me].keep += take;
        free -= take;
    }
    let coming: u64 = accounts.iter().map(|a| a.held - a.keep).sum();
    let lacking = lacks(accounts).saturating_sub(free + coming);
    let excess = accounts[me].keep.saturating_sub(shares[me]);
    accounts[me].keep -= excess.min(lacking);
}

#[cfg(test)]
#[path = "share_tests.rs"]
mod tests;

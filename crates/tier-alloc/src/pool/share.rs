//! The slabs that each member may have: max-min fair shares. No step takes more slabs than are free.
//!
//! The functions are pure arithmetic over all members' accounts, in slabs. A member changes only its own account, and only
//! while no other member does. So every step is one transition, and `tests` goes through all of them.

/// The slabs that one member wants and has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Account {
    /// Slabs that the member has a use for. Other members give slabs back so that the member gets its fair share of them.
    pub(super) wanted: u64,
    /// Slabs that the member takes at most.
    pub(super) most: u64,
    /// Slabs that the member has, and may be using.
    pub(super) held: u64,
    /// Slabs that the member goes on having. The others of its slabs are being emptied, to be given back.
    pub(super) keep: u64,
}

/// Returns the max-min fair division of `total` slabs. No member gets more than it wants. A member could get more only if a
/// member with at most as many slabs got fewer (water-filling: the smallest wants are served first, and the other members
/// share the remaining slabs).
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

/// Changes the account of member `me`, in view of all accounts. The member takes free slabs up to its fair share, or promises
/// to give back slabs that others lack of their shares.
///
/// A member may hold slabs that no other member lacks. A member that wants less than an equal part holds up to an equal part,
/// so that it need not ask again soon. A member keeps borrowed slabs while no member lacks them.
///
/// The sums saturate, as the accounts come from files.
pub(super) fn settle(total: u64, accounts: &mut [Account], me: usize) {
    let wants: Vec<u64> = accounts.iter().map(|a| a.wanted.min(a.most)).collect();
    let shares = fair(total, &wants);
    let sum = |slabs: u64, more: u64| slabs.saturating_add(more);
    let held = accounts.iter().map(|a| a.held).fold(0, sum);
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
        let above = equal
            .saturating_sub(mine.held.saturating_add(fair_part))
            .min(spare);
        let take = fair_part + above;
        accounts[me].held += take;
        accounts[me].keep += take;
        free -= take;
    }
    let coming = accounts.iter().map(|a| a.held.saturating_sub(a.keep));
    let lacking = lacks(accounts).saturating_sub(coming.fold(free, sum));
    let excess = accounts[me].keep.saturating_sub(shares[me]);
    accounts[me].keep -= excess.min(lacking);
}

#[cfg(test)]
#[path = "share_tests.rs"]
mod tests;

//! The board of one process.

use parking_lot::Mutex;

use super::share::{Account, settle};

#[derive(Debug)]
pub(super) struct Board {
    total: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    members: Vec<(u64, Account)>,
    joined: u64,
    epoch: u64,
}

impl Board {
    pub(super) fn new(total: u64) -> Self {
        Self {
            total,
            state: Mutex::default(),
        }
    }

    pub(super) fn join(&self, account: Account) -> u64 {
        let mut state = self.state.lock();
        let number = state.joined;
        state.joined += 1;
        state.epoch += 1;
        state.members.push((number, account));
        number
    }

    pub(super) fn leave(&self, number: u64) {
        let mut state = self.state.lock();
        state.members.retain(|(other, _)| *other != number);
        state.epoch += 1;
    }

    /// Member `me` puts its account on the board and settles it with the others'.
    pub(super) fn look(&self, account: Account, me: u64) -> (Account, u64) {
        let mut state = self.state.lock();
        let Some(index) = state.members.iter().position(|(number, _)| *number == me) else {
            return (account, state.epoch);
        };
        let before = std::mem::replace(&mut state.members[index].1, account);
        let mut accounts: Vec<_> = state.members.iter().map(|&(_, account)| account).collect();
        settle(self.total, &mut accounts, index);
        state.members[index].1 = accounts[index];
        state.epoch += u64::from(before != accounts[index]);
        (accounts[index], state.epoch)
    }

    pub(super) fn accounts(&self) -> Vec<Account> {
        let state = self.state.lock();
        state.members.iter().map(|&(_, account)| account).collect()
    }

    pub(super) fn epoch(&self) -> u64 {
        self.state.lock().epoch
    }
}

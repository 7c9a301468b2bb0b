//! The registry of the members of one process.

use std::fmt;

use tierflow_sync::{Mutex, rank};

use super::Wake;
use super::share::{Account, settle};

#[derive(Debug)]
pub(super) struct ProcessRegistry {
    total: u64,
    state: Mutex<State, { rank::ARENA }>,
}

#[derive(Default)]
struct State {
    members: Vec<(u64, Account)>,
    wakes: Vec<(u64, Wake)>,
    joined: u64,
    epoch: u64,
}

impl State {
    /// Counts a change, and wakes all other members.
    fn bump(&mut self, me: u64) {
        self.epoch += 1;
        let others = self.wakes.iter().filter(|(number, _)| *number != me);
        others.for_each(|(_, wake)| wake());
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("members", &self.members)
            .field("epoch", &self.epoch)
            .finish_non_exhaustive()
    }
}

impl ProcessRegistry {
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
        state.members.push((number, account));
        state.bump(number);
        number
    }

    pub(super) fn leave(&self, number: u64) {
        let mut state = self.state.lock();
        state.members.retain(|(other, _)| *other != number);
        state.wakes.retain(|(other, _)| *other != number);
        state.bump(number);
    }

    /// Registers the callback that wakes this member when others change something.
    pub(super) fn wake_by(&self, number: u64, wake: Wake) {
        self.state.lock().wakes.push((number, wake));
    }

    /// Writes the account of member `me`, and settles it with the other accounts. Returns the new account, and the epoch.
    pub(super) fn settle(&self, account: Account, me: u64) -> (Account, u64) {
        let mut state = self.state.lock();
        let Some(index) = state.members.iter().position(|(number, _)| *number == me) else {
            return (account, state.epoch);
        };
        let before = std::mem::replace(&mut state.members[index].1, account);
        let mut accounts: Vec<_> = state.members.iter().map(|&(_, account)| account).collect();
        settle(self.total, &mut accounts, index);
        state.members[index].1 = accounts[index];
        if before != accounts[index] {
            state.bump(me);
        }
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

//! The locks of `parking_lot`, each with a rank.

use crate::held::{HeldRank, may_wait};
use crate::rank::LEAF;
use std::ops::{Deref, DerefMut};
use std::time::{Duration, Instant};

pub use parking_lot::WaitTimeoutResult;

/// A mutex with a [rank](crate::rank). A panic does not poison it.
#[derive(Debug, Default)]
pub struct Mutex<T, const RANK: u8 = LEAF>(parking_lot::Mutex<T>);

/// The value of a locked [`Mutex`]. Dropping the guard unlocks.
#[derive(Debug)]
pub struct MutexGuard<'a, T, const RANK: u8 = LEAF> {
    value: parking_lot::MutexGuard<'a, T>,
    _held: HeldRank<RANK>,
}

impl<T, const RANK: u8> Mutex<T, RANK> {
    /// Makes an unlocked mutex.
    pub const fn new(value: T) -> Self {
        Self(parking_lot::Mutex::new(value))
    }

    /// Waits until no other thread holds the lock, and locks it.
    ///
    /// # Panics
    /// With debug assertions, if the thread holds a lock of this rank or of a higher one.
    #[track_caller]
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T, RANK> {
        let held = HeldRank::in_order();
        MutexGuard {
            value: self.0.lock(),
            _held: held,
        }
    }

    /// Locks if no thread holds the lock. Never waits, so the ranks that the thread holds do not matter.
    #[track_caller]
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T, RANK>> {
        self.0.try_lock().map(|value| MutexGuard {
            value,
            _held: HeldRank::tried(),
        })
    }

    /// Waits as [`lock`](Self::lock) does, at most until `deadline`.
    ///
    /// # Panics
    /// As [`lock`](Self::lock).
    #[track_caller]
    pub fn try_lock_until(&self, deadline: Instant) -> Option<MutexGuard<'_, T, RANK>> {
        let held = HeldRank::in_order();
        let value = self.0.try_lock_until(deadline)?;
        Some(MutexGuard { value, _held: held })
    }

    /// Returns true if a thread holds the lock now. A thread that times its wait for the lock asks this before.
    #[inline]
    pub fn is_locked(&self) -> bool {
        self.0.is_locked()
    }

    /// Returns the value. No thread can have it locked.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }

    /// Returns the value and drops the lock.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

impl<T, const RANK: u8> Deref for MutexGuard<'_, T, RANK> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T, const RANK: u8> DerefMut for MutexGuard<'_, T, RANK> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

/// A lock that many readers or one writer hold, with a [rank](crate::rank). A thread that holds it for reading must not lock it for
/// reading again.
#[derive(Debug, Default)]
pub struct RwLock<T, const RANK: u8 = LEAF>(parking_lot::RwLock<T>);

/// The value of an [`RwLock`] that is locked for reading.
#[derive(Debug)]
pub struct RwLockReadGuard<'a, T, const RANK: u8 = LEAF> {
    value: parking_lot::RwLockReadGuard<'a, T>,
    _held: HeldRank<RANK>,
}

/// The value of an [`RwLock`] that is locked for writing.
#[derive(Debug)]
pub struct RwLockWriteGuard<'a, T, const RANK: u8 = LEAF> {
    value: parking_lot::RwLockWriteGuard<'a, T>,
    _held: HeldRank<RANK>,
}

impl<T, const RANK: u8> RwLock<T, RANK> {
    /// Makes an unlocked lock.
    pub const fn new(value: T) -> Self {
        Self(parking_lot::RwLock::new(value))
    }

    /// Waits until no thread writes, and locks for reading.
    ///
    /// # Panics
    /// With debug assertions, if the thread holds a lock of this rank or of a higher one.
    #[track_caller]
    #[inline]
    pub fn read(&self) -> RwLockReadGuard<'_, T, RANK> {
        let held = HeldRank::in_order();
        RwLockReadGuard {
            value: self.0.read(),
            _held: held,
        }
    }

    /// Waits until no other thread holds the lock, and locks for writing.
    ///
    /// # Panics
    /// With debug assertions, if the thread holds a lock of this rank or of a higher one.
    #[track_caller]
    #[inline]
    pub fn write(&self) -> RwLockWriteGuard<'_, T, RANK> {
        let held = HeldRank::in_order();
        RwLockWriteGuard {
            value: self.0.write(),
            _held: held,
        }
    }

    /// Returns the value. No thread can have it locked.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

impl<T, const RANK: u8> Deref for RwLockReadGuard<'_, T, RANK> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T, const RANK: u8> Deref for RwLockWriteGuard<'_, T, RANK> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T, const RANK: u8> DerefMut for RwLockWriteGuard<'_, T, RANK> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

/// A condition variable: threads wait on it for a change of a [`Mutex`]'s value.
#[derive(Debug, Default)]
pub struct Condvar(parking_lot::Condvar);

impl Condvar {
    /// Makes a condition variable without waiting threads.
    pub const fn new() -> Self {
        Self(parking_lot::Condvar::new())
    }

    /// Unlocks the value, waits for a notification, and locks it again.
    ///
    /// # Panics
    /// With debug assertions, if the thread holds the plan's lock.
    #[track_caller]
    pub fn wait<T, const RANK: u8>(&self, guard: &mut MutexGuard<'_, T, RANK>) {
        may_wait();
        self.0.wait(&mut guard.value);
    }

    /// Waits as [`wait`](Self::wait) does, while `condition` holds.
    ///
    /// # Panics
    /// With debug assertions, if the thread holds the plan's lock.
    #[track_caller]
    pub fn wait_while<T, const RANK: u8>(
        &self,
        guard: &mut MutexGuard<'_, T, RANK>,
        condition: impl FnMut(&mut T) -> bool,
    ) {
        may_wait();
        self.0.wait_while(&mut guard.value, condition);
    }

    /// Waits as [`wait`](Self::wait) does, at most until `deadline`.
    ///
    /// # Panics
    /// With debug assertions, if the thread holds the plan's lock.
    #[track_caller]
    pub fn wait_until<T, const RANK: u8>(
        &self,
        guard: &mut MutexGuard<'_, T, RANK>,
        deadline: Instant,
    ) -> WaitTimeoutResult {
        may_wait();
        self.0.wait_until(&mut guard.value, deadline)
    }

    /// Waits as [`wait`](Self::wait) does, at most for `patience`.
    ///
    /// # Panics
    /// With debug assertions, if the thread holds the plan's lock.
    #[track_caller]
    pub fn wait_for<T, const RANK: u8>(
        &self,
        guard: &mut MutexGuard<'_, T, RANK>,
        patience: Duration,
    ) -> WaitTimeoutResult {
        may_wait();
        self.0.wait_for(&mut guard.value, patience)
    }

    /// Wakes one thread that waits.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all threads that wait.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

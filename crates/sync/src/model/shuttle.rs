//! The same primitives made of shuttle's, as far as they are used.
//!
//! A time limit expires after a random number of steps of other threads, whatever its length.
#![allow(missing_docs, missing_debug_implementations)]

use crate::rank::LEAF;
use shuttle::rand::Rng;
use std::collections::VecDeque;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, PoisonError, TryLockError};
use std::time::{Duration, Instant};

pub use ShuttleMonitor as Monitor;
pub use ShuttleMutex as Mutex;
pub use ShuttleMutexGuard as MutexGuard;
pub use ShuttleReceiver as ReplyReceiver;
pub use ShuttleSender as ReplySender;
pub use shuttle::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Does nothing: here, all threads see all steps in one order.
pub fn fence(_: Ordering) {}

/// Lets all other threads run first, which shuttle's own `sleep` does not.
pub fn sleep(_time: Duration) {
    shuttle::thread::yield_now();
}

/// A mutex like that of `parking_lot`: a panic does not poison it.
#[derive(Default)]
pub struct ShuttleMutex<T, const RANK: u8 = LEAF>(shuttle::sync::Mutex<T>);

pub struct ShuttleMutexGuard<'a, T, const RANK: u8 = LEAF>(shuttle::sync::MutexGuard<'a, T>);

impl<T, const RANK: u8> ShuttleMutex<T, RANK> {
    pub fn new(value: T) -> Self {
        Self(shuttle::sync::Mutex::new(value))
    }

    pub fn lock(&self) -> ShuttleMutexGuard<'_, T, RANK> {
        ShuttleMutexGuard(self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn try_lock(&self) -> Option<ShuttleMutexGuard<'_, T, RANK>> {
        match self.0.try_lock() {
            Ok(guard) => Some(ShuttleMutexGuard(guard)),
            Err(TryLockError::Poisoned(guard)) => Some(ShuttleMutexGuard(guard.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    pub fn try_lock_until(&self, _: Instant) -> Option<ShuttleMutexGuard<'_, T, RANK>> {
        Some(self.lock())
    }

    pub fn is_locked(&self) -> bool {
        self.try_lock().is_none()
    }

    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T, const RANK: u8> fmt::Debug for ShuttleMutex<T, RANK> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mutex")
    }
}

impl<T, const RANK: u8> Deref for ShuttleMutexGuard<'_, T, RANK> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T, const RANK: u8> DerefMut for ShuttleMutexGuard<'_, T, RANK> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

/// A builder like that of `std`, whose handles know when their thread has ended.
#[derive(Debug)]
pub struct Builder(shuttle::thread::Builder);

#[derive(Debug)]
pub struct JoinHandle<T> {
    thread: shuttle::thread::JoinHandle<T>,
    ended: Arc<AtomicBool>,
}

/// Sets the flag when it is dropped, also by a panic.
struct Ending(Arc<AtomicBool>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl Builder {
    pub fn new() -> Self {
        Self(shuttle::thread::Builder::new())
    }

    pub fn name(self, name: String) -> Self {
        Self(self.0.name(name))
    }

    pub fn spawn<T: Send + 'static>(
        self,
        run: impl FnOnce() -> T + Send + 'static,
    ) -> std::io::Result<JoinHandle<T>> {
        let ended = Arc::new(AtomicBool::new(false));
        let ending = Ending(Arc::clone(&ended));
        let thread = self.0.spawn(move || {
            let _ending = ending;
            run()
        })?;
        Ok(JoinHandle { thread, ended })
    }
}

impl<T> JoinHandle<T> {
    pub fn is_finished(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    pub fn join(self) -> std::thread::Result<T> {
        self.thread.join()
    }
}

/// A value that threads wait for.
#[derive(Default)]
pub struct ShuttleMonitor<T, const RANK: u8 = LEAF> {
    value: ShuttleMutex<T, RANK>,
    changed: shuttle::sync::Condvar,
}

impl<T, const RANK: u8> ShuttleMonitor<T, RANK> {
    pub fn lock(&self) -> ShuttleMutexGuard<'_, T, RANK> {
        self.value.lock()
    }

    pub fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let changed = change(&mut self.value.lock());
        self.changed.notify_all();
        changed
    }

    pub fn wait<R>(&self, mut look: impl FnMut(&mut T) -> Option<R>) -> R {
        let ShuttleMutexGuard(mut value) = self.value.lock();
        loop {
            if let Some(found) = look(&mut value) {
                return found;
            }
            let woken = self.changed.wait(value);
            value = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub fn wait_until<R>(
        &self,
        _deadline: Instant,
        mut look: impl FnMut(&mut T) -> Option<R>,
    ) -> Option<R> {
        let steps = shuttle::rand::thread_rng().gen_range(0..32);
        (0..=steps).find_map(|_| {
            let found = look(&mut self.value.lock());
            shuttle::thread::yield_now();
            found
        })
    }
}

impl<T, const RANK: u8> fmt::Debug for ShuttleMonitor<T, RANK> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Monitor")
    }
}

/// An unbounded channel, as crossbeam's. Bounded channels are only used for a single value here, so they are unbounded, too.
type Channel<T> = ShuttleMonitor<Queue<T>>;

struct Queue<T> {
    queue: VecDeque<T>,
    senders: usize,
    receivers: usize,
}

pub struct Sender<T>(Arc<Channel<T>>);

pub struct Receiver<T>(Arc<Channel<T>>);

#[derive(Debug)]
pub struct Disconnected;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecvTimeoutError {
    Timeout,
    Disconnected,
}

pub fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    let channel = Arc::new(ShuttleMonitor {
        value: ShuttleMutex::new(Queue {
            queue: VecDeque::new(),
            senders: 1,
            receivers: 1,
        }),
        changed: shuttle::sync::Condvar::new(),
    });
    (Sender(Arc::clone(&channel)), Receiver(channel))
}

pub fn bounded<T>(_limit: usize) -> (Sender<T>, Receiver<T>) {
    unbounded()
}

/// The sending end of a channel for one value.
#[derive(Debug)]
pub struct ShuttleSender<T>(Sender<T>);

#[derive(Debug)]
pub struct ShuttleReceiver<T>(Receiver<T>);

pub fn answer<T>() -> (ShuttleSender<T>, ShuttleReceiver<T>) {
    let (sender, receiver) = unbounded();
    (ShuttleSender(sender), ShuttleReceiver(receiver))
}

impl<T> ShuttleSender<T> {
    pub fn send(self, value: T) {
        let _or_gone = self.0.send(value);
    }
}

impl<T> ShuttleReceiver<T> {
    pub fn is_there(&self) -> bool {
        let state = self.0.0.lock();
        !state.queue.is_empty() || state.senders == 0
    }

    pub fn recv(&self, deadline: Option<Instant>) -> Option<T> {
        match deadline {
            None => self.0.recv().ok(),
            Some(deadline) => self.0.recv_deadline(deadline).ok(),
        }
    }
}

impl<T> Sender<T> {
    pub fn send(&self, value: T) -> Result<(), Disconnected> {
        self.0.change(|state| {
            if state.receivers == 0 {
                return Err(Disconnected);
            }
            state.queue.push_back(value);
            Ok(())
        })
    }
}

impl<T> Receiver<T> {
    pub fn recv(&self) -> Result<T, Disconnected> {
        self.0.wait(|state| match state.queue.pop_front() {
            Some(value) => Some(Ok(value)),
            None => (state.senders == 0).then_some(Err(Disconnected)),
        })
    }

    pub fn is_empty(&self) -> bool {
        self.0.lock().queue.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.lock().queue.len()
    }

    pub fn try_recv(&self) -> Result<T, Disconnected> {
        self.0.lock().queue.pop_front().ok_or(Disconnected)
    }

    pub fn recv_timeout(&self, _limit: Duration) -> Result<T, RecvTimeoutError> {
        let mut steps = shuttle::rand::thread_rng().gen_range(0..32);
        loop {
            let (value, senders) = {
                let mut state = self.0.lock();
                (state.queue.pop_front(), state.senders)
            };
            match value {
                Some(value) => return Ok(value),
                None if senders == 0 => return Err(RecvTimeoutError::Disconnected),
                None if steps == 0 => return Err(RecvTimeoutError::Timeout),
                None => steps -= 1,
            }
            shuttle::thread::yield_now();
        }
    }

    pub fn recv_deadline(&self, _deadline: Instant) -> Result<T, RecvTimeoutError> {
        self.recv_timeout(Duration::ZERO)
    }
}

impl<T> IntoIterator for &Receiver<T> {
    type Item = T;
    type IntoIter = Messages<T>;

    fn into_iter(self) -> Messages<T> {
        Messages(self.clone())
    }
}

impl<T> IntoIterator for Receiver<T> {
    type Item = T;
    type IntoIter = Messages<T>;

    fn into_iter(self) -> Messages<T> {
        Messages(self)
    }
}

/// An iterator over the values, until all senders are dropped.
pub struct Messages<T>(Receiver<T>);

impl<T> Iterator for Messages<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.0.recv().ok()
    }
}

macro_rules! counted {
    ($end:ident, $count:ident) => {
        impl<T> Clone for $end<T> {
            fn clone(&self) -> Self {
                self.0.change(|state| state.$count += 1);
                Self(Arc::clone(&self.0))
            }
        }

        impl<T> Drop for $end<T> {
            fn drop(&mut self) {
                self.0.change(|state| state.$count -= 1);
            }
        }

        impl<T> fmt::Debug for $end<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(stringify!($end))
            }
        }
    };
}

counted!(Sender, senders);
counted!(Receiver, receivers);

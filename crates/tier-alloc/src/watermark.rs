//! A level that one thread raises and others wait for. The level falls only when memory is given back.

use std::time::Instant;

use tierflow_device as device;

use crate::sync::{AtomicUsize, Condvar, Mutex, Ordering};

/// The reason why a level rises no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The level has reached the top.
    Complete,
    /// The error that ended the growth.
    Failed(device::Error),
    /// The thread that raised it has stopped.
    Stopped,
}

/// A level that one thread raises, and that any number of threads read or wait for.
#[derive(Debug, Default)]
pub(crate) struct Watermark {
    /// The level. Written under the lock, so that no thread misses a rise between its check and its wait. Release and
    /// acquire: a thread that sees the level sees the writes before the rise.
    level: AtomicUsize,
    end: Mutex<Option<End>>,
    changed: Condvar,
}

impl Watermark {
    /// Returns the level. Costs one load.
    pub(crate) fn level(&self) -> usize {
        self.level.load(Ordering::Acquire)
    }

    /// Raises the level to `to`. A `to` below the present level changes nothing.
    pub(crate) fn raise(&self, to: usize) {
        let _end = self.end.lock();
        self.level.fetch_max(to, Ordering::Release);
        self.changed.notify_all();
    }

    /// Ends the level, so that waiting threads return. A level that has ended keeps its first end.
    pub(crate) fn finish(&self, end: End) {
        self.end.lock().get_or_insert(end);
        self.changed.notify_all();
    }

    /// Lowers the level to `to` if it is above, and lets it rise again. Call this only while no thread raises the level:
    /// levels that were reached before no longer hold.
    pub(crate) fn reopen(&self, to: usize) {
        let mut end = self.end.lock();
        self.level.fetch_min(to, Ordering::Release);
        *end = None;
    }

    pub(crate) fn end(&self) -> Option<End> {
        self.end.lock().clone()
    }

    /// Waits until the level is reached. Returns the end if the level ended before.
    pub(crate) fn wait(&self, level: usize) -> Result<(), End> {
        let mut end = self.end.lock();
        loop {
            if self.level() >= level {
                return Ok(());
            }
            if let Some(end) = &*end {
                return Err(end.clone());
            }
            self.changed.wait(&mut end);
        }
    }

    /// Waits until the level is reached or has ended, or until `deadline`. Returns true if the level is reached.
    pub(crate) fn wait_until(&self, level: usize, deadline: Instant) -> bool {
        if self.level() >= level {
            return true;
        }
        let mut end = self.end.lock();
        let mut late = false;
        while self.level() < level && end.is_none() && !late {
            late = self.changed.wait_until(&mut end, deadline).timed_out();
        }
        self.level() >= level
    }

    /// Waits until the level rises no more.
    pub(crate) fn wait_end(&self) -> End {
        let mut end = self.end.lock();
        loop {
            if let Some(end) = &*end {
                return end.clone();
            }
            self.changed.wait(&mut end);
        }
    }

    /// Makes a level that is at its top, and ended, from the start.
    pub(crate) fn at(level: usize) -> Self {
        let full = Self::default();
        full.raise(level);
        full.finish(End::Complete);
        full
    }

    /// Returns a guard that ends the level when it is dropped, however its thread ends, so that no thread waits for ever.
    pub(crate) fn raising(&self) -> Raising<'_> {
        Raising(Some(self))
    }
}

/// See [`Watermark::raising`].
#[derive(Debug)]
pub(crate) struct Raising<'level>(Option<&'level Watermark>);

impl Raising<'_> {
    /// Ends the level now, so that dropping the guard does not end a level that was reopened meanwhile.
    pub(crate) fn finish(mut self, end: End) {
        if let Some(level) = self.0.take() {
            level.finish(end);
        }
    }
}

impl Drop for Raising<'_> {
    fn drop(&mut self) {
        if let Some(level) = self.0 {
            level.finish(End::Stopped);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn no_waiter_misses_a_rise() {
        const TOP: usize = 2000;
        for _ in 0..20 {
            let level = Watermark::default();
            std::thread::scope(|scope| {
                for waiter in 0..4 {
                    let level = &level;
                    scope.spawn(move || {
                        for at in (waiter..TOP).step_by(7) {
                            assert_eq!(level.wait(at), Ok(()));
                            assert!(level.level() >= at);
                        }
                        assert_eq!(level.wait(TOP + 1), Err(End::Complete));
                    });
                }
                for at in 0..=TOP {
                    level.raise(at);
                }
                level.finish(End::Complete);
            });
        }
    }

    #[test]
    fn the_first_end_stands_and_what_was_reached_stays() {
        let level = Watermark::default();
        level.raise(10);
        level.raise(3);
        drop(level.raising());
        level.finish(End::Complete);
        assert_eq!(level.end(), Some(End::Stopped));
        assert_eq!(level.wait(10), Ok(()));
        assert_eq!(level.wait(11), Err(End::Stopped));
        assert_eq!(level.wait_end(), End::Stopped);
    }

    #[test]
    fn a_guard_that_ended_its_level_does_not_end_it_again() {
        let level = Watermark::default();
        let raising = level.raising();
        raising.finish(End::Complete);
        assert_eq!(level.end(), Some(End::Complete));
        level.reopen(0);
        assert_eq!(level.end(), None);
    }

    #[test]
    fn a_level_that_was_taken_back_rises_again() {
        let level = Watermark::at(10);
        level.reopen(20);
        assert_eq!((level.level(), level.end()), (10, None));
        level.reopen(4);
        assert_eq!(level.level(), 4);
        assert!(!level.wait_until(5, Instant::now()));
        level.raise(6);
        assert_eq!(level.wait(5), Ok(()));
    }

    #[test]
    fn a_wait_may_be_given_up() {
        let level = Watermark::default();
        assert!(!level.wait_until(1, Instant::now()));
        level.raise(1);
        assert!(level.wait_until(1, Instant::now()));
        level.finish(End::Stopped);
        let for_ever = Instant::now() + std::time::Duration::from_secs(3600);
        assert!(!level.wait_until(2, for_ever));
    }
}

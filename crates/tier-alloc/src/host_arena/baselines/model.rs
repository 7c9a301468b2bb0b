//! The performance model of touching and flushing at the same time, or one after the other.

/// The behaviour of touching while copies run between the tiers (HiPC'22 §IV-A, "concurrency control").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Touching {
    /// Touching pauses; copies go to touched and untouched pages alike.
    Sequential,
    /// Touching goes on, and copies wait for the pages that they need.
    Concurrent,
    /// Touching pauses or goes on, by [`Figures::best`] of the rates that are measured meanwhile. Copies never wait.
    #[default]
    Auto,
}

/// The model's inputs: bytes, seconds, bytes per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// Bytes of a checkpoint.
    pub checkpoint: f64,
    /// Seconds from one checkpoint to the next.
    pub interval: f64,
    /// Rate of touching pages while nothing is flushed.
    pub touch: f64,
    /// Rate of touching pages during a flush.
    pub touch_beside_flush: f64,
    /// Rate of a flush to pages that are not touched.
    pub flush_untouched: f64,
    /// Rate of a flush to touched pages, while no other pages are being touched.
    pub flush_touched: f64,
    /// Rate of a flush while other pages are being touched.
    pub flush_beside_touch: f64,
}

impl Figures {
    /// Returns the behaviour with which a flush takes less of each interval. The paper names the quantities that are
    /// weighed (§IV-A, §IV-B), but no formula. The formulas here:
    ///
    /// - `Sequential`: a flush of `s` bytes takes `f(x) = s·(x / flush_touched + (1 − x) / flush_untouched)`. Here `x` is
    ///   the part that was touched in the idle rest of the interval before: `x = min(1, (interval − f(x)) · touch / s)`.
    /// - `Concurrent`: a flush follows the touching, and is as slow as the slower of the two.
    pub fn best(&self) -> Touching {
        if self.sequential() <= self.concurrent() {
            Touching::Sequential
        } else {
            Touching::Concurrent
        }
    }

    /// Returns the seconds that a flush takes if touching pauses for it.
    pub fn sequential(&self) -> f64 {
        let (untouched, touched) = (1.0 / self.flush_untouched, 1.0 / self.flush_touched);
        let per_byte = self.interval / self.checkpoint;
        // Seconds that touching one more byte ahead costs, less the seconds that it saves the flush.
        let cost = 1.0 / self.touch - untouched + touched;
        let part = if per_byte >= touched + 1.0 / self.touch {
            1.0
        } else if cost > 0.0 {
            ((per_byte - untouched) / cost).clamp(0.0, 1.0)
        } else {
            0.0
        };
        self.checkpoint * (part * touched + (1.0 - part) * untouched)
    }

    /// Returns the seconds that a flush takes if touching goes on meanwhile.
    pub fn concurrent(&self) -> f64 {
        self.checkpoint / self.flush_beside_touch.min(self.touch_beside_flush)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the figures of an A100 in the paper: flushes at 3 and 6 GB/s, touching at about 8 GB/s, and half of each
    /// rate if both run at once.
    fn paper(interval: f64) -> Figures {
        Figures {
            checkpoint: 128e6,
            interval,
            touch: 8e9,
            touch_beside_flush: 4e9,
            flush_untouched: 3e9,
            flush_touched: 6e9,
            flush_beside_touch: 3.5e9,
        }
    }

    #[test]
    fn long_intervals_touch_in_idle_time_and_short_ones_do_not_have_any() {
        // As in the paper's Figure 5c: at 5 ms there is no idle time to touch in.
        assert_eq!(paper(0.005).best(), Touching::Concurrent);
        for interval in [0.040, 0.060] {
            assert_eq!(paper(interval).best(), Touching::Sequential);
            assert_eq!(paper(interval).sequential(), 128e6 / 6e9);
        }
    }

    #[test]
    fn the_part_that_is_touched_is_the_one_there_is_time_for() {
        // f(x) = 43 ms − 21 ms·x and x = (interval − f(x)) · 62.5 /s: solved by iteration.
        let figures = Figures {
            touch: 2e9,
            ..paper(0.060)
        };
        let (slow, fast) = (128e6 / 3e9, 128e6 / 6e9);
        let mut part: f64 = 0.0;
        for _ in 0..200 {
            let flush = part * fast + (1.0 - part) * slow;
            part = ((0.060 - flush) * 2e9 / 128e6).clamp(0.0, 1.0);
        }
        let flush = part * fast + (1.0 - part) * slow;
        assert!((figures.sequential() - flush).abs() < 1e-6);
        assert!(part > 0.3 && part < 0.7, "{part}");
    }

    #[test]
    fn where_touching_does_not_disturb_it_goes_on() {
        let free = Figures {
            touch_beside_flush: 8e9,
            flush_beside_touch: 6e9,
            ..paper(0.020)
        };
        assert_eq!(free.best(), Touching::Concurrent);
    }
}

//! The choice of the size of the next chunk.

use std::time::Duration;

/// A rate counts as better if it is more than this factor times the best rate before.
const BETTER: f64 = 1.1;

/// The size of the next chunk: fixed, or doubled while that raises the rate of mapping.
#[derive(Debug)]
pub(super) struct Chunks {
    size: usize,
    most: usize,
    best: f64,
}

impl Chunks {
    /// Makes chunks of `size` bytes always.
    pub(super) fn fixed(size: usize) -> Self {
        Self {
            size,
            most: size,
            best: 0.0,
        }
    }

    /// Makes a chunk of `first` bytes, then chunks of twice as many while the rate rises, up to `most`.
    pub(super) fn measured(first: usize, most: usize) -> Self {
        Self {
            size: first,
            most,
            best: 0.0,
        }
    }

    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Notes that mapping `bytes` took the time `took`.
    pub(super) fn note(&mut self, bytes: usize, took: Duration) {
        // The last chunk of an arena may be shorter. Then its rate says nothing about the size.
        if bytes < self.size || self.size >= self.most {
            return;
        }
        let rate = bytes as f64 / took.as_secs_f64().max(1e-9);
        if rate > self.best * BETTER {
            self.best = rate;
            self.size = self.size.saturating_mul(2).min(self.most);
        } else {
            // Doubling did not pay: the size stays.
            self.most = self.size;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grown(cost: impl Fn(usize) -> f64) -> usize {
        let mut chunks = Chunks::measured(64, 1024);
        for _ in 0..20 {
            let size = chunks.size();
            chunks.note(size, Duration::from_secs_f64(cost(size)));
        }
        chunks.size()
    }

    #[test]
    fn it_doubles_while_the_rate_rises() {
        assert_eq!(
            grown(|_| 1.0),
            1024,
            "a chunk costs the same whatever its size"
        );
        assert_eq!(grown(|size| size as f64), 128, "a byte costs the same");
        assert_eq!(grown(|size| 1.0 + (size as f64 / 256.0).powi(2)), 512);
    }

    #[test]
    fn what_was_set_stays() {
        let mut chunks = Chunks::fixed(7);
        chunks.note(7, Duration::from_nanos(1));
        assert_eq!(chunks.size(), 7);
    }
}

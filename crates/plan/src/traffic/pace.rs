//! How fast the lowest tier takes what is written there, as measured: what tells how long a version still needs.
//!
//! Of *n* transfers at a time each has an *n*-th of the way, so a transfer that ended was *served* for the integral of 1/*n*
//! over its time: as long as it would have taken alone. Of bytes and times of those that ended a line is fitted, in which
//! each counts for less the longer ago it was. Transfers that were alone are measured apart, and believed before the others:
//! some storage gives one stream less than an *n*-th of what *n* streams have together.

/// What an observation counts for once another one has come.
const FADING: f64 = 0.9;

/// Of its time, the part for which a transfer is served that counts as alone.
const ALONE: f64 = 0.9;

/// The least that sizes differ, relative to their mean, before time that does not depend on them can be told.
const SPREAD: f64 = 0.1;

/// Time by bytes: the line of least squares.
#[derive(Debug, Clone, Copy, Default)]
struct Line {
    weight: f64,
    bytes: f64,
    ns: f64,
    bytes_squared: f64,
    product: f64,
}

impl Line {
    fn add(&mut self, bytes: f64, ns: f64) {
        let sums = [
            (&mut self.weight, 1.0),
            (&mut self.bytes, bytes),
            (&mut self.ns, ns),
            (&mut self.bytes_squared, bytes * bytes),
            (&mut self.product, bytes * ns),
        ];
        for (sum, value) in sums {
            *sum = *sum * FADING + value;
        }
    }

    /// ns for so many transfers of so many bytes together.
    fn ns(&self, transfers: f64, bytes: f64) -> Option<f64> {
        if self.weight == 0.0 {
            return None;
        }
        let variance = self.bytes_squared / self.weight - (self.bytes / self.weight).powi(2);
        let covariance = self.product / self.weight - self.bytes * self.ns / self.weight.powi(2);
        let differ = variance > (SPREAD * self.bytes / self.weight).powi(2);
        let slope = covariance / variance;
        let each = (self.ns - slope * self.bytes) / self.weight;
        if differ && slope > 0.0 && each >= 0.0 {
            return Some(transfers * each + slope * bytes);
        }
        // As good as all of it depends on the bytes.
        Some(self.product / self.bytes_squared * bytes)
    }
}

/// How fast a tier takes what is written there.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Pace {
    /// ns for which each of the transfers under way was served since the beginning, and up to when that was added up.
    served: f64,
    until_ns: u64,
    alone: Line,
    together: Line,
}

impl Pace {
    /// Time passed with so many transfers under way.
    pub(crate) fn pass(&mut self, now_ns: u64, transfers: usize) {
        self.served = self.served(now_ns, transfers);
        self.until_ns = now_ns.max(self.until_ns);
    }

    /// ns for which each transfer was served by `now_ns`, as so many have been under way since the last one came or went.
    pub(crate) fn served(&self, now_ns: u64, transfers: usize) -> f64 {
        let passed = now_ns.saturating_sub(self.until_ns) as f64;
        match transfers {
            0 => self.served,
            transfers => self.served + passed / transfers as f64,
        }
    }

    /// A transfer delivered that had been begun when others were served for `since`.
    pub(crate) fn delivered(&mut self, bytes: u64, since: f64, took_ns: u64) {
        let served = self.served - since;
        let line = match served >= ALONE * took_ns as f64 {
            true => &mut self.alone,
            false => &mut self.together,
        };
        line.add(bytes.max(1) as f64, served);
    }

    /// ns for so many transfers of so many bytes together, if nothing else moves; `None` before any was measured.
    pub(crate) fn ns(&self, transfers: u64, bytes: u64) -> Option<f64> {
        let ns = |line: &Line| line.ns(transfers as f64, bytes as f64);
        ns(&self.alone).or_else(|| ns(&self.together))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: f64 = 0.25;

    /// A pace that measured transfers of these sizes, one after the other, each of which took `each` ns and 4 ns a byte.
    fn measured(sizes: &[u64], each: u64) -> Pace {
        let mut pace = Pace::default();
        let mut now = 0;
        for &bytes in sizes {
            pace.pass(now, 0);
            let (since, took) = (pace.served(now, 0), each + (bytes as f64 / RATE) as u64);
            now += took;
            pace.pass(now, 1);
            pace.delivered(bytes, since, took);
        }
        pace
    }

    fn is_close(found: Option<f64>, expected: f64) -> bool {
        found.is_some_and(|found| (found - expected).abs() <= 1e-6 * expected)
    }

    #[test]
    fn nothing_is_told_before_anything_was_measured() {
        assert_eq!(Pace::default().ns(1, 1000), None);
    }

    #[test]
    fn what_does_not_depend_on_the_bytes_is_told_where_sizes_differ() {
        let pace = measured(&[1000, 5000, 2000], 700);
        assert!(is_close(pace.ns(1, 9000), 700.0 + 36_000.0));
        assert!(is_close(pace.ns(3, 9000), 2100.0 + 36_000.0));
        let pace = measured(&[1000, 1000], 700);
        assert!(is_close(pace.ns(1, 2000), 9400.0));
    }

    #[test]
    fn transfers_side_by_side_are_measured_as_if_alone() {
        let mut pace = Pace::default();
        // Two of 1000 bytes, the second begun when the first is half done: they end at 6000 and 8000.
        let first = pace.served(0, 0);
        pace.pass(2000, 1);
        let second = pace.served(2000, 1);
        pace.pass(6000, 2);
        pace.delivered(1000, first, 6000);
        pace.pass(8000, 1);
        pace.delivered(1000, second, 6000);
        assert!(is_close(pace.ns(1, 500), 2000.0));
    }

    #[test]
    fn what_was_alone_counts_first() {
        // Alone, a stream has half of what two have together.
        let mut pace = measured(&[1000], 0);
        for _ in 0..5 {
            let since = pace.served(pace.until_ns, 0);
            pace.pass(pace.until_ns + 4000, 2);
            pace.delivered(1000, since, 4000);
        }
        assert!(is_close(pace.ns(1, 1000), 4000.0));
    }
}

//! Ratios of many cells, summed up.

/// Ratios with the names of their cells.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Ratios<'a>(Vec<(f64, &'a str)>);

impl<'a> Ratios<'a> {
    /// Adds the ratio of one cell, above 0.
    pub fn take(&mut self, ratio: f64, cell: &'a str) {
        self.0.push((ratio, cell));
    }

    /// Number of cells.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns the geometric mean; 1 if there are no cells.
    #[must_use]
    pub fn geometric_mean(&self) -> f64 {
        let logarithms: f64 = self.0.iter().map(|(ratio, _)| ratio.ln()).sum();
        (logarithms / self.0.len().max(1) as f64).exp()
    }

    /// Returns the arithmetic mean; 0 if there are no cells.
    #[must_use]
    pub fn mean(&self) -> f64 {
        let sum: f64 = self.0.iter().map(|(ratio, _)| ratio).sum();
        sum / self.0.len().max(1) as f64
    }

    /// Returns the least ratio that is not exceeded by `percent` of the cells or more; 0 if there are none.
    #[must_use]
    pub fn percentile(&self, percent: u8) -> f64 {
        let mut sorted: Vec<_> = self.0.iter().map(|(ratio, _)| *ratio).collect();
        sorted.sort_by(f64::total_cmp);
        let rank = (sorted.len() * usize::from(percent.min(100))).div_ceil(100);
        sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
    }

    /// Returns the largest ratio, and the name of its cell.
    #[must_use]
    pub fn worst(&self) -> Option<(f64, &'a str)> {
        self.0.iter().copied().max_by(|a, b| a.0.total_cmp(&b.0))
    }

    /// Returns the share of cells, from 0 to 1, whose ratio is larger than `limit`; 0 if there are none.
    #[must_use]
    pub fn share_above(&self, limit: f64) -> f64 {
        let above = self.0.iter().filter(|(ratio, _)| *ratio > limit);
        above.count() as f64 / self.0.len().max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_summed_up() {
        let names: Vec<_> = (1..=200).map(|n| n.to_string()).collect();
        let mut ratios = Ratios::default();
        for (n, name) in (1..).zip(&names) {
            ratios.take(f64::from(n), name);
        }
        assert_eq!(ratios.percentile(99), 198.0);
        assert_eq!(ratios.percentile(100), 200.0);
        assert_eq!(ratios.worst(), Some((200.0, "200")));
        assert_eq!(ratios.share_above(150.0), 0.25);
        let mut two = Ratios::default();
        two.take(2.0, "a");
        two.take(8.0, "b");
        assert!((two.geometric_mean() - 4.0).abs() < 1e-12);
        assert_eq!(two.mean(), 5.0);
        assert_eq!(two.count(), 2);
        assert_eq!((two.percentile(50), two.percentile(51)), (2.0, 8.0));
    }
}

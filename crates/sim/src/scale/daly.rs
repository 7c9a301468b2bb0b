//! Optima that are known without simulating: Young's and Daly's.

/// Returns the interval between checkpoints in s that loses least, to first order (Young, *A first order approximation to
/// the optimum checkpoint interval*, CACM 1974). A checkpoint blocks for `cost` s, and the job fails every `mtbf` s on
/// average.
#[must_use]
pub fn young_interval(cost: f64, mtbf: f64) -> f64 {
    (2.0 * cost * mtbf).sqrt()
}

/// Returns the interval of [`young_interval`] to higher order (Daly, *A higher order estimate of the optimum checkpoint
/// interval for restart dumps*, FGCS 2006).
#[must_use]
pub fn daly_interval(cost: f64, mtbf: f64) -> f64 {
    if cost >= 2.0 * mtbf {
        return mtbf;
    }
    let ratio = cost / (2.0 * mtbf);
    young_interval(cost, mtbf) * (1.0 + ratio.sqrt() / 3.0 + ratio / 9.0) - cost
}

/// Returns the share of time that is not lost (Daly, eq. 13). A checkpoint of `cost` s follows each `interval` s. Failures
/// come at a constant rate at any time, and a restart takes `restart` s.
#[must_use]
pub fn daly_efficiency(interval: f64, cost: f64, restart: f64, mtbf: f64) -> f64 {
    if mtbf.is_infinite() {
        return interval / (interval + cost);
    }
    interval / (mtbf * (restart / mtbf).exp() * ((interval + cost) / mtbf).exp_m1())
}

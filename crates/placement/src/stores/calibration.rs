use super::CalibrationError;

/// The throughput of a store by its number of writers, in bytes per second of all of them together.
///
/// A few samples at equal distances are interpolated by a cubic B-spline on uniform knots, which goes
/// through every sample and is evaluated in O(1) (IPDPS'19, §IV-C). At both ends it is "not-a-knot":
/// the outer two intervals share one cubic, so nothing is assumed about what lies beyond.
///
/// ```
/// use tierflow_placement::stores::Calibration;
///
/// let ssd = Calibration::new(1, 10, &[0.4e9, 0.7e9, 0.6e9, 0.5e9, 0.45e9])?;
/// assert!((ssd.throughput(11) - 0.7e9).abs() < 1.0);
/// assert!((0.5e9..0.6e9).contains(&ssd.throughput(25)));
/// // Beyond the samples, the nearest one counts.
/// assert_eq!(ssd.throughput(500), ssd.throughput(41));
/// # Ok::<(), tierflow_placement::stores::CalibrationError>(())
/// ```
///
/// Most of what happens to a store happens between one writer and a few, where samples at equal distances
/// see the least. [`doubling`](Self::doubling) puts them at 1, 2, 4, 8 … writers, at equal distances of
/// the logarithm: not from the paper, and as near with 7 samples for 64 writers as the paper's 10% are for 180.
#[derive(Clone, Debug, PartialEq)]
pub struct Calibration {
    axis: Axis,
    /// Of the basis functions, from one knot before the first sample to one after the last.
    coefficients: Vec<f64>,
    /// No prediction is below the least sample's half: a spline may swing past its samples.
    least: f64,
}

/// The positions of a spline's samples.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Axis {
    /// The first sample, and from one to the next.
    Even { first: f64, step: f64 },
    /// 1, 2, 4, 8 …
    Doubling,
}

impl Axis {
    /// How many samples lie before this many writers.
    fn at(self, writers: u32) -> f64 {
        match self {
            Self::Even { first, step } => (f64::from(writers) - first) / step,
            Self::Doubling => f64::from(writers.max(1)).log2(),
        }
    }
}

impl Calibration {
    /// The spline through `samples`, in bytes per second, of which the first was taken with `first`
    /// writers and each further one with `step` writers more.
    ///
    /// # Errors
    /// When there is no sample, `first` or `step` is zero, or a sample is not above zero and finite.
    pub fn new(first: u32, step: u32, samples: &[f64]) -> Result<Self, CalibrationError> {
        if first == 0 || step == 0 {
            return Err(CalibrationError::BadSteps { first, step });
        }
        let writers = |at: usize| u64::from(first) + u64::from(step) * at as u64;
        let (first, step) = (f64::from(first), f64::from(step));
        Self::through(samples, Axis::Even { first, step }, writers)
    }

    /// The spline through `samples`, in bytes per second, taken with 1, 2, 4, 8 … writers, over the logarithm
    /// of their number.
    ///
    /// # Errors
    /// When there is no sample, or one is not above zero and finite.
    pub fn doubling(samples: &[f64]) -> Result<Self, CalibrationError> {
        let writers = |at: usize| 1 << at.min(63);
        Self::through(samples, Axis::Doubling, writers)
    }

    fn through(
        samples: &[f64],
        axis: Axis,
        writers: impl Fn(usize) -> u64,
    ) -> Result<Self, CalibrationError> {
        for (at, &throughput) in samples.iter().enumerate() {
            if !(throughput > 0.0 && throughput.is_finite()) {
                let writers = writers(at);
                return Err(CalibrationError::BadSample {
                    writers,
                    throughput,
                });
            }
        }
        let least = samples.iter().copied().reduce(f64::min);
        Ok(Self {
            axis,
            coefficients: coefficients(samples).ok_or(CalibrationError::NoSamples)?,
            least: least.unwrap_or_default() / 2.0,
        })
    }

    /// Returns the throughput of this many writers together, in bytes per second.
    pub fn throughput(&self, writers: u32) -> f64 {
        let intervals = self.coefficients.len() - 3;
        let at = self.axis.at(writers).clamp(0.0, intervals as f64);
        let interval = (at as usize).min(intervals.saturating_sub(1));
        let t = at - interval as f64;
        let rest = 1.0 - t;
        let basis = [
            rest * rest * rest,
            4.0 - 6.0 * t * t + 3.0 * t * t * t,
            4.0 - 6.0 * rest * rest + 3.0 * rest * rest * rest,
            t * t * t,
        ];
        let around = self.coefficients[interval..].iter().zip(basis);
        let sum: f64 = around.map(|(coefficient, basis)| coefficient * basis).sum();
        (sum / 6.0).max(self.least)
    }
}

/// The coefficients c₋₁ … cₙ with (cᵢ₋₁ + 4cᵢ + cᵢ₊₁)/6 = yᵢ, for each of n samples.
fn coefficients(y: &[f64]) -> Option<Vec<f64>> {
    let n = y.len();
    let (&first, &last) = y.first().zip(y.last())?;
    // `inner` are c₀ … cₙ₋₁; the two outermost follow from the equations of the end samples.
    let inner = match n {
        1 => return Some(vec![first; 4]),
        2 => y.to_vec(),
        3 => {
            // A parabola: its second difference is that of the samples, its slope in the middle too.
            let middle = not_a_knot(y[0], y[1], y[2]);
            let sides = 6.0 * y[1] - 4.0 * middle;
            let slope = y[2] - y[0];
            vec![(sides - slope) / 2.0, middle, (sides + slope) / 2.0]
        }
        _ => {
            let mut inner = vec![0.0; n];
            inner[1] = not_a_knot(y[0], y[1], y[2]);
            inner[n - 2] = not_a_knot(y[n - 3], y[n - 2], y[n - 1]);
            solve(&mut inner, y);
            inner[0] = 6.0 * y[1] - 4.0 * inner[1] - inner[2];
            inner[n - 1] = 6.0 * y[n - 2] - 4.0 * inner[n - 2] - inner[n - 3];
            inner
        }
    };
    let mut all = Vec::with_capacity(n + 2);
    all.push(6.0 * first - 4.0 * inner[0] - inner[1]);
    all.extend_from_slice(&inner);
    all.push(6.0 * last - 4.0 * inner[n - 1] - inner[n - 2]);
    Some(all)
}

/// The coefficient of the sample next to an end, where the third derivative does not jump: the fourth
/// difference of the coefficients around it is zero, which leaves nothing but the three samples.
fn not_a_knot(before: f64, at: f64, after: f64) -> f64 {
    (8.0 * at - before - after) / 6.0
}

/// Finds `c[2]` to `c[n − 3]` between the two that are known, by the tridiagonal (Thomas) algorithm.
fn solve(c: &mut [f64], y: &[f64]) {
    let n = c.len();
    let mut factors = vec![0.0; n];
    for i in 2..n - 2 {
        // For i = 2 the factor before is zero and c[1] is known.
        let pivot = 4.0 - factors[i - 1];
        factors[i] = 1.0 / pivot;
        c[i] = (6.0 * y[i] - c[i - 1]) / pivot;
    }
    for i in (2..n - 2).rev() {
        c[i] -= factors[i] * c[i + 1];
    }
}

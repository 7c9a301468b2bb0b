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
/// The throughput changes most between one writer and a few, where samples at equal distances are too far apart.
/// [`doubling`](Self::doubling) takes samples at 1, 2, 4, 8 … writers, at equal distances of the logarithm. The paper does not
/// have it; 7 samples for 64 writers predict as well as the paper's 10% do for 180.
#[derive(Clone, Debug, PartialEq)]
pub struct Calibration {
    axis: Axis,
    /// Coefficients of the basis functions, from one knot before the first sample to one after the last.
    coefficients: Vec<f64>,
    /// Half of the least sample. No prediction is lower, as a spline may swing past its samples.
    least: f64,
}

/// The positions of a spline's samples.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Axis {
    /// Writers of the first sample, and the difference from one sample to the next.
    Even { first: f64, step: f64 },
    /// 1, 2, 4, 8 …
    Doubling,
}

impl Axis {
    /// Returns the position of a number of writers, counted in samples from the first.
    fn at(self, writers: u32) -> f64 {
        match self {
            Self::Even { first, step } => (f64::from(writers) - first) / step,
            Self::Doubling => f64::from(writers.max(1)).log2(),
        }
    }
}

impl Calibration {
    /// Makes the spline through `samples`, in bytes per second. The first sample was taken with `first` writers, each further
    /// sample with `step` writers more.
    ///
    /// # Errors
    /// [`NoSamples`](CalibrationError::NoSamples) if there is no sample, [`BadSteps`](CalibrationError::BadSteps) if `first` or
    /// `step` is 0, [`BadSample`](CalibrationError::BadSample) if a sample is not above 0 or not finite.
    pub fn new(first: u32, step: u32, samples: &[f64]) -> Result<Self, CalibrationError> {
        if first == 0 || step == 0 {
            return Err(CalibrationError::BadSteps { first, step });
        }
        let writers = |at: usize| u64::from(first) + u64::from(step) * at as u64;
        let (first, step) = (f64::from(first), f64::from(step));
        Self::through(samples, Axis::Even { first, step }, writers)
    }

    /// Makes the spline through `samples`, in bytes per second, over the logarithm of the number of writers. The samples were
    /// taken with 1, 2, 4, 8 … writers.
    ///
    /// # Errors
    /// [`NoSamples`](CalibrationError::NoSamples) if there is no sample, [`BadSample`](CalibrationError::BadSample) if a sample
    /// is not above 0 or not finite.
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

/// Returns the coefficients c₋₁ … cₙ with (cᵢ₋₁ + 4cᵢ + cᵢ₊₁)/6 = yᵢ for each of n samples; `None` without samples.
fn coefficients(y: &[f64]) -> Option<Vec<f64>> {
    let n = y.len();
    let (&first, &last) = y.first().zip(y.last())?;
    // `inner` are c₀ … cₙ₋₁; the two outermost follow from the equations of the end samples.
    let inner = match n {
        1 => return Some(vec![first; 4]),
        2 => y.to_vec(),
        3 => {
            // A parabola, with the second difference and the middle slope of the samples.
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

/// Returns the coefficient of the sample next to an end, where the third derivative does not jump. The fourth difference of
/// the coefficients around it is therefore 0, so the coefficient depends on the three samples only.
fn not_a_knot(before: f64, at: f64, after: f64) -> f64 {
    (8.0 * at - before - after) / 6.0
}

/// Finds `c[2]` to `c[n − 3]` from the known `c[1]` and `c[n − 2]`, by the tridiagonal (Thomas) algorithm.
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

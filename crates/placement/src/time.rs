use std::cmp::Ordering;
use std::fmt;
use std::time::Duration;

const NANOS: u128 = 1_000_000_000;

/// An exact time in seconds: a number of bytes divided by a number of bytes per second.
///
/// ```
/// use tierflow_placement::ExactTime;
///
/// let time = ExactTime::new(240_000_000, 36_000_000_000).expect("a bandwidth above zero");
/// assert_eq!(time, ExactTime::new(1, 150).expect("a bandwidth above zero"));
/// assert_eq!(time.ceil().as_nanos(), 6_666_667);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ExactTime {
    // In lowest terms; products of any two halves fit, as bytes and bandwidths stay below 2^63.
    bytes: u64,
    bandwidth: u64,
}

impl ExactTime {
    /// The time 0.
    pub const ZERO: Self = Self {
        bytes: 0,
        bandwidth: 1,
    };

    /// Returns the time of `bytes` at `bandwidth` bytes per second; `None` if `bandwidth` is 0.
    pub fn new(bytes: u64, bandwidth: u64) -> Option<Self> {
        let divisor = gcd(bytes, bandwidth);
        (bandwidth > 0).then(|| Self {
            bytes: bytes / divisor,
            bandwidth: bandwidth / divisor,
        })
    }

    /// Returns the bytes of the fraction in lowest terms.
    pub fn numerator(self) -> u64 {
        self.bytes
    }

    /// Returns the bytes per second of the fraction in lowest terms.
    pub fn denominator(self) -> u64 {
        self.bandwidth
    }

    /// Returns the time in seconds, rounded to the nearest `f64`.
    pub fn as_secs_f64(self) -> f64 {
        self.bytes as f64 / self.bandwidth as f64
    }

    /// Returns the time in whole nanoseconds, rounded up.
    pub fn ceil(self) -> Duration {
        let (bytes, bandwidth) = (u128::from(self.bytes), u128::from(self.bandwidth));
        let nanos = (bytes * NANOS).div_ceil(bandwidth);
        // Both parts fit: at most 2^64 seconds, less than 10^9 ns.
        Duration::new((nanos / NANOS) as u64, (nanos % NANOS) as u32)
    }
}

impl Default for ExactTime {
    fn default() -> Self {
        Self::ZERO
    }
}

impl Ord for ExactTime {
    fn cmp(&self, other: &Self) -> Ordering {
        let ours = u128::from(self.bytes) * u128::from(other.bandwidth);
        ours.cmp(&(u128::from(other.bytes) * u128::from(self.bandwidth)))
    }
}

impl PartialOrd for ExactTime {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Debug for ExactTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} s", self.bytes, self.bandwidth)
    }
}

impl fmt::Display for ExactTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} ms", self.as_secs_f64() * 1e3)
    }
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a.max(1)
}

/// An [`ExactTime`] that is not in lowest terms. Comparing does not need the lowest terms, which are expensive to find.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fraction {
    pub(crate) bytes: u64,
    pub(crate) bandwidth: u64,
}

impl Ord for Fraction {
    fn cmp(&self, other: &Self) -> Ordering {
        let ours = u128::from(self.bytes) * u128::from(other.bandwidth);
        ours.cmp(&(u128::from(other.bytes) * u128::from(self.bandwidth)))
    }
}

impl PartialOrd for Fraction {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Fraction {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Fraction {}

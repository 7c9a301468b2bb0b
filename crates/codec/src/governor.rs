//! The decision whether to encode: only if that raises the throughput to the tier below.

use std::fmt;

/// A governor decides for each input whether to encode it before a link, or to send its bytes unencoded.
///
/// The encoding stage and the link are a pipeline, whose throughput is that of the slower part. A stage that takes `s`
/// bytes per second and makes them `r` times smaller, before a link of `l` bytes per second, moves `min(s, r l)` bytes per
/// second. The stage pays off if that is above `l`. The governor turns off a stage that does not pay off. Afterwards, the
/// governor tries an input now and then, so rarely that trials take a small share of the time, and turns the stage on
/// again when it pays off.
///
/// A governor has no clock and moves no bytes: the caller reports its measurements.
///
/// ```
/// use tierflow_codec::{Decision, Governor, Policy};
///
/// let mut governor = Governor::new(Policy::default());
/// // A disk of 2 GB/s: 64 MiB in 34 ms.
/// governor.sent(64 << 20, 33_554_432);
/// assert_eq!(governor.decide(64 << 20), Decision::Encode);
/// // Encoded in 1 ms, to half.
/// governor.encoded(64 << 20, 32 << 20, 1_000_000);
/// assert_eq!(governor.decide(64 << 20), Decision::Encode);
/// // The next data do not shrink.
/// for _ in 0..16 {
///     governor.encoded(64 << 20, 64 << 20, 1_000_000);
/// }
/// assert_eq!(governor.decide(64 << 20), Decision::Bypass);
/// println!("{}", governor.figures());
/// ```
#[derive(Clone, Debug)]
pub struct Governor {
    policy: Policy,
    link: Average,
    /// Bytes per second that go into the stage.
    stage: Average,
    /// Bytes of input for each byte of the containers.
    ratio: Average,
    is_on: bool,
    /// True if the next input is tried, even if trials took their share of time.
    is_due: bool,
    /// Nanoseconds that trials may take: their share of the link's time since the last trial, with the stage off.
    earned: f64,
    switches: u64,
    encoded: u64,
    bypassed: u64,
}

/// Policy for turning the stage on and off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Policy {
    /// The gain in throughput at which the stage is turned on: 1.05 is 5%. Below half of that gain it is turned off.
    /// The difference (hysteresis) keeps it from switching back and forth.
    pub worth: f64,
    /// The largest share of the time for trials while the stage is off, from 0 to 1.
    pub trials: f64,
    /// The weight of a new measurement in the moving averages, from above 0 up to 1.
    pub weight: f64,
}

impl Default for Policy {
    /// Returns a gain of 5%, 1% of the time for trials, and a weight of a quarter.
    fn default() -> Self {
        Self {
            worth: 1.05,
            trials: 0.01,
            weight: 0.25,
        }
    }
}

/// The treatment of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Encode the input: encoding pays off, or is not measured yet.
    Encode,
    /// Encode the input to measure whether encoding pays off now.
    Try,
    /// Send the input unencoded.
    Bypass,
}

/// Measurements and counts for metrics.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// True if the stage is on.
    pub is_on: bool,
    /// Bytes per second that the link moves; 0 before the first measurement.
    pub link_rate: f64,
    /// Bytes per second that the stage takes; 0 before the first measurement.
    pub stage_rate: f64,
    /// Bytes of input for each byte of the containers; 0 before the first measurement.
    pub ratio: f64,
    /// Number of times that the stage was turned on or off.
    pub switches: u64,
    /// Number of encoded inputs.
    pub encoded: u64,
    /// Number of inputs sent unencoded.
    pub bypassed: u64,
}

impl Governor {
    /// Makes a governor whose stage is on until measurements say that it does not pay off. Clamps the policy's values
    /// to their ranges.
    pub fn new(policy: Policy) -> Self {
        let sound = |value: f64, low: f64, high: f64| {
            if value.is_nan() {
                low
            } else {
                value.clamp(low, high)
            }
        };
        let policy = Policy {
            worth: sound(policy.worth, 1.0, 100.0),
            trials: sound(policy.trials, 0.0, 1.0),
            weight: sound(policy.weight, 0.01, 1.0),
        };
        Self {
            policy,
            link: Average::default(),
            stage: Average::default(),
            ratio: Average::default(),
            is_on: true,
            is_due: false,
            earned: 0.0,
            switches: 0,
            encoded: 0,
            bypassed: 0,
        }
    }

    /// Returns the treatment of the next input, which has `bytes` bytes.
    pub fn decide(&mut self, bytes: u64) -> Decision {
        if self.is_on {
            return Decision::Encode;
        }
        let cost = bytes as f64 / self.stage.value().max(f64::MIN_POSITIVE) * 1e9;
        if self.is_due || self.earned >= cost {
            self.is_due = false;
            self.earned = 0.0;
            return Decision::Try;
        }
        self.bypassed += 1;
        Decision::Bypass
    }

    /// Reports that the stage alone encoded `raw` bytes to `stored` bytes in `nanoseconds`, after any decision.
    pub fn encoded(&mut self, raw: u64, stored: u64, nanoseconds: u64) {
        if raw == 0 {
            return;
        }
        self.encoded += 1;
        let weight = if self.is_on { self.policy.weight } else { 1.0 };
        self.stage.add(rate(raw, nanoseconds), weight);
        self.ratio.add(raw as f64 / stored.max(1) as f64, weight);
        self.switch();
    }

    /// Reports that the link moved `bytes` bytes, encoded or not, in `nanoseconds`.
    pub fn sent(&mut self, bytes: u64, nanoseconds: u64) {
        if bytes == 0 {
            return;
        }
        self.link.add(rate(bytes, nanoseconds), self.policy.weight);
        if !self.is_on {
            self.earned += self.policy.trials * nanoseconds as f64;
        }
        self.switch();
    }

    /// Reports that the data are of another kind from now on. If the stage is off, the next input is encoded as a trial.
    pub fn changed(&mut self) {
        self.is_due = true;
    }

    /// Returns the throughput with the stage divided by that without it; `None` before link and stage are measured.
    pub fn gain(&self) -> Option<f64> {
        let (link, stage, ratio) = (self.link.value?, self.stage.value?, self.ratio.value?);
        Some((stage / link).min(ratio))
    }

    /// Returns measurements and counts for metrics.
    pub fn figures(&self) -> Figures {
        Figures {
            is_on: self.is_on,
            link_rate: self.link.value(),
            stage_rate: self.stage.value(),
            ratio: self.ratio.value(),
            switches: self.switches,
            encoded: self.encoded,
            bypassed: self.bypassed,
        }
    }

    /// Turns the stage on or off by the gain.
    fn switch(&mut self) {
        let Some(gain) = self.gain() else { return };
        let worth = self.policy.worth;
        let is_on = gain >= if self.is_on { 0.5 + worth / 2.0 } else { worth };
        if is_on != self.is_on {
            self.is_on = is_on;
            self.switches += 1;
            self.earned = 0.0;
        }
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is = if self.is_on { "on" } else { "off" };
        write!(
            f,
            "{is}: {:.2} times smaller at {:.2} GB/s before a link of {:.2} GB/s",
            self.ratio,
            self.stage_rate / 1e9,
            self.link_rate / 1e9
        )
    }
}

/// Returns a rate in bytes per second.
fn rate(bytes: u64, nanoseconds: u64) -> f64 {
    bytes as f64 / nanoseconds.max(1) as f64 * 1e9
}

/// An exponentially weighted moving average.
#[derive(Clone, Copy, Debug, Default)]
struct Average {
    value: Option<f64>,
}

impl Average {
    fn add(&mut self, value: f64, weight: f64) {
        let old = self.value.unwrap_or(value);
        self.value = Some(old + weight * (value - old));
    }

    fn value(&self) -> f64 {
        self.value.unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: u64 = 1 << 26;

    /// Returns the nanoseconds for `bytes` at `rate` bytes per nanosecond (GB/s).
    fn at(bytes: u64, rate: f64) -> u64 {
        (bytes as f64 / rate) as u64
    }

    /// Passes an input by the governor's decision. Returns the time in nanoseconds and the decision.
    fn pass(governor: &mut Governor, (link, stage, ratio): (f64, f64, f64)) -> (u64, Decision) {
        let decision = governor.decide(BYTES);
        if decision == Decision::Bypass {
            let time = at(BYTES, link);
            governor.sent(BYTES, time);
            return (time, decision);
        }
        let stored = (BYTES as f64 / ratio) as u64;
        let (encode, send) = (at(BYTES, stage), at(stored, link));
        governor.encoded(BYTES, stored, encode);
        governor.sent(stored, send);
        (encode.max(send), decision)
    }

    #[test]
    fn a_stage_that_shortens_the_way_stays_on() {
        let mut governor = Governor::new(Policy::default());
        for _ in 0..100 {
            assert_eq!(pass(&mut governor, (2.0, 150.0, 1.4)).1, Decision::Encode);
        }
        assert_eq!(governor.figures().switches, 0);
        assert!((governor.gain().unwrap() - 1.4).abs() < 0.01);
    }

    #[test]
    fn one_that_does_not_is_off_and_costs_little() {
        // Data that do not shrink, and data that shrink before a link faster than the stage.
        for machine in [(25.0, 300.0, 1.0 / 1.007), (50.0, 20.0, 8.0)] {
            let mut governor = Governor::new(Policy::default());
            let mut with = 0;
            for _ in 0..10_000 {
                with += pass(&mut governor, machine).0;
            }
            let without = 10_000 * at(BYTES, machine.0);
            assert!(!governor.figures().is_on);
            assert!(
                with as f64 <= 1.02 * without as f64,
                "{machine:?}: {with} for {without}"
            );
            // The stage was tried nevertheless.
            let figures = governor.figures();
            assert!(figures.encoded >= 2, "{figures:?}");
            assert_eq!(figures.encoded + figures.bypassed, 10_000);
        }
    }

    #[test]
    fn it_comes_back_when_data_change() {
        let mut governor = Governor::new(Policy::default());
        let noise = (25.0, 300.0, 0.99);
        let fields = (25.0, 300.0, 12.0);
        while governor.figures().is_on {
            pass(&mut governor, noise);
        }
        let inputs = (1..).find(|_| pass(&mut governor, fields).1 == Decision::Try);
        assert!(
            inputs.unwrap() <= 10,
            "a trial costs 8% of an input's time, and may cost 1%"
        );
        assert_eq!(pass(&mut governor, fields).1, Decision::Encode);

        while governor.figures().is_on {
            pass(&mut governor, noise);
        }
        assert_eq!(pass(&mut governor, fields).1, Decision::Bypass);
        // A reported change is tried at once.
        governor.changed();
        assert_eq!(pass(&mut governor, fields).1, Decision::Try);
        assert_eq!(pass(&mut governor, fields).1, Decision::Encode);
        assert_eq!(governor.figures().switches, 4);
    }

    #[test]
    fn at_the_border_it_does_not_go_back_and_forth() {
        let mut governor = Governor::new(Policy::default());
        for n in 0..1000 {
            let ratio = if n % 2 == 0 { 0.98 } else { 1.03 };
            pass(&mut governor, (25.0, 300.0, ratio));
        }
        assert!(governor.figures().switches <= 1);
    }

    #[test]
    fn nothing_measured_divides_by_nothing() {
        let mut governor = Governor::new(Policy {
            worth: f64::NAN,
            trials: -1.0,
            weight: f64::INFINITY,
        });
        assert_eq!(governor.gain(), None);
        governor.encoded(0, 0, 0);
        governor.sent(0, 0);
        governor.encoded(100, 0, 0);
        governor.sent(100, 0);
        assert!(governor.gain().unwrap().is_finite());
        assert_eq!(governor.decide(0), Decision::Encode);
    }
}

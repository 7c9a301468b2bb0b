//! Sizes of checkpoints: recorded ones, and made-up ones of the same shape.

use super::random;
use crate::{Error, Result};

/// Reads the second column of lines `version,bytes` under that heading: one recorded shot.
///
/// # Errors
/// [`Error::Trace`] with the first line that has another form, or 0 bytes.
pub fn sizes_from_csv(text: &str) -> Result<Vec<u64>> {
    let refuse = |line: usize, text: &str| Error::Trace {
        line,
        text: text.to_owned(),
    };
    let mut lines = (1..).zip(text.lines());
    let heading = lines.next().map_or("", |(_, heading)| heading);
    if heading.trim() != "version,bytes" {
        return Err(refuse(1, heading));
    }
    let sizes = lines.map(|(line, text)| {
        let bytes = text.split_once(',').map(|(_, bytes)| bytes.trim().parse());
        match bytes {
            Some(Ok(bytes)) if bytes > 0 => Ok(bytes),
            _ => Err(refuse(line, text)),
        }
    });
    sizes.collect()
}

/// Makes up `count` sizes whose sum is about `total` bytes, in the shape of the compressed wavefields of a shot. Such sizes
/// grow as the square of time, peak at two thirds to nine tenths of the shot, and fall to some three quarters of the
/// peak. Another seed gives another shot.
#[must_use]
pub fn made_up_sizes(count: usize, total: u64, seed: u64) -> Vec<u64> {
    let share = |salt: u64| (random(seed.wrapping_mul(1 << 20).wrapping_add(salt)) % 1000) as f64;
    let peak = count as f64 * (0.66 + 0.24 * share(1) / 1e3);
    let fall = 0.5 + 0.5 * share(2) / 1e3;
    let shape = |version: usize| {
        let t = (version as f64 + 0.5) / peak;
        let envelope = if t < 1.0 {
            t * t * (1.6 - 0.6 * t)
        } else {
            1.0 - fall * (t - 1.0)
        };
        let noise = 0.97 + 0.06 * share(3 + version as u64) / 1e3;
        (envelope.max(0.01)) * noise
    };
    let sum: f64 = (0..count).map(shape).sum();
    let bytes = |version| (total as f64 * shape(version) / sum).max(1.0) as u64;
    (0..count).map(bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_read_and_what_is_none_is_named() {
        assert_eq!(sizes_from_csv("version,bytes\n0,7\n1,8\n").unwrap(), [7, 8]);
        assert!(sizes_from_csv("").is_err());
        for (text, at) in [
            ("0,7\n", 1),
            ("version,bytes\n0,7\n1,x\n", 3),
            ("version,bytes\n0,0\n", 2),
        ] {
            let error = sizes_from_csv(text).unwrap_err();
            assert!(
                matches!(error, Error::Trace { line, .. } if line == at),
                "{error}"
            );
        }
    }

    #[test]
    fn made_up_shots_have_the_shape_of_recorded_ones() {
        for seed in 0..20 {
            let sizes = made_up_sizes(384, 45_000_000_000, seed);
            let total: u64 = sizes.iter().sum();
            assert!(total.abs_diff(45_000_000_000) < 1_000);
            let peak = sizes.iter().zip(0..).max().unwrap().1;
            assert!((240..384).contains(&peak), "{peak}");
            assert!(sizes[0] * 20 < sizes[peak], "it starts small");
            assert!(sizes[383] * 10 > sizes[peak] * 4, "it ends large");
        }
        assert_ne!(
            made_up_sizes(384, 1 << 30, 1),
            made_up_sizes(384, 1 << 30, 2)
        );
    }
}

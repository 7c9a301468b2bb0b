//! Tests of the spline of a store's calibration.

use proptest::prelude::*;
use tierflow_placement::stores::{Calibration, CalibrationError};

fn close(is: f64, wanted: f64) -> bool {
    (is - wanted).abs() <= 1e-9 * wanted.abs().max(1.0)
}

proptest! {
    #[test]
    fn the_spline_goes_through_every_sample(
        first in 1..5_u32,
        step in 1..20_u32,
        samples in prop::collection::vec(1.0..1e9_f64, 1..40),
    ) {
        let calibration = Calibration::new(first, step, &samples).unwrap();
        for (at, sample) in samples.iter().enumerate() {
            let is = calibration.throughput(first + step * at as u32);
            prop_assert!(close(is, *sample), "{is}, not {sample}, at {at}");
        }
        let last = first + step * (samples.len() as u32 - 1);
        prop_assert_eq!(calibration.throughput(0), calibration.throughput(first));
        prop_assert_eq!(calibration.throughput(u32::MAX), calibration.throughput(last));
    }

    /// With n samples, the spline equals a polynomial of degree n − 1, and at most 3, everywhere.
    #[test]
    fn the_spline_is_exact_on_cubics(
        samples in 1..12_usize,
        (a, b, c, d) in (1e3..1e6_f64, 0.0..1e4_f64, 0.0..100.0_f64, 0.0..1.0_f64),
    ) {
        let degree = samples.min(4) - 1;
        let curve = |writers: u32| {
            let w = f64::from(writers);
            let powers = [a, b * w, c * w * w, d * w * w * w];
            powers[..=degree].iter().sum::<f64>()
        };
        let measured: Vec<_> = (0..samples as u32).map(|at| curve(1 + 10 * at)).collect();
        let calibration = Calibration::new(1, 10, &measured).unwrap();
        for writers in 1..=(10 * (samples as u32 - 1)).max(1) {
            prop_assert!(close(calibration.throughput(writers), curve(writers)), "{writers}");
        }
    }
}

/// The shape of Figure 3 of IPDPS'19: an SSD that is fastest with a few writers, calibrated with 1, 11, 21 … 181 writers. The curve is
/// synthetic, so the test shows how well the spline follows a curve, not how well it predicts a device.
#[test]
fn a_tenth_of_the_points_is_enough_for_the_others() {
    let ssd = |writers: u32| {
        let w = f64::from(writers);
        700e6 * (w / (w + 3.0)) / (1.0 + (w / 120.0).powi(2) * 0.5)
    };
    let samples: Vec<_> = (0..=18).map(|at| ssd(1 + 10 * at)).collect();
    let calibration = Calibration::new(1, 10, &samples).unwrap();
    // The curve bends most between 1 and 11 writers, which a calibration in steps of 10 cannot see.
    for writers in 11..=181 {
        let error = calibration.throughput(writers) / ssd(writers) - 1.0;
        assert!(error.abs() < 0.05, "{writers}: {error}");
    }
}

/// Seven samples at doubling distances follow the same shape, also where the curve bends most.
#[test]
fn doubling_sees_what_the_first_writers_do() {
    let ssd = |writers: u32| {
        let w = f64::from(writers);
        700e6 * (w / (w + 3.0)) / (1.0 + (w / 120.0).powi(2) * 0.5)
    };
    let samples: Vec<_> = (0..7).map(|at| ssd(1 << at)).collect();
    let calibration = Calibration::doubling(&samples).unwrap();
    for (at, sample) in samples.iter().enumerate() {
        assert!(close(calibration.throughput(1 << at), *sample));
    }
    for writers in 1..=64 {
        let error = calibration.throughput(writers) / ssd(writers) - 1.0;
        assert!(error.abs() < 0.01, "{writers}: {error}");
    }
    let beyond = [0, 65, u32::MAX].map(|writers| calibration.throughput(writers));
    let last = calibration.throughput(64);
    assert_eq!(beyond, [calibration.throughput(1), last, last]);
}

#[test]
fn a_swing_past_the_samples_is_no_prediction() {
    let calibration = Calibration::new(1, 10, &[1e9, 1e9, 1e3, 1e3, 1e9]).unwrap();
    for writers in 1..50 {
        assert!(calibration.throughput(writers) >= 500.0, "{writers}");
    }
}

#[test]
fn bad_samples_are_named() {
    let bad = |first, step, samples: &[f64]| Calibration::new(first, step, samples).unwrap_err();
    assert_eq!(bad(1, 1, &[]), CalibrationError::NoSamples);
    assert_eq!(Calibration::doubling(&[]), Err(CalibrationError::NoSamples));
    assert_eq!(
        bad(0, 1, &[1.0]),
        CalibrationError::BadSteps { first: 0, step: 1 }
    );
    assert_eq!(
        bad(1, 0, &[1.0]),
        CalibrationError::BadSteps { first: 1, step: 0 }
    );
    for throughput in [0.0, -1.0, f64::INFINITY, f64::NAN] {
        let error = bad(1, 10, &[1.0, 1.0, throughput]);
        assert!(error.to_string().contains("with 21 writers"), "{error}");
        let error = Calibration::doubling(&[1.0, 1.0, throughput]).unwrap_err();
        assert!(error.to_string().contains("with 4 writers"), "{error}");
    }
}

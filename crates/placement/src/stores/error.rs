use thiserror::Error;

/// The reason why samples do not make a [`Calibration`](super::Calibration): measure again.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum CalibrationError {
    /// There is no sample.
    #[error("no sample was given: measure the store with at least one number of writers")]
    NoSamples,
    /// The numbers of writers must start at 1 or later and rise.
    #[error(
        "{first} writers in steps of {step} is no series: start with 1 or more, step by 1 or more"
    )]
    BadSteps {
        /// Writers in the first sample.
        first: u32,
        /// Writers from one sample to the next.
        step: u32,
    },
    /// A throughput is zero, negative, infinite or not a number.
    #[error("{throughput} bytes/s with {writers} writers is no throughput: measure that again")]
    BadSample {
        /// Writers in the sample.
        writers: u64,
        /// The sample, in bytes per second.
        throughput: f64,
    },
}

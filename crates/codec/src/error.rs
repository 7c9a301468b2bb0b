//! Errors, sorted by what the caller does next.

use crate::element::Element;

/// What this crate's functions return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why something could not be done. The variant says what the caller does next.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The arguments are wrong, and will be wrong again: mend the caller.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The encoded bytes do not fit into the room given: store the input as it is, or give more.
    #[error("the encoded form does not fit into {given} bytes: {most} bytes always suffice")]
    Full {
        /// Bytes given.
        given: u64,
        /// What [`Codec::max_encoded_len`](crate::Codec::max_encoded_len) says.
        most: u64,
    },
    /// The bytes are no container, or not the ones that were written: get another copy.
    #[error("the encoded bytes are damaged: {what}; get another copy")]
    Corrupt {
        /// What is wrong.
        what: &'static str,
    },
    /// The container is sound as far as can be told, and this build cannot decode it: enable the feature.
    #[error(
        "a container of {codec} is read by builds with the feature `{feature}` of tierflow-codec alone"
    )]
    NotBuilt {
        /// The codec that wrote it.
        codec: &'static str,
        /// What enables it.
        feature: &'static str,
    },
    /// The user's nvCOMP is not there, or not one that is known: install it, or do without its codecs.
    #[cfg(all(feature = "nvcomp", feature = "cuda"))]
    #[error(
        "nvCOMP 5 or 6 cannot be loaded: {reason}; install it, from PyPI as nvidia-libnvcomp-cu13, and name the folder of \
         libnvcomp.so in LD_LIBRARY_PATH"
    )]
    NoNvcomp {
        /// What the loader said.
        reason: String,
    },
    /// nvCOMP refused what it was asked for: store the input as it is.
    #[cfg(all(feature = "nvcomp", feature = "cuda"))]
    #[error("nvCOMP failed to {what}: status {status}")]
    Nvcomp {
        /// What it was to do.
        what: &'static str,
        /// `nvcompStatus_t`.
        status: i32,
    },
    /// The device failed or refused.
    #[cfg(feature = "cuda")]
    #[error(transparent)]
    Device(#[from] tierflow_device::Error),
}

/// What is wrong with the arguments.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Invalid {
    /// More bytes than a container's offsets can name.
    #[error("{len} bytes are more than one container holds: encode them in parts of 2^35 bytes")]
    TooLong {
        /// Bytes given.
        len: u64,
    },
    /// The codec does not work on these elements.
    #[error("{codec} does not take elements of type {element:?}: {takes}")]
    Element {
        /// The codec's name.
        codec: &'static str,
        /// What was given.
        element: Element,
        /// What it takes.
        takes: &'static str,
    },
    /// No error bound.
    #[error("an error bound of {bound}: {takes}")]
    Bound {
        /// What was given.
        bound: f64,
        /// What would do.
        takes: &'static str,
    },
    /// The output is not as long as what was encoded.
    #[error("{given} bytes given for the {expected} bytes that the container decodes to")]
    Length {
        /// Bytes given.
        given: u64,
        /// Bytes of the input that was encoded.
        expected: u64,
    },
    /// The container decodes to more bytes than the caller allows.
    #[error("the container decodes to {raw} bytes, more than the limit of {limit}")]
    Limit {
        /// Bytes that it decodes to.
        raw: u64,
        /// The caller's limit.
        limit: u64,
    },
    /// The container was written by another codec.
    #[error("the container was written by {written}, not by {asked}: decode with `decode`")]
    OtherCodec {
        /// The codec that wrote it.
        written: &'static str,
        /// The codec that was called to decode it.
        asked: &'static str,
    },
    /// The device is no GPU.
    #[error("kernels, and nvCOMP, need a CUDA device: use a codec on the CPU")]
    NotOnGpu,
    /// The memory lies where the kernels cannot use it.
    #[error("{what}")]
    Memory {
        /// What is wrong, and what would do.
        what: &'static str,
    },
}

impl Error {
    pub(crate) fn corrupt(what: &'static str) -> Self {
        Self::Corrupt { what }
    }
}

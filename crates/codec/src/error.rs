//! Errors, sorted by what the caller does next.

use crate::element::Element;

/// Result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Reasons why a call failed. The variant says what the caller does next.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The arguments are wrong, and will be wrong again: mend the caller.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The encoded bytes do not fit into the memory given: store the input unencoded, or give more.
    #[error("the encoded form does not fit into {given} bytes: {most} bytes always suffice")]
    Full {
        /// Bytes given.
        given: u64,
        /// Bytes that always suffice: [`Codec::max_encoded_len`](crate::Codec::max_encoded_len).
        most: u64,
    },
    /// The bytes are damaged, or no container: get another copy.
    #[error("the encoded bytes are damaged: {what}; get another copy")]
    Corrupt {
        /// The defect.
        what: &'static str,
    },
    /// The build lacks the container's codec, though the container seems sound: enable the feature.
    #[error(
        "a container of {codec} is read by builds with the feature `{feature}` of tierflow-codec alone"
    )]
    NotBuilt {
        /// The codec that wrote it.
        codec: &'static str,
        /// The feature that enables the codec.
        feature: &'static str,
    },
    /// nvCOMP is not installed, or has an unknown version: install it, or use other codecs.
    #[cfg(all(feature = "nvcomp", feature = "cuda"))]
    #[error(
        "nvCOMP 5 or 6 cannot be loaded: {reason}; install it, from PyPI as nvidia-libnvcomp-cu13, and name the folder of \
         libnvcomp.so in LD_LIBRARY_PATH"
    )]
    NoNvcomp {
        /// The loader's message.
        reason: String,
    },
    /// nvCOMP refused the call: store the input unencoded, or decode on the processor.
    #[cfg(all(feature = "nvcomp", feature = "cuda"))]
    #[error("nvCOMP failed to {what}: status {status}")]
    Nvcomp {
        /// The call's task.
        what: &'static str,
        /// `nvcompStatus_t`.
        status: i32,
    },
    /// The device failed or refused.
    #[cfg(feature = "cuda")]
    #[error(transparent)]
    Device(#[from] tierflow_device::Error),
}

/// Errors in the arguments of a call.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Invalid {
    /// The input has more bytes than a container's offsets can express.
    #[error("{len} bytes are more than one container holds: encode them in parts of 2^35 bytes")]
    TooLong {
        /// Bytes given.
        len: u64,
    },
    /// The codec does not support this type of values.
    #[error("{codec} does not take elements of type {element:?}: {takes}")]
    Element {
        /// The codec's name.
        codec: &'static str,
        /// The type given.
        element: Element,
        /// The types that the codec supports.
        takes: &'static str,
    },
    /// The error bound is not usable.
    #[error("an error bound of {bound}: {takes}")]
    Bound {
        /// The bound given.
        bound: f64,
        /// The bounds that are usable.
        takes: &'static str,
    },
    /// The output is not as long as the encoded input.
    #[error("{given} bytes given for the {expected} bytes that the container decodes to")]
    Length {
        /// Bytes given.
        given: u64,
        /// Bytes of the encoded input.
        expected: u64,
    },
    /// The container decodes to more bytes than the caller allows.
    #[error("the container decodes to {raw} bytes, more than the limit of {limit}")]
    Limit {
        /// Bytes of the decoded form.
        raw: u64,
        /// The caller's limit.
        limit: u64,
    },
    /// The container was written by another codec.
    #[error("the container was written by {written}, not by {asked}: decode with `decode`")]
    OtherCodec {
        /// The codec of the container.
        written: &'static str,
        /// The codec that was to decode it.
        asked: &'static str,
    },
    /// The device is no GPU.
    #[error("kernels, and nvCOMP, need a CUDA device: use a codec on the CPU")]
    NotOnGpu,
    /// The kernels cannot use the memory.
    #[error("{what}")]
    Memory {
        /// The defect, and memory that would be suitable.
        what: &'static str,
    },
}

impl Error {
    pub(crate) fn corrupt(what: &'static str) -> Self {
        Self::Corrupt { what }
    }
}

//! The option for copies between device memory and the scratch file.

/// Sets whether copies between device memory and the scratch file are direct, by cuFile (GPUDirect Storage), instead of through
/// pinned buffers of host memory. [`StraightStatistics`](crate::StraightStatistics) reports the path in use, and the reason.
///
/// The file is opened with direct I/O; copies with other storage use the buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum DirectIo {
    /// Direct copies if they are faster. Large copies first take both paths in turn, then the faster one, and the slower one now
    /// and then. In cuFile's compatibility mode, which itself copies through host memory, and without cuFile, all copies use the
    /// buffers.
    #[default]
    Measured,
    /// Direct copies even if they are slower, or in compatibility mode. Without cuFile, building an engine fails.
    Always,
    /// No direct copies; cuFile is not loaded.
    Never,
}

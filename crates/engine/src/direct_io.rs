//! Which way bytes go between device memory and the scratch file.

/// Whether copies between device memory and the scratch file go straight there and back, by cuFile (GPUDirect Storage), instead of
/// through pinned buffers of host memory. [`Metrics::direct`](crate::Metrics::direct) says which way they took, and why.
///
/// The file is that of [`EngineBuilder::scratch`](crate::EngineBuilder::scratch), with direct I/O; other storage goes through the buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum DirectIo {
    /// Where that is faster: large copies take both ways in turn at first, then the faster one, and the other now and then. Never in
    /// cuFile's compatibility mode, in which it copies through host memory itself. Without cuFile, the buffers.
    #[default]
    Measured,
    /// Also where that is slower, and in compatibility mode. Without cuFile the engine is not built.
    Always,
    /// cuFile is not looked for.
    Never,
}

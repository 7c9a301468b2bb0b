//! The process that made something. A fork inherits its parent's values, but owns neither its threads nor its locks.

/// The id of the process that made something.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnerProcess(u32);

impl Default for OwnerProcess {
    fn default() -> Self {
        Self(std::process::id())
    }
}

impl OwnerProcess {
    /// Returns true if it is this process, and not a fork of it.
    pub(crate) fn is_current(self) -> bool {
        self.0 == std::process::id()
    }
}

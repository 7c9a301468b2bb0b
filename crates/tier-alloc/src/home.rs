//! Whose something is. A fork copies what its parent holds, threads and locks among it, and has none of it.

/// The process that made something.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Home(u32);

impl Default for Home {
    fn default() -> Self {
        Self(std::process::id())
    }
}

impl Home {
    /// Whether that is this process, and no fork of it.
    pub(crate) fn is_here(self) -> bool {
        self.0 == std::process::id()
    }
}

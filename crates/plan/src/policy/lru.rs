use super::{Policy, Standing, Usage};

/// Least recently used, written or read, goes first; hints do not count.
#[derive(Debug, Clone, Copy, Default)]
pub struct Lru;

impl Policy for Lru {
    fn standing(&self, usage: &Usage) -> Standing {
        Standing::Recent(usage.read.unwrap_or(usage.written))
    }

    fn follows_hints(&self) -> bool {
        false
    }

    fn name(&self) -> &'static str {
        "lru"
    }
}

use super::{Policy, Standing, Usage};

/// First in, first out; hints do not count.
#[derive(Debug, Clone, Copy, Default)]
pub struct Fifo;

impl Policy for Fifo {
    fn standing(&self, usage: &Usage) -> Standing {
        Standing::Recent(usage.written)
    }

    fn follows_hints(&self) -> bool {
        false
    }

    fn name(&self) -> &'static str {
        "fifo"
    }
}

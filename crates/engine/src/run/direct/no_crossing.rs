//! The only way without cuFile: through pinned buffers.

use crate::run::ends::{Destination, Origin};
use crate::run::lane::{Failed, Lane};
use std::ops::Range;
use tierflow_device::Stream;

impl Lane {
    pub(in crate::run) fn copy_across(
        &mut self,
        from: &dyn Origin,
        to: &mut dyn Destination,
        bytes: Range<u64>,
        theirs: Option<&Stream>,
    ) -> Result<u64, Failed> {
        match to.direct(bytes.start).or(from.direct(bytes.start)) {
            Some((direct, _)) => match *direct {},
            None => self.copy_staged(from, to, bytes, theirs),
        }
    }
}

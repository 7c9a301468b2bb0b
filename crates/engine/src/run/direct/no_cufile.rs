//! Without `cufile` all that goes between a device and storage goes through pinned buffers.

use super::ends::{Destination, Origin};
use super::lane::{Failed, Lane};
use super::sync::AtomicBool;
use crate::DirectMetrics;
use std::ops::Range;
use tierflow_device::Stream;

/// There is no such way.
#[derive(Debug)]
pub(crate) enum Direct {}

impl Direct {
    pub(crate) fn metrics(&self) -> DirectMetrics {
        match *self {}
    }
}

impl Lane {
    pub(super) fn copy_across(
        &mut self,
        from: &dyn Origin,
        to: &mut dyn Destination,
        bytes: Range<u64>,
        how: (Option<&Stream>, Option<&AtomicBool>),
    ) -> Result<u64, Failed> {
        match to.direct(bytes.start).or(from.direct(bytes.start)) {
            Some((direct, _)) => match *direct {},
            None => self.copy_staged(from, to, bytes, how),
        }
    }
}

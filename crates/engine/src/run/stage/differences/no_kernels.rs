//! Without `cuda` there is no memory that only a device reads.

use super::{DifferenceCoder, Lane, Links, Lying};
use crate::Result;
use crate::run::lane::Failed;
use crate::run::medium::{Level, Medium};
use std::marker::PhantomData;
use tierflow_dedup::{Config, Summary};
use tierflow_device::{Device, Memory, ReadLoan};

/// None of these is ever there.
#[derive(Debug)]
pub(super) enum OnDevice {}

#[derive(Debug)]
pub(super) enum Lineage {}

pub(super) enum Validity {}

pub(super) enum Begun<'k> {
    #[expect(dead_code)]
    Never(Landing<'k>),
}

pub(super) struct Landing<'k> {
    never: Lineage,
    _of: PhantomData<&'k ()>,
}

pub(super) struct Ended<'k> {
    pub(super) landing: Landing<'k>,
    pub(super) made: Option<(Result<Summary>, Validity)>,
}

impl OnDevice {
    #[expect(clippy::unnecessary_wraps, reason = "as with kernels")]
    pub(super) fn new(_: &Device, _: &Medium) -> Result<Option<Self>> {
        Ok(None)
    }

    pub(super) fn lineage(&self, _: Config, _: u64) -> Result<Lineage> {
        match *self {}
    }

    pub(super) fn landing(&self, _: u64) -> Result<Option<Landing<'_>>> {
        match *self {}
    }

    pub(super) fn close(&self) {
        match *self {}
    }

    pub(super) fn up(
        &self,
        _: &mut Lane,
        _: &[Level],
        _: Links<'_>,
        _: (Lying<'_>, Option<&DifferenceCoder>),
    ) -> std::result::Result<bool, Failed> {
        match *self {}
    }
}

impl Lineage {
    pub(super) fn holds(&self) -> bool {
        match *self {}
    }

    pub(super) fn begin<'k>(
        &mut self,
        _: &mut Lane,
        _: (u64, ReadLoan),
        _: Landing<'k>,
    ) -> Result<Begun<'k>> {
        match *self {}
    }
}

impl Validity {
    pub(super) fn holds(&self) -> bool {
        match *self {}
    }

    pub(super) fn end(&self) {
        match *self {}
    }
}

impl<'k> Begun<'k> {
    pub(super) fn nothing(landing: Landing<'k>) -> Self {
        match landing.never {}
    }

    pub(super) fn wait(self) -> Ended<'k> {
        match self {
            Self::Never(landing) => match landing.never {},
        }
    }
}

impl Landing<'_> {
    pub(super) fn memory(&self) -> &Memory {
        match self.never {}
    }
}

//! What stands for a part that this build leaves out: types of which there is no value, so that nothing of theirs ever runs.

#[cfg(not(feature = "dedup"))]
pub(crate) use differences::Stage;

#[cfg(not(feature = "peers"))]
pub(crate) use peers::PeerCache;

#[cfg(not(feature = "dedup"))]
mod differences {
    use super::super::ends::Lying;
    use super::super::lane::{Failed, Lane};
    use super::super::medium::Tier;
    use super::super::regions::Sink;
    use super::super::sync::AtomicBool;
    use crate::plan::{Place, Stored};
    use crate::{Error, Result, Version};
    use tierflow_device::Stream;

    type Links<'a> = (Version, &'a Place, &'a [(Version, Place)]);

    #[derive(Debug)]
    pub(crate) enum Stage {}

    impl Stage {
        pub(crate) fn overhead() -> u64 {
            0
        }

        pub(in super::super) fn down(
            &self,
            _: &mut Lane,
            _: Lying<'_>,
            _: Lying<'_>,
            _: (Version, Option<Version>),
            _: &AtomicBool,
        ) -> std::result::Result<Stored, Failed> {
            match *self {}
        }

        pub(in super::super) fn up(
            &self,
            _: &mut Lane,
            _: &[Tier],
            _: Links<'_>,
            _: Lying<'_>,
        ) -> std::result::Result<(), Failed> {
            match *self {}
        }
    }

    impl Lane {
        pub(crate) fn read_decoded(
            &mut self,
            _: &mut Sink<'_, '_>,
            _: &[Tier],
            _: Links<'_>,
            _: Option<&Stream>,
        ) -> Result<()> {
            Err(Error::NoDifferences {
                why: "this build has none: enable the feature `dedup` of tierflow-engine",
            })
        }
    }
}

#[cfg(not(feature = "peers"))]
mod peers {
    use tierflow_device::Memory;

    #[derive(Debug)]
    pub(crate) enum PeerCache {}

    impl PeerCache {
        pub(crate) fn memory(&self) -> &Memory {
            match *self {}
        }

        pub(crate) fn capacity(&self) -> usize {
            match *self {}
        }
    }
}

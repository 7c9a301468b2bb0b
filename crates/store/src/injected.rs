//! The points where tests let I/O fail. Only the feature `testing` puts [`Faults`](crate::Faults) there.

#[cfg(feature = "testing")]
pub(crate) type Injected = std::sync::Arc<crate::Faults>;

#[cfg(feature = "testing")]
pub(crate) use crate::faulty::current;

/// Returns no faults.
#[cfg(not(feature = "testing"))]
pub(crate) fn current() -> Injected {
    Injected(())
}

/// No faults.
#[cfg(not(feature = "testing"))]
#[derive(Debug, Default, Clone)]
pub(crate) struct Injected(());

#[cfg(not(feature = "testing"))]
#[expect(clippy::unused_self, reason = "as faults, which have state")]
impl Injected {
    pub(crate) fn sync(&self) -> rustix::io::Result<()> {
        Ok(())
    }

    pub(crate) fn reserve(&self) -> rustix::io::Result<()> {
        Ok(())
    }

    pub(crate) fn read(&self) -> rustix::io::Result<()> {
        Ok(())
    }

    pub(crate) fn look(&self) -> rustix::io::Result<()> {
        Ok(())
    }

    pub(crate) fn remove(&self) -> rustix::io::Result<()> {
        Ok(())
    }

    pub(crate) fn make(&self) -> rustix::io::Result<()> {
        Ok(())
    }

    pub(crate) fn change(&self) -> rustix::io::Result<()> {
        Ok(())
    }

    pub(crate) fn mark(&self, _: &std::path::Path) -> rustix::io::Result<()> {
        Ok(())
    }

    pub(crate) fn keep(&self, _: &std::path::Path, _: &str) -> rustix::io::Result<()> {
        Ok(())
    }

    pub(crate) fn wait(&self, _: &std::path::Path) {}

    pub(crate) fn rename(&self) -> rustix::io::Result<()> {
        Ok(())
    }

    pub(crate) fn shows(&self, _: &str) -> bool {
        true
    }

    pub(crate) fn rename_with_flags(&self) -> rustix::io::Result<()> {
        Ok(())
    }

    pub(crate) fn write(
        &self,
        _: u64,
        bytes: usize,
        _: usize,
        write: impl FnOnce(usize) -> crate::Result<()>,
    ) -> crate::Result<()> {
        write(bytes)
    }
}

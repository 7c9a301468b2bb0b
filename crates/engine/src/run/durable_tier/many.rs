//! Saves of many small versions at once.

use super::{DurableTier, NAME, StoredForm};
use crate::Version;
use tierflow_store::container::RegionInfo;
use tierflow_store::{Error, Region, Result, Snapshot};
use tierflow_sync::model::Ordering;

impl DurableTier {
    /// Returns true if [many versions](Self::save_many) may be saved at once. Versions that wait for their turns may not: a thread that has
    /// some of them would wait for a thread that has others.
    pub(crate) fn takes_many(&self) -> bool {
        self.directory.is_some() && self.turns.is_none()
    }

    /// Returns true if the vault takes only copies from another vault.
    pub(crate) fn takes_copies_alone(&self) -> bool {
        self.vault.takes_copies_alone()
    }

    /// Saves versions as they are. All of them share writes.
    pub(in crate::run) fn save_many(&self, versions: &[(Version, &[u8])]) -> Result<()> {
        let Some(directory) = &self.directory else {
            return Err(Error::Cancelled);
        };
        let layouts = versions.iter().map(|(version, bytes)| {
            let layout = self.layout_of(*version, StoredForm::Whole, bytes.len() as u64);
            (*version, *bytes, layout)
        });
        let layouts: Vec<_> = layouts.collect();
        let regions = layouts.iter().map(|(version, bytes, layout)| match layout {
            Some(layout) => {
                let named = |info: &'_ RegionInfo| {
                    let from = info.offset as usize;
                    from..from + info.length as usize
                };
                let regions = layout.iter().map(|info| {
                    Region::new(&info.name, &bytes[named(info)]).array(info.element, &info.shape)
                });
                regions.collect()
            }
            None if self.is_empty(*version) => vec![Region::new(NAME, &[])],
            None => vec![Region::new(NAME, bytes)],
        });
        let regions: Vec<Vec<Region<'_>>> = regions.collect();
        let snapshots = layouts.iter().zip(&regions);
        let snapshots = snapshots.map(|((version, ..), regions)| Snapshot::new(*version, regions));
        let snapshots: Vec<Snapshot<'_>> = snapshots.collect();
        self.make_way(versions.iter().map(|(version, _)| *version))?;
        self.settings.first.note()?;
        directory.save_all(&snapshots)?;
        self.settings.first.has_written();
        self.came.lock().0 += versions.len();
        self.moved.fetch_add(1, Ordering::Relaxed);
        if self.settings.retention.is_some() {
            let mut sound = self.sound.lock();
            sound.extend(versions.iter().map(|(version, _)| *version));
        }
        Ok(())
    }
}

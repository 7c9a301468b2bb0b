//! Writes heads of pieces into indexes, which the next process that opens the history reads instead of the pieces.

use super::{AT_ONCE, Objects};
use crate::catalog::{Part, Rows};
use crate::inspect::ROWS;
use crate::name::index_path;
use tierflow_store::container::Kind;
use tierflow_store::{Encoded, Region, Result, Snapshot};

impl Objects {
    /// Writes heads into indexes if there are enough that are in none. If that fails, the pieces are read when the history is opened.
    pub(super) fn index(&self) {
        let Ok(_one_at_a_time) = self.indexing.try_lock() else {
            return;
        };
        let Some(rows) = self.known().take_rows(self.settings.rank) else {
            return;
        };
        if self.put_indexes(&rows).is_err() {
            self.known().take_back(&rows);
            return;
        }
        let replaced = self.known().take_replaced(&rows.replaced);
        for path in replaced {
            // If that fails, a later process compacts it again.
            let _tried_again = self.remote.remove(&path);
        }
    }

    fn put_indexes(&self, rows: &Rows) -> Result<()> {
        let rank = self.settings.rank;
        for part in &rows.parts {
            let stamp = self.stamp(&self.known(), Kind::Index);
            let Part { bytes, .. } = part;
            let regions = [Region::new(ROWS, bytes)];
            let snapshot = Snapshot {
                version: 0,
                base: None,
                regions: &regions,
            };
            let record = Encoded::new(&snapshot, stamp)?;
            let path = index_path(&self.prefix, rank, (stamp.epoch, stamp.sequence));
            self.remote.put(&path, &record, true, AT_ONCE)?;
            self.known().add_index(path, rank, part);
        }
        Ok(())
    }
}

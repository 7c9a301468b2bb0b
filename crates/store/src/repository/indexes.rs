//! Indexes: blobs that contain the heads of up to [`MOST_ROWS`] other blobs, so that a history opens with one request for thousands
//! of versions. Indexes are a cache. A row is valid if the listing shows its blob with the size and tag of the row; the process
//! that writes as a rank writes missing rows again. `rows` defines the bytes of a row.

/// Blobs without a row after which their rows are written.
pub(crate) const BATCH: usize = 1024;
/// The most rows of an index.
pub(crate) const MOST_ROWS: usize = 16 * BATCH;
/// The number of indexes less than half full from which on they are joined.
const SMALL_ONES: usize = 16;

/// An index in the store.
#[derive(Debug)]
struct Index {
    path: String,
    rank: u32,
    rows: usize,
    /// Rows that are valid and that no newer index contains.
    live: usize,
    /// True if a listing showed it. Listings may lack one that was just written.
    is_listed: bool,
}

/// The indexes in the store, numbered from 1 in the order in which they were entered.
#[derive(Debug, Default)]
pub(crate) struct Indexes(Vec<Option<Index>>);

impl Indexes {
    /// Enters an index of `rows` rows, and returns its number.
    pub(crate) fn add(&mut self, path: String, rank: u32, rows: usize, is_listed: bool) -> u32 {
        self.0.push(Some(Index {
            path,
            rank,
            rows,
            live: 0,
            is_listed,
        }));
        u32::try_from(self.0.len()).unwrap_or(0)
    }

    fn get(&mut self, number: u32) -> Option<&mut Index> {
        let at = usize::try_from(number.checked_sub(1)?).ok()?;
        self.0.get_mut(at)?.as_mut()
    }

    pub(crate) fn knows(&self, path: &str) -> bool {
        self.0.iter().flatten().any(|index| index.path == path)
    }

    /// Counts a row of an index as live.
    pub(crate) fn add_live(&mut self, number: u32) {
        if let Some(index) = self.get(number) {
            index.live += 1;
        }
    }

    /// Counts a row of an index as not live any more.
    pub(crate) fn remove_live(&mut self, number: u32) {
        if let Some(index) = self.get(number) {
            index.live = index.live.saturating_sub(1);
        }
    }

    /// Returns the indexes of a rank that should be compacted: those with less than half of their rows live, and all small ones if
    /// there are many.
    pub(crate) fn to_compact(&self, rank: u32) -> Vec<u32> {
        let own = (1..).zip(&self.0).filter_map(|(number, index)| {
            let index = index.as_ref().filter(|index| index.rank == rank)?;
            Some((number, index))
        });
        let (small, large): (Vec<_>, Vec<_>) =
            own.partition(|(_, index)| 2 * index.live < MOST_ROWS);
        // An index that could not be read has no rows.
        let is_sparse = |(_, index): &(u32, &Index)| index.live == 0 || 2 * index.live < index.rows;
        let many = small.len() >= SMALL_ONES;
        let small = small.into_iter().filter(|index| many || is_sparse(index));
        let chosen = small.chain(large.into_iter().filter(is_sparse));
        chosen.map(|(number, _)| number).collect()
    }

    /// Removes the entry of an index. Returns its path, for the removal from the store.
    pub(crate) fn remove(&mut self, number: u32) -> Option<String> {
        let at = usize::try_from(number.checked_sub(1)?).ok()?;
        Some(self.0.get_mut(at)?.take()?.path)
    }

    /// Removes the entries of indexes that a listing showed before and this one does not.
    pub(crate) fn retain(&mut self, is_there: impl Fn(&str) -> bool) {
        for entry in &mut self.0 {
            let shown = entry.as_mut().map(|index| {
                let before = std::mem::replace(&mut index.is_listed, is_there(&index.path));
                before && !index.is_listed
            });
            if shown == Some(true) {
                *entry = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worn_ones_are_those_with_few_rows_that_count_and_many_small_ones() {
        let mut indexes = Indexes::default();
        let large = indexes.add("large".to_owned(), 0, MOST_ROWS, true);
        let other = indexes.add("other".into(), 1, BATCH, true);
        (0..MOST_ROWS).for_each(|_| indexes.add_live(large));
        assert!(indexes.to_compact(0).is_empty());
        assert_eq!(indexes.to_compact(1), [other], "nothing of it counts");
        let small: Vec<u32> = (0..SMALL_ONES)
            .map(|number| indexes.add(number.to_string(), 0, 1, true))
            .collect();
        assert_eq!(indexes.to_compact(0), small, "they are empty");
        small.iter().for_each(|number| indexes.add_live(*number));
        assert_eq!(indexes.to_compact(0), small, "they are many");
        assert_eq!(indexes.remove(small[0]), Some("0".into()));
        assert_eq!(indexes.remove(small[1]), Some("1".into()));
        assert!(indexes.to_compact(0).is_empty());
        (0..=MOST_ROWS / 2).for_each(|_| indexes.remove_live(large));
        assert_eq!(indexes.to_compact(0), [large]);
        assert!(indexes.knows("large") && !indexes.knows("0"));
        indexes.retain(|path| path != "large");
        assert!(!indexes.knows("large"));
        // A listing that lags behind what was written.
        indexes.add("new".to_owned(), 0, BATCH, false);
        indexes.retain(|_| false);
        assert!(indexes.knows("new"));
        indexes.retain(|path| path == "new");
        indexes.retain(|_| false);
        assert!(!indexes.knows("new"));
    }
}

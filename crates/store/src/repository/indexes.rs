//! Indexes: objects with the heads of up to [`MOST_ROWS`] others, so that a history is opened with one request for thousands of
//! versions. They are a cache: a row is valid if the store lists its object with the size and tag of the row, and the process
//! that writes as a rank writes missing rows anew. `rows` has the bytes of a row.

/// Rows are written for objects without one when there are so many of these.
pub(crate) const BATCH: usize = 1024;
/// Rows of the largest index.
pub(crate) const MOST_ROWS: usize = 16 * BATCH;
/// So many indexes that are less than half full are joined.
const SMALL_ONES: usize = 16;

/// An index that lies in the store.
#[derive(Debug)]
struct Index {
    path: String,
    rank: u32,
    rows: usize,
    /// Rows that are valid, and not in a newer index.
    live: usize,
}

/// The indexes in the store, each numbered from 1 in the order in which it was entered.
#[derive(Debug, Default)]
pub(crate) struct Indexes(Vec<Option<Index>>);

impl Indexes {
    /// Enters an index of `rows` rows, and returns its number.
    pub(crate) fn add(&mut self, path: String, rank: u32, rows: usize) -> u32 {
        let live = 0;
        self.0.push(Some(Index {
            path,
            rank,
            rows,
            live,
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

    /// The indexes of a rank to be compacted: those of which less than half is live, and small ones if there are many.
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

    /// Forgets an index, and returns its path, to be removed from the store.
    pub(crate) fn remove(&mut self, number: u32) -> Option<String> {
        let at = usize::try_from(number.checked_sub(1)?).ok()?;
        Some(self.0.get_mut(at)?.take()?.path)
    }

    /// Forgets the indexes that are not in the store any more.
    pub(crate) fn retain(&mut self, is_there: impl Fn(&str) -> bool) {
        for index in &mut self.0 {
            if index.as_ref().is_some_and(|index| !is_there(&index.path)) {
                *index = None;
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
        let large = indexes.add("large".to_owned(), 0, MOST_ROWS);
        let other = indexes.add("other".into(), 1, BATCH);
        (0..MOST_ROWS).for_each(|_| indexes.add_live(large));
        assert!(indexes.to_compact(0).is_empty());
        assert_eq!(indexes.to_compact(1), [other], "nothing of it counts");
        let small: Vec<u32> = (0..SMALL_ONES)
            .map(|number| indexes.add(number.to_string(), 0, 1))
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
    }
}

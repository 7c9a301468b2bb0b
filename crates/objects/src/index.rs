//! Objects that hold heads of others, so that a history is opened with a request for thousands of versions and not with
//! one for each. They are a cache: a row counts if the list of the store has the object that it is of, unchanged, and whoever
//! writes as a rank makes anew what is missing.

use object_store::path::Path;

/// Pieces that have no row yet are given one when there are so many.
pub(crate) const BATCH: usize = 1024;
/// Rows of the largest index.
pub(crate) const MOST_ROWS: usize = 16 * BATCH;
/// So many indexes that are not half full are made one.
const SMALL_ONES: usize = 16;

/// An index that lies in the store.
#[derive(Debug)]
struct Index {
    path: Path,
    rank: u32,
    rows: usize,
    /// Rows that count.
    live: usize,
}

/// Which indexes lie in the store.
#[derive(Debug, Default)]
pub(crate) struct Indexes(Vec<Option<Index>>);

impl Indexes {
    /// Takes an index of `rows`; the number by which it is called from now on.
    pub(crate) fn add(&mut self, path: Path, rank: u32, rows: usize) -> u32 {
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

    pub(crate) fn knows(&self, path: &Path) -> bool {
        self.0.iter().flatten().any(|index| index.path == *path)
    }

    /// A row counts.
    pub(crate) fn gain(&mut self, number: u32) {
        if let Some(index) = self.get(number) {
            index.live += 1;
        }
    }

    /// A row counts no more.
    pub(crate) fn lose(&mut self, number: u32) {
        if let Some(index) = self.get(number) {
            index.live = index.live.saturating_sub(1);
        }
    }

    /// Those of a rank that are better written anew: with few rows that count, or many small ones.
    pub(crate) fn worn(&self, rank: u32) -> Vec<u32> {
        let own = (1..).zip(&self.0).filter_map(|(number, index)| {
            let index = index.as_ref().filter(|index| index.rank == rank)?;
            Some((number, index))
        });
        let (small, large): (Vec<_>, Vec<_>) =
            own.partition(|(_, index)| 2 * index.live < MOST_ROWS);
        // One that could not be read has no rows.
        let is_worn = |(_, index): &(u32, &Index)| index.live == 0 || 2 * index.live < index.rows;
        let many = small.len() >= SMALL_ONES;
        let small = small.into_iter().filter(|index| many || is_worn(index));
        let worn = small.chain(large.into_iter().filter(is_worn));
        worn.map(|(number, _)| number).collect()
    }

    /// Forgets one, which is to be removed from the store.
    pub(crate) fn take(&mut self, number: u32) -> Option<Path> {
        let at = usize::try_from(number.checked_sub(1)?).ok()?;
        Some(self.0.get_mut(at)?.take()?.path)
    }

    /// Forgets those that are not in the store any more.
    pub(crate) fn retain(&mut self, is_there: impl Fn(&Path) -> bool) {
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
        let large = indexes.add("large".into(), 0, MOST_ROWS);
        let other = indexes.add("other".into(), 1, BATCH);
        (0..MOST_ROWS).for_each(|_| indexes.gain(large));
        assert!(indexes.worn(0).is_empty());
        assert_eq!(indexes.worn(1), [other], "nothing of it counts");
        let small: Vec<u32> = (0..SMALL_ONES)
            .map(|number| indexes.add(format!("{number}").into(), 0, 1))
            .collect();
        assert_eq!(indexes.worn(0), small, "they are empty");
        small.iter().for_each(|number| indexes.gain(*number));
        assert_eq!(indexes.worn(0), small, "they are many");
        assert_eq!(indexes.take(small[0]), Some("0".into()));
        assert_eq!(indexes.take(small[1]), Some("1".into()));
        assert!(indexes.worn(0).is_empty());
        (0..=MOST_ROWS / 2).for_each(|_| indexes.lose(large));
        assert_eq!(indexes.worn(0), [large]);
        assert!(indexes.knows(&"large".into()) && !indexes.knows(&"0".into()));
        indexes.retain(|path| *path != "large".into());
        assert!(!indexes.knows(&"large".into()));
    }
}

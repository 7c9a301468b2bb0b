//! Keeps the last version that can be restored.

use super::Piece;
use crate::Result;

/// Returns the version that must stay although a retention gives it up: the newest of `going` that `can_be_restored`, or `None` if
/// one of `staying` can be. Both lists are in ascending order, and the newest versions are checked first.
pub fn last_restorable(
    staying: impl IntoIterator<Item = u64, IntoIter: DoubleEndedIterator>,
    going: impl IntoIterator<Item = u64, IntoIter: DoubleEndedIterator>,
    mut can_be_restored: impl FnMut(u64) -> bool,
) -> Option<u64> {
    let mut staying = staying.into_iter().rev();
    if staying.any(&mut can_be_restored) {
        return None;
    }
    let mut going = going.into_iter().rev();
    going.find(|version| can_be_restored(*version))
}

/// Returns true if all ranks can restore a version and all of its bases: if all pieces are there, and all checksums match in the
/// pieces of the ranks for which `is_read` returns true.
pub(crate) fn can_be_restored(
    version: u64,
    piece_of: impl Fn(u64, u32) -> Result<Piece>,
    is_read: impl Fn(u32) -> bool,
) -> bool {
    let base_of = |version| -> Result<Option<u64>> {
        let first = piece_of(version, 0)?;
        let mut base = first.head().base;
        for rank in 0..first.rank().1 {
            let piece = piece_of(version, rank)?;
            base = base.max(piece.head().base);
            if is_read(rank) {
                piece.verify(&|_| {})?;
            }
        }
        Ok(base)
    };
    let mut next = Some(version);
    while let Some(version) = next {
        match base_of(version) {
            Ok(base) => next = base,
            Err(_) => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_sound_one_stays_if_none_else_does() {
        let last = |sound: &[u64]| last_restorable([7, 8, 9], 1..=6, |one| sound.contains(&one));
        assert_eq!(last(&[2, 4, 7]), None);
        assert_eq!(last(&[2, 4]), Some(4));
        assert_eq!(last(&[]), None);
        assert_eq!(last_restorable([], [], |_| true), None);
    }

    #[test]
    fn no_more_is_read_than_it_takes() {
        let mut read = Vec::new();
        last_restorable(5..=9, 1..=4, |version| {
            read.push(version);
            version == 3
        });
        assert_eq!(read, [9, 8, 7, 6, 5, 4, 3]);
    }
}

//! A read or copy of a cancelled piece stops at its next block.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tierflow_store::{Error, Options, Piece, Region, Repository, Snapshot, Vault};

/// Bytes of a piece: eight blocks.
const SIZE: usize = 32 << 20;

/// Reads or copies a piece.
type Way<'a> = dyn FnMut(&Piece) -> tierflow_store::Result<()> + 'a;

/// Returns a piece that is cancelled at its third block, and the number of blocks at which the piece was asked.
fn cancelled(repository: &Repository) -> (Piece, Arc<AtomicUsize>) {
    let asked = Arc::<AtomicUsize>::default();
    let asks = Arc::clone(&asked);
    let piece = repository.own_piece(0).unwrap();
    let piece = piece.unless(move || asks.fetch_add(1, Ordering::Relaxed) >= 2);
    (piece, asked)
}

#[test]
fn a_cancelled_piece_is_read_and_copied_to_its_next_block_at_most() {
    let home = tempfile::tempdir().unwrap();
    let open = |name: &str| Repository::open(home.path().join(name), Options::default()).unwrap();
    let (from, to) = (open("from"), open("to"));
    let mut bytes = vec![1; SIZE];
    let regions = [Region::new("state", &bytes)];
    let snapshot = Snapshot::new(0, &regions);
    from.save(&snapshot).unwrap();
    let ways: [&mut Way<'_>; 5] = [
        &mut |piece| piece.restore(&mut [("state", bytes.as_mut_slice())]),
        &mut |piece| piece.verify(&|_| {}),
        &mut |piece| piece.read_through("state", &mut |_, _| Ok(())),
        &mut |piece| to.copy(piece),
        &mut |piece| Vault::copy(&to, piece, &|| Ok(())),
    ];
    for way in ways {
        let (piece, asked) = cancelled(&from);
        let read = way(&piece);
        assert!(matches!(read, Err(Error::Cancelled)), "{read:?}");
        // Each of the threads that read side by side may ask once more.
        let asked = asked.load(Ordering::Relaxed);
        assert!(asked < 8, "{asked} blocks of 8");
        assert!(to.versions().unwrap().is_empty());
    }
    let piece = from.own_piece(0).unwrap().unless(|| false);
    to.copy(&piece).unwrap();
    assert_eq!(to.versions().unwrap().len(), 1);
}

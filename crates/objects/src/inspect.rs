//! Looking into objects, several at a time.

use crate::catalog::Entry;
use crate::name::{Holds, Name};
use crate::remote::{Object, Remote};
use crate::seen::{Found, sum_of};
use object_store::ObjectMeta;
use object_store::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use tierflow_store::container::{Kind, rows};
use tierflow_store::{Error, Piece, Result};

/// Objects looked at at a time.
const AT_A_TIME: usize = 16;
/// Indexes read at a time: each has 2 MiB at most.
const INDEXES_AT_A_TIME: usize = 4;
/// Bytes of an object that are asked for at first: most heads, and the lists of most groups.
pub(crate) const FIRST: u64 = 16 << 10;

/// What the rows of an index are called in it.
pub(crate) const ROWS: &str = "heads";

/// Does `work` with all of `items`, so many at a time, and hands on what came of each as it does.
fn side_by_side<T: Send, O: Send>(
    at_a_time: usize,
    items: Vec<T>,
    work: impl Fn(T) -> Result<O> + Sync,
    done: impl FnMut(O) + Send,
) -> Result<()> {
    let threads = items.len().min(at_a_time);
    let queue = Mutex::new(items.into_iter());
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
    let (done, failed) = (Mutex::new(done), Mutex::new(None));
    let work = || {
        while let Some(item) = next() {
            match work(item) {
                Ok(outcome) => (done.lock().unwrap_or_else(PoisonError::into_inner))(outcome),
                Err(error) => {
                    // The others need not go on.
                    while next().is_some() {}
                    let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                    failed.get_or_insert(error);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            // One that cannot be had is one less.
            let _ended_with_the_scope = std::thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    failed.map_or(Ok(()), Err)
}

/// What objects hold; `None` for those that are not there any more.
pub(crate) fn at_all(
    remote: &Arc<Remote>,
    prefix: &Path,
    entries: Vec<Entry>,
) -> Result<Vec<(Entry, Option<Found>)>> {
    let mut all = Vec::with_capacity(entries.len());
    let look = |entry: Entry| Ok((entry, at(remote, prefix, &entry)?));
    side_by_side(AT_A_TIME, entries, look, |found| all.push(found))?;
    Ok(all)
}

fn at(remote: &Arc<Remote>, prefix: &Path, entry: &Entry) -> Result<Option<Found>> {
    match record(remote, entry.name, entry.name.path(prefix), entry.size) {
        Ok(found) => Ok(found),
        Err(Error::Damaged { offset, what, .. }) => Ok(Some(Found::Damaged { offset, what })),
        Err(error) => Err(error),
    }
}

fn record(remote: &Arc<Remote>, name: Name, path: Path, size: u64) -> Result<Option<Found>> {
    let Some(first) = remote.read(&path, 0..size.min(FIRST))? else {
        return Ok(None);
    };
    let shown = path.to_string();
    let piece = Piece::elsewhere(
        Object {
            remote: Arc::clone(remote),
            path,
            size,
            first: first.into(),
        },
        &shown,
        1,
        None,
    )?;
    let head = piece.head();
    let kind = match name.holds {
        Holds::Piece => Kind::Piece,
        Holds::Manifest => Kind::Manifest,
    };
    if (head.version, head.rank, head.kind) != (name.version, name.rank, kind) {
        return Err(Error::Damaged {
            path: shown.into(),
            offset: 0,
            what: "it does not hold what its name says",
            older: None,
        });
    }
    Ok(Some(match name.holds {
        Holds::Piece => Found::piece(head),
        Holds::Manifest => {
            let order = (head.epoch, head.sequence);
            Found::Manifest(order, sum_of(rows(&piece.read("pieces")?)))
        }
    }))
}

/// Reads indexes, and hands the rows of each on as they come. One that is not there any more, or damaged, has none.
pub(crate) fn at_indexes(
    remote: &Arc<Remote>,
    indexes: Vec<(u32, ObjectMeta)>,
    mut take: impl FnMut(u32, Path, Vec<u8>) + Send,
) -> Result<()> {
    let read = |(rank, meta): (u32, ObjectMeta)| {
        let path = meta.location;
        let Some(bytes) = remote.read(&path, 0..meta.size)? else {
            return Ok((rank, path, Vec::new()));
        };
        let object = Object {
            remote: Arc::clone(remote),
            path: path.clone(),
            size: meta.size,
            first: bytes.into(),
        };
        let piece = Piece::elsewhere(object, path.as_ref(), 1, None);
        let rows = piece.and_then(|piece| match piece.head().kind {
            Kind::Index if piece.head().rank == rank => piece.read(ROWS),
            _ => Ok(Vec::new()),
        });
        match rows {
            Err(error @ Error::Remote(_)) => Err(error),
            rows => Ok((rank, path, rows.unwrap_or_default())),
        }
    };
    let take = |(rank, path, rows)| take(rank, path, rows);
    side_by_side(INDEXES_AT_A_TIME, indexes, read, take)
}

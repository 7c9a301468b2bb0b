//! Reads heads and indexes of objects, several at a time.

use crate::catalog::ListEntry;
use crate::entry::{Content, sum_of};
use crate::name::{Name, ObjectKind};
use crate::remote::{Object, Remote};
use object_store::ObjectMeta;
use object_store::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use tierflow_store::container::{Kind, rows};
use tierflow_store::{Error, Piece, Result};

/// Objects whose heads are read at a time.
const AT_A_TIME: usize = 16;
/// Indexes read at a time: each has 2 MiB at most.
const INDEXES_AT_A_TIME: usize = 4;
/// Bytes of the first request for an object: most heads, and the manifests of most groups, are shorter.
pub(crate) const FIRST: u64 = 16 << 10;

/// The name of an index's region.
pub(crate) const ROWS: &str = "heads";

/// Calls `work` with each of `items`, so many at a time, and `done` with each result. Returns the first error.
fn in_parallel<T: Send, O: Send>(
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
                    // The rest is not begun.
                    while next().is_some() {}
                    let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                    failed.get_or_insert(error);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            // A thread that cannot be started is one less.
            let _ended_with_the_scope = std::thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    failed.map_or(Ok(()), Err)
}

/// Reads the heads of objects; `None` for those that are not there any more.
pub(crate) fn heads(
    remote: &Arc<Remote>,
    prefix: &Path,
    listed: Vec<ListEntry>,
) -> Result<Vec<(ListEntry, Option<Content>)>> {
    let mut all = Vec::with_capacity(listed.len());
    let read = |listed: ListEntry| Ok((listed, head(remote, prefix, &listed)?));
    in_parallel(AT_A_TIME, listed, read, |content| all.push(content))?;
    Ok(all)
}

/// Asks for objects by their names, whatever lists have of them; those that are not there are left out.
pub(crate) fn by_name(
    remote: &Arc<Remote>,
    prefix: &Path,
    names: Vec<Name>,
) -> Result<Vec<ListEntry>> {
    let mut all = Vec::with_capacity(names.len());
    let look = |name: Name| {
        let meta = remote.head(&name.path(prefix))?;
        Ok(meta.map(|meta| ListEntry::new(name, &meta)))
    };
    in_parallel(AT_A_TIME, names, look, |listed| all.extend(listed))?;
    Ok(all)
}

fn head(remote: &Arc<Remote>, prefix: &Path, listed: &ListEntry) -> Result<Option<Content>> {
    match record(remote, listed.name, listed.name.path(prefix), listed.size) {
        Ok(content) => Ok(content),
        Err(Error::Damaged { offset, what, .. }) => Ok(Some(Content::Damaged { offset, what })),
        Err(error) => Err(error),
    }
}

fn record(remote: &Arc<Remote>, name: Name, path: Path, size: u64) -> Result<Option<Content>> {
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
    let kind = match name.kind {
        ObjectKind::Piece => Kind::Piece,
        ObjectKind::Manifest => Kind::Manifest,
    };
    if (head.version, head.rank, head.kind) != (name.version, name.rank, kind) {
        return Err(Error::Damaged {
            path: shown.into(),
            offset: 0,
            what: "it does not hold what its name says",
            older: None,
        });
    }
    Ok(Some(match name.kind {
        ObjectKind::Piece => Content::piece(head),
        ObjectKind::Manifest => {
            let order = (head.epoch, head.sequence);
            Content::Manifest(order, sum_of(rows(&piece.read("pieces")?)))
        }
    }))
}

/// Reads indexes, and calls `take` with the rows of each. An index that is not there any more, or damaged, has none.
pub(crate) fn indexes(
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
    in_parallel(INDEXES_AT_A_TIME, indexes, read, take)
}

//! Packs small records into segments. Callers that save at the same time share one write and one synchronisation (group commit).

use super::aligned::Aligned;
use super::batch::{Batch, batch_index, row, whole_index};
use super::directory::{Directory, Readers};
use super::quota::{Purpose, segment_bytes};
use super::record::{Name, Record};
use super::seen::FileEntry;
use crate::container::IndexRow;
use crate::file::{BLOCK, File};
use crate::panics::guarded;
use crate::{Error, Result, Storage};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tierflow_sync::{Condvar, Mutex, MutexGuard, rank};

/// Length in bytes at which a segment is closed and another one begun.
pub(super) const SEGMENT_BYTES: u64 = 64 << 20;
/// Bytes that are reserved for a new segment. Later, as many bytes are reserved as are in use.
const FIRST_BYTES: u64 = 256 << 10;
/// Bytes of one write.
const WRITE_BYTES: usize = 4 << 20;
/// The longest wait for callers that are likely to come: about a slow disk's write. The last write may have hung for hours.
const LONGEST_GATHERING: Duration = Duration::from_millis(20);

/// A segment that is being written.
#[derive(Debug)]
struct Open {
    number: u64,
    file: File,
    /// End of the bytes that are on the disk, a multiple of [`BLOCK`].
    end: u64,
    /// End of the reserved bytes.
    reserved: u64,
    /// Bytes of the directory's limit that are claimed for the segment.
    claimed: u64,
    /// The highest epoch of a record in the segment.
    epoch: u32,
    index: Vec<IndexRow>,
}

/// The state that one caller owns while it writes.
#[derive(Debug)]
struct Writing {
    open: Option<Open>,
    memory: Aligned,
    /// True if the limit had no room for the batches, so that nothing was written.
    is_refused: bool,
}

/// The callers whose batches are written together. `outcome` is set when the write has ended.
#[derive(Debug, Default)]
struct Group {
    outcome: OnceLock<Result<()>>,
}

#[derive(Debug, Default)]
struct Queue {
    /// The batches that are written next; `group` is the group of their callers.
    waiting: Vec<Batch>,
    group: Arc<Group>,
    /// True if a caller is writing batches that were queued before.
    is_led: bool,
    /// Number of callers in the last group, plus those that came while it was written: so many are likely to come again.
    expected: usize,
    /// The time that the write of the last group took.
    took: Duration,
    open: Option<Open>,
    /// The buffer in which the bytes of a write are assembled.
    memory: Aligned,
}

impl Queue {
    /// Returns true if no caller is writing, and as many batches wait as are expected.
    fn is_gathered(&self) -> bool {
        !self.is_led && self.waiting.len() >= self.expected
    }
}

type PackerGuard<'a> = MutexGuard<'a, Queue, { rank::PACKER }>;

/// The segments of one rank.
#[derive(Debug)]
pub(crate) struct Packer {
    directory: Directory,
    /// True if only bytes that are written are reserved.
    is_limited: bool,
    /// Length in bytes at which a segment is closed. With `is_limited`, a segment is closed before a batch would exceed it.
    most: u64,
    /// The number of the newest segment.
    newest: AtomicU64,
    /// The number of the segment to which batches are written, or were written last. The records of all other segments are in the
    /// catalog.
    current: AtomicU64,
    queue: Mutex<Queue, { rank::PACKER }>,
    /// Notified when a group was written, so that the next one may be.
    changed: Condvar,
}

impl Packer {
    pub(crate) fn new(
        directory: Directory,
        newest: u64,
        is_limited: bool,
        limit: Option<u64>,
    ) -> Self {
        Self {
            directory,
            is_limited: is_limited || limit.is_some(),
            most: limit.map_or(SEGMENT_BYTES, segment_bytes),
            newest: AtomicU64::new(newest),
            current: AtomicU64::default(),
            queue: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    fn queue(&self) -> PackerGuard<'_> {
        self.queue.lock()
    }

    fn wait<'a>(
        &'a self,
        mut queue: PackerGuard<'a>,
        until: impl Fn(&Queue) -> bool,
    ) -> PackerGuard<'a> {
        self.changed.wait_while(&mut queue, |queue| !until(queue));
        queue
    }

    /// Waits for the callers of the last group, at most as long as that group's write took, and not longer than [`LONGEST_GATHERING`]. All
    /// of them were woken together and are likely to save again; a synchronisation without them would let them wait for the whole next write.
    fn gather<'a>(
        &'a self,
        mut queue: PackerGuard<'a>,
        until: impl Fn(&Queue) -> bool,
    ) -> PackerGuard<'a> {
        let deadline = Instant::now() + queue.took.min(LONGEST_GATHERING);
        while !until(&queue) && !self.changed.wait_until(&mut queue, deadline).timed_out() {}
        queue
    }

    /// Writes a batch and makes it durable, together with the batches of other callers. A single caller writes for all and
    /// passes the records, with their places, to its `keep`. All callers pass an equivalent `keep`.
    pub(crate) fn save(
        &self,
        batch: Batch,
        keep: impl FnOnce(Vec<Record>) -> Result<()>,
    ) -> Result<()> {
        let mut queue = self.queue();
        queue.waiting.push(batch);
        let group = Arc::clone(&queue.group);
        let is_taken = |queue: &Queue| !Arc::ptr_eq(&queue.group, &group);
        // The first caller of a group waits for the others and writes. If another caller completes the expected number, that caller
        // writes instead: it is already running, whereas the first one would have to be woken.
        let is_first = queue.waiting.len() == 1;
        if is_first {
            queue = self.wait(queue, |queue| is_taken(queue) || !queue.is_led);
            queue = self.gather(queue, |queue| is_taken(queue) || queue.is_gathered());
        }
        if is_taken(&queue) || !is_first && !queue.is_gathered() {
            drop(queue);
            return group.outcome.wait().clone();
        }
        let mut batches = std::mem::take(&mut queue.waiting);
        queue.group = Arc::default();
        queue.is_led = true;
        let mut writing = Writing {
            open: queue.open.take(),
            memory: std::mem::take(&mut queue.memory),
            is_refused: false,
        };
        drop(queue);

        let begun = Instant::now();
        // Even a panic must end the group, since its callers and the next leader wait for an outcome.
        let written = guarded("writing records", || self.write(&mut writing, &mut batches));
        if written.is_err() && !writing.is_refused {
            // The bytes behind the end are unknown, so the file is truncated; the bytes before the end stay.
            if let Some(open) = writing.open.take() {
                let name = Name::Segment(open.number).unpublished();
                if self.directory.truncate(&name, &open.file, open.end).is_ok() {
                    self.directory.give(open.claimed - open.end);
                }
            }
        }
        let took = begun.elapsed();
        let callers = batches.len();
        let records = batches
            .iter_mut()
            .flat_map(|batch| std::mem::take(&mut batch.records));
        let records = records.map(|(_, _, record)| record);
        // `keep` runs before another group is written, since that group may go to another segment.
        let outcome = written.and_then(|()| guarded("noting records", || keep(records.collect())));
        {
            let mut queue = self.queue();
            queue.open = writing.open;
            queue.memory = writing.memory;
            queue.is_led = false;
            queue.took = took;
            queue.expected = callers + queue.waiting.len();
        }
        self.changed.notify_all();
        group.outcome.get_or_init(|| outcome).clone()
    }

    fn write(&self, writing: &mut Writing, batches: &mut [Batch]) -> Result<()> {
        let Writing {
            open,
            memory,
            is_refused,
        } = writing;
        let bytes: usize = batches.iter().map(|batch| batch.bytes.len()).sum();
        let is_complete = |open: &Open| match self.is_limited {
            true => open.end > 0 && open.end + bytes as u64 > self.most,
            false => open.end >= self.most,
        };
        if let Some(complete) = open.take_if(|open| is_complete(open)) {
            self.close(&complete)?;
        }
        let open = match open {
            Some(open) => open,
            None => open.insert(self.begin()?),
        };
        let file = Name::Segment(open.number);
        let mut at = open.end;
        for batch in &mut *batches {
            batch.place(file, at);
            at += batch.bytes.len() as u64;
        }
        let written = batches.iter().flat_map(|batch| &batch.records);
        let written: Vec<&Record> = written.map(|(_, _, record)| record).collect();
        let list = batch_index(&written, at)?;
        at += list.len() as u64;
        let length = at.next_multiple_of(BLOCK as u64);
        let more = length.saturating_sub(open.claimed);
        *is_refused = true;
        self.directory.claim(more, Purpose::Piece)?;
        *is_refused = false;
        open.claimed += more;
        if at > open.reserved {
            let more = match self.is_limited {
                true => at,
                false => at.max((2 * open.end).min(self.most)),
            };
            match self.directory.reserve(&open.file, more) {
                // The present records may fit all the same.
                Ok(()) | Err(Error::Full { .. }) => open.reserved = more,
                failed => failed?,
            }
        }
        let parts = batches.iter().map(|batch| batch.bytes.as_slice());
        let parts = parts.chain([list.as_slice()]);
        let end = write_all(&open.file, open.end, parts, memory)?;
        self.directory.sync_file(&file.unpublished(), &open.file)?;
        open.end = end;
        let records = batches.iter().flat_map(|batch| &batch.records);
        for (_, _, record) in records {
            open.epoch = open.epoch.max(record.identity.epoch);
            open.index.push(row(record));
        }
        Ok(())
    }

    /// Returns the number of the next segment.
    fn next(&self) -> u64 {
        self.newest.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns the segment to which a batch may be on its way. For a caller that has locked the catalog, the records of all other
    /// segments are in it.
    pub(crate) fn current(&self) -> Name {
        Name::Segment(self.current.load(Ordering::Acquire))
    }

    fn begin(&self) -> Result<Open> {
        let number = self.next();
        self.current.store(number, Ordering::Release);
        let name = Name::Segment(number).unpublished();
        // Other ranks look for new records in the segment, and this rank restores from it.
        let readers = Readers::Meanwhile;
        let create = |reserve| {
            self.directory
                .create(&name, reserve, readers, Purpose::Piece)
        };
        let reserved = if self.is_limited { 0 } else { FIRST_BYTES };
        let file = match create(reserved) {
            // The present records may fit all the same.
            Err(Error::Full { .. }) => create(0)?,
            file => file?,
        };
        self.directory.sync()?;
        Ok(Open {
            number,
            file,
            end: 0,
            reserved,
            claimed: 0,
            epoch: 0,
            index: Vec::new(),
        })
    }

    /// Closes a segment: writes the index of its records at the end, and publishes it. If that fails, the segment stays readable as
    /// it is, and is closed when the directory is opened again.
    fn close(&self, segment: &Open) -> Result<()> {
        let file = Name::Segment(segment.number);
        let name = file.unpublished();
        if segment.index.is_empty() {
            return self.directory.remove(&name);
        }
        let index = whole_index(&segment.index, segment.epoch, segment.end)?;
        let length = segment.end + index.len().next_multiple_of(BLOCK) as u64;
        let more = length.saturating_sub(segment.claimed);
        self.directory.claim(more, Purpose::Upkeep)?;
        let write = || {
            let parts = [index.as_slice()];
            let end = write_all(&segment.file, segment.end, parts, &mut Aligned::default())?;
            self.directory.truncate(&name, &segment.file, end)?;
            self.directory.sync_file(&name, &segment.file)?;
            self.directory.publish(&name, &file.published())
        };
        write().inspect_err(|_| {
            let counted = |name: &str| self.directory.counted(name);
            let taken = counted(&name).max(counted(&file.published()));
            let taken = taken.next_multiple_of(BLOCK as u64);
            let claimed = segment.claimed + more;
            self.directory.give(claimed.saturating_sub(taken));
        })
    }

    /// Publishes the current segment. The next save begins another one.
    pub(crate) fn finish(&self) -> Result<()> {
        let mut queue = self.wait(self.queue(), |queue| !queue.is_led);
        let open = queue.open.take();
        open.map_or(Ok(()), |open| self.close(&open))
    }

    /// Writes a batch as a whole segment under a new number. Overwrites no segment, so a reader finds either the old segment or
    /// this one.
    pub(crate) fn rewrite(&self, batch: &mut Batch) -> Result<Vec<Record>> {
        let number = self.next();
        let file = Name::Segment(number);
        batch.place(file, 0);
        let records = batch.records.iter().map(|(_, _, record)| record);
        let rows: Vec<IndexRow> = records.clone().map(row).collect();
        let length = batch.bytes.len().next_multiple_of(BLOCK) as u64;
        let epochs = records.clone().map(|record| record.identity.epoch);
        let index = whole_index(&rows, epochs.max().unwrap_or(0), length)?;

        let name = format!("s{number:020}.tmp");
        self.directory.remove(&name)?;
        let reserve = length + index.len().next_multiple_of(BLOCK) as u64;
        let readers = Readers::Later;
        let output = self
            .directory
            .create(&name, reserve, readers, Purpose::Upkeep)?;
        let write = || {
            let end = write_all(
                &output,
                0,
                [batch.bytes.as_slice()],
                &mut Aligned::default(),
            )?;
            let end = write_all(&output, end, [index.as_slice()], &mut Aligned::default())?;
            self.directory.truncate(&name, &output, end)?;
            self.directory.sync_file(&name, &output)?;
            self.directory.publish(&name, &file.published())
        };
        write().inspect_err(|_| {
            let _left_to_recovery = self.directory.remove(&name);
        })?;
        Ok(records.cloned().collect())
    }
}

/// Closes a segment that a process left open. Writes an index behind all bytes that must stay, and publishes the segment. The index
/// lists the sound records, and damaged ones that indexes of batches list.
pub(super) fn close_left(directory: &Directory, file: Name, seen: &FileEntry) -> Result<()> {
    let name = file.unpublished();
    let output = directory.go_on(&name)?;
    let rest = seen.details().whole % BLOCK as u64;
    let mut end = seen.details().whole - rest;
    if rest > 0 {
        // The file may end within the block.
        directory.truncate(&name, &output, end + BLOCK as u64)?;
        // The bytes behind it never became a batch.
        let mut memory = Aligned::default();
        let block = memory.get_mut(BLOCK);
        output.read_at(end, block)?;
        block[rest as usize..].fill(0);
        output.write_at(end, block)?;
        end += BLOCK as u64;
    }
    let mut rows: BTreeMap<u64, IndexRow> = BTreeMap::new();
    rows.extend(seen.details().listed.iter().map(|row| (row.position, *row)));
    let records = seen.records.iter().map(row);
    rows.extend(records.map(|row| (row.position, row)));
    let rows: Vec<IndexRow> = rows.into_values().collect();
    let epochs = seen.records.iter().map(|record| record.identity.epoch);
    let list = whole_index(&rows, epochs.max().unwrap_or(0), end)?;
    let end = write_all(&output, end, [list.as_slice()], &mut Aligned::default())?;
    directory.truncate(&name, &output, end)?;
    directory.sync_file(&name, &output)?;
    directory.publish(&name, &file.published())
}

impl Drop for Packer {
    fn drop(&mut self) {
        let _left_to_recovery = self.finish();
    }
}

/// Writes `parts` one after the other from `offset` on, a multiple of [`BLOCK`], and zeros up to the next multiple, which is
/// returned.
fn write_all<'a>(
    file: &impl Storage,
    offset: u64,
    parts: impl IntoIterator<Item = &'a [u8]>,
    memory: &mut Aligned,
) -> Result<u64> {
    let parts: Vec<&[u8]> = parts.into_iter().collect();
    let total: usize = parts.iter().map(|part| part.len()).sum();
    let capacity = total.next_multiple_of(BLOCK).min(WRITE_BYTES);
    let (mut at, mut filled) = (offset, 0);
    for mut part in parts {
        while !part.is_empty() {
            let buffer = memory.get_mut(capacity);
            let (now, later) = part.split_at(part.len().min(capacity - filled));
            buffer[filled..filled + now.len()].copy_from_slice(now);
            filled += now.len();
            part = later;
            if filled == capacity {
                file.write_at(at, buffer)?;
                at += filled as u64;
                filled = 0;
            }
        }
    }
    if filled > 0 {
        let whole = filled.next_multiple_of(BLOCK);
        let buffer = memory.get_mut(capacity);
        buffer[filled..whole].fill(0);
        file.write_at(at, &buffer[..whole])?;
        at += whole as u64;
    }
    Ok(at)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use super::*;
    use crate::injected::Injected;
    use std::sync::mpsc::channel;

    #[test]
    fn a_panic_of_the_leader_ends_its_group() {
        let place = tempfile::tempdir().unwrap();
        let directory = Directory::open(place.path(), false, Injected::default()).unwrap();
        let packer = Packer::new(directory, 0, false, None);
        let (ended, end) = channel();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                let (packer, ended) = (&packer, ended.clone());
                scope.spawn(move || {
                    let saved = packer.save(Batch::default(), |_| panic!("planted"));
                    ended.send(saved).unwrap();
                });
            }
            for _ in 0..2 {
                let saved = end.recv_timeout(Duration::from_secs(20));
                assert!(
                    matches!(saved, Ok(Err(Error::Panicked { .. }))),
                    "{saved:?}"
                );
            }
        });
        packer.save(Batch::default(), |_| Ok(())).unwrap();
    }

    /// The storage hung while a group was written, and the other callers of that group do not come again.
    #[test]
    fn a_write_that_took_long_lets_no_caller_wait_for_others_as_long() {
        let place = tempfile::tempdir().unwrap();
        let directory = Directory::open(place.path(), false, Injected::default()).unwrap();
        let packer = Arc::new(Packer::new(directory, 0, false, None));
        {
            let mut queue = packer.queue();
            queue.took = Duration::from_secs(600);
            queue.expected = 3;
        }
        let (ended, end) = channel();
        let other = Arc::clone(&packer);
        std::thread::spawn(move || ended.send(other.save(Batch::default(), |_| Ok(()))));
        end.recv_timeout(Duration::from_secs(60)).unwrap().unwrap();
    }
}

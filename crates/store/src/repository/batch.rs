//! Records that are written together, and the indexes that list them.

use super::encoded::RecordLabel;
use super::record::{Name, Record};
use super::snapshot::{Layout, Region, Snapshot};
use crate::Result;
use crate::container::{IndexRow, Kind, checksum, encode_rows};

/// Offset of the record's position within its head, in bytes.
const POSITION: usize = 24;

/// Records back to back, as they will lie in a segment except for their positions.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) bytes: Vec<u8>,
    /// For each record: its offset in `bytes`, the length of its head in bytes, and its description.
    pub(crate) records: Vec<(usize, usize, Record)>,
}

impl Batch {
    /// Appends a record that [`Layout::encode`] made or that was read from a segment.
    pub(crate) fn push(&mut self, record: &[u8], head: usize, known: Record) {
        self.records.push((self.bytes.len(), head, known));
        self.bytes.extend_from_slice(record);
    }

    /// Encodes a record and appends it.
    pub(crate) fn encode(&mut self, layout: &mut Layout<'_>) -> Result<()> {
        let at = self.bytes.len();
        let head = layout.encode(&mut self.bytes)?;
        let record = Record::new(Name::Segment(0), 0, &layout.head);
        self.records.push((at, head, record));
        Ok(())
    }

    /// Sets the place of the records: they lie in `file`, the first at `position`.
    pub(super) fn place(&mut self, file: Name, position: u64) {
        for (at, head, record) in &mut self.records {
            record.file = file;
            record.position = position + *at as u64;
            let head = &mut self.bytes[*at..*at + *head];
            head[POSITION..POSITION + 8].copy_from_slice(&record.position.to_le_bytes());
            let (covered, sum) = head.split_at_mut(head.len() - 8);
            sum.copy_from_slice(&checksum(covered).to_le_bytes());
        }
    }
}

/// Returns the row of a record in an index.
pub(super) fn row(record: &Record) -> IndexRow {
    IndexRow {
        version: record.version,
        position: record.position,
        sequence: record.identity.sequence,
        record_length: record.record_length,
    }
}

/// Returns the index that ends a batch of these records. The index will lie at `position`, and proves later that the records were
/// there.
pub(super) fn batch_index(records: &[&Record], position: u64) -> Result<Vec<u8>> {
    let rows: Vec<IndexRow> = records.iter().copied().map(row).collect();
    let orders = records.iter().map(|record| record.identity.order());
    let (epoch, sequence) = orders.max().unwrap_or_default();
    index(&rows, epoch, sequence, position)
}

/// Returns the index of a whole segment, which ends the segment. The index has the sequence 0, which no index of a batch has.
pub(super) fn whole_index(rows: &[IndexRow], epoch: u32, position: u64) -> Result<Vec<u8>> {
    index(rows, epoch, 0, position)
}

fn index(rows: &[IndexRow], epoch: u32, sequence: u64, position: u64) -> Result<Vec<u8>> {
    let label = RecordLabel {
        kind: Kind::Index,
        sequence,
        epoch,
        created: 0,
        run: 0,
        rank: 0,
        ranks: 1,
    };
    let list = encode_rows(rows.iter().copied());
    let snapshot = Snapshot {
        version: 0,
        base: None,
        regions: &[Region::new("records", &list)],
    };
    let mut batch = Batch::default();
    batch.encode(&mut Layout::new(&snapshot, label, false)?)?;
    batch.place(Name::Segment(0), position);
    Ok(batch.bytes)
}

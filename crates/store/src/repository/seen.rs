//! Looking through a file: the records that are in it, and what is wrong with it.

use super::directory::Stamp;
use super::handle::Handle;
use super::record::{Name, Record};
use crate::container::{Found, Head, IndexRow, Kind, Row, Source, damaged_block, rows, scan};
use crate::file::BLOCK;
use crate::{Error, Result};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Something in a repository that is not what was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub path: PathBuf,
    /// Where in it, in bytes.
    pub offset: u64,
    /// The version that is hit, where that can be told.
    pub version: Option<u64>,
    /// What is wrong.
    pub what: &'static str,
}

/// A file that was looked through.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(super) stamp: Option<Stamp>,
    pub(super) published: bool,
    /// Where the last record ends: what is behind it in a segment that is still written was not there yet.
    pub(super) end: u64,
    pub(crate) records: Vec<Record>,
    pub(crate) damage: Vec<Damage>,
}

impl Seen {
    pub(super) fn refused(path: PathBuf, what: &'static str, published: bool) -> Self {
        Self {
            published,
            damage: vec![Damage {
                path,
                offset: 0,
                version: None,
                what,
            }],
            ..Self::default()
        }
    }

    pub(super) fn look_through(&mut self, name: Name, handle: &Handle) -> Result<()> {
        let damage = |offset, version, what| Damage {
            path: handle.path().to_path_buf(),
            offset,
            version,
            what,
        };
        let mut index: Option<Vec<IndexRow>> = None;
        let (records, found_damage) = (&mut self.records, &mut self.damage);
        let published = self.published;
        let end = scan(&handle.plain, self.end, |found| {
            let head = match found {
                Found::Record(head) => head,
                // Of a segment that is still written, what is no record yet does not count.
                Found::Damage { .. } if !published => return Ok(false),
                Found::Damage { offset, what } => {
                    found_damage.push(damage(offset, name.version(), what.what()));
                    return Ok(true);
                }
            };
            let mut record = Record::new(name, head.position, &head);
            // What was published is whole, or was; lists are read now, so they are checked now.
            if (!published || head.kind != Kind::Piece)
                && let Some(at) = damaged_block(&handle.plain, &head)?
            {
                if published {
                    found_damage.push(damage(at, Some(head.version), CHECKSUM));
                }
                return Ok(published);
            }
            match head.kind {
                Kind::Piece => records.push(record),
                Kind::Manifest => {
                    record.rows = Some(list(&handle.plain, &head)?);
                    records.push(record);
                }
                Kind::Index => index = Some(list(&handle.plain, &head)?),
            }
            Ok(true)
        })?;
        self.end = end;
        if !published {
            return Ok(());
        }
        let size = handle.plain.size()?;
        if !size.is_multiple_of(BLOCK as u64) {
            self.damage.push(damage(size, None, "the file is cut off"));
        }
        match name {
            Name::Segment(_) => match index {
                Some(rows) => self.compare(&rows, handle),
                None => self.damage.push(damage(
                    end,
                    None,
                    "the list of its records is missing at the segment's end",
                )),
            },
            Name::Alone(version) => {
                self.records.retain(|record| record.version == version);
                if self.records.is_empty() && self.damage.is_empty() {
                    let what = "it does not hold the version that its name says";
                    self.damage.push(damage(0, Some(version), what));
                }
            }
        }
        Ok(())
    }

    /// Finds the records that a segment had and that are not there.
    fn compare(&mut self, rows: &[IndexRow], handle: &Handle) {
        let there: BTreeSet<u64> = self.records.iter().map(|record| record.position).collect();
        for row in rows.iter().filter(|row| !there.contains(&row.position)) {
            let known = self.damage.iter_mut().find(|d| d.offset == row.position);
            match known {
                Some(damage) => damage.version = Some(row.version),
                None => self.damage.push(Damage {
                    path: handle.path().to_path_buf(),
                    offset: row.position,
                    version: Some(row.version),
                    what: "the record is gone",
                }),
            }
        }
    }
}

pub(crate) const CHECKSUM: &str = "a block's checksum does not match";

/// Reads a list of records, whose blocks were checked.
fn list<R: Row>(source: &impl Source<Error = Error>, head: &Head) -> Result<Vec<R>> {
    let Some(region) = head.regions.first() else {
        return Ok(Vec::new());
    };
    // It lies within the file, so it is no longer than that.
    let mut bytes = vec![0; region.length as usize];
    source.read(
        head.position + u64::from(head.length) + region.offset,
        &mut bytes,
    )?;
    Ok(rows(&bytes).collect())
}

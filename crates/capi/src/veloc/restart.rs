//! Restarts: finding the version that all ranks have, and reading its bytes.

use std::path::PathBuf;
use std::sync::Arc;

use tierflow_bind::{CallMemory, Level, to_standard_error};
use tierflow_engine::{RegionMut, read_piece};
use tierflow_objects::History;
use tierflow_store::{Piece, Place};

use super::client::{Client, Protected, State, Which, named, not_begun, of_name};
use super::config::Hints;
use super::files;
use super::foretold::parts;
use super::head::{Content, Head, is_head, part_of};
use super::other_groups::groups_below;
use crate::api::{order, scatter};
use crate::failure::{Failure, Outcome, Status};
use crate::ffi::RawStream;
use crate::memory::{overlap, spans};

/// A restart that was begun.
pub(super) struct Reading {
    head: Head,
    from: From,
}

enum From {
    /// The checkpoint lies in this rank's engine.
    Engine,
    /// A directory or an object store in which another rank's parts lie.
    Rank(Arc<History>, u32),
}

impl Client {
    /// Returns the newest version of a name that all ranks have, no newer than `most`, or the newest of all if `most` is 0. With a `rank`,
    /// returns the newest version of that rank.
    pub(super) fn newest(&self, name: &str, most: i32, rank: Option<u32>) -> Outcome<Option<u64>> {
        let mut most = match named(name, most)? {
            0 => i32::MAX as u64,
            most => most,
        };
        if let Some(rank) = rank {
            let own = self.history.lock().newest(name, most);
            if let Some(own) = own.filter(|_| rank == self.rank) {
                return Ok(Some(own));
            }
            let found = self.elsewhere(name, rank, |version| version <= most)?;
            return Ok(found.map(|(head, _)| head.version));
        }
        let newest = loop {
            let mine = self.history.lock().newest(name, most);
            let Some(group) = &self.core.group else {
                break mine;
            };
            let mine = mine.map_or(-1, u64::cast_signed);
            let all = group.numbers(mine, self.config.meeting_patience)?;
            let oldest = all.iter().copied().min().unwrap_or(-1);
            if oldest < 0 || all.iter().all(|version| *version == oldest) {
                // `confirm` makes every rank return the same answer, or fail.
                group.confirm(self.config.meeting_patience)?;
                break u64::try_from(oldest).ok();
            }
            most = oldest.cast_unsigned();
        };
        self.history.lock().offer(name);
        Ok(newest)
    }

    /// Begins a restart. Without a `rank`, all ranks begin it, or none does.
    pub(super) fn begin_restart(&self, name: &str, version: i32, rank: Option<u32>) -> Outcome {
        let version = named(name, version)?;
        self.state.lock().no_writing()?;
        let unknown = || {
            let text = format!("there is no version {version} of {name:?}");
            Failure::new(Status::Unknown, text)
        };
        let is_own = rank.is_none_or(|rank| rank == self.rank);
        let own = self.history.lock().find(name, version).cloned();
        let reading = match (own.filter(|_| is_own), rank) {
            (Some(head), _) => Some(Reading {
                head,
                from: From::Engine,
            }),
            (None, Some(rank)) => {
                let found = self.elsewhere(name, rank, |other| other == version)?;
                found.map(|(head, from)| Reading {
                    head,
                    from: From::Rank(Arc::new(from), rank),
                })
            }
            (None, None) => None,
        };
        if let (None, Some(group)) = (rank, &self.core.group) {
            let mine = i64::from(reading.is_some());
            let all = group.numbers(mine, self.config.meeting_patience)?;
            group.confirm(self.config.meeting_patience)?;
            if let Some(rank) = all.iter().position(|has| *has == 0).filter(|_| mine != 0) {
                let text = format!("rank {rank} has no version {version} of {name:?}");
                return Err(Failure::new(Status::Unknown, text));
            }
        }
        let reading = reading.ok_or_else(unknown)?;
        if let From::Engine = reading.from {
            self.history.lock().offer(name);
            self.hint(name, version);
        }
        let mut state = self.state.lock();
        state.name = Some(name.to_owned());
        self.foretell(&mut state);
        state.reading = Some(reading);
        Ok(())
    }

    /// Hints the versions that will be restored next to the engine, in the order of the configuration, if it has one.
    fn hint(&self, name: &str, version: u64) {
        if self.state.lock().foretold.is_any {
            return;
        }
        let history = self.history.lock();
        let all = history.versions(name);
        let order: Vec<u64> = match self.config.hints {
            Hints::None => return,
            Hints::Reverse => {
                let older = all.rev().filter(|head| head.version <= version);
                older.flat_map(parts).collect()
            }
            Hints::Forward => {
                let newer = all.filter(|head| head.version >= version);
                newer.flat_map(parts).collect()
            }
        };
        drop(history);
        let mut hinted = self.hinted.lock();
        // The restart follows the last hint: the engine has the rest of the order already.
        if !order.is_empty() && hinted.ends_with(&order) {
            return;
        }
        self.core.engine.hints().clear();
        self.core.engine.hint(order.iter().copied());
        *hinted = order;
    }

    /// Returns another rank's newest checkpoint of a name for which `is_wanted` is true, and the place in which it lies: of this group, or
    /// of a group of another size.
    fn elsewhere(
        &self,
        name: &str,
        rank: u32,
        is_wanted: impl Fn(u64) -> bool,
    ) -> Outcome<Option<(Head, History)>> {
        let own = self.config.place();
        let Some(home) = own.and_then(|own| own.parent()) else {
            return Ok(None);
        };
        let mut places = vec![home.join(format!("id-{rank}"))];
        if self.core.group.is_some() {
            places = groups_below(home)?;
            // The place of this group comes first, and wins over an equally new checkpoint elsewhere.
            places.sort_by_key(|place| own.is_some_and(|own| own != place));
        }
        places.retain(|place| Place::is_url(place) || place.is_dir());
        let is_wanted = |head: &Head| head.name == name && is_wanted(head.version);
        let mut best: Option<(u64, usize, Head, History)> = None;
        let mut unread = Vec::new();
        for (number, place) in places.into_iter().enumerate() {
            let is_own = own.is_some_and(|own| *own == place);
            let mut note = |created, failure| {
                unread.push(Unread {
                    place: number,
                    created,
                    failure,
                });
            };
            let found = newest_in(place, rank, is_wanted, &mut note).unwrap_or_else(|failure| {
                // If this group's place cannot be read, its checkpoints count as newer than all others.
                note(if is_own { u64::MAX } else { 0 }, failure);
                None
            });
            if let Some((created, head, opened)) = found
                && best.as_ref().is_none_or(|(other, ..)| created > *other)
            {
                best = Some((created, number, head, opened));
            }
        }
        // A head that cannot be read may be the wanted checkpoint. In another place than the best, only a head that is at least as new matters.
        let hides = |unread: &Unread| match &best {
            Some((created, place, ..)) => unread.place != *place && unread.created >= *created,
            None => true,
        };
        if let Some(first) = unread.iter().position(hides) {
            return Err(unread.swap_remove(first).failure);
        }
        for Unread { failure, .. } in unread {
            to_standard_error(Level::Warn, &format!("passed over: {failure}"));
        }
        Ok(best.map(|(.., head, opened)| (head, opened)))
    }

    /// Brings the chosen regions back.
    pub(super) fn recover(&self, which: &Which) -> Outcome {
        let state = self.state.lock();
        let reading = state.reading.as_ref().ok_or_else(not_begun)?;
        let saved: Vec<i64> = reading.head.regions().map(|(id, _)| id).collect();
        if let Some(id) = which.named().find(|id| !saved.contains(id)) {
            return Err(reading.unknown(*id));
        }
        for (part, content) in (0..).zip(&reading.head.parts) {
            if let Content::Memory(table) = content {
                self.recover_part(&state, reading, (part, table), which)?;
            }
        }
        Ok(())
    }

    /// Brings the chosen regions of one part back. Fails before it reads this part if a region is not protected, or smaller than the bytes
    /// that were saved of it; regions of earlier parts are filled by then.
    fn recover_part(
        &self,
        state: &State,
        reading: &Reading,
        (part, table): (usize, &[(i64, u64)]),
        which: &Which,
    ) -> Outcome {
        let regions = of_name(&state.regions, &reading.head.name);
        let target = |id: i64, bytes: u64| -> Outcome<Protected> {
            let region = regions.get(&id).copied();
            let region = region.ok_or_else(|| {
                Failure::argument(format!(
                    "no region {id} is protected, and the checkpoint has one"
                ))
            })?;
            match region.bytes < bytes {
                true => Err(Failure::argument(format!(
                    "region {id} has {} bytes, and the checkpoint holds {bytes} of it",
                    region.bytes
                ))),
                false => Ok(region),
            }
        };
        let chosen = |id: i64| which.has(id);
        if !table.iter().any(|(id, bytes)| chosen(*id) && *bytes > 0) {
            return Ok(());
        }
        let mut raw = Vec::new();
        for (id, bytes) in table.iter().filter(|(id, _)| chosen(*id)) {
            raw.push(target(*id, *bytes)?.region(*bytes));
        }
        if overlap(&raw) {
            return Err(Failure::argument("protected regions share bytes"));
        }
        let total: u64 = table.iter().map(|(_, bytes)| bytes).sum();
        let skipped = total - raw.iter().map(|region| region.bytes).sum::<u64>();
        let mut rest = vec![0; usize::try_from(skipped).unwrap_or(usize::MAX)];
        let mut rest = rest.as_mut_slice();
        let mut spans = spans(&self.core, &raw)?;
        let stream = order(&self.core, &spans, RawStream::NONE)?;
        let mut wanted = spans.iter_mut();
        let mut targets: Vec<RegionMut<'_>> = Vec::new();
        for (id, bytes) in table {
            if chosen(*id) {
                targets.extend(wanted.next().map(CallMemory::region_mut));
            } else {
                let (skip, after) = rest.split_at_mut(*bytes as usize);
                targets.push(skip.into());
                rest = after;
            }
        }
        let number = part_of(reading.head.serial, part);
        match &reading.from {
            From::Engine => {
                let call = self.core.engine.call().on(stream.as_deref());
                call.restore(number, &mut targets)?;
            }
            From::Rank(directory, rank) => {
                let mut slices = Vec::new();
                for target in &mut targets {
                    match target {
                        RegionMut::Bytes(bytes) => slices.push(&mut **bytes),
                        RegionMut::Memory(..) => {
                            let text = "another rank's checkpoint is restored to host memory alone";
                            return Err(Failure::argument(text));
                        }
                    }
                }
                scatter(&piece(directory, number, *rank)?, &mut slices)?;
            }
        }
        Ok(())
    }

    /// Returns the bytes of a region in the checkpoint that is restarted from.
    pub(super) fn recover_size(&self, id: i32) -> Outcome<u64> {
        let state = self.state.lock();
        let reading = state.reading.as_ref().ok_or_else(not_begun)?;
        let id = i64::from(id);
        let mut found = reading.head.regions().filter(|(other, _)| *other == id);
        let (_, bytes) = found.next_back().ok_or_else(|| reading.unknown(id))?;
        Ok(bytes)
    }

    /// Brings all regions back.
    pub(super) fn restart(&self, name: &str, version: i32) -> Outcome {
        self.begin_restart(name, version, None)?;
        let recovered = self.recover(&Which::All);
        let ended = self.end_restart();
        recovered.and(ended)
    }

    pub(super) fn end_restart(&self) -> Outcome {
        let reading = self.state.lock().reading.take().ok_or_else(not_begun)?;
        match reading.has_file() {
            Some(_) => files::remove(&reading.routed(self)),
            None => Ok(()),
        }
    }
}

impl Reading {
    fn unknown(&self, id: i64) -> Failure {
        let text = format!(
            "version {} of {:?} has no region {id}",
            self.head.version, self.head.name
        );
        Failure::new(Status::Unknown, text)
    }

    fn has_file(&self) -> Option<(usize, u64)> {
        let mut parts = (0..).zip(&self.head.parts);
        parts.find_map(|(index, part)| match part {
            Content::File(bytes) => Some((index, *bytes)),
            Content::Memory(_) => None,
        })
    }

    pub(super) fn routed(&self, client: &Client) -> PathBuf {
        client.routed(&self.head.name, self.head.version)
    }

    /// Writes the file of the checkpoint to the path at which the application reads it, and returns the path.
    pub(super) fn file(&self, client: &Client) -> Outcome<PathBuf> {
        let none = || {
            let (version, name) = (self.head.version, &self.head.name);
            Failure::argument(format!("version {version} of {name:?} has no file"))
        };
        let (part, length) = self.has_file().ok_or_else(none)?;
        let (number, path) = (part_of(self.head.serial, part), self.routed(client));
        match &self.from {
            From::Engine => files::give_out(&client.core.engine, number, length, &path)?,
            From::Rank(directory, rank) => {
                let bytes = read_piece(&piece(directory, number, *rank)?)?;
                let written = std::fs::write(&path, bytes);
                written.map_err(|error| Failure::file(&path, &error))?;
            }
        }
        Ok(path)
    }
}

/// A head, or a whole place, that cannot be read.
struct Unread {
    /// The number of the place.
    place: usize,
    /// The time when the head was written. For a whole place: `u64::MAX` if it is this group's, else 0.
    created: u64,
    failure: Failure,
}

/// Returns a rank's newest wanted checkpoint in a place, and the time when it was written. Calls `note` for each head that cannot be read,
/// with the time when it was written and the failure.
fn newest_in(
    place: PathBuf,
    rank: u32,
    is_wanted: impl Fn(&Head) -> bool,
    note: &mut impl FnMut(u64, Failure),
) -> Outcome<Option<(u64, Head, History)>> {
    let opened = History::open(place)?;
    let mut found: Option<(u64, Head)> = None;
    for info in opened.versions()? {
        // The directory of a single process has rank 0 only.
        let of = if info.ranks == 1 { 0 } else { rank };
        let head = head_in(&opened, info.version, of).unwrap_or_else(|failure| {
            note(info.created, failure);
            None
        });
        let newest = found.as_ref().map_or(0, |(_, newest)| newest.version);
        let head = head.filter(|head| is_wanted(head) && head.version >= newest);
        found = head.map(|head| (info.created, head)).or(found);
    }
    Ok(found.map(|(created, head)| (created, head, opened)))
}

/// Reads the checkpoint of a head. `None` if the version is no head, or this rank's piece of it is absent.
pub(super) fn head_in(place: &History, version: u64, rank: u32) -> Outcome<Option<Head>> {
    let piece = is_head(version).then(|| place.piece_of(version, rank).ok());
    let bytes = piece
        .flatten()
        .map(|piece| read_piece(&piece))
        .transpose()?;
    Ok(bytes.and_then(|bytes| Head::decode(&bytes)))
}

/// Opens a rank's piece, or rank 0's if there is none: a single process has rank 0.
pub(super) fn piece(directory: &History, number: u64, rank: u32) -> Outcome<Piece> {
    Ok(directory
        .piece_of(number, rank)
        .or_else(|_| directory.piece_of(number, 0))?)
}

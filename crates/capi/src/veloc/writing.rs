//! Checkpoints that are begun, filled and ended.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use tierflow_bind::CallMemory;
use tierflow_engine::Region;

use super::ROUTED;
use super::client::{Client, Which, named, not_begun, of_name};
use super::files;
use super::head::{Content, Head, MOST_PARTS, part_of};
use super::housekeeping::Accepted;
use super::keeping::CheckpointStart;
use crate::api::order;
use crate::failure::{Failure, Outcome};
use crate::ffi::RawStream;
use crate::memory::{RawRegion, overlap, spans};

/// A checkpoint that was begun and not ended.
pub(super) struct Writing {
    pub(super) name: String,
    pub(super) version: u64,
    serial: u64,
    parts: Vec<Content>,
    /// The path that the application gave for its file.
    file: Option<PathBuf>,
}

impl Client {
    pub(super) fn begin(&self, name: &str, version: i32) -> Outcome {
        let version = named(name, version)?;
        let mut state = self.state.lock();
        state.no_writing()?;
        if let Some(group) = &self.core.group {
            group.is_complete()?;
        }
        // Earlier checkpoints that get to this node are there by now, and are protected here. A failure is ignored: the next wait returns it.
        let _waited_for_later = self.core.protect_after(Ok::<_, Failure>(()));
        let serial = state.next_serial;
        state.next_serial += 1;
        self.keeping.meet(&CheckpointStart {
            name,
            version,
            serial,
        })?;
        state.name = Some(name.to_owned());
        state.writing = Some(Writing {
            name: name.to_owned(),
            version,
            serial,
            parts: Vec::new(),
            file: None,
        });
        Ok(())
    }

    /// Takes in the chosen regions as they are now.
    pub(super) fn take_in(&self, which: &Which) -> Outcome {
        let mut state = self.state.lock();
        let state = &mut *state;
        let writing = state.writing.as_mut().ok_or_else(not_begun)?;
        let regions = of_name(&state.regions, &writing.name);
        if let Some(id) = which.named().find(|id| !regions.contains_key(id)) {
            return Err(Failure::argument(format!("no region {id} is protected")));
        }
        let chosen = || regions.iter().filter(|(id, _)| which.has(**id));
        let table: Vec<(i64, u64)> = chosen().map(|(id, region)| (*id, region.bytes)).collect();
        let raw: Vec<RawRegion> = chosen()
            .map(|(_, region)| region.region(region.bytes))
            .collect();
        if overlap(&raw) {
            let text = "protected regions share bytes, so they could not be restored: checkpoint them in parts of their own (VELOC_Checkpoint_selective)";
            return Err(Failure::argument(text));
        }
        let spans = spans(&self.core, &raw)?;
        let part = Content::Memory(table);
        let empties = self.core.group.is_some();
        if part.bytes() == 0 && !empties {
            return Err(Failure::argument(
                "no byte of memory is protected and chosen",
            ));
        }
        let number = writing.next_part()?;
        let stream = order(&self.core, &spans, RawStream::NONE)?;
        let regions: Vec<Region<'_>> = spans.iter().map(CallMemory::region).collect();
        let call = self.core.engine.call().on(stream.as_deref());
        call.checkpoint(number, &regions)?;
        writing.parts.push(part);
        Ok(())
    }

    /// Ends a checkpoint. Unless the application says that it failed, it counts from now on.
    pub(super) fn end(&self, success: bool) -> Outcome {
        let mut state = self.state.lock();
        let writing = state.writing.take().ok_or_else(not_begun)?;
        let (name, version) = (writing.name.clone(), writing.version);
        let ended = self.ended(writing, success)?;
        let observers = state.observers.clone();
        drop(state);
        let Some(ended) = ended else { return Ok(()) };
        self.housekeeping.submit(ended)?;
        super::observe(&observers, &name, version);
        match self.config.is_sync {
            true => self.settled(),
            false => Ok(()),
        }
    }

    fn ended(&self, mut writing: Writing, success: bool) -> Outcome<Option<Accepted>> {
        let engine = &self.core.engine;
        let empties = self.core.group.is_some();
        let routed = self.routed(&writing.name, writing.version);
        // The application may write to the same path again.
        let staged = routed.with_extension(format!("{}.staged", writing.serial));
        let original = writing.file.take();
        let mut complete = || {
            if original.is_some() {
                let number = writing.next_part()?;
                let renamed = std::fs::rename(&routed, &staged);
                renamed.map_err(|error| Failure::file(&routed, &error))?;
                let bytes = files::take_in(engine, &staged, number, empties)?;
                writing.parts.push(Content::File(bytes));
            }
            if writing.parts.is_empty() {
                let text = "nothing was checkpointed: call VELOC_Checkpoint_mem or write to the path of VELOC_Route_file";
                return Err(Failure::argument(text));
            }
            let head = Head {
                name: writing.name.clone(),
                version: writing.version,
                serial: writing.serial,
                spares: self.history.lock().spared(&writing.name),
                parts: writing.parts.clone(),
            };
            engine.checkpoint(head.number(), &[head.encode().as_slice().into()])?;
            Ok(head)
        };
        let head = match success {
            true => complete().map(Some),
            false => Ok(None),
        };
        let Some(head) = head.as_ref().ok().cloned().flatten() else {
            for part in 0..=writing.parts.len() {
                // `discard` fails for parts that were not taken in, which is right.
                let _gone = engine.discard(part_of(writing.serial, part));
            }
            if original.is_some() {
                // Either path may be a directory, which stays; the failure says so.
                let removed = files::remove(&routed).and(files::remove(&staged));
                return head.and_then(|_| removed.map(|()| None));
            }
            return head.map(|_| None);
        };
        self.history.lock().insert(head.clone());
        let file = original.map(|original| {
            let is_wanted = self.config.persistent.is_some();
            (staged, is_wanted.then_some(original))
        });
        Ok(Some(Accepted { head, file }))
    }

    /// Returns the path at which the application writes the file of the checkpoint that was begun, or reads the file of the checkpoint that it
    /// restarts from.
    pub(super) fn route(&self, original: &str) -> Outcome<String> {
        let original = std::path::absolute(original)
            .map_err(|error| Failure::file(original.as_ref(), &error))?;
        let mut state = self.state.lock();
        if let Some(writing) = &mut state.writing {
            let routed = fitting(&self.routed(&writing.name, writing.version))?;
            let others = writing.file.as_ref().filter(|first| **first != original);
            if let Some(first) = others {
                let text = format!(
                    "a checkpoint has one file: this one has {}",
                    first.display()
                );
                return Err(Failure::argument(text));
            }
            writing.file = Some(original);
            return Ok(routed);
        }
        let reading = state.reading.as_ref().ok_or_else(not_begun)?;
        let routed = fitting(&reading.routed(self))?;
        reading.file(self)?;
        Ok(routed)
    }
}

/// Returns a path as text for C, if it fits into `VELOC_MAX_NAME` bytes.
fn fitting(path: &Path) -> Outcome<String> {
    let path = String::from_utf8_lossy(path.as_os_str().as_bytes()).into_owned();
    match path.len() < ROUTED {
        true => Ok(path),
        false => Err(Failure::argument(format!(
            "{path} does not fit into VELOC_MAX_NAME bytes"
        ))),
    }
}

impl Writing {
    /// Returns the engine's version for the next part.
    fn next_part(&self) -> Outcome<u64> {
        if self.parts.len() >= MOST_PARTS {
            return Err(Failure::argument(format!(
                "a checkpoint has {MOST_PARTS} parts at most"
            )));
        }
        Ok(part_of(self.serial, self.parts.len()))
    }
}

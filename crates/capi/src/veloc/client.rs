//! VELOC's client, over an engine.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::c_void;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use tierflow_engine::Region;

use super::config::{Config, usual_host_cache};
use super::files;
use super::head::{Content, Head, MOST_PARTS, part_of};
use super::history::History;
use super::housekeeping::{Accepted, Housekeeping};
use super::restart::Reading;
use crate::api::{close, order};
use crate::core::Core;
use crate::failure::{Failure, Outcome};
use crate::group::Group;
use crate::handles;
use crate::memory::{ANYWHERE, RawRegion, Span};

/// Regions that are not of a checkpoint of a certain name.
pub(super) const DEFAULT: &str = "default";
/// No name is longer, in bytes.
const LONGEST_NAME: usize = 200;

/// Protected memory.
#[derive(Clone, Copy)]
pub(super) struct Protected {
    pub(super) address: *mut c_void,
    pub(super) bytes: u64,
}

// SAFETY: an address, which is followed by the contract of `VELOC_Mem_protect`.
unsafe impl Send for Protected {}

// SAFETY: as above.
unsafe impl Sync for Protected {}

impl Protected {
    /// # Safety
    /// By the contract of `VELOC_Mem_protect`, the memory is there, and the call that this is part of has it for itself.
    pub(super) unsafe fn span(self, core: &Core, bytes: u64) -> Outcome<Span> {
        let raw = RawRegion {
            address: self.address,
            bytes,
            place: ANYWHERE,
        };
        // SAFETY: the caller's promise.
        unsafe { Span::new(core, raw) }
    }
}

/// Which of the protected regions.
pub(super) enum Which {
    All,
    Some(BTreeSet<i64>),
    Rest(BTreeSet<i64>),
}

impl Which {
    pub(super) fn has(&self, id: i64) -> bool {
        match self {
            Self::All => true,
            Self::Some(ids) => ids.contains(&id),
            Self::Rest(ids) => !ids.contains(&id),
        }
    }
}

/// `VELOC_observer` of the header.
pub(super) type Observer = unsafe extern "C" fn(*mut c_void, *const std::ffi::c_char, i32);

/// A checkpoint that was begun and not ended.
struct Writing {
    name: String,
    version: u64,
    serial: u64,
    parts: Vec<Content>,
    /// Where the application's file is to lie in the end.
    file: Option<PathBuf>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) regions: HashMap<String, BTreeMap<i64, Protected>>,
    next_serial: u64,
    writing: Option<Writing>,
    pub(super) reading: Option<Reading>,
    pub(super) observers: Vec<(Observer, Context)>,
    /// Names of which nothing is to stay in the scratch directory.
    cleaned: BTreeSet<String>,
}

/// What an observer gets back.
#[derive(Clone, Copy)]
pub(super) struct Context(pub(super) *mut c_void);

// SAFETY: `veloc.h` says that observers are called from whichever thread ends a checkpoint.
unsafe impl Send for Context {}

pub(super) struct Client {
    pub(super) core: Arc<Core>,
    pub(super) handle: u64,
    pub(super) config: Config,
    pub(super) rank: u32,
    housekeeping: Housekeeping,
    /// What was hinted last, in its order.
    pub(super) hinted: Mutex<Vec<u64>>,
    pub(super) history: Arc<Mutex<History>>,
    pub(super) state: Mutex<State>,
}

impl Client {
    /// `alone`: the identifier of a process that belongs to no group.
    pub(super) fn open(file: &str, group: Option<Group>, alone: u32) -> Outcome<Self> {
        let home = match &group {
            Some(group) => format!("ranks-{}", group.ranks),
            None => format!("id-{alone}"),
        };
        let mut config = Config::read(file, &home)?;
        let rank = group.as_ref().map_or(alone, |group| group.rank);
        config.settle_redundancy(group.as_ref());
        if group.as_ref().is_none_or(|group| group.rank == 0) {
            for warning in &config.warnings {
                eprintln!("tierflow: {file}: {warning}");
            }
        }
        let patience = config.options.group_patience();
        let ranks_here = group
            .as_ref()
            .map_or(Ok(1), |group| group.ranks_here(patience))?;
        if !config.has_host_cache {
            config.options.host_cache = usual_host_cache(ranks_here);
        }
        let core = Arc::new(Core::open(&config.options, group.map(Arc::new))?);
        let (history, next_serial) = History::load(&core.engine, core.group.is_some())?;
        let history = Arc::new(Mutex::new(history));
        let lowest = config.options.external.as_ref();
        let lowest = lowest.or(config.options.node_local.as_ref()).cloned();
        let housekeeping = Housekeeping::start(
            &core,
            &history,
            config.max_versions,
            lowest.unwrap_or_default(),
        )?;
        let state = State {
            next_serial,
            ..State::default()
        };
        Ok(Self {
            handle: handles::share(&core),
            core,
            config,
            rank,
            housekeeping,
            hinted: Mutex::default(),
            history,
            state: Mutex::new(state),
        })
    }

    /// Ends the client. All checkpoints taken so far are durable before, unless that fails.
    pub(super) fn close(self) -> Outcome {
        let patience = self.config.options.closing_patience;
        let durable = self.housekeeping.wait(Some(patience));
        let waited = self.core.protect_after(durable);
        if let (Some(group), true) = (&self.core.group, self.config.max_versions > 0) {
            // Once all ranks are done, they keep the same versions. Without a rank that does not answer, some more are kept.
            let all = group.numbers(0, self.config.options.group_patience());
            let _more_or_less = all.and_then(|_| self.housekeeping.prune(patience));
        }
        drop(self.housekeeping);
        if let Some(path) = &self.config.timeline_file {
            let path = match &self.core.group {
                Some(_) => format!("{}.{}", path.display(), self.rank),
                None => path.display().to_string(),
            };
            let written = self.core.engine.write_timeline(&path);
            written.map_err(|error| Failure::file(path.as_ref(), &error))?;
        }
        handles::forget(self.handle);
        let ranks = self
            .core
            .group
            .as_ref()
            .map_or((0, 1), |group| (group.rank, group.ranks));
        let core = Arc::try_unwrap(self.core).map_err(|_| {
            Failure::argument(
                "slots of the engine are still lent, or calls of other threads under way",
            )
        })?;
        let held: BTreeSet<u64> = core.engine.versions().into_iter().collect();
        // What could not be read may be there nevertheless.
        let is_sound = core.engine.damage().is_empty();
        close(core)?;
        waited?;
        if !is_sound {
            return Ok(());
        }
        let options = &self.config.options;
        if let Some(external) = &options.external {
            remove_unlisted(external, ranks, &held)?;
        }
        if let (Some(scratch), Some(_)) = (&options.node_local, options.redundancy) {
            tierflow_redundancy::ParityStore::of_rank(scratch, ranks.0)?.retain(&held)?;
        }
        let (state, history) = (self.state.into_inner(), self.history.lock());
        let cleaned = state.cleaned.iter().flat_map(|name| history.versions(name));
        let cleaned: BTreeSet<u64> = cleaned.flat_map(|head| head.numbers(true)).collect();
        match &options.node_local {
            Some(scratch) => remove_unlisted(
                scratch,
                ranks,
                &held.difference(&cleaned).copied().collect(),
            ),
            None => Ok(()),
        }
    }

    pub(super) fn protect(
        &self,
        group: &str,
        id: i32,
        address: *mut c_void,
        bytes: Option<u64>,
    ) -> Outcome {
        let bytes = bytes.filter(|bytes| isize::try_from(*bytes).is_ok());
        let bytes = bytes.ok_or_else(|| Failure::argument(format!("region {id} is too large")))?;
        if address.is_null() && bytes > 0 {
            return Err(Failure::argument(format!("region {id} is null")));
        }
        let region = Protected { address, bytes };
        let mut state = self.state.lock();
        let regions = state.regions.entry(group.to_owned()).or_default();
        regions.insert(i64::from(id), region);
        Ok(())
    }

    pub(super) fn unprotect(&self, group: &str, id: i32) -> Outcome {
        let mut state = self.state.lock();
        let regions = state.regions.get_mut(group);
        let removed = regions.and_then(|regions| regions.remove(&i64::from(id)));
        let missing = || Failure::argument(format!("no region {id} is protected"));
        removed.map(drop).ok_or_else(missing)
    }

    pub(super) fn begin(&self, name: &str, version: i32) -> Outcome {
        let version = named(name, version)?;
        let mut state = self.state.lock();
        if let Some(writing) = &state.writing {
            return Err(Failure::argument(format!(
                "checkpoint {} {} was begun and not ended",
                writing.name, writing.version
            )));
        }
        // Earlier checkpoints are on the nodes by now, as far as they will be. Whether other ranks have them, waiting tells.
        let _waited_for_later = self.core.protect_after(Ok(()));
        let serial = state.next_serial;
        state.next_serial += 1;
        state.writing = Some(Writing {
            name: name.to_owned(),
            version,
            serial,
            parts: Vec::new(),
            file: None,
        });
        Ok(())
    }

    /// Takes in the regions as they are now.
    pub(super) fn take_in(&self, which: &Which) -> Outcome {
        let mut state = self.state.lock();
        let state = &mut *state;
        let writing = state.writing.as_mut().ok_or_else(not_begun)?;
        let regions = of_name(&state.regions, &writing.name);
        if let Which::Some(ids) | Which::Rest(ids) = which
            && let Some(id) = ids.iter().find(|id| !regions.contains_key(id))
        {
            return Err(Failure::argument(format!("no region {id} is protected")));
        }
        let chosen = || regions.iter().filter(|(id, _)| which.has(**id));
        let table: Vec<(i64, u64)> = chosen().map(|(id, region)| (*id, region.bytes)).collect();
        // SAFETY: the contract of `VELOC_Mem_protect`: the memory is there until it is unprotected.
        let span = |region: &Protected| unsafe { region.span(&self.core, region.bytes) };
        let spans: Vec<Span> = chosen()
            .map(|(_, region)| span(region))
            .collect::<Outcome<_>>()?;
        let part = Content::Memory(table);
        let empties = self.core.group.is_some();
        if part.bytes() == 0 && !empties {
            return Err(Failure::argument(
                "no byte of memory is protected and chosen",
            ));
        }
        let number = writing.next_part()?;
        // SAFETY: there is no stream of the application's.
        let stream = unsafe { order(&self.core, &spans, 0) }?;
        let regions: Vec<Region<'_>> = spans.iter().map(Span::region).collect();
        let engine = &self.core.engine;
        match stream.as_deref() {
            Some(stream) => engine.checkpoint_on(stream, number, &regions)?,
            None => engine.checkpoint(number, &regions)?,
        }
        writing.parts.push(part);
        Ok(())
    }

    /// Ends a checkpoint, which counts from now on unless the application says that it failed.
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
        let file = writing
            .file
            .take()
            .map(|original| (self.routed(&writing), original));
        let mut complete = || {
            if let Some((routed, _)) = &file {
                let number = writing.next_part()?;
                let bytes = files::take_in(engine, routed, number, empties)?;
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
                parts: std::mem::take(&mut writing.parts),
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
                // Those that were not taken in are none.
                let _gone = engine.discard(part_of(writing.serial, part));
            }
            if let Some((routed, _)) = &file {
                files::remove(routed)?;
            }
            return head.map(|_| None);
        };
        self.history.lock().insert(head.clone());
        let file = file.map(|(routed, original)| {
            // The application may write to the same path again.
            let staged = routed.with_extension(format!("{}.staged", head.serial));
            let renamed = std::fs::rename(&routed, &staged);
            renamed.map_err(|error| Failure::file(&routed, &error))?;
            let original = self.config.persistent.is_some().then_some(original);
            Ok::<_, Failure>((staged, original))
        });
        let file = file.transpose()?;
        Ok(Some(Accepted { head, file }))
    }

    fn routed(&self, writing: &Writing) -> PathBuf {
        files::routed(
            &self.config.scratch,
            &writing.name,
            self.rank,
            writing.version,
        )
    }

    /// Where the application writes the checkpoint that was begun, or reads the one that it restarts from.
    pub(super) fn route(&self, original: &str) -> Outcome<PathBuf> {
        let original = std::path::absolute(original)
            .map_err(|error| Failure::file(original.as_ref(), &error))?;
        let mut state = self.state.lock();
        if let Some(writing) = &mut state.writing {
            writing.file = Some(original);
            return Ok(files::routed(
                &self.config.scratch,
                &writing.name,
                self.rank,
                writing.version,
            ));
        }
        match &state.reading {
            Some(reading) => reading.file(self),
            None => Err(not_begun()),
        }
    }

    pub(super) fn wait(&self) -> Outcome {
        if let Some(writing) = &self.state.lock().writing {
            return Err(Failure::argument(format!(
                "checkpoint {} {} was begun and not ended",
                writing.name, writing.version
            )));
        }
        self.settled()
    }

    fn settled(&self) -> Outcome {
        let waited = self.housekeeping.wait(self.config.wait_patience);
        self.core.protect_after(waited)
    }

    pub(super) fn is_finished(&self) -> bool {
        self.config.is_sync || self.housekeeping.is_idle()
    }

    pub(super) fn is_writing(&self) -> bool {
        self.state.lock().writing.is_some()
    }

    /// Gives up what the scratch directory holds of a name. Without a persistent one, that is all there is.
    pub(super) fn clean(&self, name: &str) -> Outcome {
        self.housekeeping.wait(self.config.wait_patience)?;
        if self.config.persistent.is_some() {
            self.state.lock().cleaned.insert(name.to_owned());
            return Ok(());
        }
        let empties = self.core.group.is_some();
        for head in self.history.lock().remove(name) {
            for number in head.numbers(empties) {
                self.core.engine.discard(number)?;
            }
        }
        Ok(())
    }
}

impl Writing {
    /// The engine's version of the part that comes next.
    fn next_part(&self) -> Outcome<u64> {
        if self.parts.len() >= MOST_PARTS {
            return Err(Failure::argument(format!(
                "a checkpoint has {MOST_PARTS} parts at most"
            )));
        }
        Ok(part_of(self.serial, self.parts.len()))
    }
}

pub(super) fn not_begun() -> Failure {
    Failure::argument("no checkpoint was begun, and no restart")
}

/// The regions of a checkpoint: those that were protected for its name, or those for none.
pub(super) fn of_name<'a>(
    regions: &'a HashMap<String, BTreeMap<i64, Protected>>,
    name: &str,
) -> &'a BTreeMap<i64, Protected> {
    static NONE: BTreeMap<i64, Protected> = BTreeMap::new();
    let own = regions.get(name).filter(|own| !own.is_empty());
    own.or_else(|| regions.get(DEFAULT)).unwrap_or(&NONE)
}

/// A checkpoint's name and version, if they are ones.
pub(super) fn named(name: &str, version: i32) -> Outcome<u64> {
    let is_name = !name.is_empty()
        && name.len() <= LONGEST_NAME
        && !name.starts_with('.')
        && !name.contains(|c: char| c == '/' || c.is_control());
    if !is_name {
        let text = format!("{name:?} is no name of a checkpoint: it is part of a file's name");
        return Err(Failure::argument(text));
    }
    let wrong = |_| Failure::argument(format!("version {version} is less than 0"));
    u64::try_from(version).map_err(wrong)
}

/// Removes this rank's pieces of all but these versions from a directory or an object store: `VELOC_Cleanup` removed the others, or
/// ranks since killed discarded them.
fn remove_unlisted(place: &Path, (rank, ranks): (u32, u32), kept: &BTreeSet<u64>) -> Outcome {
    let place = tierflow_objects::History::writer(place, rank, ranks)?;
    let pieces = place.pieces()?.into_iter().map(|piece| piece.version);
    let others: BTreeSet<u64> = pieces.filter(|version| !kept.contains(version)).collect();
    match others.is_empty() {
        true => Ok(()),
        false => Ok(place.remove(&others)?),
    }
}

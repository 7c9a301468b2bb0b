//! VELOC's client, over an engine.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::c_void;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tierflow_bind::{Door, Level, to_standard_error};

use super::config::{Config, usual_host_cache};
use super::foretold::Foretold;
use super::history::History;
use super::housekeeping::Housekeeping;
use super::keeping::Keeping;
use super::losses::{lost_with_nodes, tell_of_start};
use super::other_groups::{GROUP, unused};
use super::restart::Reading;
use super::writing::Writing;
use crate::core::OpenEngine;
use crate::failure::{Failure, Outcome, Status};
use crate::group::Group;
use crate::handles::Handle;
use crate::memory::RawRegion;

/// The key of regions that belong to no particular name, in [`State::regions`].
pub(super) const DEFAULT: &str = "default";
/// The most bytes of a name.
const LONGEST_NAME: usize = 200;

/// Protected memory.
#[derive(Clone, Copy)]
pub(super) struct Protected {
    pub(super) address: *mut c_void,
    pub(super) bytes: u64,
}

// SAFETY: an address and a number; the address is followed only as the contract of `VELOC_Mem_protect` allows.
unsafe impl Send for Protected {}

// SAFETY: as above.
unsafe impl Sync for Protected {}

impl Protected {
    /// Returns the first `bytes` bytes as a region, for a call that alone uses them.
    pub(super) fn region(self, bytes: u64) -> RawRegion {
        // SAFETY: by the contract of `VELOC_Mem_protect`, the memory is valid, and nobody else uses it during the call that the region is for.
        unsafe { RawRegion::anywhere(self.address, bytes) }
    }
}

/// The protected regions that a call takes in or brings back.
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

    /// Returns the ids that the caller listed.
    pub(super) fn named(&self) -> impl Iterator<Item = &i64> {
        let ids = match self {
            Self::All => None,
            Self::Some(ids) | Self::Rest(ids) => Some(ids),
        };
        ids.into_iter().flatten()
    }
}

/// `VELOC_observer` of the header.
pub(super) type Observer = unsafe extern "C" fn(*mut c_void, *const std::ffi::c_char, i32);

#[derive(Default)]
pub(super) struct State {
    pub(super) regions: HashMap<String, BTreeMap<i64, Protected>>,
    pub(super) next_serial: u64,
    pub(super) writing: Option<Writing>,
    pub(super) reading: Option<Reading>,
    /// The name of the checkpoint that was begun or restarted from last.
    pub(super) name: Option<String>,
    /// Versions that the program said it will restart from, in its order.
    pub(super) foretold: Foretold,
    pub(super) observers: Vec<(Observer, Context)>,
    /// Names whose checkpoints are removed from the scratch directory when the client closes.
    pub(super) cleaned: BTreeSet<String>,
}

impl State {
    /// Fails between the begin and the end of a checkpoint.
    pub(super) fn no_writing(&self) -> Outcome {
        match &self.writing {
            None => Ok(()),
            Some(Writing { name, version, .. }) => Err(Failure::argument(format!(
                "checkpoint {name} {version} was begun and not ended"
            ))),
        }
    }
}

/// The pointer that an observer gets back.
#[derive(Clone, Copy)]
pub(super) struct Context(pub(super) *mut c_void);

// SAFETY: `veloc.h` says that any thread that ends a checkpoint may call the observers.
unsafe impl Send for Context {}

pub(super) struct Client {
    pub(super) core: Arc<OpenEngine>,
    pub(super) handle: Handle<OpenEngine>,
    pub(super) config: Config,
    pub(super) rank: u32,
    pub(super) keeping: Arc<Keeping>,
    pub(super) housekeeping: Housekeeping,
    /// The versions of the last hint, in its order.
    pub(super) hinted: Mutex<Vec<u64>>,
    pub(super) history: Arc<Mutex<History>>,
    pub(super) state: Mutex<State>,
}

impl Client {
    /// Opens the client of a configuration file. `alone` is the identifier of a process without a group. Waits for the other ranks.
    pub(super) fn open(file: &str, group: Option<Group>, alone: u32) -> Outcome<Self> {
        let home = match &group {
            Some(group) => format!("{GROUP}{}", group.ranks),
            None => format!("id-{alone}"),
        };
        let group = group.map(Arc::new);
        let all = group.as_deref();
        let read = Config::read(file, &home);
        // The ranks wait here for a rank that comes late, before the engine is opened.
        let patience = read.as_ref().map(|config| config.meeting_patience);
        let patience = patience.unwrap_or(Duration::MAX);
        let mut config = if_all(all, read, "read its configuration", patience)?;
        let rank = group.as_ref().map_or(alone, |group| group.rank);
        config.settle_redundancy(all);
        if group.as_ref().is_none_or(|group| group.rank == 0) {
            for warning in &config.warnings {
                to_standard_error(Level::Warn, &format!("{file}: {warning}"));
            }
        }
        let ranks_here = all.map_or(Ok(1), |group| group.ranks_here(patience))?;
        if !config.has_host_cache {
            config.options.host_cache = usual_host_cache(ranks_here);
        }
        let door = Door {
            // `tell_of_start` logs the start below, with the names of checkpoints.
            started: |_| {},
            ..Door::default()
        };
        let opened = OpenEngine::open(door, &config.options, group.clone()).and_then(|core| {
            let loaded = History::load(&core.engine, core.group.is_some())?;
            Ok((Arc::new(core), loaded))
        });
        let opened = if_all(
            all,
            opened,
            "open its engine",
            config.options.group_patience(),
        )?;
        let (core, (history, next_serial)) = opened;
        tell_of_start(&core.engine, &history);
        if let Some(Group { rank: 0, ranks, .. }) = all {
            let node = config.options.node_local.as_deref();
            let unused = config.place().and_then(unused);
            let lost = node.and_then(|node| lost_with_nodes(&core.engine, node, (0, *ranks)));
            for line in unused.iter().chain(&lost) {
                to_standard_error(Level::Error, line);
            }
        }
        let history = Arc::new(Mutex::new(history));
        let keeping = Arc::new(Keeping::new(&core, &history, config.max_versions, patience));
        let housekeeping = Housekeeping::start(&keeping)?;
        let state = State {
            next_serial,
            ..State::default()
        };
        Ok(Self {
            handle: Handle::of(&core),
            core,
            config,
            rank,
            keeping,
            housekeeping,
            hinted: Mutex::default(),
            history,
            state: Mutex::new(state),
        })
    }

    pub(super) fn protect(
        &self,
        group: &str,
        id: i32,
        address: *mut c_void,
        bytes: Option<usize>,
    ) -> Outcome {
        let bytes = bytes.filter(|bytes| isize::try_from(*bytes).is_ok());
        let bytes = bytes.ok_or_else(|| Failure::argument(format!("region {id} is too large")))?;
        let bytes = bytes as u64;
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

    pub(super) fn unprotect_all(&self, group: &str) -> Outcome {
        self.state.lock().regions.remove(group);
        Ok(())
    }

    pub(super) fn wait(&self) -> Outcome {
        self.state.lock().no_writing()?;
        self.settled()
    }

    pub(super) fn settled(&self) -> Outcome {
        let waited = self.housekeeping.wait(self.config.wait_patience);
        self.core.protect_after(waited)
    }

    pub(super) fn is_finished(&self) -> bool {
        self.config.is_sync || self.housekeeping.is_idle()
    }

    /// Returns the path at which the application writes, or reads, the file of a checkpoint.
    pub(super) fn routed(&self, name: &str, version: u64) -> PathBuf {
        let file = format!("{name}-{}-{version}.dat", self.rank);
        self.config.scratch.join(file)
    }

    /// Removes the checkpoints of a name from the scratch directory: at once if there is no persistent directory, else when the client closes.
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

/// Returns this rank's result if all ranks of its group succeeded, else a failure: no rank continues alone.
fn if_all<T>(
    group: Option<&Group>,
    done: Outcome<T>,
    what: &str,
    patience: Duration,
) -> Outcome<T> {
    let Some(group) = group else {
        return done;
    };
    let all = group.numbers(i64::from(done.is_ok()), patience);
    let done = done?;
    match all?.iter().position(|is_done| *is_done == 0) {
        None => Ok(done),
        Some(rank) => Err(Failure::new(
            Status::Group,
            format!(
                "rank {rank} of {} could not {what}: it says why",
                group.ranks
            ),
        )),
    }
}

pub(super) fn not_begun() -> Failure {
    Failure::argument("no checkpoint was begun, and no restart")
}

/// Returns the regions of a checkpoint: the regions that were protected for its name, or, without any, the regions for no name.
pub(super) fn of_name<'a>(
    regions: &'a HashMap<String, BTreeMap<i64, Protected>>,
    name: &str,
) -> &'a BTreeMap<i64, Protected> {
    static NONE: BTreeMap<i64, Protected> = BTreeMap::new();
    let own = regions.get(name).filter(|own| !own.is_empty());
    own.or_else(|| regions.get(DEFAULT)).unwrap_or(&NONE)
}

/// Checks the name and the version of a checkpoint, and returns the version.
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

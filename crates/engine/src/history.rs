//! Versions that outlive the engine: the tiers that keep them, and the copies that an engine finds there when it starts.

mod agreement;
mod copy_selection;
mod damage;
mod external;
mod group;
mod nodes;
mod piece;
mod protect;
mod run_marks;

use agreement::Lowest;
pub use damage::Damage;
pub(crate) use external::External;
pub use group::Group;
pub(crate) use nodes::ProtectionState;
pub use piece::{read_piece, read_regions};

use crate::plan::{Event, TierId};
use crate::run::{
    Directories, DurableTier, EmptyCheckpoints, EngineCore, FirstWrite, Layouts, TierSettings,
};
use crate::{BuildError, EngineBuilder, Result, Version};
use copy_selection::{Candidates, CopySelection, Orphan};
use external::Location;
use run_marks::{LastWriter, RunMarks, last_run};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tierflow_store::{
    Error as StoreError, Options, Order, Protection, Repository, Retention, Vault,
};

/// The storage that keeps versions beyond the engine's life, as the application chose it.
#[derive(Debug, Clone)]
pub(crate) struct HistoryOptions {
    /// A directory of this node.
    pub(crate) node_local: Option<PathBuf>,
    /// Largest number of bytes in that directory; `None` without a limit.
    pub(crate) limit: Option<u64>,
    /// Storage that outlives the node.
    pub(crate) external: Option<External>,
    pub(crate) group: Option<Group>,
    pub(crate) retention: Option<Retention>,
    /// True if versions become durable in the order of their numbers; `None` if the application did not choose.
    pub(crate) in_order: Option<bool>,
    /// The redundancy that keeps the versions of the node-local directory if the node is lost.
    pub(crate) protection: Option<Arc<dyn Protection>>,
    /// Longest time for which dropping the engine waits for work under way, without progress.
    pub(crate) closing: Duration,
}

impl Default for HistoryOptions {
    fn default() -> Self {
        Self {
            node_local: None,
            limit: None,
            external: None,
            group: None,
            retention: None,
            in_order: None,
            protection: None,
            closing: Duration::from_secs(60),
        }
    }
}

impl EngineBuilder {
    /// Sets how long the engine's end waits while no bytes reach a tier that outlives it, because storage hangs. The default is a
    /// minute. [Closing](crate::Engine::close) waits for all versions, dropping the engine only for the transfers that are under
    /// way. Transfers that do not end in that time are abandoned, with all that they use: memory, directories, and a pool's share.
    #[must_use]
    pub fn closing_patience(mut self, patience: Duration) -> Self {
        self.history.closing = patience;
        self
    }

    /// Chooses whether versions become durable in the order of their numbers, on each tier that outlives the engine. Then, whenever
    /// the application ends, no version before the newest one is missing, and the application can continue from there. A version is
    /// published only after the earlier versions that were on their way to the tier. Small versions therefore share fewer
    /// synchronisations, and vaults other than directories take one version at a time. The default is yes with
    /// [`AfterRestore::Discard`](crate::AfterRestore::Discard), where the whole history is read back, and otherwise no.
    #[must_use]
    pub fn durable_in_order(mut self, in_order: bool) -> Self {
        self.history.in_order = Some(in_order);
        self
    }
}

/// An open history: the tiers that outlive the engine, and the copies that count there.
#[derive(Debug, Default)]
pub(crate) struct OpenHistory {
    pub(crate) node_local: Option<Arc<DurableTier>>,
    pub(crate) external: Option<Arc<DurableTier>>,
    /// The directories that could not be opened, or could be opened only to read.
    pub(crate) damage: Vec<Damage>,
    /// Numbers that a group of another size used.
    pub(crate) taken: BTreeSet<Version>,
    /// The versions without bytes.
    pub(crate) empties: Arc<EmptyCheckpoints>,
    /// The names of the regions of versions.
    pub(crate) layouts: Arc<Layouts>,
    /// The protection of the node-local directory by other ranks.
    pub(crate) nodes: ProtectionState,
    selection: CopySelection,
}

impl HistoryOptions {
    pub(crate) fn group(&self) -> Group {
        self.group.clone().unwrap_or_default()
    }

    /// Checks that the choices are consistent.
    pub(crate) fn check(&self) -> Result<()> {
        let group = self.group();
        let (rank, ranks) = (group.rank, group.ranks);
        if rank >= ranks {
            return Err(BuildError::NoRank { rank, ranks }.into());
        }
        if self.protection.is_some() {
            protect::check(self.node_local.is_some(), self.group.as_ref())?;
        }
        if self.node_local.is_some() || self.external.is_some() {
            return Ok(());
        }
        let chosen = [
            (self.group.is_some(), "group"),
            (self.retention.is_some(), "retention"),
            (self.in_order == Some(true), "durable_in_order"),
            (self.protection.is_some(), "redundancy"),
        ];
        match chosen.iter().find(|(is_chosen, _)| *is_chosen) {
            Some((_, what)) => Err(BuildError::NothingLasts { what }.into()),
            None => Ok(()),
        }
    }

    /// Fails with the reason if versions cannot be stored as differences there.
    pub(crate) fn may_differ(&self) -> Result<()> {
        let external = self.external.as_ref();
        let why = if let Some(why) = external.and_then(External::holds_whole_ones) {
            why
        } else if self.group().ranks > 1 {
            "a group's versions are whole, as each rank's builds upon others"
        } else {
            return Ok(());
        };
        Err(BuildError::NoDifferences { why }.into())
    }

    /// Opens the chosen storage. If part of it cannot be used and another part can, leaves the first part out and names it in the
    /// damage.
    ///
    /// `builds` is true if versions may build upon others, `consumes` if they are discarded once they are restored.
    pub(crate) fn open(&self, builds: bool, consumes: bool) -> Result<OpenHistory> {
        let in_order = self.in_order.unwrap_or(consumes);
        let (group, order) = (self.group(), Order::default());
        let options = Options::default()
            .rank(group.rank, group.ranks)
            .run(group.run)
            .order(&order);
        let empties = Arc::new(EmptyCheckpoints::new(group.ranks > 1));
        let layouts = Arc::<Layouts>::default();
        let mut damage = Vec::new();
        let found = self.external.as_ref().map(|external| external.find(&group));
        let (external, directory): (Option<Arc<dyn Vault>>, _) = match found.transpose()? {
            Some(Location::Directory(path)) => {
                let opened = open_to_write_or_read("external", &path, &options, &mut damage)?;
                let directory = Arc::new(opened);
                (Some(Arc::clone(&directory) as _), Some(directory))
            }
            Some(Location::Vault(vault)) => (Some(vault), None),
            None => (None, None),
        };
        let options = options.limit(self.limit);
        let local = match (&self.node_local, &external) {
            (None, _) => None,
            (Some(path), None) => Some(open_to_write_or_read(
                "node-local",
                path,
                &options,
                &mut damage,
            )?),
            (Some(path), Some(_)) => match Repository::open(path, options) {
                Err(error) if !is_fatal(&error) => {
                    damage.push(Damage::unusable("node-local", path, &error));
                    None
                }
                local => Some(local?),
            },
        };
        let mut local = local.map(Arc::new);
        let (near, far) = (local.as_deref(), external.as_deref());
        let last = last_run(&order, near, far, directory.is_some(), &mut damage);
        let runs = RunMarks::new(last, local.as_deref(), directory.as_deref());
        let protected = self.protect(local.as_ref(), external.as_deref())?;
        let lowest = match (&external, local.clone(), &protected) {
            (Some(vault), _, _) => Some((Arc::clone(vault), directory.clone())),
            // Ranks on other nodes do not see this node's directory.
            (None, local @ Some(_), Some(protected)) => Some((Arc::clone(protected) as _, local)),
            (None, Some(local), None) => Some((Arc::clone(&local) as _, Some(local))),
            (None, None, _) => None,
        };
        let agreed = match lowest.filter(|_| group.ranks > 1) {
            Some((vault, directory)) => {
                let lowest = Lowest {
                    vault: &*vault,
                    directory: directory.as_deref(),
                };
                self.agree(lowest, &mut local, &protected, &runs, &mut damage)?
            }
            None => None,
        };
        let newest = agreed
            .as_ref()
            .and_then(|agreed| agreed.versions.last().copied());
        let shared = directory
            .clone()
            .filter(|_| group.rank == 0 && group.ranks > 1);
        let first = Arc::new(FirstWrite::new(
            order,
            Directories {
                node_local: local.clone(),
                external: directory.clone(),
                shared,
            },
        ));
        let settings = TierSettings {
            retention: self.retention,
            limit: None,
            builds,
            in_order,
            empties: Arc::clone(&empties),
            layouts: Arc::clone(&layouts),
            first: Arc::clone(&first),
            protected: protected.clone(),
            is_node_lowest: external.is_none(),
        };
        let mut nodes = ProtectionState {
            protected: protected.clone(),
            is_lowest: external.is_none(),
            directory: directory.clone(),
            ..ProtectionState::default()
        };
        nodes.name_losses(group.rank, newest, &mut damage);
        let alone = |directory: Option<Arc<Repository>>| directory.filter(|_| group.ranks == 1);
        let external = external.map(|vault| {
            let directory = alone(directory);
            Arc::new(DurableTier::new(vault, None, directory, settings.clone()))
        });
        let node_local = local.map(|local| {
            let directory = alone(Some(Arc::clone(&local)));
            let limit = self.limit.map(|limit| (limit, Arc::clone(&local)));
            let vault: Arc<dyn Vault> = match &protected {
                Some(protected) => Arc::clone(protected) as _,
                None => local,
            };
            let below = external.clone();
            let settings = TierSettings { limit, ..settings };
            Arc::new(DurableTier::new(vault, below, directory, settings))
        });
        let found = Candidates {
            node_local: node_local.as_deref(),
            external: external.as_deref(),
            group: &group,
            agreed: agreed.as_ref(),
            runs: &runs,
        };
        let selection = CopySelection::new(found);
        let mut selection = selection.or_else(|error| match &external {
            // The versions on external storage are known again once that storage answers.
            Some(_) if node_local.is_some() => {
                damage.push(Damage {
                    tier: "external",
                    path: PathBuf::new(),
                    version: None,
                    what: format!("what lies there cannot be listed: {error}"),
                });
                let here = CopySelection::new(Candidates {
                    external: None,
                    ..found
                })?;
                // A run elsewhere may have written some of these versions anew.
                match last == LastWriter::Elsewhere && !here.is_empty() {
                    true => Err(error),
                    false => Ok(here),
                }
            }
            _ => Err(error),
        })?;
        for orphan in &selection.orphans {
            let (tier, path) = match orphan.is_external {
                true => ("external", self.external.as_ref().map(External::path)),
                false => ("node-local", self.node_local.as_deref()),
            };
            let path = path.unwrap_or(Path::new(""));
            let Orphan { version, base, .. } = *orphan;
            damage.push(Damage::without_base(tier, path, version, base));
        }
        let outdated = std::mem::take(&mut selection.outdated).into_iter();
        first.supersede(outdated.map(|(version, one)| (version, one.identity)));
        if let (Some(external), Some(agreed)) = (&external, &agreed) {
            // The copies are removed once a version of this run is durable.
            let forgotten = agreed.to_remove.iter();
            forgotten.for_each(|(version, bytes)| external.found_unfit(*version, *bytes));
        }
        let tiers = [node_local.as_deref(), external.as_deref()];
        let taken = agreement::taken(tiers, &group, &selection, agreed.as_ref())?;
        Ok(OpenHistory {
            node_local,
            external,
            damage,
            taken,
            empties,
            layouts,
            nodes,
            selection,
        })
    }
}

impl OpenHistory {
    /// Returns the bytes that the node-local directory has to hold, in multiples of `alignment`: those of versions that no other
    /// tier has.
    pub(crate) fn required(&self, alignment: u64) -> u64 {
        self.selection.required(alignment)
    }
}

/// Returns true if opening in another way cannot help: another engine has the directory, an argument is wrong, or the process may open
/// no more files.
fn is_fatal(error: &StoreError) -> bool {
    match error {
        StoreError::Busy { .. } | StoreError::Argument(_) => true,
        StoreError::Open { source, .. } | StoreError::File { source, .. } => {
            matches!(*source, Errno::MFILE | Errno::NFILE)
        }
        _ => false,
    }
}

/// Opens a directory to write, or only to read if it cannot be written.
fn open_to_write_or_read(
    tier: &'static str,
    path: &Path,
    options: &Options,
    damage: &mut Vec<Damage>,
) -> Result<Repository> {
    let error = match Repository::open(path, options.clone()) {
        Err(error) if !is_fatal(&error) => error,
        opened => return Ok(opened?),
    };
    match Repository::read_only(path, options.clone()) {
        Ok(opened) => {
            damage.push(Damage::unusable(tier, path, &error));
            Ok(opened)
        }
        Err(_) => Err(error.into()),
    }
}

/// Tells the plan which versions are on the tiers that outlive the engine.
pub(crate) fn adopt(
    shared: &EngineCore,
    opened: &OpenHistory,
    limit: u64,
    alignment: u64,
) -> Result<()> {
    let selection = &opened.selection;
    if shared.stage.is_none() && selection.has_differences() {
        let why = "the directory holds some: give the engine `dedup` or `compress` to read them";
        return Err(BuildError::NoDifferences { why }.into());
    }
    let tier_of = |durable: &Option<Arc<DurableTier>>| {
        let is_it = |tier: &crate::run::TierState| {
            let durable = durable.as_deref().map(std::ptr::from_ref);
            durable.is_some() && tier.medium.durable().map(std::ptr::from_ref) == durable
        };
        shared.tiers.iter().position(is_it).map(TierId)
    };
    let (near, far) = (tier_of(&opened.node_local), tier_of(&opened.external));
    let (held, unfit) = match near {
        Some(_) => selection.node_local_within(limit, alignment),
        None => (Vec::new(), Vec::new()),
    };
    let held = held.into_iter();
    let held = held.filter_map(|version| Some((version, *selection.node_local.get(&version)?)));
    let held: BTreeMap<Version, copy_selection::FoundCopy> = held.collect();
    let all: BTreeSet<Version> = held
        .keys()
        .chain(selection.external.keys())
        .copied()
        .collect();
    // Bases come before the versions that build upon them, on whichever tier they are.
    for version in all {
        // The lowest tier first: the plan need not flush a version that is already there.
        for (found, tier) in [
            (selection.external.get(&version), far),
            (held.get(&version), near),
        ] {
            if let (Some(found), Some(tier)) = (found, tier) {
                shared.empties.note(version, found.size == 0);
                shared.layouts.adopt(version);
                shared.tell(found.adopted(version, tier));
            }
        }
    }
    if let Some(durable) = &opened.node_local {
        // The copies on external storage keep the numbers in use.
        for (version, bytes) in unfit {
            durable.found_unfit(version, bytes);
        }
    }
    Ok(())
}

impl copy_selection::FoundCopy {
    fn adopted(&self, version: Version, tier: TierId) -> Event {
        Event::Adopt {
            version,
            // The plan knows no versions without bytes.
            size: self.size.max(1),
            tier,
            difference: self.difference,
        }
    }
}

//! Versions that outlive the engine: where they are kept, and what an engine finds there when it starts.

use crate::plan::{Event, TierId};
use crate::run::{Kept, Shared};
use crate::{EngineBuilder, Result, Version};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tierflow_store::{Options, Repository, Retention, Vault};

/// Where versions are kept beyond the engine's life.
#[derive(Debug, Clone)]
pub(crate) struct Lasting {
    /// A directory of this node.
    pub(crate) node_local: Option<PathBuf>,
    /// Storage that outlives the node.
    pub(crate) external: Option<External>,
    pub(crate) group: Group,
    pub(crate) retention: Option<Retention>,
    /// How long dropping the engine waits for what is under way.
    pub(crate) closing: Duration,
}

impl Default for Lasting {
    fn default() -> Self {
        Self {
            node_local: None,
            external: None,
            group: Group::default(),
            retention: None,
            closing: Duration::from_secs(60),
        }
    }
}

impl EngineBuilder {
    /// How long dropping the engine waits for transfers that do not end, because storage hangs; a minute unless you say
    /// otherwise. They are left to themselves then, with all that they use: memory, directories, and a pool's share.
    #[must_use]
    pub fn closing_patience(mut self, patience: Duration) -> Self {
        self.lasting.closing = patience;
        self
    }
}

/// Storage that outlives the node.
#[derive(Debug, Clone)]
pub(crate) enum External {
    Directory(PathBuf),
    Vault(Arc<dyn Vault>),
}

/// Whose pieces of which versions an engine writes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Group {
    pub(crate) rank: u32,
    pub(crate) ranks: u32,
    pub(crate) run: u64,
}

impl Default for Group {
    fn default() -> Self {
        Self {
            rank: 0,
            ranks: 1,
            run: 0,
        }
    }
}

/// What was opened.
#[derive(Debug, Default)]
pub(crate) struct Opened {
    pub(crate) node_local: Option<Arc<Kept>>,
    pub(crate) external: Option<Arc<Kept>>,
    ranks: u32,
    /// The node-local directory of one rank of several.
    shared_out: Option<Arc<Repository>>,
}

impl Lasting {
    pub(crate) fn open(&self) -> Result<Opened> {
        let group = self.group;
        let options = Options::default()
            .rank(group.rank, group.ranks)
            .run(group.run);
        let external: Option<Arc<dyn Vault>> = match &self.external {
            Some(External::Directory(path)) => {
                Some(Arc::new(Repository::open(path, options.clone())?))
            }
            Some(External::Vault(vault)) => Some(Arc::clone(vault)),
            None => None,
        };
        let local = match &self.node_local {
            Some(path) => Some(Arc::new(Repository::open(path, options)?)),
            None => None,
        };
        if let (Some(local), Some(external)) = (&local, &external)
            && group.ranks > 1
        {
            bring_what_was_left(local, &**external)?;
        }
        let external = external.map(|vault| Arc::new(Kept::new(vault, None, self.retention)));
        let shared_out = local.clone().filter(|_| group.ranks > 1);
        let node_local = local.map(|local| {
            let vault: Arc<dyn Vault> = local;
            Arc::new(Kept::new(vault, external.clone(), self.retention))
        });
        Ok(Opened {
            node_local,
            external,
            ranks: group.ranks,
            shared_out,
        })
    }
}

/// A group's version counts once every rank's piece lies where all can see it. What a crash left on this node is brought
/// there before anybody asks for the newest version.
fn bring_what_was_left(local: &Repository, external: &dyn Vault) -> Result<()> {
    for piece in local.own_pieces()? {
        // A piece that cannot be read, or a number that is taken, keeps none of the others from being brought.
        let _left_where_it_is = local
            .own_piece(piece.version)
            .and_then(|piece| external.copy(&piece));
    }
    Ok(())
}

/// Tells the plan what lies on the tiers that outlive the engine.
pub(crate) fn adopt(shared: &Shared, opened: &Opened) -> Result<()> {
    let lowest = shared.tiers.len() - 1;
    let mut whole = Found::new();
    // The lowest tier first: what lies there need not be flushed from above.
    for (tier, medium) in shared.tiers.iter().enumerate().rev() {
        let Some(kept) = medium.media.kept() else {
            continue;
        };
        let tier = TierId(tier);
        let mut found = found(kept, opened.ranks)?;
        if let Some(local) = opened.shared_out.as_ref().filter(|_| tier.0 < lowest) {
            found.extend(known_below(local, &whole)?);
        }
        for (&version, &(size, _)) in &found {
            shared.tell(Event::Adopt {
                version,
                size,
                tier,
            });
        }
        whole.extend(found);
    }
    Ok(())
}

/// The pieces in a rank's own directory that belong to versions known to be whole, wherever the other pieces are.
fn known_below(local: &Repository, whole: &Found) -> Result<Found> {
    let mut known = Found::new();
    for piece in local.own_pieces()? {
        if let Some(&(size, run)) = whole.get(&piece.version)
            && piece.run == run
        {
            known.insert(piece.version, (size, run));
        }
    }
    Ok(known)
}

/// Versions, with the bytes of this rank's piece of each and the run that wrote it.
type Found = BTreeMap<Version, (u64, u64)>;

/// The whole versions of a tier. Those of a group of another size have no piece for each rank of this one.
fn found(kept: &Kept, ranks: u32) -> Result<Found> {
    let mut found = Found::new();
    let versions = kept.vault().versions()?.into_iter();
    for info in versions.filter(|info| info.ranks == ranks) {
        let size = if info.ranks == 1 {
            info.bytes
        } else {
            match kept.vault().piece(info.version) {
                Ok(piece) => piece.regions().iter().map(|region| region.length).sum(),
                // It is named when it is looked for, and an older version is offered.
                Err(_) => continue,
            }
        };
        found.insert(info.version, (size, info.run));
    }
    Ok(found)
}

//! Versions that outlive the engine: where they are kept, and what an engine finds there when it starts.

use crate::plan::{Difference, Event, TierId};
use crate::run::{Kept, Shared};
use crate::{EngineBuilder, Error, Result, Version};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tierflow_store::{Options, PieceInfo, Repository, Retention, Vault};

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
    /// What keeps versions from being stored as differences there, if anything does.
    pub(crate) fn may_differ(&self) -> Result<()> {
        let why = if matches!(self.external, Some(External::Vault(_))) {
            "a vault of the application's holds checkpoints whole"
        } else if self.group.ranks > 1 {
            "a group's versions are whole, as each rank's builds upon others"
        } else {
            return Ok(());
        };
        Err(Error::NoDifferences { why })
    }

    /// `builds`: whether versions may build upon others.
    pub(crate) fn open(&self, builds: bool) -> Result<Opened> {
        let group = self.group;
        let options = Options::default()
            .rank(group.rank, group.ranks)
            .run(group.run);
        let (external, directory): (Option<Arc<dyn Vault>>, _) = match &self.external {
            Some(External::Directory(path)) => {
                let directory = Arc::new(Repository::open(path, options.clone())?);
                (Some(Arc::clone(&directory) as _), Some(directory))
            }
            Some(External::Vault(vault)) => (Some(Arc::clone(vault)), None),
            None => (None, None),
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
        let alone =
            |directory: Option<Arc<Repository>>| (directory.filter(|_| group.ranks == 1), builds);
        let external = external.map(|vault| {
            let directory = alone(directory);
            Arc::new(Kept::new(vault, None, self.retention, directory))
        });
        let shared_out = local.clone().filter(|_| group.ranks > 1);
        let node_local = local.map(|local| {
            let directory = alone(Some(Arc::clone(&local)));
            let vault: Arc<dyn Vault> = local;
            Arc::new(Kept::new(
                vault,
                external.clone(),
                self.retention,
                directory,
            ))
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
        kept.remove_orphans(|version| whole.contains_key(&version))?;
        let mut found = match kept.parts()? {
            Some(pieces) => all(pieces),
            None => found(kept, opened.ranks)?,
        };
        if let Some(local) = opened.shared_out.as_ref().filter(|_| tier.0 < lowest) {
            found.extend(known_below(local, &whole)?);
        }
        for (&version, found) in &found {
            if found.difference.is_some() && shared.stage.is_none() {
                let why = "the directory holds some: give the engine `dedup` to read them";
                return Err(Error::NoDifferences { why });
            }
            shared.tell(Event::Adopt {
                version,
                size: found.size,
                tier,
                difference: found.difference,
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
        if let Some(found) = whole.get(&piece.version)
            && piece.run == found.run
        {
            known.insert(piece.version, *found);
        }
    }
    Ok(known)
}

/// A rank's piece of a version.
#[derive(Debug, Clone, Copy)]
struct One {
    /// Bytes of the checkpoint.
    size: u64,
    /// The run that wrote it.
    run: u64,
    /// As what it lies there, if not as it is.
    difference: Option<Difference>,
}

impl One {
    /// Of so many bytes, and so many once they are decoded.
    fn new((bytes, decoded): (u64, Option<u64>), base: Option<Version>, run: u64) -> Self {
        Self {
            size: decoded.unwrap_or(bytes),
            run,
            difference: decoded.map(|_| Difference { bytes, base }),
        }
    }
}

/// This rank's pieces of versions.
type Found = BTreeMap<Version, One>;

fn all(pieces: Vec<PieceInfo>) -> Found {
    let one = |piece: PieceInfo| {
        let bytes = (piece.bytes, piece.decoded);
        (piece.version, One::new(bytes, piece.base, piece.run))
    };
    pieces.into_iter().map(one).collect()
}

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
        let one = One::new((size, info.decoded), info.base, info.run);
        found.insert(info.version, one);
    }
    Ok(found)
}

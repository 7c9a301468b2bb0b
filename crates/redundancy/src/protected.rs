//! A rank's vault on its node, whose versions outlive the node.

mod rounds;

use crate::{Error, Exchange, Keep, Pieces, Result, Set, Transport};
use rounds::{Rounds, Shared};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tierflow_store::{
    Damage, Mark, Options, Piece, PieceInfo, Ready, Repository, Snapshot, Vault, VersionInfo,
};

/// A directory on a rank's node as an engine's lowest tier: a version counts there once every member of the set keeps its share of
/// the redundancy. Opening it brings back what was lost.
///
/// It is given to `EngineBuilder::external_vault`, with a `collective` by which all ranks of the group agree on what they have. The
/// ranks of a group take the same checkpoints; a version that some rank gave up is not protected. Dropping it waits for what is
/// under way with the other members, which may take as long as its patience if one of them was killed.
#[derive(Debug)]
pub struct Protected {
    repository: Arc<Repository>,
    keep: Arc<Keep>,
    shared: Arc<Shared>,
    patience: Duration,
    lost: Vec<Error>,
    thread: Option<JoinHandle<()>>,
}

/// Which rank of how many this is, and the number of the application's run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rank {
    /// Its rank.
    pub rank: u32,
    /// The ranks of the group.
    pub ranks: u32,
    /// What is given to the engine as its group's run.
    pub run: u64,
}

impl Protected {
    /// Opens a rank's directory and brings back what it lost, with all members of its set; what they saved and did not come to protect
    /// is protected. What cannot be brought back is in [`Protected::lost`].
    ///
    /// `patience` is how long a member waits for another at most, here and for each version that is saved.
    ///
    /// # Errors
    /// As [`Exchange::rebuild`] but for what is lost for good; [`Error::Store`] if the directory cannot be written.
    pub fn open(
        directory: &Path,
        rank: Rank,
        set: Set,
        transport: Arc<dyn Transport>,
        patience: Duration,
    ) -> Result<Self> {
        let options = Options::default().rank(rank.rank, rank.ranks).run(rank.run);
        std::fs::create_dir_all(directory).map_err(Error::io(directory))?;
        let repository = Arc::new(Repository::open(directory.join("pieces"), options)?);
        let keep = Arc::new(Keep::open(&directory.join("keep"))?);
        let exchange = Exchange::new(&set, rank.rank, &*transport, &keep, patience)?;
        let pieces = Pieces::new(&repository, exchange, &keep);
        let mut lost = Vec::new();
        for version in pieces.versions()? {
            match pieces.rebuild(version) {
                Ok(_) => {}
                Err(
                    error @ (Error::TooManyLost { .. }
                    | Error::Unknown { .. }
                    | Error::Damaged { .. }
                    | Error::Store(_)),
                ) => lost.push(error),
                Err(error) => return Err(error),
            }
        }
        pieces.protect_rest()?;
        let shared = Arc::<Shared>::default();
        let thread = match set.bears {
            // Nobody keeps anything for it.
            0 => None,
            _ => {
                let rounds = Rounds {
                    set,
                    rank: rank.rank,
                    transport,
                    repository: Arc::clone(&repository),
                    keep: Arc::clone(&keep),
                    shared: Arc::clone(&shared),
                    patience,
                };
                let builder = std::thread::Builder::new().name("tierflow-redundancy".to_owned());
                let thread = builder.spawn(move || rounds.run());
                Some(thread.map_err(Error::io("a thread"))?)
            }
        };
        Ok(Self {
            repository,
            keep,
            shared,
            patience,
            lost,
            thread,
        })
    }

    /// Versions that were protected and could not be brought back when it was opened, and why.
    #[must_use]
    pub fn lost(&self) -> &[Error] {
        &self.lost
    }

    /// Waits until a version that lies here is protected.
    fn protect(&self, version: u64) -> tierflow_store::Result<()> {
        if self.thread.is_none() {
            return Ok(());
        }
        let protected = self.shared.wait(version, self.patience);
        // It is what storage elsewhere did not do.
        protected.map_err(|error| tierflow_store::Error::Remote(error.to_string()))
    }

    fn forget(&self, version: u64) -> tierflow_store::Result<()> {
        self.shared.forget(version);
        let removed = self.keep.remove(version);
        removed.map_err(|error| tierflow_store::Error::Remote(error.to_string()))
    }
}

impl Vault for Protected {
    /// This rank's: what the others have is found out when the group opens its engines.
    fn versions(&self) -> tierflow_store::Result<Vec<VersionInfo>> {
        let own = self.repository.own_pieces()?.into_iter();
        let info = |piece: PieceInfo| VersionInfo {
            version: piece.version,
            ranks: piece.ranks,
            bytes: piece.bytes,
            decoded: piece.decoded,
            created: piece.identity.created,
            run: piece.identity.run,
            base: piece.identity.base,
        };
        Ok(own.map(info).collect())
    }

    fn piece(&self, version: u64) -> tierflow_store::Result<Piece> {
        self.repository.own_piece(version)
    }

    fn pieces(&self) -> tierflow_store::Result<Vec<PieceInfo>> {
        self.repository.own_pieces()
    }

    fn last_run(&self) -> tierflow_store::Result<Mark> {
        self.repository.last_run()
    }

    fn damage(&self) -> Vec<Damage> {
        self.repository.damage()
    }

    fn save(&self, snapshot: &Snapshot<'_>) -> tierflow_store::Result<()> {
        self.save_when(snapshot, &|| Ok(()))
    }

    fn save_when(&self, snapshot: &Snapshot<'_>, ready: &Ready<'_>) -> tierflow_store::Result<()> {
        // Tried again, it lies here already.
        if !self.shared.is_pending(snapshot.version) {
            Vault::save_when(&*self.repository, snapshot, ready)?;
        }
        self.protect(snapshot.version)
    }

    fn copy(&self, piece: &Piece) -> tierflow_store::Result<()> {
        self.copy_when(piece, &|| Ok(()))
    }

    fn copy_when(&self, piece: &Piece, ready: &Ready<'_>) -> tierflow_store::Result<()> {
        if !self.shared.is_pending(piece.version()) {
            Vault::copy_when(&*self.repository, piece, ready)?;
        }
        self.protect(piece.version())
    }

    fn remove(&self, versions: &BTreeSet<u64>) -> tierflow_store::Result<()> {
        for version in versions {
            self.forget(*version)?;
        }
        self.repository.remove(versions)
    }

    fn truncate(&self, after: Option<u64>) -> tierflow_store::Result<()> {
        let failed = |error: Error| tierflow_store::Error::Remote(error.to_string());
        let kept = self.keep.versions().map_err(failed)?;
        for version in kept.into_iter().filter(|version| Some(*version) > after) {
            self.forget(version)?;
        }
        self.repository.truncate(after)
    }
}

impl Drop for Protected {
    fn drop(&mut self) {
        self.shared.end();
        if let Some(thread) = self.thread.take() {
            // One that panicked has nothing left to do.
            let _ended = thread.join();
        }
    }
}

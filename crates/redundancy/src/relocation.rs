//! Relocation: a rank may run on another node than before, because a spare node took another place in the list of hosts, or the nodes have
//! another order. The ranks that run now on a rank's former node read its directory there, and send the content to the rank.
//!
//! If a rank has several directories, those count to which the last run wrote, by their epochs. The other directories have nothing that
//! these lack, except for versions that were given up or discarded since, and pieces that could not be sent when the rank moved.

mod announcement;

use crate::atomic_file::AtomicFile;
use crate::exchange::Target;
use crate::manifest::Digester;
use crate::parity_store::{PIECES, ranks_in};
use crate::pieces::{Record, RepositorySink};
use crate::wire::Wire;
use crate::{CHUNK, Error, Manifest, ParityStore, Part, Result, Transport};
use announcement::{Holding, Site, misplaced};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;
use tierflow_store::{Collective, Identity, Options, Repository};

/// A rank's side of the collective call that finds the ranks' directories and sends their contents.
pub(crate) struct Relocation<'a> {
    /// The directory on this rank's node in which the directories of the node's ranks are.
    pub(crate) path: &'a Path,
    pub(crate) rank: u32,
    pub(crate) ranks: u32,
    pub(crate) repository: &'a Repository,
    pub(crate) store: &'a ParityStore,
    /// The versions that this rank has on storage that outlives the nodes.
    pub(crate) elsewhere: &'a BTreeSet<u64>,
    pub(crate) transport: &'a dyn Transport,
    pub(crate) patience: Duration,
}

/// The content of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    /// The rank's piece, with this epoch and sequence.
    Piece(u32, u64),
    /// The manifest, and the parity that the rank stores.
    Parity,
}

/// A part of a version that the rank `from` reads from a directory of the rank `to`, and sends to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Transfer {
    from: u32,
    to: u32,
    version: u64,
    content: Content,
}

/// A directory of a rank that runs elsewhere.
struct Other {
    repository: Repository,
    store: Option<ParityStore>,
}

impl Relocation<'_> {
    /// Receives the content of this rank's directories on other nodes, and sends the content of other ranks' directories on this node. A
    /// piece that cannot be read or written is left out, and rebuilt later like a lost one.
    ///
    /// # Errors
    /// [`Error::Store`] if `collective` fails, [`Error::Absent`] and [`Error::Message`] if a rank does not take part.
    pub(crate) fn run(&self, collective: &dyn Collective) -> Result<()> {
        let sites: Vec<Site> = self.gather(collective, &self.site()?)?;
        self.level(&sites)?;
        let misplaced = misplaced(&sites);
        if misplaced.is_empty() {
            return Ok(());
        }
        let mine = misplaced.iter().filter(|one| one.reader == self.rank);
        let mut others = BTreeMap::new();
        for one in mine {
            // A directory that cannot be opened is ignored.
            if let Ok(other) = self.other(one.rank) {
                others.insert(one.rank, other);
            }
        }
        let mut holdings = vec![self.own_holding()?];
        for (rank, other) in &others {
            holdings.extend(
                self.holding(*rank, &other.repository, other.store.as_ref())
                    .ok(),
            );
        }
        let holdings = self.gather(collective, &holdings)?;
        let forgotten = |is_own: bool| {
            let of_rank = move |holding: &&Holding| (holding.rank == self.rank) == is_own;
            let holdings = holdings.iter().flatten().filter(of_rank);
            holdings.flat_map(|holding| holding.forgotten.iter().copied())
        };
        self.store.truncations().take_over(forgotten(true));
        self.store.truncations().extend(forgotten(false));
        for holding in sources(&holdings, self.rank) {
            let truncations = holding.1.truncations.iter().copied();
            self.repository.take_over(truncations)?;
        }
        let mut has_all = true;
        for transfer in transfers(&holdings) {
            if transfer.from == self.rank {
                self.send(transfer, others.get(&transfer.to))?;
            } else if transfer.to == self.rank {
                let is_there = self.receive(transfer)?;
                // Missing parity is no failure, as it is computed anew.
                has_all &= is_there || transfer.content == Content::Parity;
            }
        }
        self.transport.flush(self.patience)?;
        let have_all = self.gather(collective, &has_all)?;
        // The first one is this rank's own.
        let left = holdings.get(self.rank as usize).into_iter();
        for holding in left.flat_map(|holdings| holdings.iter().skip(1)) {
            let rank = holding.rank;
            if have_all.get(rank as usize) == Some(&true)
                && is_needless(holding, &holdings)
                && let Some(other) = others.get(&rank)
                && self.is_of_group(other)?
            {
                self.store.enter_left(self.path, rank);
            }
        }
        Ok(())
    }

    /// Returns true if a directory has only pieces of groups of this size. Other pieces were not sent, so the directory must stay.
    fn is_of_group(&self, other: &Other) -> Result<bool> {
        let pieces = other.repository.own_pieces()?;
        Ok(pieces.iter().all(|piece| piece.ranks == self.ranks))
    }

    fn gather<T: Wire>(&self, collective: &dyn Collective, mine: &T) -> Result<Vec<T>> {
        let gathered = collective.all_gather(&mine.encode(), self.patience)?;
        let all = (0_u32..).zip(&gathered);
        let all = all.map(|(rank, bytes)| T::decode(bytes).ok_or(Error::Message { rank }));
        let all: Vec<T> = all.collect::<Result<_>>()?;
        match all.len() == self.ranks as usize {
            true => Ok(all),
            false => Err(Error::Message { rank: 0 }),
        }
    }

    fn site(&self) -> Result<Site> {
        let mut ranks = ParityStore::ranks(self.path).unwrap_or_default();
        ranks.extend(ranks_in(self.path, PIECES).unwrap_or_default());
        let epoch = self.repository.last_run()?.epoch;
        Ok(Site::new(self.path, epoch, ranks))
    }

    /// Brings this rank's repository to the latest epoch of all ranks, so that all ranks write in one epoch that is later than all before.
    /// So the later one of two directories of a rank is known, even if the run that wrote to it did not see the other directory.
    fn level(&self, sites: &[Site]) -> Result<()> {
        let epochs = || sites.iter().map(|site| site.epoch);
        let (least, most) = (epochs().min(), epochs().max().unwrap_or_default());
        if least != Some(most) {
            self.repository.follow(&Identity {
                epoch: most,
                sequence: 0,
                run: 0,
                created: 0,
                content: 0,
                base: None,
            })?;
        }
        Ok(())
    }

    fn other(&self, rank: u32) -> Result<Other> {
        let options = Options::default().rank(rank, self.ranks);
        Ok(Other {
            repository: Repository::read_only(self.path, options)?,
            store: ParityStore::existing(self.path, rank)?,
        })
    }

    fn own_holding(&self) -> Result<Holding> {
        let own = self.holding(self.rank, self.repository, Some(self.store))?;
        let elsewhere = self.elsewhere.iter().copied().collect();
        Ok(Holding { elsewhere, ..own })
    }

    fn holding(
        &self,
        rank: u32,
        repository: &Repository,
        store: Option<&ParityStore>,
    ) -> Result<Holding> {
        let pieces = repository.own_pieces()?.into_iter();
        let pieces = pieces.filter(|piece| piece.ranks == self.ranks);
        let pieces = pieces.map(|piece| {
            let identity = piece.identity;
            (piece.version, (identity.epoch, identity.sequence))
        });
        let mut holding = Holding {
            rank,
            pieces: pieces.collect(),
            truncations: repository.truncations()?,
            ..Holding::default()
        };
        if let Some(store) = store {
            for version in store.versions()? {
                let manifest = store.manifest(version)?;
                holding
                    .manifests
                    .extend(manifest.map(|manifest| (version, manifest.start)));
            }
            holding.forgotten = store.truncations().known().iter().copied().collect();
        }
        Ok(holding)
    }

    fn send(&self, transfer: Transfer, other: Option<&Other>) -> Result<()> {
        let (to, version) = (transfer.to, transfer.version);
        let store = other.and_then(|other| other.store.as_ref());
        match transfer.content {
            Content::Piece(..) => {
                let piece = other.and_then(|other| other.repository.own_piece(version).ok());
                let record = piece.as_ref().and_then(|piece| Record::new(piece).ok());
                let part = record.as_ref().map(|record| record as &dyn Part);
                self.send_part(to, part, None)
            }
            Content::Parity => {
                let manifest = store.and_then(|store| store.manifest(version).ok().flatten());
                let bytes = manifest
                    .as_ref()
                    .and_then(|manifest| manifest.parity_of(to));
                let bytes = bytes.map(|parity| parity.bytes);
                let parity = store.zip(bytes);
                let parity = parity.and_then(|(store, bytes)| store.parity(version, bytes).ok());
                let parity = parity.flatten();
                let part = parity.as_ref().map(|file| file as &dyn Part);
                self.send_part(to, part, manifest)
            }
        }
    }

    /// Sends a message with a flag that is true if there is a part, the part's length, and the manifest; then the part's bytes, and their
    /// checksum. If the part cannot be read, an empty message ends it.
    fn send_part(
        &self,
        to: u32,
        part: Option<&dyn Part>,
        manifest: Option<Manifest>,
    ) -> Result<()> {
        let length = part.and_then(|part| part.bytes().ok());
        let begin = ((length.is_some(), length.unwrap_or_default()), manifest);
        self.transport.send(to, &begin.encode(), self.patience)?;
        let (Some(part), Some(length)) = (part, length) else {
            return Ok(());
        };
        let (mut at, mut digester) = (0, Digester::default());
        while at < length {
            let mut chunk = vec![0; (length - at).min(CHUNK as u64) as usize];
            if part.read_at(at, &mut chunk).is_err() {
                return self.transport.send(to, &[], self.patience);
            }
            digester.update(&chunk);
            at += chunk.len() as u64;
            self.transport.send(to, &chunk, self.patience)?;
        }
        let hash = digester.finish().hash.to_le_bytes();
        self.transport.send(to, &hash, self.patience)
    }

    /// Receives the content of a transfer. Returns true if the whole piece or parity came and is written.
    fn receive(&self, transfer: Transfer) -> Result<bool> {
        let (from, version) = (transfer.from, transfer.version);
        match transfer.content {
            Content::Piece(epoch, sequence) => {
                let path = self.store.piece_path(version);
                let (is_there, _) = std::thread::scope(|scope| {
                    self.receive_part(from, &mut |length| {
                        let path = path.clone();
                        let sink = RepositorySink::start(scope, self.repository, path, length)?;
                        Ok(Box::new(sink))
                    })
                })?;
                if is_there {
                    self.repository.follow(&Identity {
                        epoch,
                        sequence,
                        run: 0,
                        created: 0,
                        content: 0,
                        base: None,
                    })?;
                }
                Ok(is_there)
            }
            Content::Parity => {
                let path = self.store.parity_path(version);
                let (is_there, manifest) = self.receive_part(from, &mut |length| {
                    Ok(Box::new(AtomicFile::new(&path, length)?))
                })?;
                if let Some(manifest) = manifest.filter(|manifest| manifest.version == version) {
                    // If this fails, the manifests of other members still name the version.
                    let _known_to_others = self.store.put(&manifest);
                }
                Ok(is_there)
            }
        }
    }

    /// Receives a part into the sink that `target` opens. Returns true if the whole part came and is written, and the manifest that came
    /// with it.
    fn receive_part<'o>(
        &self,
        from: u32,
        target: &mut Target<'_, 'o>,
    ) -> Result<(bool, Option<Manifest>)> {
        let receive = || self.transport.receive(from, self.patience);
        let wrong = || Error::Message { rank: from };
        let begin = Wire::decode(&receive()?).ok_or_else(wrong)?;
        let ((has_part, length), manifest): ((bool, u64), Option<Manifest>) = begin;
        if !has_part {
            return Ok((false, manifest));
        }
        // The whole part is received even if it cannot be written.
        let mut sink = target(length).ok();
        let (mut left, mut digester) = (length, Digester::default());
        while left > 0 {
            let bytes = receive()?;
            if bytes.is_empty() {
                return Ok((false, manifest));
            }
            left = left.checked_sub(bytes.len() as u64).ok_or_else(wrong)?;
            digester.update(&bytes);
            if sink.as_mut().is_some_and(|sink| sink.write(bytes).is_err()) {
                sink = None;
            }
        }
        let is_right = receive()? == digester.finish().hash.to_le_bytes();
        let sink = sink.filter(|_| is_right);
        Ok((sink.is_some_and(|sink| sink.commit().is_ok()), manifest))
    }
}

/// Returns the directories of `rank` on other nodes to which the last of the rank's runs wrote, each with the rank that reads it.
fn sources(holdings: &[Vec<Holding>], rank: u32) -> Vec<(u32, &Holding)> {
    let all = (0_u32..).zip(holdings).flat_map(|(reader, holdings)| {
        let holdings = holdings.iter().filter(|holding| holding.rank == rank);
        holdings.map(move |holding| (reader, holding))
    });
    let all: Vec<(u32, &Holding)> = all.collect();
    let last = all.iter().map(|(_, holding)| holding.epoch()).max();
    let sources = all.into_iter().filter(|(reader, _)| *reader != rank);
    let sources = sources.filter(|(_, holding)| Some(holding.epoch()) == last);
    sources.collect()
}

/// Returns true if the rank of a directory on another node needs it no more, once the rank has received what the ranks send: it has
/// each version of the directory, or only newer ones, as a retention leaves them.
fn is_needless(left: &Holding, holdings: &[Vec<Holding>]) -> bool {
    let Some(own) = holdings.get(left.rank as usize).and_then(|own| own.first()) else {
        return false;
    };
    let sources = sources(holdings, left.rank).into_iter();
    let pieces = sources.flat_map(|(_, holding)| &holding.pieces);
    let pieces = pieces.chain(&own.pieces).map(|(version, _)| *version);
    let there: BTreeSet<u64> = pieces.collect();
    let is_there = |version: &u64| {
        there.first().is_some_and(|oldest| version < oldest)
            || there.contains(version)
            || own.elsewhere.contains(version)
    };
    left.pieces.iter().all(|(version, _)| is_there(version))
}

/// Returns the transfers of all ranks, in the order in which the ranks make them.
fn transfers(holdings: &[Vec<Holding>]) -> Vec<Transfer> {
    let mut transfers = Vec::new();
    for (to, own) in (0_u32..).zip(holdings) {
        let Some(own) = own.first() else {
            continue;
        };
        let mut pieces: BTreeMap<u64, (u32, u64)> = own.pieces.iter().copied().collect();
        let mut manifests: BTreeMap<u64, u64> = own.manifests.iter().copied().collect();
        let is_elsewhere = |version: &u64| own.elsewhere.binary_search(version).is_ok();
        for (from, source) in sources(holdings, to) {
            let wanted = source.pieces.iter();
            for (version, order) in wanted.filter(|(version, _)| !is_elsewhere(version)) {
                let known = pieces.entry(*version).or_default();
                if *known < *order {
                    *known = *order;
                    let content = Content::Piece(order.0, order.1);
                    let version = *version;
                    transfers.push(Transfer {
                        from,
                        to,
                        version,
                        content,
                    });
                }
            }
            let wanted = source.manifests.iter();
            for (version, start) in wanted.filter(|(version, _)| !is_elsewhere(version)) {
                let known = manifests.entry(*version).or_default();
                if *known < *start {
                    *known = *start;
                    let (version, content) = (*version, Content::Parity);
                    transfers.push(Transfer {
                        from,
                        to,
                        version,
                        content,
                    });
                }
            }
        }
    }
    transfers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holding(rank: u32, pieces: &[(u64, (u32, u64))], manifests: &[(u64, u64)]) -> Holding {
        Holding {
            rank,
            pieces: pieces.to_vec(),
            manifests: manifests.to_vec(),
            ..Holding::default()
        }
    }

    #[test]
    fn what_the_last_run_wrote_elsewhere_is_sent_once() {
        let old = holding(1, &[(4, (1, 4)), (5, (1, 5))], &[(4, 1)]);
        let last = holding(1, &[(4, (1, 4)), (5, (2, 6))], &[(4, 1), (5, 2)]);
        let own = holding(1, &[(4, (1, 4))], &[]);
        let bare = |rank| holding(rank, &[], &[]);
        let all = [vec![bare(0), old], vec![own], vec![bare(2), last.clone()]];
        let sent = transfers(&all).into_iter();
        let sent = sent.map(|one| (one.from, one.to, one.version, one.content));
        let sent: Vec<_> = sent.collect();
        let (piece, parity) = (Content::Piece(2, 6), Content::Parity);
        assert_eq!(
            sent,
            [(2, 1, 5, piece), (2, 1, 4, parity), (2, 1, 5, parity)]
        );
        // A piece could not be sent when the rank moved, and its directory is no source any more.
        let left = holding(1, &[(3, (1, 3)), (4, (1, 4)), (5, (1, 5))], &[]);
        let moved = |pieces: &[(u64, (u32, u64))]| {
            [vec![bare(0), left.clone()], vec![holding(1, pieces, &[])]]
        };
        assert!(!is_needless(
            &left,
            &moved(&[(3, (1, 3)), (5, (1, 5)), (6, (2, 6))])
        ));
        assert!(is_needless(
            &left,
            &moved(&[(4, (1, 4)), (5, (1, 5)), (6, (2, 6))])
        ));
        assert!(is_needless(&left, &moved(&[(6, (2, 6))])));
        assert!(is_needless(&left, &moved(&[])));
        // The rank's own directory is the last one.
        let all = [vec![bare(0), bare(1)], vec![last]];
        assert!(transfers(&all).is_empty());
    }
}

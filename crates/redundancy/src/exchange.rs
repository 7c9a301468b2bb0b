//! The collective calls of a set's members: to protect a version, and to rebuild parts and parity that some of them lost.

mod messages;

use crate::atomic_file::AtomicFile;
use crate::manifest::Digester;
use crate::part_and_parity::{Intact, PartAndParity};
use crate::rebuilding::{Pass, Sink, shards};
use crate::{
    Code, Digest, Error, Layout, Lost, Manifest, ParityStore, Part, Place, Result, Row, Set,
    Transport,
};
pub(crate) use messages::Step;
use std::collections::{BTreeSet, VecDeque};
use std::path::Path;
use std::time::Duration;

/// A member's side of its set's collective calls.
///
/// Every member of the set makes the same calls in the same order, each member in its own thread or process. A member holds at most a few
/// rows in memory, each of [`CHUNK`](crate::CHUNK) bytes times the members of the set.
#[derive(Debug)]
pub struct Exchange<'a> {
    set: &'a Set,
    pub(crate) me: usize,
    pub(crate) transport: &'a dyn Transport,
    store: &'a ParityStore,
    patience: Duration,
    start: u64,
    /// For each member, true if its piece of the rebuilt version is also on storage that outlives the nodes.
    is_elsewhere: &'a [bool],
}

/// The result of [`Exchange::rebuild`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rebuilt {
    /// True if the version is protected now. False if more is lost than the code tolerates, but a copy of each part exists; then nothing
    /// was rebuilt.
    pub is_protected: bool,
    /// True if this member's part was rebuilt.
    pub part: bool,
    /// True if the parity that this member stores was rebuilt.
    pub parity: bool,
    /// The members that had lost their part or parity.
    pub lost: Vec<Lost>,
}

/// Largest number of rows from the one that is sent to the one that is encoded, and from there to the one whose parity is stored.
const LAG: usize = 16;

/// A function that opens the sink for a lost part of so many bytes.
pub(crate) type Target<'t, 'o> = dyn FnMut(u64) -> Result<Box<dyn Sink + 'o>> + 't;

impl<'a> Exchange<'a> {
    /// Makes the side of member `rank`. A call waits at most `patience` for a message of another member: choose a longer time than a
    /// member takes to read its whole part.
    ///
    /// # Errors
    /// [`Error::Scheme`] if the rank is no member of the set.
    pub fn new(
        set: &'a Set,
        rank: u32,
        transport: &'a dyn Transport,
        store: &'a ParityStore,
        patience: Duration,
    ) -> Result<Self> {
        let not_of_set = || Error::Scheme {
            scheme: "a set".to_owned(),
            why: format!("rank {rank} is not one of its members"),
        };
        Ok(Self {
            me: set.place_of(rank).ok_or_else(not_of_set)?,
            set,
            transport,
            store,
            patience,
            start: 0,
            is_elsewhere: &[],
        })
    }

    /// Sets the number of this start of the application, which is the same for all members and higher than the numbers before. A
    /// version that is protected now replaces the same version of an earlier start, of which other members may still have a manifest.
    #[must_use]
    pub fn of_start(self, start: u64) -> Self {
        Self { start, ..self }
    }

    /// Sets which members have their parts also on storage that outlives the nodes. A version is not lost while a copy of each part
    /// exists, on a node or there.
    #[must_use]
    pub(crate) fn beside(self, is_elsewhere: &'a [bool]) -> Self {
        Self {
            is_elsewhere,
            ..self
        }
    }

    /// Protects a version whose parts are durable on the members' nodes. When the call returns, every member has its share of the parity
    /// on its disk. Returns the manifest; `None` if the set has no parity, as it has one member.
    ///
    /// # Errors
    /// [`Error::Absent`] if a member does not answer; [`Error::Ended`] if it takes part no more; [`Error::Message`] if it makes another
    /// call; [`Error::Io`] if this member cannot read its part. Then the version is not protected, or some members do not know that it is.
    /// [`Error::Unstored`] on all members if a member cannot write its parity, and on one member if it cannot write the manifest: the
    /// members may go on with another version.
    pub fn protect(&self, version: u64, part: &dyn Part) -> Result<Option<Manifest>> {
        if self.set.tolerates == 0 {
            return Ok(None);
        }
        let bytes = part.bytes().map_err(Error::io(OWN))?;
        let lengths = self.all(Step::Part, version, &vec![bytes])?;
        let layout = self.layout(lengths.into_iter().flatten().collect())?;
        let stores_parity = |row: &Row| matches!(row.place(self.me), Some(Place::Parity { .. }));
        let stored = layout
            .rows()
            .filter(stores_parity)
            .map(|row| row.bytes as u64);
        let parity = AtomicFile::new(&self.store.parity_path(version), stored.sum());
        let mut protecting = Protecting {
            code: Code::new(layout.data(), layout.parity())?,
            part,
            part_digest: Digester::default(),
            encoded: VecDeque::new(),
            parity,
            parity_digest: Digester::default(),
        };
        // Step s sends row s, encodes row s - lag and stores the parity of row s - 2 lag. So a member waits for a row only after it has sent
        // its own shard of the row, and messages are received in the order in which they are sent.
        let lag = LAG.min(2 * layout.members());
        let (mut sent, mut encoded, mut stored) = (layout.rows(), layout.rows(), layout.rows());
        for step in 0.. {
            if let Some(row) = sent.next() {
                self.send_own(&layout, &row, &mut protecting)?;
            }
            if let Some(row) = encoded.by_ref().take(usize::from(step >= lag)).next() {
                self.encode(&layout, &row, &mut protecting)?;
            }
            if step >= 2 * lag {
                let Some(row) = stored.next() else { break };
                self.store_parity(&layout, &row, &mut protecting)?;
            }
        }
        let mine = (
            protecting.part_digest.finish(),
            protecting.parity_digest.finish(),
        );
        // A full disk is no reason to leave the other members: they hear of it.
        let stored = protecting.parity.and_then(AtomicFile::publish);
        let why = stored
            .err()
            .map_or_else(String::new, |error| error.to_string());
        let all = self.all(Step::Parity, version, &(mine, why))?;
        let unstored = |member: usize, why: &String| Error::Unstored {
            version,
            rank: self.rank_of(member),
            why: why.clone(),
        };
        let mut whys = all.iter().map(|(_, why)| why).enumerate();
        if let Some((member, why)) = whys.find(|(_, why)| !why.is_empty()) {
            return Err(unstored(member, why));
        }
        let members = self.set.members.iter();
        let manifest = Manifest {
            version,
            start: self.start,
            tolerates: self.set.tolerates,
            nodes: members.clone().map(|member| member.node.clone()).collect(),
            members: members
                .zip(all)
                .map(|(member, ((part, parity), _))| (member.rank, part, parity))
                .collect(),
        };
        // An error of storing the manifest is this member's alone: the others have their parity, and wait for this member.
        let stored = self.store.put(&manifest);
        self.done(version, true)?;
        match stored {
            Ok(()) => Ok(Some(manifest)),
            Err(error) => Err(unstored(self.me, &error.to_string())),
        }
    }

    /// Sends this member's data shard of a row to the row's encoder, which is the member of the row's first parity shard.
    fn send_own(&self, layout: &Layout, row: &Row, own: &mut Protecting<'_>) -> Result<()> {
        let Some(place @ Place::Data { .. }) = row.place(self.me) else {
            return Ok(());
        };
        let (bytes, chunk) = read_shard(own.part, place, row.bytes)?;
        own.part_digest
            .update(chunk.get(..bytes).unwrap_or_default());
        let encoder = layout.parity_member(row.number, 0);
        self.send(encoder, Step::Shard, row.number, chunk)
    }

    /// Encodes a row if this member is its encoder: receives the data shards, and sends the other parity shards to their members.
    fn encode(&self, layout: &Layout, row: &Row, own: &mut Protecting<'_>) -> Result<()> {
        if layout.parity_member(row.number, 0) != self.me {
            return Ok(());
        }
        let data = (0..layout.data())
            .map(|shard| self.receive_row(layout.data_member(row.number, shard), row));
        let data: Vec<Vec<u8>> = data.collect::<Result<_>>()?;
        let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        let mut made = vec![vec![0; row.bytes]; layout.parity()];
        let mut into: Vec<&mut [u8]> = made.iter_mut().map(Vec::as_mut_slice).collect();
        own.code.encode(&data, &mut into)?;
        let mut made = made.into_iter().enumerate();
        own.encoded.extend(made.next().map(|(_, chunk)| chunk));
        for (shard, chunk) in made {
            let holder = layout.parity_member(row.number, shard);
            self.send(holder, Step::Shard, row.number, chunk)?;
        }
        Ok(())
    }

    /// Appends this member's parity shard of a row to its file.
    fn store_parity(&self, layout: &Layout, row: &Row, own: &mut Protecting<'_>) -> Result<()> {
        let encoder = layout.parity_member(row.number, 0);
        let chunk = match row.place(self.me) {
            Some(Place::Parity { shard: 0, .. }) => own.encoded.pop_front().unwrap_or_default(),
            Some(Place::Parity { .. }) => self.receive_row(encoder, row)?,
            _ => return Ok(()),
        };
        own.parity_digest.update(&chunk);
        let appended = own.parity.as_mut().map(|parity| parity.append(&chunk));
        if let Ok(Err(error)) = appended {
            own.parity = Err(error);
        }
        Ok(())
    }

    /// Returns the versions of which some member has a manifest, in ascending order. All members get the same versions, and rebuild them
    /// when they start again.
    ///
    /// # Errors
    /// [`Error::Absent`], [`Error::Ended`] and [`Error::Message`] if another member does not take part; [`Error::Io`] if this member's
    /// directory cannot be read.
    pub fn versions(&self) -> Result<Vec<u64>> {
        let known = self.all(Step::Versions, 0, &self.store.versions()?)?;
        let known: BTreeSet<u64> = known.into_iter().flatten().collect();
        Ok(known.into_iter().collect())
    }

    /// Returns the versions that are in the lists of all members, in ascending order.
    pub(crate) fn common(&self, mine: &[u64]) -> Result<Vec<u64>> {
        let all = self.all(Step::Versions, 1, &mine.to_vec())?;
        let all = all.into_iter().map(BTreeSet::from_iter);
        let common = all.reduce(|common: BTreeSet<u64>, other| &common & &other);
        Ok(common.unwrap_or_default().into_iter().collect())
    }

    /// Rebuilds the parts and the parity of a version that members lost, or that do not have the checksums in the manifest. `part` is this
    /// member's part, if it has one. If the part is lost or wrong, the rebuilt part is written to `into`, whole or not at all. A member may
    /// run on another node than before.
    ///
    /// # Errors
    /// The same on all members: [`Error::Unknown`] if no member has the version's manifest, [`Error::TooManyLost`] with the nodes if the
    /// code does not tolerate the losses, [`Error::Damaged`] if the rebuilt bytes are not the protected ones. Not the same on all members:
    /// [`Error::Absent`], [`Error::Ended`] and [`Error::Message`] if another member does not take part; [`Error::Io`] if this member
    /// cannot read or write.
    pub fn rebuild(&self, version: u64, part: Option<&dyn Part>, into: &Path) -> Result<Rebuilt> {
        self.rebuild_to(version, part, &mut |bytes| {
            Ok(Box::new(AtomicFile::new(into, bytes)?))
        })
    }

    /// Does what [`Exchange::rebuild`] does, but writes the part to the sink that `target` opens.
    pub(crate) fn rebuild_to<'o>(
        &self,
        version: u64,
        part: Option<&dyn Part>,
        target: &mut Target<'_, 'o>,
    ) -> Result<Rebuilt> {
        let (manifest, is_known) = self.agree(version)?;
        let (_, own_part, own_parity) = self.of_member(&manifest, self.me)?;
        let has_length = |part: &&dyn Part| part.bytes().is_ok_and(|bytes| bytes == own_part.bytes);
        let part = part.filter(has_length);
        let parity = self.store.parity(version, own_parity.bytes)?;
        let own = PartAndParity {
            part,
            parity: parity.as_ref().map(|file| file as &dyn Part),
        };
        let mut intact = self.all(Step::Intact, version, &own.map(|own| own.is_some()))?;
        let lengths = manifest.members.iter().map(|(_, part, _)| part.bytes);
        let layout = self.layout(lengths.collect())?;
        let wanted = PartAndParity {
            part: own_part,
            parity: own_parity,
        };
        let parity_sink = || -> Result<Box<dyn Sink + 'o>> {
            let path = self.store.parity_path(version);
            Ok(Box::new(AtomicFile::new(&path, own_parity.bytes)?))
        };
        // If a checksum turns out to be wrong, that part or parity counts as lost too, and all members begin again.
        loop {
            let lost = lost(&manifest, &intact);
            if let Err(error) = self.check(version, &layout, &intact, &lost) {
                // A copy of each piece exists, though the set cannot rebuild the lost pieces and parity.
                let has_piece = |(intact, elsewhere): (&Intact, Option<&bool>)| {
                    intact.part || elsewhere.copied().unwrap_or_default()
                };
                let elsewhere = (0..).map(|member: usize| self.is_elsewhere.get(member));
                match intact.iter().zip(elsewhere).all(has_piece) {
                    true => return Ok(Rebuilt::default()),
                    false => return Err(error),
                }
            }
            let mine = intact.get(self.me).copied().unwrap_or_default();
            let own = own.zip(mine);
            let own = own.map(|(own, is_intact)| own.filter(|_| is_intact));
            let sinks = PartAndParity {
                part: (!mine.part).then(|| target(own_part.bytes)).transpose()?,
                parity: (!mine.parity).then(parity_sink).transpose()?,
            };
            let (right, sinks) = Pass::new(self, &layout, &intact, wanted).run(own, sinks)?;
            let right = self.all(Step::Right, version, &right)?;
            let still = intact.iter().zip(&right);
            let still = still.map(|(intact, right)| intact.zip(*right).map(|(a, b)| a && b));
            let still: Vec<Intact> = still.collect();
            if still != intact {
                intact = still;
                continue;
            }
            if let Some(wrong) = right.iter().position(|right| !(right.part && right.parity)) {
                let rank = self.rank_of(wrong);
                return Err(Error::Damaged { version, rank });
            }
            let rebuilt = Rebuilt {
                is_protected: true,
                part: sinks.part.is_some(),
                parity: sinks.parity.is_some(),
                lost,
            };
            let mut committed = sinks.map(|sink| match sink {
                Some((sink, written)) => written.and_then(|()| sink.commit()),
                None => Ok(()),
            });
            if committed.parity.is_ok() && !is_known {
                committed.parity = self.store.put(&manifest);
            }
            // An error of writing is this member's alone: the other members have their parts and parity.
            self.done(version, true)?;
            return committed.part.and(committed.parity).map(|()| rebuilt);
        }
    }

    /// Returns the manifest of the latest start, and true if this member has it. If several manifests are of that start, returns the one
    /// that most members have; they differ only if a member's disk is of another run of the application.
    fn agree(&self, version: u64) -> Result<(Manifest, bool)> {
        let mine = self.store.manifest(version)?;
        let mine = mine.filter(|manifest| manifest.is_of(self.set));
        let known: Vec<Option<Manifest>> = self.all(Step::Manifest, version, &mine)?;
        let known: Vec<&Manifest> = known
            .iter()
            .flatten()
            .filter(|one| one.version == version && one.is_of(self.set))
            .collect();
        let votes = |manifest: &Manifest| known.iter().filter(|other| **other == manifest).count();
        // All members have the same list in the same order, so they choose the same manifest.
        let chosen = known
            .iter()
            .max_by_key(|manifest| (manifest.start, votes(manifest)));
        let chosen = chosen.ok_or(Error::Unknown { version })?;
        let is_known = mine.as_ref() == Some(*chosen);
        Ok(((*chosen).clone(), is_known))
    }

    fn layout(&self, lengths: Vec<u64>) -> Result<Layout> {
        let rank = self.rank_of(self.me);
        Layout::new(self.set, lengths).ok_or(Error::Message { rank })
    }

    fn of_member(&self, manifest: &Manifest, member: usize) -> Result<(u32, Digest, Digest)> {
        let found = manifest.members.get(member).copied();
        found.ok_or(Error::Unknown {
            version: manifest.version,
        })
    }

    fn check(&self, version: u64, layout: &Layout, intact: &[Intact], lost: &[Lost]) -> Result<()> {
        let missing = |row| {
            shards(layout, row, intact)
                .iter()
                .filter(|(_, is_intact)| !is_intact)
                .count()
        };
        let tolerates = layout.parity();
        match (0..layout.members() as u64).all(|row| missing(row) <= tolerates) {
            true => Ok(()),
            false => Err(Error::TooManyLost {
                version,
                lost: lost.to_vec(),
                tolerates,
            }),
        }
    }
}

/// A member's state while it protects a version.
struct Protecting<'p> {
    code: Code,
    part: &'p dyn Part,
    part_digest: Digester,
    /// Parity shards that this member encoded and has not written yet.
    encoded: VecDeque<Vec<u8>>,
    /// The file of this member's parity, or the error since which it cannot be written.
    parity: Result<AtomicFile>,
    parity_digest: Digester,
}

/// Returns the members that lost their part or parity, with the nodes in the manifest.
fn lost(manifest: &Manifest, intact: &[Intact]) -> Vec<Lost> {
    let members = manifest.members.iter().zip(&manifest.nodes).zip(intact);
    let lost = members.filter(|(_, intact)| !intact.part || !intact.parity);
    lost.map(|(((rank, ..), node), _)| Lost {
        rank: *rank,
        node: node.clone(),
    })
    .collect()
}

/// The path that an error of reading this member's part or parity names.
const OWN: &str = "what this member has";

/// Reads a shard of `length` bytes. Returns the number of its bytes that are the member's, and the shard, whose other bytes are 0. The
/// shard's vector has capacity for the trailer of a message.
pub(crate) fn read_shard(from: &dyn Part, place: Place, length: usize) -> Result<(usize, Vec<u8>)> {
    let (offset, bytes) = match place {
        Place::Data { offset, bytes, .. } => (offset, bytes),
        Place::Parity { offset, .. } => (offset, length),
    };
    let mut chunk = Vec::with_capacity(length + messages::TRAILER);
    chunk.resize(length, 0);
    let own = chunk.get_mut(..bytes).unwrap_or_default();
    if !own.is_empty() {
        from.read_at(offset, own).map_err(Error::io(OWN))?;
    }
    Ok((bytes, chunk))
}

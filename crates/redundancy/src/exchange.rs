//! What the members of a set do together: they protect a version, and rebuild what some of them lost.

mod talk;

use crate::fresh::Fresh;
use crate::manifest::Digesting;
use crate::rebuilding::{Both, Pass, Sink, shards};
use crate::{
    Code, Digest, Error, Keep, Layout, Lost, Manifest, Part, Place, Result, Row, Set, Transport,
};
use std::collections::{BTreeSet, VecDeque};
use std::path::Path;
use std::time::Duration;
pub(crate) use talk::Step;

/// A member's side of its set's work.
///
/// Its calls are collective: every member of the set makes the same ones in the same order, each in a thread or process of its
/// own. Each holds a few rows in memory at most: [`CHUNK`](crate::CHUNK) times the members of the set for each.
#[derive(Debug)]
pub struct Exchange<'a> {
    set: &'a Set,
    pub(crate) me: usize,
    pub(crate) transport: &'a dyn Transport,
    keep: &'a Keep,
    patience: Duration,
    start: u64,
}

/// What [`Exchange::rebuild`] did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rebuilt {
    /// Whether this member's part was rebuilt.
    pub part: bool,
    /// Whether the parity that it keeps was.
    pub parity: bool,
    /// The members that had lost something.
    pub lost: Vec<Lost>,
}

/// Rows that are on their way to be encoded at most, and those that are encoded.
const LAG: usize = 16;

/// What a member has of a version, as it was protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Has {
    pub(crate) part: bool,
    pub(crate) parity: bool,
}

/// Makes what a lost part of so many bytes is written to.
pub(crate) type Target<'t, 'o> = dyn FnMut(u64) -> Result<Box<dyn Sink + 'o>> + 't;

impl<'a> Exchange<'a> {
    /// `patience`: how long a call waits for another member at most, each time that it needs something of it; as long as reading
    /// its whole part takes it, or longer.
    ///
    /// # Errors
    /// [`Error::Scheme`] if the rank is not of the set.
    pub fn new(
        set: &'a Set,
        rank: u32,
        transport: &'a dyn Transport,
        keep: &'a Keep,
        patience: Duration,
    ) -> Result<Self> {
        let stranger = || Error::Scheme {
            scheme: "a set".to_owned(),
            why: format!("rank {rank} is not one of its members"),
        };
        Ok(Self {
            me: set.place_of(rank).ok_or_else(stranger)?,
            set,
            transport,
            keep,
            patience,
            start: 0,
        })
    }

    /// Which start of the application's this is, the same for all members and higher than those before: what members protect
    /// now takes the place of what others still have from an earlier one.
    #[must_use]
    pub fn of_start(self, start: u64) -> Self {
        Self { start, ..self }
    }

    /// Protects a version, whose parts lie on the members' nodes to stay. When it returns, every member keeps its share of the
    /// redundancy on its disk. `None` for a member on its own: nobody keeps anything for it.
    ///
    /// # Errors
    /// [`Error::Absent`], [`Error::Message`] and [`Error::Io`]: the version is not protected, or some members do not know that it is.
    pub fn protect(&self, version: u64, part: &dyn Part) -> Result<Option<Manifest>> {
        if self.set.bears == 0 {
            return Ok(None);
        }
        let bytes = part.bytes().map_err(Error::io(OWN))?;
        let lengths = self.all(Step::Part, version, &vec![bytes])?;
        let layout = self.layout(lengths.into_iter().flatten().collect())?;
        let is_mine = |row: &Row| matches!(row.place(self.me), Some(Place::Parity { .. }));
        let kept = layout.rows().filter(is_mine).map(|row| row.bytes as u64);
        let parity = Fresh::new(&self.keep.parity_path(version), kept.sum())?;
        let mut protecting = Protecting {
            code: Code::new(layout.data(), layout.parity())?,
            part,
            read: Digesting::default(),
            encoded: VecDeque::new(),
            parity,
            kept: Digesting::default(),
        };
        // Nobody waits for what it has not sent yet itself: rows are encoded when later ones are on their way, and what was encoded
        // is kept when later ones are encoded. So are messages received in the order in which they are sent.
        let lag = LAG.min(2 * layout.members());
        let (mut encoded, mut kept) = (layout.rows(), layout.rows());
        let mut sent = layout.rows();
        for step in 0.. {
            if let Some(row) = sent.next() {
                self.send_own(&layout, &row, &mut protecting)?;
            }
            if let Some(row) = encoded.by_ref().take(usize::from(step >= lag)).next() {
                self.encode(&layout, &row, &mut protecting)?;
            }
            if step >= 2 * lag {
                let Some(row) = kept.next() else { break };
                self.keep_parity(&layout, &row, &mut protecting)?;
            }
        }
        let mine = (protecting.read.end(), protecting.kept.end());
        protecting.parity.publish()?;
        let all = self.all(Step::Parity, version, &mine)?;
        let members = self.set.members.iter();
        let manifest = Manifest {
            version,
            start: self.start,
            bears: self.set.bears,
            nodes: members.clone().map(|member| member.node.clone()).collect(),
            members: members
                .zip(all)
                .map(|(member, (part, parity))| (member.rank, part, parity))
                .collect(),
        };
        self.keep.put(&manifest)?;
        self.done(version, true)?;
        Ok(Some(manifest))
    }

    /// A row's data goes to the first member that keeps parity of it.
    fn send_own(&self, layout: &Layout, row: &Row, own: &mut Protecting<'_>) -> Result<()> {
        let Some(place @ Place::Data { .. }) = row.place(self.me) else {
            return Ok(());
        };
        let (bytes, chunk) = read_shard(own.part, place, row.bytes)?;
        own.read.update(chunk.get(..bytes).unwrap_or_default());
        let encoder = layout.parity_member(row.number, 0);
        self.send(encoder, Step::Shard, row.number, chunk)
    }

    /// The first that keeps parity of a row encodes, and sends the others theirs.
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
            let keeper = layout.parity_member(row.number, shard);
            self.send(keeper, Step::Shard, row.number, chunk)?;
        }
        Ok(())
    }

    /// A row's parity is written by those who keep it.
    fn keep_parity(&self, layout: &Layout, row: &Row, own: &mut Protecting<'_>) -> Result<()> {
        let encoder = layout.parity_member(row.number, 0);
        let chunk = match row.place(self.me) {
            Some(Place::Parity { shard: 0, .. }) => own.encoded.pop_front().unwrap_or_default(),
            Some(Place::Parity { .. }) => self.receive_row(encoder, row)?,
            _ => return Ok(()),
        };
        own.kept.update(&chunk);
        own.parity.append(&chunk)
    }

    /// The versions that some member knows to be protected, in ascending order, the same for all members: what to rebuild when all
    /// start again.
    ///
    /// # Errors
    /// [`Error::Absent`], [`Error::Message`] and [`Error::Io`].
    pub fn versions(&self) -> Result<Vec<u64>> {
        let known = self.all(Step::Versions, 0, &self.keep.versions()?)?;
        let known: BTreeSet<u64> = known.into_iter().flatten().collect();
        Ok(known.into_iter().collect())
    }

    /// The versions, of those that each member names, that all of them do, in ascending order.
    pub(crate) fn common(&self, mine: &[u64]) -> Result<Vec<u64>> {
        let all = self.all(Step::Versions, 1, &mine.to_vec())?;
        let all = all.into_iter().map(BTreeSet::from_iter);
        let common = all.reduce(|common: BTreeSet<u64>, other| &common & &other);
        Ok(common.unwrap_or_default().into_iter().collect())
    }

    /// Rebuilds what members lost of a version, or what is not as it was protected any more: their parts, and the parity that they
    /// kept. `part` is this member's own, if it still has one; if it is lost or wrong, it is written to `into`, whole or not at
    /// all. Members may run anywhere: on the node that they were on, or on one that replaces it.
    ///
    /// # Errors
    /// The same on all members: [`Error::Unknown`] if nobody knows the version, [`Error::TooManyLost`] with the nodes if the code
    /// does not bear it, and [`Error::Damaged`] if the result is not what was protected. [`Error::Absent`], [`Error::Message`]
    /// and [`Error::Io`] where something of it happens.
    pub fn rebuild(&self, version: u64, part: Option<&dyn Part>, into: &Path) -> Result<Rebuilt> {
        self.rebuild_to(version, part, &mut |bytes| {
            Ok(Box::new(Fresh::new(into, bytes)?))
        })
    }

    /// [`Exchange::rebuild`] of a part to whatever takes it.
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
        let parity = self.keep.parity(version, own_parity.bytes)?;
        let mine = Has {
            part: part.is_some(),
            parity: parity.is_some(),
        };
        let mut has = self.all(Step::Has, version, &mine)?;
        let lengths = manifest.members.iter().map(|(_, part, _)| part.bytes);
        let layout = self.layout(lengths.collect())?;
        let wanted = Both {
            part: own_part,
            parity: own_parity,
        };
        // What is found to be wrong on the way is lost, too, and all begin again.
        loop {
            let lost = lost(&manifest, &has);
            self.check(version, &layout, &has, &lost)?;
            let mine = has.get(self.me).copied().unwrap_or(mine);
            let own = Both {
                part: part.filter(|_| mine.part),
                parity: parity
                    .as_ref()
                    .filter(|_| mine.parity)
                    .map(|file| file as &dyn Part),
            };
            let part_to = (!mine.part).then(|| target(own_part.bytes)).transpose()?;
            let parity_to = match mine.parity {
                true => None,
                false => Some(Fresh::new(
                    &self.keep.parity_path(version),
                    own_parity.bytes,
                )?),
            };
            let lacking = Both {
                part: part_to,
                parity: parity_to.map(|fresh| Box::new(fresh) as Box<dyn Sink + 'o>),
            };
            let (found, made) = Pass::new(self, &layout, &has, wanted).run(own, lacking)?;
            let found = self.all(Step::Found, version, &found)?;
            let still = has.iter().zip(&found).map(|(has, found)| Has {
                part: has.part && found.part,
                parity: has.parity && found.parity,
            });
            let still: Vec<Has> = still.collect();
            if still != has {
                has = still;
                continue;
            }
            if let Some(wrong) = found.iter().position(|found| !(found.part && found.parity)) {
                let rank = self.rank_of(wrong);
                return Err(Error::Damaged { version, rank });
            }
            let rebuilt = Rebuilt {
                part: made.part.is_some(),
                parity: made.parity.is_some(),
                lost,
            };
            let keep = |made: Option<(Box<dyn Sink + 'o>, Result<()>)>| match made {
                Some((sink, taken)) => taken.and_then(|()| sink.keep()),
                None => Ok(()),
            };
            let (part, parity) = (keep(made.part), keep(made.parity));
            if parity.is_ok() && !is_known {
                self.keep.put(&manifest)?;
            }
            // What this member cannot keep is its own affair.
            self.done(version, true)?;
            return part.and(parity).map(|()| rebuilt);
        }
    }

    /// The manifest of the latest start, or of several the one that most members know, and whether this one does. One member's
    /// word would do; they differ if a member's disk is of another run.
    fn agree(&self, version: u64) -> Result<(Manifest, bool)> {
        let mine = self.keep.manifest(version)?;
        let mine = mine.filter(|manifest| manifest.is_of(self.set));
        let known: Vec<Option<Manifest>> = self.all(Step::Manifest, version, &mine)?;
        let known: Vec<&Manifest> = known
            .iter()
            .flatten()
            .filter(|one| one.version == version && one.is_of(self.set))
            .collect();
        let votes = |manifest: &Manifest| known.iter().filter(|other| **other == manifest).count();
        // All members see the same in the same order: they choose the same.
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

    fn check(&self, version: u64, layout: &Layout, has: &[Has], lost: &[Lost]) -> Result<()> {
        let missing = |row| {
            shards(layout, row, has)
                .iter()
                .filter(|(_, has)| !has)
                .count()
        };
        let bears = layout.parity();
        match (0..layout.members() as u64).all(|row| missing(row) <= bears) {
            true => Ok(()),
            false => Err(Error::TooManyLost {
                version,
                lost: lost.to_vec(),
                bears,
            }),
        }
    }
}

/// What a member works with while it protects a version.
struct Protecting<'p> {
    code: Code,
    part: &'p dyn Part,
    read: Digesting,
    /// Parity of this member's own making that it has not written yet.
    encoded: VecDeque<Vec<u8>>,
    parity: Fresh,
    kept: Digesting,
}

/// The members that lost something, with what they were on.
fn lost(manifest: &Manifest, has: &[Has]) -> Vec<Lost> {
    let members = manifest.members.iter().zip(&manifest.nodes).zip(has);
    let lost = members.filter(|(_, has)| !has.part || !has.parity);
    lost.map(|(((rank, ..), node), _)| Lost {
        rank: *rank,
        node: node.clone(),
    })
    .collect()
}

const OWN: &str = "what this member has";

/// A shard of `length` bytes, and how many of them are the member's own; the others are 0. There is room behind them for what is
/// said of a message.
pub(crate) fn read_shard(from: &dyn Part, place: Place, length: usize) -> Result<(usize, Vec<u8>)> {
    let (offset, bytes) = match place {
        Place::Data { offset, bytes, .. } => (offset, bytes),
        Place::Parity { offset, .. } => (offset, length),
    };
    let mut chunk = Vec::with_capacity(length + talk::TRAILER);
    chunk.resize(length, 0);
    let own = chunk.get_mut(..bytes).unwrap_or_default();
    if !own.is_empty() {
        from.read_at(offset, own).map_err(Error::io(OWN))?;
    }
    Ok((bytes, chunk))
}

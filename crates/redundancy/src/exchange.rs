//! What the members of a set do together: they protect a version, and rebuild what some of them lost.

mod talk;

use crate::keep::{Fresh, Reading, sync};
use crate::{
    CHUNK, Code, Digest, Error, Keep, Layout, Lost, Manifest, Part, Place, Result, Set, Transport,
};
use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;
use std::time::Duration;
use talk::Step;

/// A member's side of its set's work.
///
/// Its calls are collective: every member of the set makes the same ones in the same order, each in a thread or process of its
/// own. Each holds a chunk of every shard of one stripe in memory at most: [`CHUNK`] times the members of the set.
#[derive(Debug)]
pub struct Exchange<'a> {
    set: &'a Set,
    me: usize,
    transport: &'a dyn Transport,
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

/// What a member has of a version, as it was protected.
#[derive(Debug, Clone, Copy)]
struct Has {
    part: bool,
    parity: bool,
}

/// Bytes that a member lost and writes anew.
#[derive(Debug, Default)]
struct Lacking {
    part: Option<Fresh>,
    parity: Option<Fresh>,
}

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
        let mine = digest(part)?;
        let parts = self.all(Step::Part, version, &mine)?;
        let lengths = parts.iter().map(|part| part.bytes).collect();
        let layout = self.layout(lengths)?;
        let parity = Fresh::new(
            &self.keep.parity_path(version),
            layout.parity_bytes(self.me),
        )?;
        let mut code = Code::new(layout.data(), layout.parity())?;
        for stripe in 0..layout.members() {
            self.encode(&layout, stripe, part, &parity, &mut code)?;
        }
        let kept = parity.digest()?;
        parity.publish()?;
        let kept = self.all(Step::Parity, version, &kept)?;
        let members = self.set.members.iter().zip(parts).zip(kept);
        let manifest = Manifest {
            version,
            start: self.start,
            bears: self.set.bears,
            nodes: self
                .set
                .members
                .iter()
                .map(|member| member.node.clone())
                .collect(),
            members: members
                .map(|((member, part), parity)| (member.rank, part, parity))
                .collect(),
        };
        self.keep.put(&manifest)?;
        self.done(version, true)?;
        Ok(Some(manifest))
    }

    /// One stripe: members with data send it to the first that keeps parity, which encodes and sends the others theirs.
    fn encode(
        &self,
        layout: &Layout,
        stripe: usize,
        part: &dyn Part,
        parity: &Fresh,
        code: &mut Code,
    ) -> Result<()> {
        let place = layout.place(stripe, self.me);
        let encoder = layout.parity_member(stripe, 0);
        for (at, bytes) in chunks(layout.shard_bytes(stripe)) {
            match place {
                Place::Data { .. } => {
                    let chunk = read_data(part, place, at, bytes)?;
                    self.send(encoder, Step::Shard, at, &chunk)?;
                }
                Place::Parity { shard: 0, offset } => {
                    let data = (0..layout.data()).map(|shard| {
                        self.receive(layout.data_member(stripe, shard), Step::Shard, at, bytes)
                    });
                    let data: Vec<Vec<u8>> = data.collect::<Result<_>>()?;
                    let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
                    let mut made = vec![vec![0; bytes]; layout.parity()];
                    let mut into: Vec<&mut [u8]> = made.iter_mut().map(Vec::as_mut_slice).collect();
                    code.encode(&data, &mut into)?;
                    for (shard, chunk) in made.iter().enumerate().skip(1) {
                        let keeper = layout.parity_member(stripe, shard);
                        self.send(keeper, Step::Shard, at, chunk)?;
                    }
                    parity.write(offset + at, made.first().map_or(&[], Vec::as_slice))?;
                }
                Place::Parity { offset, .. } => {
                    let chunk = self.receive(encoder, Step::Shard, at, bytes)?;
                    parity.write(offset + at, &chunk)?;
                }
            }
        }
        Ok(())
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
        let rebuilt = self.rebuild_in_passing(version, part, into)?;
        if rebuilt.part {
            sync(into)?;
        }
        Ok(rebuilt)
    }

    /// [`Exchange::rebuild`] of a part that is copied from `into` to where it stays: a power failure may take it from there.
    pub(crate) fn rebuild_in_passing(
        &self,
        version: u64,
        part: Option<&dyn Part>,
        into: &Path,
    ) -> Result<Rebuilt> {
        let (manifest, is_known) = self.agree(version)?;
        let (_, own_part, own_parity) = self.of_member(&manifest, self.me)?;
        let part = match part {
            Some(part) => {
                Some(part).filter(|_| digest(part).is_ok_and(|digest| digest == own_part))
            }
            None => None,
        };
        let parity = self
            .keep
            .parity(version)?
            .filter(|(_, digest)| *digest == own_parity);
        let parity = parity.map(|(file, _)| file);
        let has = self.all(
            Step::Has,
            version,
            &Has {
                part: part.is_some(),
                parity: parity.is_some(),
            },
        )?;
        let lengths = manifest
            .members
            .iter()
            .map(|(_, part, _)| part.bytes)
            .collect();
        let layout = self.layout(lengths)?;
        let lost = lost(&manifest, &has);
        self.check(version, &layout, &has, &lost)?;
        let fresh = |is_there: bool, path: &Path, bytes: u64| match is_there {
            true => Ok(None),
            false => Fresh::new(path, bytes).map(Some),
        };
        let lacking = Lacking {
            part: fresh(part.is_some(), into, own_part.bytes)?,
            parity: fresh(
                parity.is_some(),
                &self.keep.parity_path(version),
                own_parity.bytes,
            )?,
        };
        let mut code = Code::new(layout.data(), layout.parity())?;
        for stripe in 0..layout.members() {
            self.decode(
                &layout,
                stripe,
                &has,
                (part, parity.as_ref()),
                &lacking,
                &mut code,
            )?;
        }
        let is_right = |fresh: &Option<Fresh>, wanted: Digest| match fresh {
            Some(fresh) => fresh.digest().map(|digest| digest == wanted),
            None => Ok(true),
        };
        let is_sound = is_right(&lacking.part, own_part)? && is_right(&lacking.parity, own_parity)?;
        let rebuilt = Rebuilt {
            part: lacking.part.is_some(),
            parity: lacking.parity.is_some(),
            lost,
        };
        if is_sound {
            if let Some(parity) = lacking.parity {
                parity.publish()?;
            }
            if let Some(part) = lacking.part {
                part.put()?;
            }
            if !is_known {
                self.keep.put(&manifest)?;
            }
        }
        self.done(version, is_sound)?;
        Ok(rebuilt)
    }

    /// One stripe of which something is lost: those that have shards send as many as it takes to the first that lacks one, which
    /// decodes and sends the others theirs.
    fn decode(
        &self,
        layout: &Layout,
        stripe: usize,
        has: &[Has],
        (part, parity): (Option<&dyn Part>, Option<&File>),
        lacking: &Lacking,
        code: &mut Code,
    ) -> Result<()> {
        let shards = shards(layout, stripe, has);
        let lost = shards.iter().enumerate().filter(|(_, (_, has))| !has);
        let lost: Vec<(usize, usize)> = lost.map(|(shard, (member, _))| (shard, *member)).collect();
        let Some(&(_, decoder)) = lost.first() else {
            return Ok(());
        };
        let place = layout.place(stripe, self.me);
        let there = shards.iter().enumerate().filter(|(_, (_, has))| *has);
        let given: Vec<(usize, usize)> = there
            .map(|(shard, (member, _))| (shard, *member))
            .take(layout.data())
            .collect();
        for (at, bytes) in chunks(layout.shard_bytes(stripe)) {
            if given.iter().any(|(_, member)| *member == self.me) {
                let chunk = match (place, part, parity) {
                    (Place::Data { .. }, Some(part), _) => read_data(part, place, at, bytes)?,
                    (Place::Parity { offset, .. }, _, Some(parity)) => {
                        let mut chunk = vec![0; bytes];
                        let read = Part::read_at(parity, offset + at, &mut chunk);
                        read.map_err(Error::io("the parity that this member keeps"))?;
                        chunk
                    }
                    _ => Vec::new(),
                };
                self.send(decoder, Step::Shard, at, &chunk)?;
            } else if self.me == decoder {
                let mut there: Vec<Option<Vec<u8>>> = vec![None; shards.len()];
                for &(shard, member) in &given {
                    let chunk = self.receive(member, Step::Shard, at, bytes)?;
                    if let Some(there) = there.get_mut(shard) {
                        *there = Some(chunk);
                    }
                }
                let there: Vec<Option<&[u8]>> = there.iter().map(Option::as_deref).collect();
                let wanted: Vec<usize> = lost.iter().map(|(shard, _)| *shard).collect();
                let made = code.rebuild(&there, &wanted)?;
                for ((_, member), (_, chunk)) in lost.iter().zip(&made) {
                    match *member == self.me {
                        true => lacking.write(place, at, chunk)?,
                        false => self.send(*member, Step::Shard, at, chunk)?,
                    }
                }
            } else if lost.iter().any(|(_, member)| *member == self.me) {
                let chunk = self.receive(decoder, Step::Shard, at, bytes)?;
                lacking.write(place, at, &chunk)?;
            }
        }
        Ok(())
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
        let missing = |stripe| {
            shards(layout, stripe, has)
                .iter()
                .filter(|(_, has)| !has)
                .count()
        };
        let bears = layout.parity();
        match (0..layout.members()).all(|stripe| missing(stripe) <= bears) {
            true => Ok(()),
            false => Err(Error::TooManyLost {
                version,
                lost: lost.to_vec(),
                bears,
            }),
        }
    }
}

impl Lacking {
    fn write(&self, place: Place, at: u64, chunk: &[u8]) -> Result<()> {
        match (place, &self.part, &self.parity) {
            (Place::Data { offset, bytes, .. }, Some(part), _) => {
                // The rest of the shard is not of the part.
                let left = usize::try_from(bytes.saturating_sub(at)).unwrap_or(usize::MAX);
                let chunk = chunk.get(..left.min(chunk.len())).unwrap_or_default();
                part.write(offset + at, chunk)
            }
            (Place::Parity { offset, .. }, _, Some(parity)) => parity.write(offset + at, chunk),
            _ => Ok(()),
        }
    }
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

/// The members that have a stripe's shards, data first, and whether they still do.
fn shards(layout: &Layout, stripe: usize, has: &[Has]) -> Vec<(usize, bool)> {
    let of = |member: usize| has.get(member);
    let data = (0..layout.data()).map(|shard| layout.data_member(stripe, shard));
    let data = data.map(|member| (member, of(member).is_some_and(|has| has.part)));
    let parity = (0..layout.parity()).map(|shard| layout.parity_member(stripe, shard));
    let parity = parity.map(|member| (member, of(member).is_some_and(|has| has.parity)));
    data.chain(parity).collect()
}

/// Where the chunks of a shard begin, and their lengths.
fn chunks(shard: u64) -> impl Iterator<Item = (u64, usize)> {
    let begins = (0..shard).step_by(CHUNK);
    begins.map(move |at| {
        (
            at,
            usize::try_from(shard - at).map_or(CHUNK, |left| left.min(CHUNK)),
        )
    })
}

/// A chunk of a data shard: a segment of the part, and zeros behind it.
fn read_data(part: &dyn Part, place: Place, at: u64, length: usize) -> Result<Vec<u8>> {
    let mut chunk = vec![0; length];
    if let Place::Data { offset, bytes, .. } = place {
        let left = usize::try_from(bytes.saturating_sub(at)).unwrap_or(usize::MAX);
        let own = chunk.get_mut(..left.min(length)).unwrap_or_default();
        if !own.is_empty() {
            let read = part.read_at(offset + at, own);
            read.map_err(Error::io("this member's own part"))?;
        }
    }
    Ok(chunk)
}

fn digest(part: &dyn Part) -> Result<Digest> {
    let read = Reading::new(part).and_then(Digest::of);
    read.map_err(Error::io("this member's own part"))
}

//! What members say to each other: a step, a number and bytes.

use super::{Exchange, Has};
use crate::{Digest, Error, Manifest, Result, Row};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// At which step of a call a message is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// What a member's part is.
    Part = 1,
    /// A chunk of a shard.
    Shard = 2,
    /// What the parity is that it keeps.
    Parity = 3,
    /// What it knows of a version.
    Manifest = 4,
    /// What it still has of it.
    Has = 5,
    /// That it is done, and whether all went well.
    Done = 6,
    /// The versions that it knows.
    Versions = 7,
    /// Which versions wait to be protected.
    Ready = 8,
    /// That it takes part no more.
    Left = 9,
    /// Whether what it has, and what it made, is as it was protected.
    Found = 10,
}

/// How soon a member that waits for the others' versions sees that it has ended.
const LOOK: Duration = Duration::from_millis(100);
/// Bytes of number and step, which come behind those of a message.
pub(super) const TRAILER: usize = 9;

/// What all members tell all others.
pub(super) trait Said: Clone {
    fn encode(&self) -> Vec<u8>;
    fn decode(bytes: &[u8]) -> Option<Self>;
}

impl Said for Digest {
    fn encode(&self) -> Vec<u8> {
        [self.bytes, self.hash]
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (length, hash) = bytes.split_first_chunk::<8>()?;
        Some(Self {
            bytes: u64::from_le_bytes(*length),
            hash: u64::from_le_bytes(hash.try_into().ok()?),
        })
    }
}

impl Said for (Digest, Digest) {
    fn encode(&self) -> Vec<u8> {
        [self.0.encode(), self.1.encode()].concat()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (first, second) = bytes.split_at_checked(16)?;
        Some((Digest::decode(first)?, Digest::decode(second)?))
    }
}

impl Said for Vec<u64> {
    fn encode(&self) -> Vec<u8> {
        self.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (words, rest) = bytes.as_chunks();
        let words = words.iter().map(|word| u64::from_le_bytes(*word));
        rest.is_empty().then(|| words.collect())
    }
}

impl Said for Option<Manifest> {
    fn encode(&self) -> Vec<u8> {
        self.as_ref().map(Manifest::encode).unwrap_or_default()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [] => Some(None),
            bytes => Manifest::decode(bytes).map(Some),
        }
    }
}

impl Said for Has {
    fn encode(&self) -> Vec<u8> {
        vec![u8::from(self.part), u8::from(self.parity)]
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        match *bytes {
            [part @ 0..=1, parity @ 0..=1] => Some(Self {
                part: part == 1,
                parity: parity == 1,
            }),
            _ => None,
        }
    }
}

impl Said for bool {
    fn encode(&self) -> Vec<u8> {
        vec![u8::from(*self)]
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        match *bytes {
            [said @ 0..=1] => Some(said == 1),
            _ => None,
        }
    }
}

impl Exchange<'_> {
    pub(crate) fn rank_of(&self, member: usize) -> u32 {
        self.set
            .members
            .get(member)
            .map_or(u32::MAX, |member| member.rank)
    }

    pub(crate) fn send(
        &self,
        member: usize,
        step: Step,
        number: u64,
        mut message: Vec<u8>,
    ) -> Result<()> {
        message.extend(trailer(step, number));
        self.transport
            .send(self.rank_of(member), &message, self.patience)
    }

    fn hear(&self, member: usize, step: Step, number: u64) -> Result<Vec<u8>> {
        let rank = self.rank_of(member);
        let message = self.transport.receive(rank, self.patience)?;
        content(rank, message, (step, number))
    }

    /// A row's shard of a member.
    pub(crate) fn receive_row(&self, member: usize, row: &Row) -> Result<Vec<u8>> {
        let message = self.hear(member, Step::Shard, row.number)?;
        self.of_length(member, message, row.bytes)
    }

    /// The same, unless it is not wanted any more.
    pub(crate) fn receive_unless(
        &self,
        stop: &AtomicBool,
        member: usize,
        row: &Row,
    ) -> Result<Vec<u8>> {
        let (rank, begun) = (self.rank_of(member), Instant::now());
        let message = loop {
            match self.transport.receive(rank, LOOK.min(self.patience)) {
                Err(Error::Absent { .. }) if stop.load(Ordering::Relaxed) => {
                    return Err(Error::Ended { rank });
                }
                Err(Error::Absent { .. }) if begun.elapsed() < self.patience => {}
                Err(Error::Absent { rank, .. }) => {
                    let patience = self.patience;
                    return Err(Error::Absent { rank, patience });
                }
                message => break message?,
            }
        };
        let message = content(rank, message, (Step::Shard, row.number))?;
        self.of_length(member, message, row.bytes)
    }

    fn of_length(&self, member: usize, message: Vec<u8>, bytes: usize) -> Result<Vec<u8>> {
        match message.len() == bytes {
            true => Ok(message),
            false => Err(Error::Message {
                rank: self.rank_of(member),
            }),
        }
    }

    /// What every member says, in the order of the set, this one's own with it.
    pub(super) fn all<T: Said>(&self, step: Step, version: u64, mine: &T) -> Result<Vec<T>> {
        let members = 0..self.set.members.len();
        let bytes = mine.encode();
        for member in members.clone().filter(|member| *member != self.me) {
            self.send(member, step, version, bytes.clone())?;
        }
        let said = members.map(|member| {
            if member == self.me {
                return Ok(mine.clone());
            }
            let wrong = || Error::Message {
                rank: self.rank_of(member),
            };
            T::decode(&self.hear(member, step, version)?).ok_or_else(wrong)
        });
        said.collect()
    }

    /// The versions that wait at each member, ascending; waited for as long as it takes until all have some, or this one has ended,
    /// which is `None`.
    pub(crate) fn ready(
        &self,
        mine: &[u64],
        has_ended: &dyn Fn() -> bool,
    ) -> Result<Option<Vec<Vec<u64>>>> {
        let members = || (0..self.set.members.len()).filter(|member| *member != self.me);
        let bytes = mine.to_vec().encode();
        for member in members() {
            self.send(member, Step::Ready, 0, bytes.clone())?;
        }
        let mut all = vec![mine.to_vec()];
        for member in members() {
            let rank = self.rank_of(member);
            let message = loop {
                match self.transport.receive(rank, LOOK) {
                    Err(Error::Absent { .. }) if has_ended() => return Ok(None),
                    Err(Error::Absent { .. }) => {}
                    message => break message?,
                }
            };
            let bytes = content(rank, message, (Step::Ready, 0))?;
            all.push(Said::decode(&bytes).ok_or(Error::Message { rank })?);
        }
        Ok(Some(all))
    }

    /// The versions that wait at each member, in the order of the set; patience is as for all that they tell each other.
    pub(crate) fn told(&self, mine: &[u64]) -> Result<Vec<Vec<u64>>> {
        self.all(Step::Ready, 0, &mine.to_vec())
    }

    /// Whether all members have a version.
    pub(crate) fn all_have(&self, version: u64, has: bool) -> Result<bool> {
        let all = self.all(Step::Has, version, &has)?;
        Ok(all.into_iter().all(|has| has))
    }

    /// Tells the others that this one takes part no more.
    pub(crate) fn leave(&self) -> Result<()> {
        let members = (0..self.set.members.len()).filter(|member| *member != self.me);
        for member in members {
            self.send(member, Step::Left, 0, Vec::new())?;
        }
        Ok(())
    }

    /// Waits for the others to be done, too. All went well, or it is the same error on all.
    pub(super) fn done(&self, version: u64, is_sound: bool) -> Result<()> {
        let all = self.all(Step::Done, version, &is_sound)?;
        match all.iter().position(|is_sound| !is_sound) {
            None => Ok(()),
            Some(member) => Err(Error::Damaged {
                version,
                rank: self.rank_of(member),
            }),
        }
    }
}

fn trailer(step: Step, number: u64) -> [u8; TRAILER] {
    let mut trailer = [step as u8; TRAILER];
    if let Some(into) = trailer.first_chunk_mut() {
        *into = number.to_le_bytes();
    }
    trailer
}

/// The bytes of a message that is what is sent at this step.
fn content(rank: u32, mut message: Vec<u8>, (step, number): (Step, u64)) -> Result<Vec<u8>> {
    let bytes = message.len().checked_sub(TRAILER);
    let bytes = bytes.ok_or(Error::Message { rank })?;
    let said = message.get(bytes..).unwrap_or_default();
    if said.last() == Some(&(Step::Left as u8)) {
        return Err(Error::Ended { rank });
    }
    if said != trailer(step, number) {
        return Err(Error::Message { rank });
    }
    message.truncate(bytes);
    Ok(message)
}

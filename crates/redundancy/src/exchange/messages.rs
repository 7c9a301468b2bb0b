//! The messages between members: each has its bytes, then the number of a version or row, and the step of the call.

use super::Exchange;
use crate::wire::Wire;
use crate::{Error, Result, Row};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The step of a call at which a message is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Bytes of a member's part.
    Part = 1,
    /// A shard of a row.
    Shard = 2,
    /// Digests of a member's part and of the parity that it stores.
    Parity = 3,
    /// A member's manifest of a version, if it has one.
    Manifest = 4,
    /// Flags: the member has its part, and its parity, of a version.
    Intact = 5,
    /// The end of a call: 1 if the member succeeded.
    Done = 6,
    /// The versions of which a member has manifests, or unprotected pieces.
    Versions = 7,
    /// The versions that wait to be protected.
    Ready = 8,
    /// The end of all calls of a member.
    Left = 9,
    /// Flags: the bytes that a member read and rebuilt have the right checksums.
    Right = 10,
}

/// Time after which a member that waits for a message checks whether it is to stop.
const POLL: Duration = Duration::from_millis(100);
/// Bytes of number and step, behind the bytes of a message.
pub(super) const TRAILER: usize = 9;

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

    fn receive(&self, member: usize, step: Step, number: u64) -> Result<Vec<u8>> {
        let rank = self.rank_of(member);
        let message = self.transport.receive(rank, self.patience)?;
        content(rank, message, step, number)
    }

    /// Receives a row's shard of a member.
    pub(crate) fn receive_row(&self, member: usize, row: &Row) -> Result<Vec<u8>> {
        let message = self.receive(member, Step::Shard, row.number)?;
        self.of_length(member, message, row.bytes)
    }

    /// Receives a row's shard of a member. Returns [`Error::Ended`] once `stop` is set.
    pub(crate) fn receive_unless(
        &self,
        stop: &AtomicBool,
        member: usize,
        row: &Row,
    ) -> Result<Vec<u8>> {
        let (rank, begun) = (self.rank_of(member), Instant::now());
        let message = loop {
            match self.transport.receive(rank, POLL.min(self.patience)) {
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
        let message = content(rank, message, Step::Shard, row.number)?;
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

    /// Sends `mine` to every other member, and receives their values. Returns the values of all members, in the order of the set (an
    /// all-gather).
    pub(super) fn all<T: Wire + Clone>(
        &self,
        step: Step,
        version: u64,
        mine: &T,
    ) -> Result<Vec<T>> {
        let members = 0..self.set.members.len();
        let bytes = mine.encode();
        for member in members.clone().filter(|member| *member != self.me) {
            self.send(member, step, version, bytes.clone())?;
        }
        let all = members.map(|member| {
            if member == self.me {
                return Ok(mine.clone());
            }
            let wrong = || Error::Message {
                rank: self.rank_of(member),
            };
            T::decode(&self.receive(member, step, version)?).ok_or_else(wrong)
        });
        all.collect()
    }

    /// Returns the versions that wait at each member, in ascending order, this member's first. Waits without a deadline until all
    /// members have sent their lists. Returns `None` once this member has ended.
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
                match self.transport.receive(rank, POLL) {
                    Err(Error::Absent { .. }) if has_ended() => return Ok(None),
                    Err(Error::Absent { .. }) => {}
                    message => break message?,
                }
            };
            let bytes = content(rank, message, Step::Ready, 0)?;
            all.push(Wire::decode(&bytes).ok_or(Error::Message { rank })?);
        }
        Ok(Some(all))
    }

    /// Returns the versions that wait at each member, in the order of the set. Waits for each list at most the call's patience.
    pub(crate) fn ready_now(&self, mine: &[u64]) -> Result<Vec<Vec<u64>>> {
        self.all(Step::Ready, 0, &mine.to_vec())
    }

    /// Returns true if all members have a version. `has` is this member's answer.
    pub(crate) fn all_have(&self, version: u64, has: bool) -> Result<bool> {
        let all = self.all(Step::Intact, version, &has)?;
        Ok(all.into_iter().all(|has| has))
    }

    /// Tells the others that this member takes part in no more calls.
    pub(crate) fn leave(&self) -> Result<()> {
        let members = (0..self.set.members.len()).filter(|member| *member != self.me);
        for member in members {
            self.send(member, Step::Left, 0, Vec::new())?;
        }
        Ok(())
    }

    /// Waits until the others are done. If a member did not succeed, all members return the same error.
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

/// Returns the bytes of a message. [`Error::Ended`] if the sender has left, [`Error::Message`] if the trailer is not of this step and
/// number.
fn content(rank: u32, mut message: Vec<u8>, step: Step, number: u64) -> Result<Vec<u8>> {
    let bytes = message.len().checked_sub(TRAILER);
    let bytes = bytes.ok_or(Error::Message { rank })?;
    let trailing = message.get(bytes..).unwrap_or_default();
    if trailing.last() == Some(&(Step::Left as u8)) {
        return Err(Error::Ended { rank });
    }
    if trailing != trailer(step, number) {
        return Err(Error::Message { rank });
    }
    message.truncate(bytes);
    Ok(message)
}

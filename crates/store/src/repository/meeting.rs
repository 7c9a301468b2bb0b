//! Lets ranks meet in the directory that they share.
//!
//! Each rank has one file in its own directory, its notice. The rank replaces the notice, and the others read it. The notice
//! contains a random number, unique to this call, the bytes that the rank gives, and the numbers that it read from the other ranks.
//! Once all notices name the same numbers, every rank has read the bytes of every other one: the ranks agree. A rank that finds the
//! agreement writes it into its notice and returns. A rank that reads later finds either the notices as they were, or this
//! agreement.
//!
//! A notice that names the random number of another rank was written after that rank came. So a notice that a killed rank left
//! never leads to an agreement.

use super::identity::random;
use super::{Repository, rank_name};
use crate::container::{Source, checksum};
use crate::{Collective, Error, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// The name of a rank's file.
const NOTICE: &str = "notice";
const MAGIC: u64 = u64::from_le_bytes(*b"TFNOTE01");
/// The greatest length of a notice, in bytes.
const LONGEST_NOTICE: u64 = 1 << 30;
/// Pauses between looks at the others.
const PAUSES: [Duration; 2] = [Duration::from_micros(500), Duration::from_millis(20)];

/// The notice of a rank to the others.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Notice {
    /// The random number of the call, never 0.
    number: u64,
    /// The numbers that the rank read, in the order of the ranks, its own among them; 0 for a rank that was not read.
    read: Vec<u64>,
    /// The numbers of the last agreement that the rank found, in this call or an earlier one.
    agreed: Vec<u64>,
    /// The bytes that the rank gives.
    given: Vec<u8>,
}

impl Notice {
    fn encode(&self) -> Vec<u8> {
        let words = [MAGIC, self.read.len() as u64, self.number];
        let words = words.iter().chain(&self.read).chain(&self.agreed);
        let mut bytes: Vec<u8> = words.flat_map(|word| word.to_le_bytes()).collect();
        bytes.extend(&self.given);
        bytes.extend(checksum(&bytes).to_le_bytes());
        bytes
    }

    /// Decodes a notice of a group of `ranks` ranks; `None` if the bytes are no such notice.
    fn decode(bytes: &[u8], ranks: usize) -> Option<Self> {
        let (bytes, sum) = bytes.split_last_chunk()?;
        let (words, given) = bytes.split_at_checked(8 * (3 + 2 * ranks))?;
        let words: Vec<u64> = words
            .as_chunks()
            .0
            .iter()
            .map(|word| u64::from_le_bytes(*word))
            .collect();
        let [magic, of, number, numbers @ ..] = words.as_slice() else {
            return None;
        };
        let (read, agreed) = numbers.split_at(ranks);
        let is_sound = checksum(bytes) == u64::from_le_bytes(*sum)
            && (*magic, *of) == (MAGIC, ranks as u64)
            && *number != 0;
        is_sound.then(|| Self {
            number: *number,
            read: read.to_vec(),
            agreed: agreed.to_vec(),
            given: given.to_vec(),
        })
    }
}

/// The state of one rank within a call. Uses neither a clock nor files.
#[derive(Debug)]
struct Meeting {
    rank: usize,
    own: Notice,
    /// The last notices of the others.
    others: Vec<Option<Notice>>,
    /// The bytes that each rank gave, by rank and number.
    given: BTreeMap<(usize, u64), Vec<u8>>,
    /// Ranks with numbers of earlier calls: each of these ranks made a new call since.
    outdated: BTreeSet<(usize, u64)>,
}

impl Meeting {
    /// Starts a call. `before` is the notice that this rank left.
    fn new(rank: usize, number: u64, given: &[u8], before: &Notice) -> Self {
        let ranks = before.agreed.len();
        let mut read = vec![0; ranks];
        if let Some(own) = read.get_mut(rank) {
            *own = number;
        }
        Self {
            rank,
            own: Notice {
                number,
                read,
                agreed: before.agreed.clone(),
                given: given.to_vec(),
            },
            others: vec![None; ranks],
            given: BTreeMap::from([((rank, number), given.to_vec())]),
            outdated: BTreeSet::new(),
        }
    }

    /// Takes in the notice of another rank. Returns true if the own notice must be written again.
    fn hear(&mut self, other: usize, notice: Notice) -> bool {
        let Some(read) = self.own.read.get_mut(other) else {
            return false;
        };
        // The rank made a new call since, so this is an outdated view of its file.
        if self.outdated.contains(&(other, notice.number)) {
            return false;
        }
        let is_new = *read != notice.number;
        if is_new {
            self.outdated.insert((other, *read));
            *read = notice.number;
            let given = notice.given.clone();
            self.given.insert((other, notice.number), given);
        }
        self.others[other] = Some(notice);
        is_new
    }

    /// Returns the bytes of the agreement, if this rank finds one, or one of the others found one and left.
    fn agreed(&self) -> Option<Vec<Vec<u8>>> {
        let others = || self.others.iter().flatten();
        let with_own = |agreed: &&Vec<u64>| agreed.get(self.rank) == Some(&self.own.number);
        let others_agree = || {
            let same = |notice: &&Notice| notice.read == self.own.read;
            others().filter(same).count() + 1 == self.others.len()
        };
        let numbers = match others().map(|notice| &notice.agreed).find(with_own) {
            Some(numbers) => numbers,
            None if others_agree() => &self.own.read,
            None => return None,
        };
        let given = numbers.iter().enumerate();
        given
            .map(|(rank, number)| self.given.get(&(rank, *number)).cloned())
            .collect()
    }

    /// Returns the notice that stays, for the next call, and for ranks that have not found this agreement yet.
    fn end(mut self) -> Notice {
        let others = self.others.iter().flatten();
        let known = others.map(|notice| notice.agreed.clone());
        let known = known
            .into_iter()
            .find(|agreed| agreed.get(self.rank) == Some(&self.own.number));
        if let Some(agreed) = known {
            // The rank takes part in no other agreement, even if it read newer notices since.
            self.own.read = agreed;
        }
        self.own.agreed = self.own.read.clone();
        self.own
    }

    /// Returns the ranks that have not read the own notice yet.
    fn absent(&self) -> Vec<u32> {
        let has_read = |other: &Option<Notice>| {
            let read = other.as_ref().and_then(|other| other.read.get(self.rank));
            read == Some(&self.own.number)
        };
        let others = (0_u32..).zip(&self.others);
        others
            .filter(|(rank, other)| *rank as usize != self.rank && !has_read(other))
            .map(|(rank, _)| rank)
            .collect()
    }
}

impl Repository {
    fn notice(&self, rank: u32) -> Result<Option<Notice>> {
        let Some(top) = self.directories() else {
            return Ok(None);
        };
        let directory = match top.sub(&rank_name(rank), false) {
            // The rank did not come yet.
            Err(Error::File {
                source: rustix::io::Errno::NOENT,
                ..
            }) => return Ok(None),
            directory => directory?,
        };
        let Some(handle) = directory.read(NOTICE)? else {
            return Ok(None);
        };
        let size = handle.plain.size()?;
        if size > LONGEST_NOTICE {
            return Ok(None);
        }
        let mut bytes = vec![0; size as usize];
        handle.plain.read(0, &mut bytes)?;
        Ok(Notice::decode(&bytes, self.options.ranks as usize))
    }
}

/// Exchanges bytes over the directory that the ranks share. Each rank has opened it as its own rank.
impl Collective for Repository {
    /// # Errors
    /// [`Error::Argument`] if the directory is open only for reading, and for several ranks over blobs. [`Error::File`] and [`Error::Full`] if the rank's own notice
    /// cannot be written. After `patience`, the error of reading the notice of a rank that did not come if that notice is
    /// unreadable, else [`Error::Absent`].
    fn all_gather(&self, mine: &[u8], patience: Duration) -> Result<Vec<Vec<u8>>> {
        let (rank, ranks) = (self.options.rank, self.options.ranks);
        self.writer()?;
        let Some(directory) = self.directory(rank) else {
            return match ranks {
                1 => Ok(vec![mine.to_vec()]),
                _ => Err(Error::Argument(
                    "ranks cannot meet through blobs: name a directory that all of them share"
                        .to_owned(),
                )),
            };
        };
        let fresh = || Notice {
            agreed: vec![0; ranks as usize],
            ..Notice::default()
        };
        let before = self.notice(rank).ok().flatten().unwrap_or_else(fresh);
        let mut meeting = Meeting::new(rank as usize, random(), mine, &before);
        let begun = Instant::now();
        let [mut pause, longest] = PAUSES;
        let mut has_news = true;
        let mut unreadable = BTreeMap::new();
        loop {
            if has_news {
                directory.replace(NOTICE, &meeting.own.encode())?;
                pause = PAUSES[0];
            }
            has_news = false;
            for other in (0..ranks).filter(|other| *other != rank) {
                match self.notice(other) {
                    Ok(notice) => {
                        unreadable.remove(&other);
                        has_news |= notice.is_some_and(|new| meeting.hear(other as usize, new));
                    }
                    // The notice may be readable at the next look.
                    Err(error) => drop(unreadable.insert(other, error)),
                }
            }
            if let Some(given) = meeting.agreed() {
                directory.replace(NOTICE, &meeting.end().encode())?;
                return Ok(given);
            }
            if begun.elapsed() >= patience {
                let ranks = meeting.absent();
                let why = ranks.iter().find_map(|rank| unreadable.remove(rank));
                return Err(why.unwrap_or(Error::Absent { ranks, patience }));
            }
            if !has_news {
                std::thread::sleep(pause);
                pause = (pause * 2).min(longest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierflow_testing::Draws;

    /// A rank that takes one step at a time: it writes its notice, reads those of the others, and checks whether they agree.
    struct Rank {
        meeting: Meeting,
        step: usize,
        /// For each directory, the number of notices in its history up to the one that this rank sees.
        seen: Vec<usize>,
        has_news: bool,
        result: Option<Vec<Vec<u8>>>,
    }

    struct Group {
        ranks: Vec<Rank>,
        /// For each directory, all notices that were ever in it.
        notices: Vec<Vec<Notice>>,
        next: u64,
    }

    impl Group {
        fn new(ranks: usize) -> Self {
            let mut group = Self {
                ranks: Vec::new(),
                notices: vec![Vec::new(); ranks],
                next: 0,
            };
            group.ranks = (0..ranks).map(|rank| group.rank(rank)).collect();
            group
        }

        /// Starts a rank, which gives its number.
        fn rank(&mut self, rank: usize) -> Rank {
            self.next += 1;
            let fresh = Notice {
                agreed: vec![0; self.notices.len()],
                ..Notice::default()
            };
            let before = self.notices[rank].last().unwrap_or(&fresh);
            Rank {
                meeting: Meeting::new(rank, self.next, &self.next.to_le_bytes(), before),
                step: 0,
                seen: vec![0; self.notices.len()],
                has_news: true,
                result: None,
            }
        }

        fn step(&mut self, at: usize, draws: &mut Draws) {
            let rank = &mut self.ranks[at];
            if rank.result.is_some() {
                return;
            }
            match rank.step {
                0 => {
                    if std::mem::take(&mut rank.has_news) {
                        self.notices[at].push(rank.meeting.own.clone());
                    }
                }
                step if step <= self.notices.len() => {
                    let other = step - 1;
                    let lies = &self.notices[other];
                    // Some file systems show the previous file for a while.
                    if !draws.once(8) {
                        rank.seen[other] = lies.len();
                    }
                    let seen = rank.seen[other].checked_sub(1).map(|last| &lies[last]);
                    if let Some(notice) = seen.filter(|_| other != at) {
                        rank.has_news |= rank.meeting.hear(other, notice.clone());
                    }
                }
                _ => {
                    rank.result = rank.meeting.agreed();
                    if rank.result.is_some() {
                        let fresh = Meeting::new(at, 0, &[], &rank.meeting.own);
                        let ended = std::mem::replace(&mut rank.meeting, fresh);
                        self.notices[at].push(ended.end());
                    }
                }
            }
            rank.step = (rank.step + 1) % (self.notices.len() + 2);
        }
    }

    #[test]
    fn a_rank_that_agrees_with_one_agrees_with_all_despite_kills() {
        let mut draws = Draws(7);
        let (mut after_kills, mut split) = (0, 0);
        for history in 0..6_000 {
            let ranks = 2 + history % 4;
            let mut group = Group::new(ranks);
            let mut results: BTreeSet<Vec<Vec<u8>>> = BTreeSet::new();
            for _ in 0..3 {
                for _ in 0..draws.index(60 * ranks) {
                    let at = draws.index(ranks);
                    if draws.once(40) {
                        // The rank was killed, or it ended and made another call. The rank starts alone.
                        group.ranks[at] = group.rank(at);
                    }
                    group.step(at, &mut draws);
                    results.extend(group.ranks[at].result.clone());
                }
                // All ranks are killed, and started again.
                for at in 0..ranks {
                    group.ranks[at] = group.rank(at);
                }
            }
            let before = results.len();
            while group.ranks.iter().any(|rank| rank.result.is_none()) {
                let at = draws.index(ranks);
                group.step(at, &mut draws);
            }
            let last: BTreeSet<_> = group.ranks.iter().map(|rank| rank.result.clone()).collect();
            assert_eq!(last.len(), 1, "history {history}: all agree in the end");
            results.extend(last.into_iter().flatten());
            after_kills += before;
            split += usize::from(before > 1);
            // No rank took part in two agreements.
            for rank in 0..ranks {
                let given: BTreeSet<_> = results.iter().map(|result| &result[rank]).collect();
                assert_eq!(given.len(), results.len(), "history {history}");
            }
        }
        assert!(after_kills > 500 && split > 50, "{after_kills} {split}");
    }

    #[test]
    fn notices_are_read_as_they_were_written_and_nothing_else_is_one() {
        let notice = Notice {
            number: 5,
            read: vec![5, 0, 9],
            agreed: vec![1, 2, 3],
            given: vec![1, 2, 3, 4, 5],
        };
        let bytes = notice.encode();
        assert_eq!(Notice::decode(&bytes, 3), Some(notice));
        assert_eq!(Notice::decode(&bytes, 2), None);
        assert_eq!(Notice::decode(&bytes, usize::MAX / 64), None);
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert_eq!(Notice::decode(&other, 3), None, "byte {at}");
            assert_eq!(Notice::decode(&bytes[..at], 3), None, "{at} bytes");
        }
    }
}

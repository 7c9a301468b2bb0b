//! Collective calls of all ranks of a group over a transport.

use crate::wire::{Reader, Wire, Writer};
use crate::{Error as MessageError, Transport};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tierflow_store::{Collective, Error, Result};

/// A [`Collective`] over a [`Transport`]: every rank sends its bytes to rank 0, which sends all of them to every rank. If
/// some rank is absent, rank 0 names it to the ranks that are present.
///
/// Rank 0 begins each meeting with a number, which all messages of the meeting have. So a rank recognises messages that an
/// earlier meeting over the same transport left. A rank that has received the beginning knows that rank 0 is there, even if
/// rank 0 came late.
#[derive(Debug)]
pub struct TransportCollective {
    transport: Arc<dyn Transport>,
    rank: u32,
    ranks: u32,
}

/// The number of the next meeting that this process begins as rank 0, over any transport.
static NEXT_ROUND: AtomicU64 = AtomicU64::new(1);

/// The kind of a message of a meeting. Messages of other calls do not begin with these words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
enum Kind {
    /// Rank 0 begins the meeting.
    Begin = 0x7f3a_91c5_0e64_d201,
    /// A rank gives its bytes.
    Given = 0x7f3a_91c5_0e64_d202,
    /// Rank 0 gives the bytes of all ranks, or names the absent ranks.
    Answer = 0x7f3a_91c5_0e64_d203,
}

/// A message of a meeting.
#[derive(Debug)]
struct Message {
    kind: Kind,
    round: u64,
    bytes: Vec<u8>,
}

impl Message {
    fn encode(&self) -> Vec<u8> {
        let mut to = Writer::default();
        (self.kind as u64).put(&mut to);
        self.round.put(&mut to);
        to.0.extend(&self.bytes);
        to.0
    }

    /// Decodes a message of rank `from`.
    fn decode(message: &[u8], from: u32) -> crate::Result<Self> {
        let mut rest = Reader(message);
        let (word, round) = (u64::take(&mut rest), u64::take(&mut rest));
        let mut kinds = [Kind::Begin, Kind::Given, Kind::Answer].into_iter();
        let kind = kinds.find(|kind| word == Some(*kind as u64));
        match (kind, round) {
            (Some(kind), Some(round)) => Ok(Self {
                kind,
                round,
                bytes: rest.0.to_vec(),
            }),
            _ => Err(MessageError::Message { rank: from }),
        }
    }
}

impl TransportCollective {
    /// Makes the collective of `rank`, counted from 0, of a group of `ranks`.
    #[must_use]
    pub fn new(transport: Arc<dyn Transport>, rank: u32, ranks: u32) -> Self {
        Self {
            transport,
            rank,
            ranks,
        }
    }

    /// Returns rank 0's answer: the absent ranks, and, if no rank is absent, the bytes that each rank gave.
    fn answer(&self, mine: &[u8], patience: Duration) -> crate::Result<Vec<u8>> {
        match self.rank {
            0 => self.lead(mine, patience),
            _ => self.follow(mine, patience),
        }
    }

    /// Takes part in a meeting as another rank than rank 0.
    fn follow(&self, mine: &[u8], patience: Duration) -> crate::Result<Vec<u8>> {
        let transport = &self.transport;
        let (mut round, mut since, mut longest) = (None, Instant::now(), patience);
        loop {
            let message = transport.receive(0, longest.saturating_sub(since.elapsed()));
            let message = message.map_err(|error| match error {
                MessageError::Absent { rank, .. } => MessageError::Absent { rank, patience },
                error => error,
            })?;
            let message = Message::decode(&message, 0)?;
            match message.kind {
                Kind::Begin => {
                    let given = Message {
                        kind: Kind::Given,
                        round: message.round,
                        bytes: mine.to_vec(),
                    };
                    transport.send(0, &given.encode(), patience)?;
                    // Rank 0 names an absent rank when rank 0's patience is over, which began a little earlier than this rank's.
                    longest = patience.saturating_add(patience / 4);
                    (round, since) = (Some(message.round), Instant::now());
                }
                Kind::Answer if round == Some(message.round) => {
                    return transport.flush(patience).map(|()| message.bytes);
                }
                // The answer is of a meeting that this rank left before the answer came.
                Kind::Answer => {}
                Kind::Given => return Err(MessageError::Message { rank: 0 }),
            }
        }
    }

    /// Holds a meeting as rank 0.
    fn lead(&self, mine: &[u8], patience: Duration) -> crate::Result<Vec<u8>> {
        let (transport, begun) = (&self.transport, Instant::now());
        let left = || patience.saturating_sub(begun.elapsed());
        let round = NEXT_ROUND.fetch_add(1, Ordering::Relaxed);
        let message = |kind, bytes| Message { kind, round, bytes }.encode();
        let begin = message(Kind::Begin, Vec::new());
        // The first attempts do not wait, so that a rank that has not received earlier messages does not hold up others.
        let mut behind = Vec::new();
        for rank in 1..self.ranks {
            match transport.send(rank, &begin, Duration::ZERO) {
                Err(MessageError::Absent { .. }) => behind.push(rank),
                sent => sent?,
            }
        }
        for rank in behind {
            match transport.send(rank, &begin, left()) {
                // Such a rank does not know of the meeting and gives nothing: the loop below finds that it is absent.
                Err(MessageError::Absent { .. }) => {}
                sent => sent?,
            }
        }
        let (mut given, mut came, mut absent) = (Writer::default(), Vec::new(), Vec::new());
        given.bytes(mine);
        for rank in 1..self.ranks {
            match self.given(rank, round, &left) {
                Ok(bytes) => {
                    given.bytes(&bytes);
                    came.push(rank);
                }
                Err(MessageError::Absent { .. }) => absent.push(rank),
                Err(error) => return Err(error),
            }
        }
        let mut answer = Writer::default();
        absent.put(&mut answer);
        if absent.is_empty() {
            answer.0.append(&mut given.0);
        }
        let sent = message(Kind::Answer, answer.0.clone());
        let mut sent = came
            .into_iter()
            .map(|rank| transport.send(rank, &sent, patience));
        if absent.is_empty() {
            sent.try_for_each(|sent| sent)?;
            transport.flush(patience)?;
        } else {
            // The error names the absent ranks, even if some rank does not receive the answer. The flush waits for a shorter time, as
            // absent ranks receive no message.
            sent.for_each(drop);
            let _heard_or_not = transport.flush(patience / 4);
        }
        Ok(answer.0)
    }

    /// Receives the bytes that a rank gives to this meeting, as rank 0.
    fn given(&self, rank: u32, round: u64, left: &dyn Fn() -> Duration) -> crate::Result<Vec<u8>> {
        loop {
            let message = Message::decode(&self.transport.receive(rank, left())?, rank)?;
            match message.kind {
                Kind::Given if message.round == round => return Ok(message.bytes),
                // The rank gave the bytes to a meeting that this rank has left.
                Kind::Given => {}
                Kind::Begin | Kind::Answer => return Err(MessageError::Message { rank }),
            }
        }
    }
}

impl Collective for TransportCollective {
    fn all_gather(&self, mine: &[u8], patience: Duration) -> Result<Vec<Vec<u8>>> {
        let answer = self.answer(mine, patience);
        let answer = answer.map_err(|error| match error {
            MessageError::Absent { rank, patience } => Error::Absent {
                ranks: vec![rank],
                patience,
            },
            error => Error::Remote(error.to_string()),
        })?;
        let mut from = Reader(&answer);
        let absent = Vec::<u32>::take(&mut from);
        if let Some(ranks) = absent.filter(|ranks| !ranks.is_empty()) {
            return Err(Error::Absent { ranks, patience });
        }
        let given = (0..self.ranks).map(|_| from.bytes().map(<[u8]>::to_vec));
        let given: Option<Vec<Vec<u8>>> = given.collect();
        given.ok_or_else(|| {
            Error::Remote("the ranks of the group do not make the same calls".to_owned())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Directory;

    #[test]
    fn each_rank_gets_what_all_gave() {
        let home = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for rank in 0..3 {
                let transport = Directory::open(home.path(), 1, rank).unwrap();
                let collective = TransportCollective::new(Arc::new(transport), rank, 3);
                scope.spawn(move || {
                    for round in 0..5 {
                        let given = |rank: u32| vec![rank as u8; rank as usize * 10 + round];
                        let patience = Duration::from_secs(60);
                        let all = collective.all_gather(&given(rank), patience).unwrap();
                        assert_eq!(all, [given(0), given(1), given(2)]);
                    }
                });
            }
        });
    }

    /// Makes the call of each of `ranks` in a group of 4, and returns the ranks that each call names as absent.
    fn absent_to(ranks: &[u32]) -> Vec<Vec<u32>> {
        let home = tempfile::tempdir().unwrap();
        let call = |rank| {
            let transport = Directory::open(home.path(), 1, rank).unwrap();
            let collective = TransportCollective::new(Arc::new(transport), rank, 4);
            match collective.all_gather(b"here", Duration::from_secs(3)) {
                Err(Error::Absent { ranks, .. }) => ranks,
                other => panic!("{other:?}"),
            }
        };
        std::thread::scope(|scope| {
            let calls: Vec<_> = ranks
                .iter()
                .map(|rank| scope.spawn(move || call(*rank)))
                .collect();
            calls.into_iter().map(|call| call.join().unwrap()).collect()
        })
    }

    #[test]
    fn every_rank_names_those_that_do_not_come() {
        assert_eq!(absent_to(&[0, 1, 3]), [[2], [2], [2]]);
        assert_eq!(absent_to(&[0, 2]), [[1, 3], [1, 3]]);
        assert_eq!(absent_to(&[1, 2, 3]), [[0], [0], [0]]);
    }

    /// Makes the call of a rank over its own transport, in a group of `N`.
    fn gathers<const N: usize>(
        transports: &[Arc<Directory>; N],
        rank: u32,
        mine: &[u8],
        patience: Duration,
    ) -> Result<Vec<Vec<u8>>> {
        let transport = Arc::clone(&transports[rank as usize]);
        TransportCollective::new(transport, rank, N as u32).all_gather(mine, patience)
    }

    fn transports<const N: usize>(home: &std::path::Path) -> [Arc<Directory>; N] {
        std::array::from_fn(|rank| Arc::new(Directory::open(home, 1, rank as u32).unwrap()))
    }

    #[test]
    fn a_meeting_that_is_tried_again_takes_nothing_of_the_earlier_try() {
        let home = tempfile::tempdir().unwrap();
        let transports = transports::<3>(home.path());
        let (none, short) = (Duration::ZERO, Duration::from_millis(200));
        let absent = |rank, patience| {
            let gathered = gathers(&transports, rank, b"old", patience);
            assert!(
                matches!(gathered, Err(Error::Absent { .. })),
                "{gathered:?}"
            );
        };
        // Rank 0 leaves before rank 1 comes, and rank 1 leaves before rank 0 answers it.
        absent(0, none);
        absent(1, short);
        std::thread::scope(|scope| {
            scope.spawn(|| absent(0, 4 * short));
            absent(1, short / 4);
        });
        std::thread::scope(|scope| {
            for rank in 0..3 {
                let transports = &transports;
                scope.spawn(move || {
                    let patience = Duration::from_secs(20);
                    let all = gathers(transports, rank, b"new", patience).unwrap();
                    assert_eq!(all, [b"new"; 3]);
                });
            }
        });
    }

    /// A transport that notes the patience with which each message is received.
    #[derive(Debug)]
    struct Noted {
        inner: Directory,
        patiences: std::sync::mpsc::Sender<Duration>,
    }

    impl Transport for Noted {
        fn send(&self, to: u32, message: &[u8], patience: Duration) -> crate::Result<()> {
            self.inner.send(to, message, patience)
        }

        fn receive(&self, from: u32, patience: Duration) -> crate::Result<Vec<u8>> {
            let _nobody_listens = self.patiences.send(patience);
            self.inner.receive(from, patience)
        }
    }

    #[test]
    fn a_rank_waits_anew_once_rank_0_has_begun_however_late_that_was() {
        let home = tempfile::tempdir().unwrap();
        let open = |rank| Directory::open(home.path(), 1, rank).unwrap();
        let (patiences, noted) = std::sync::mpsc::channel();
        let (inner, patience) = (open(1), Duration::from_secs(20));
        let first = TransportCollective::new(Arc::new(Noted { inner, patiences }), 1, 3);
        let absent = |gathered| match gathered {
            Err(Error::Absent { ranks, .. }) => ranks,
            other => panic!("{other:?}"),
        };
        std::thread::scope(|scope| {
            let call = scope.spawn(|| absent(first.all_gather(b"here", patience)));
            assert!(noted.recv().unwrap() <= patience);
            let late = TransportCollective::new(Arc::new(open(0)), 0, 3);
            let gathered = late.all_gather(b"here", Duration::from_secs(1));
            assert_eq!(absent(gathered), [2]);
            assert_eq!(call.join().unwrap(), [2]);
            // A quarter more than the patience, less the time that the test itself took.
            assert!(noted.recv().unwrap() > patience);
        });
    }
}

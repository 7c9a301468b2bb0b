//! Collective calls of all ranks of a group over a transport.

use crate::Transport;
use crate::wire::{Reader, Wire, Writer};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tierflow_store::{Collective, Error, Result};

/// A [`Collective`] over a [`Transport`]: every rank sends its bytes to rank 0, which sends all of them to every rank. If
/// some rank is absent, rank 0 names it to those that came.
#[derive(Debug)]
pub struct TransportCollective {
    transport: Arc<dyn Transport>,
    rank: u32,
    ranks: u32,
}

impl TransportCollective {
    /// For `rank`, counted from 0, of `ranks`.
    #[must_use]
    pub fn new(transport: Arc<dyn Transport>, rank: u32, ranks: u32) -> Self {
        Self {
            transport,
            rank,
            ranks,
        }
    }

    /// Returns rank 0's answer: the ranks that are absent, and if none is, what each gave.
    fn answer(&self, mine: &[u8], patience: Duration) -> crate::Result<Vec<u8>> {
        let transport = &self.transport;
        if self.rank > 0 {
            transport.send(0, mine, patience)?;
            // Rank 0 names an absent rank when its own patience is over, and may have come a little later.
            let answer = transport.receive(0, patience.saturating_add(patience / 4))?;
            return transport.flush(patience).map(|()| answer);
        }
        let begun = Instant::now();
        let (mut given, mut came, mut absent) = (Writer::default(), Vec::new(), Vec::new());
        given.bytes(mine);
        for rank in 1..self.ranks {
            match transport.receive(rank, patience.saturating_sub(begun.elapsed())) {
                Ok(message) => {
                    given.bytes(&message);
                    came.push(rank);
                }
                Err(crate::Error::Absent { .. }) => absent.push(rank),
                Err(error) => return Err(error),
            }
        }
        let mut answer = Writer::default();
        absent.put(&mut answer);
        if absent.is_empty() {
            answer.0.append(&mut given.0);
        }
        let mut sent = came
            .into_iter()
            .map(|rank| transport.send(rank, &answer.0, patience));
        if absent.is_empty() {
            sent.try_for_each(|sent| sent)?;
            transport.flush(patience)?;
        } else {
            // The absent ranks are the error, whoever hears of them.
            sent.for_each(drop);
            let _heard_or_not = transport.flush(patience);
        }
        Ok(answer.0)
    }
}

impl Collective for TransportCollective {
    fn all_gather(&self, mine: &[u8], patience: Duration) -> Result<Vec<Vec<u8>>> {
        let answer = self.answer(mine, patience);
        let answer = answer.map_err(|error| match error {
            crate::Error::Absent { rank, patience } => Error::Absent {
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

    /// The call of each of these ranks in a group of 4, and the ranks that it calls absent.
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
}

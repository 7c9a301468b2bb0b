//! Collective calls of all ranks of a group over a transport.

use crate::Transport;
use crate::wire::{Reader, Writer};
use std::sync::Arc;
use std::time::Duration;
use tierflow_store::{Collective, Error, Result};

/// A [`Collective`] over a [`Transport`]: every rank sends its bytes to rank 0, which sends all of them to every rank.
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

    fn gather(&self, mine: &[u8], patience: Duration) -> crate::Result<Vec<u8>> {
        let transport = &self.transport;
        if self.rank > 0 {
            transport.send(0, mine, patience)?;
            let all = transport.receive(0, patience)?;
            return transport.flush(patience).map(|()| all);
        }
        let mut all = Writer::default();
        all.bytes(mine);
        for rank in 1..self.ranks {
            all.bytes(&transport.receive(rank, patience)?);
        }
        for rank in 1..self.ranks {
            transport.send(rank, &all.0, patience)?;
        }
        transport.flush(patience).map(|()| all.0)
    }
}

impl Collective for TransportCollective {
    fn all_gather(&self, mine: &[u8], patience: Duration) -> Result<Vec<Vec<u8>>> {
        let all = self.gather(mine, patience);
        let all = all.map_err(|error| Error::Remote(error.to_string()))?;
        let mut from = Reader(&all);
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
}

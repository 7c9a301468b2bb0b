//! What other nodes keep of a node's versions.

/// Sets of nodes that keep so much of one another's versions that some of them may be lost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Protection {
    /// Nodes of a set; those of a set are as far apart as can be.
    pub set: usize,
    /// Of a set, the nodes that may be lost at a time.
    pub bears: usize,
    /// Bytes that a node sends for each byte that it checkpoints.
    pub sent: f64,
}

impl Protection {
    /// None: what a lost node had is on the file system or nowhere.
    #[must_use]
    pub fn none() -> Self {
        Self {
            set: 1,
            bears: 0,
            sent: 0.0,
        }
    }

    /// Another node keeps a copy.
    #[must_use]
    pub fn partner() -> Self {
        Self {
            set: 2,
            bears: 1,
            sent: 1.0,
        }
    }

    /// The sum of a set of so many, at least 2, is kept in parts by all of them.
    #[must_use]
    pub fn xor(set: usize) -> Self {
        let set = set.max(2);
        Self {
            set,
            bears: 1,
            sent: set as f64 / (set - 1) as f64,
        }
    }

    /// So many sums of so many parts (Reed–Solomon).
    #[must_use]
    pub fn reed_solomon(data: usize, parity: usize) -> Self {
        let data = data.max(1);
        Self {
            set: data + parity,
            bears: parity,
            sent: (parity * (data + parity)) as f64 / data as f64,
        }
    }

    /// Whether what these nodes, of so many, had can be made again from others.
    pub(super) fn bears(&self, lost: &[usize], nodes: usize) -> bool {
        if self.bears == 0 || nodes < self.set {
            return false;
        }
        let sets = nodes / self.set;
        let mut losses: Vec<usize> = lost.iter().map(|node| node % sets).collect();
        losses.sort_unstable();
        losses
            .chunk_by(|a, b| a == b)
            .all(|of| of.len() <= self.bears)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_in_different_sets() {
        let xor = Protection::xor(8);
        assert!(xor.bears(&[5, 6, 7], 64));
        assert!(!xor.bears(&[5, 13], 64));
        assert!(Protection::reed_solomon(6, 2).bears(&[5, 13], 64));
        assert!(!Protection::reed_solomon(6, 2).bears(&[5, 13, 21], 64));
        assert!(!Protection::none().bears(&[5], 64));
        assert!(!xor.bears(&[1], 4), "there is no whole set");
    }
}

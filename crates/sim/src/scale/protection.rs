//! The protection of a node's versions by other nodes.

/// Sets of nodes that store parity of one another's versions, so that some of them may be lost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Protection {
    /// Nodes of a set, which are numbered as far apart as possible.
    pub set: usize,
    /// Nodes of a set that may be lost at a time.
    pub tolerates: usize,
    /// Bytes that a node sends for each byte that it checkpoints.
    pub sent: f64,
}

impl Protection {
    /// Makes no sets: a lost node's versions are on the file system or nowhere.
    #[must_use]
    pub fn none() -> Self {
        Self {
            set: 1,
            tolerates: 0,
            sent: 0.0,
        }
    }

    /// Makes pairs of nodes that store a copy of each other's versions.
    #[must_use]
    pub fn partner() -> Self {
        Self {
            set: 2,
            tolerates: 1,
            sent: 1.0,
        }
    }

    /// Makes sets of `set` nodes, at least 2, that store the exclusive or of their versions in parts.
    #[must_use]
    pub fn xor(set: usize) -> Self {
        let set = set.max(2);
        Self {
            set,
            tolerates: 1,
            sent: set as f64 / (set - 1) as f64,
        }
    }

    /// Makes sets of `data + parity` nodes that store `parity` parity shards for `data` data shards (Reed–Solomon).
    #[must_use]
    pub fn reed_solomon(data: usize, parity: usize) -> Self {
        let data = data.max(1);
        Self {
            set: data + parity,
            tolerates: parity,
            sent: (parity * (data + parity)) as f64 / data as f64,
        }
    }

    /// Returns true if the versions of the `lost` nodes, of `nodes` in all, can be rebuilt from those of others.
    pub(super) fn tolerates(&self, lost: &[usize], nodes: usize) -> bool {
        if self.tolerates == 0 || nodes < self.set {
            return false;
        }
        let sets = nodes / self.set;
        let mut losses: Vec<usize> = lost.iter().map(|node| node % sets).collect();
        losses.sort_unstable();
        losses
            .chunk_by(|a, b| a == b)
            .all(|of| of.len() <= self.tolerates)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_in_different_sets() {
        let xor = Protection::xor(8);
        assert!(xor.tolerates(&[5, 6, 7], 64));
        assert!(!xor.tolerates(&[5, 13], 64));
        assert!(Protection::reed_solomon(6, 2).tolerates(&[5, 13], 64));
        assert!(!Protection::reed_solomon(6, 2).tolerates(&[5, 13, 21], 64));
        assert!(!Protection::none().tolerates(&[5], 64));
        assert!(!xor.tolerates(&[1], 4), "there is no whole set");
    }
}

//! The schemes of redundancy.

use crate::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// Largest number of members of a set.
const MOST: usize = 255;

/// The scheme that protects a group's node-local versions against the loss of nodes.
///
/// | scheme | members of a set | tolerated losses | parity that a member stores |
/// |---|---|---|---|
/// | `Partner` | 2 (one set has 3 if the members are odd in number) | 1 | as much as its part |
/// | `Xor { set }` | `set` | 1 | 1 / (`set` - 1) of its part |
/// | `ReedSolomon { data, parity }` | `data` + `parity` | `parity` | `parity` / `data` of its part |
///
/// Sets are as large as the nodes allow: see [`Sets`](crate::Sets).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Redundancy {
    /// Two members store copies of each other's parts.
    Partner,
    /// The members of a set store the exclusive or of their parts, each member a share of it.
    Xor {
        /// Number of members of a set, 2 or more.
        set: usize,
    },
    /// The members of a set store the parity of a Reed-Solomon code over their parts, each member a share of it.
    ReedSolomon {
        /// Number of data shards of a row, 1 or more.
        data: usize,
        /// Number of parity shards of a row, 1 or more: as many members may be lost.
        parity: usize,
    },
}

impl Redundancy {
    /// Returns the number of members of a set, if there are enough nodes.
    #[must_use]
    pub fn set(&self) -> usize {
        match *self {
            Self::Partner => 2,
            Self::Xor { set } => set,
            Self::ReedSolomon { data, parity } => data.saturating_add(parity),
        }
    }

    /// Returns the number of members of such a set that may be lost at a time.
    #[must_use]
    pub fn tolerates(&self) -> usize {
        match *self {
            Self::Partner | Self::Xor { .. } => 1,
            Self::ReedSolomon { parity, .. } => parity,
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        let wrong = |why: &str| {
            Err(Error::Scheme {
                scheme: self.to_string(),
                why: why.to_owned(),
            })
        };
        match *self {
            Self::Xor { set } if set < 2 => wrong("a set needs 2 members or more"),
            Self::ReedSolomon { data, parity } if data == 0 || parity == 0 => {
                wrong("data and parity are 1 or more")
            }
            _ if self.set() > MOST => wrong("a set has 255 members at most"),
            _ => Ok(()),
        }
    }
}

/// Parses `partner`, `xor:8` (sets of 8 members) or `rs:8+2` (Reed-Solomon with 8 data and 2 parity shards).
impl FromStr for Redundancy {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let number = |text: &str| text.trim().parse::<usize>().ok();
        let (name, sizes) = text.split_once(':').unwrap_or((text, ""));
        let scheme = match (name.trim(), sizes) {
            ("partner", "") => Some(Self::Partner),
            ("xor", set) => number(set).map(|set| Self::Xor { set }),
            ("rs", sizes) => sizes.split_once('+').and_then(|(data, parity)| {
                let (data, parity) = (number(data)?, number(parity)?);
                Some(Self::ReedSolomon { data, parity })
            }),
            _ => None,
        };
        let scheme = scheme.ok_or_else(|| Error::Scheme {
            scheme: text.to_owned(),
            why: "write partner, xor:8 or rs:8+2".to_owned(),
        })?;
        scheme.check().map(|()| scheme)
    }
}

impl fmt::Display for Redundancy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Partner => write!(f, "partner copies"),
            Self::Xor { set } => write!(f, "XOR over sets of {set}"),
            Self::ReedSolomon { data, parity } => write!(f, "Reed-Solomon {data} + {parity}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_are_written_as_texts() {
        let of = |text: &str| text.parse::<Redundancy>();
        assert_eq!(of("partner").unwrap(), Redundancy::Partner);
        assert_eq!(of("xor:8").unwrap(), Redundancy::Xor { set: 8 });
        let rs = Redundancy::ReedSolomon { data: 8, parity: 2 };
        assert_eq!(of("rs:8+2").unwrap(), rs);
        for wrong in ["", "xor", "xor:1", "partner:2", "rs:8", "rs:0+2", "raid5"] {
            assert!(matches!(of(wrong), Err(Error::Scheme { .. })), "{wrong}");
        }
    }
}

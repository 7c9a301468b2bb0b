//! The hints of an application about its restores, and their times.

use super::order::permuted;
use super::random;
use tierflow_plan::Version;

/// The hints that the application gives about the order (HPDC'23 §5.3.4 has the first three).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hints {
    /// No hints.
    None,
    /// The next version, while the application works on the one before.
    Single,
    /// All versions, before the first checkpoint.
    All,
    /// All versions that are left, once this percentage of the restores is done: 0 for before the first of them.
    Late(u8),
    /// All versions in this number of parts: the first part before the first checkpoint, each other part when the restores of
    /// the part before it begin.
    Parts(u8),
    /// All versions, before the first checkpoint, with mistakes.
    Wrong(Mistakes),
}

/// The wrong hints among all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mistakes {
    /// Percentage of the hints that are wrong.
    pub percent: u8,
    /// The versions that the wrong hints name.
    pub kind: Mistake,
    /// Seed of the places.
    pub seed: u64,
}

/// The version that a wrong hint names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mistake {
    /// A version that is restored at another time: the wrong hints have changed places.
    Misplaced,
    /// A version that is never checkpointed.
    Unwritten,
}

/// Versions from here on are never checkpointed.
const UNWRITTEN: Version = 1 << 40;

impl Hints {
    /// Name in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Single => "single",
            Self::All => "all",
            Self::Late(_) => "late",
            Self::Parts(_) => "parts",
            Self::Wrong(_) => "wrong",
        }
    }

    /// Returns the hints before the first checkpoint, for this order of the restores.
    pub(super) fn at_first(self, order: &[Version]) -> Vec<Version> {
        match self {
            Self::None | Self::Single | Self::Late(_) => Vec::new(),
            Self::All => order.to_vec(),
            Self::Parts(_) => order.iter().take(self.part(order.len())).copied().collect(),
            Self::Wrong(mistakes) => mistakes.in_place_of(order),
        }
    }

    /// Returns the hints once `restored` restores are done; 0 for before the first.
    pub(super) fn after(self, restored: usize, order: &[Version]) -> Vec<Version> {
        let part = self.part(order.len());
        let said = match self {
            Self::None | Self::All | Self::Wrong(_) => 0..0,
            Self::Single if restored == 0 => 0..0,
            Self::Single => restored..restored + 1,
            Self::Late(percent)
                if restored == order.len() * usize::from(percent.min(100)) / 100 =>
            {
                restored..order.len()
            }
            Self::Late(_) => 0..0,
            Self::Parts(_) if restored.is_multiple_of(part) => restored + part..restored + 2 * part,
            Self::Parts(_) => 0..0,
        };
        let within = said.start.min(order.len())..said.end.min(order.len());
        order[within].to_vec()
    }

    /// Returns the restores in a part, at least 1: all without parts.
    fn part(self, restores: usize) -> usize {
        let parts = match self {
            Self::Parts(parts) => usize::from(parts.max(1)),
            _ => 1,
        };
        restores.div_ceil(parts).max(1)
    }
}

/// The name and its parameters, as in a cell's name.
impl std::fmt::Display for Hints {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.name();
        match self {
            Self::None | Self::Single | Self::All => write!(f, "{name}"),
            Self::Late(percent) => write!(f, "{name}({percent}%)"),
            Self::Parts(parts) => write!(f, "{name}({parts})"),
            Self::Wrong(Mistakes { percent, kind, .. }) => {
                let kind = match kind {
                    Mistake::Misplaced => "misplaced",
                    Mistake::Unwritten => "unwritten",
                };
                write!(f, "{name}({percent}% {kind})")
            }
        }
    }
}

impl Mistakes {
    fn in_place_of(self, order: &[Version]) -> Vec<Version> {
        let mut hints = order.to_vec();
        let places = permuted(order.len() as u64, self.seed);
        let wrong = order.len() * usize::from(self.percent.min(100)) / 100;
        let places: Vec<_> = places
            .into_iter()
            .take(wrong)
            .map(|at| at as usize)
            .collect();
        match self.kind {
            Mistake::Misplaced => {
                for pair in places.windows(2) {
                    hints.swap(pair[0], pair[1]);
                }
            }
            Mistake::Unwritten => {
                for at in places {
                    hints[at] = UNWRITTEN + random(self.seed.wrapping_add(at as u64)) % UNWRITTEN;
                }
            }
        }
        hints
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns all hints after the first checkpoint, by the number of restores before them.
    fn said(hints: Hints, order: &[Version]) -> Vec<(usize, Vec<Version>)> {
        let moments = (0..=order.len()).map(|at| (at, hints.after(at, order)));
        moments.filter(|(_, said)| !said.is_empty()).collect()
    }

    #[test]
    fn late_hints_leave_out_what_was_restored() {
        let order = [9, 8, 7, 6];
        assert!(Hints::Late(0).at_first(&order).is_empty());
        assert_eq!(said(Hints::Late(0), &order), [(0, order.to_vec())]);
        assert_eq!(said(Hints::Late(50), &order), [(2, vec![7, 6])]);
    }

    #[test]
    fn parts_come_a_part_ahead_and_leave_nothing_out() {
        let order = [9, 8, 7, 6, 5];
        assert_eq!(Hints::Parts(3).at_first(&order), [9, 8]);
        let later = [(0, vec![7, 6]), (2, vec![5])];
        assert_eq!(said(Hints::Parts(3), &order), later);
        assert_eq!(Hints::Parts(1).at_first(&order), order);
        assert!(said(Hints::Parts(1), &order).is_empty());
        for parts in [0, 9] {
            let hints = Hints::Parts(parts);
            let mut all = hints.at_first(&order);
            all.extend(said(hints, &order).into_iter().flat_map(|(_, said)| said));
            assert_eq!(all, order);
        }
        assert!(Hints::Parts(3).at_first(&[]).is_empty());
    }

    #[test]
    fn as_many_hints_are_wrong_as_were_asked_for() {
        let order: Vec<_> = (0..200).collect();
        let wrong = |kind| {
            let mistakes = Mistakes {
                percent: 20,
                kind,
                seed: 1,
            };
            Hints::Wrong(mistakes).at_first(&order)
        };
        let differ = |hints: &[Version]| hints.iter().zip(&order).filter(|(a, b)| a != b).count();
        let mut misplaced = wrong(Mistake::Misplaced);
        assert_eq!(differ(&misplaced), 40);
        misplaced.sort_unstable();
        assert_eq!(misplaced, order);
        let unwritten = wrong(Mistake::Unwritten);
        assert_eq!(differ(&unwritten), 40);
        assert_eq!(unwritten.iter().filter(|v| **v >= UNWRITTEN).count(), 40);
    }
}

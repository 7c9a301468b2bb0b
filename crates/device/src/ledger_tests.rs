use proptest::prelude::*;

use super::*;

/// A ledger by definition: a count of readers and a flag for a writer per byte.
#[derive(Clone)]
struct Oracle {
    readers: Vec<u32>,
    writer: Vec<bool>,
    mapped: Vec<bool>,
}

impl Oracle {
    fn allows(&self, range: &Range<usize>, access: Access) -> bool {
        range.clone().all(|i| {
            self.mapped[i] && !self.writer[i] && (access == Access::Read || self.readers[i] == 0)
        })
    }

    fn set(&mut self, range: &Range<usize>, access: Access, on: bool) {
        for i in range.clone() {
            match access {
                Access::Read if on => self.readers[i] += 1,
                Access::Read => self.readers[i] -= 1,
                Access::Write => self.writer[i] = on,
            }
        }
    }
}

const LEN: usize = 48;

#[derive(Clone, Debug)]
enum Op {
    Lend(Range<usize>, bool),
    GiveBack(usize),
    Split(usize, usize),
    Downgrade(usize),
    Map(Range<usize>),
}

fn op() -> impl Strategy<Value = Op> {
    let range = (0..LEN, 0..12_usize).prop_map(|(start, len)| start..(start + len).min(LEN));
    prop_oneof![
        4 => (range.clone(), any::<bool>()).prop_map(|(range, write)| Op::Lend(range, write)),
        3 => any::<usize>().prop_map(Op::GiveBack),
        1 => (any::<usize>(), 0..LEN).prop_map(|(which, at)| Op::Split(which, at)),
        1 => any::<usize>().prop_map(Op::Downgrade),
        2 => range.prop_map(Op::Map),
    ]
}

proptest! {
    /// The ledger lends exactly as the count per byte does, after any sequence of operations.
    #[test]
    fn agrees_with_a_count_for_every_byte(ops in prop::collection::vec(op(), 1..200)) {
        let mut ledger = Ledger::reserved(LEN);
        let mut oracle =
            Oracle { readers: vec![0; LEN], writer: vec![false; LEN], mapped: vec![false; LEN] };
        let mut live: Vec<(Range<usize>, Access)> = Vec::new();
        for op in ops {
            match op {
                Op::Lend(range, write) => {
                    let access = if write { Access::Write } else { Access::Read };
                    let allowed = oracle.allows(&range, access);
                    prop_assert_eq!(ledger.lend(&range, access).is_ok(), allowed);
                    if allowed {
                        oracle.set(&range, access, true);
                        live.push((range, access));
                    }
                }
                Op::GiveBack(which) if !live.is_empty() => {
                    let (range, access) = live.swap_remove(which % live.len());
                    oracle.set(&range, access, false);
                    ledger.give_back(&range, access);
                }
                Op::Split(which, at) if !live.is_empty() => {
                    let (range, access) = live.swap_remove(which % live.len());
                    let at = at.clamp(range.start, range.end);
                    ledger.split(&range, at, access);
                    live.push((range.start..at, access));
                    live.push((at..range.end, access));
                }
                Op::Downgrade(which) if !live.is_empty() => {
                    let which = which % live.len();
                    let (range, access) = live[which].clone();
                    if access == Access::Write {
                        ledger.downgrade(&range);
                        oracle.set(&range, Access::Write, false);
                        oracle.set(&range, Access::Read, true);
                        live[which].1 = Access::Read;
                    }
                }
                Op::Map(range) => {
                    let free = range.clone().all(|i| !oracle.mapped[i]);
                    prop_assert_eq!(!ledger.overlaps_mapped(&range) || range.is_empty(), free);
                    if free && !range.is_empty() {
                        oracle.mapped[range.clone()].fill(true);
                        ledger.add_mapped(range);
                    }
                    let mapped = oracle.mapped.iter().filter(|&&mapped| mapped).count();
                    prop_assert_eq!(ledger.mapped_bytes(), mapped);
                }
                _ => {}
            }
            let not_empty = live.iter().filter(|(range, _)| !range.is_empty()).count();
            prop_assert_eq!(ledger.live_loans(), not_empty);
        }
    }
}

#[test]
fn a_long_reader_far_to_the_left_is_seen() {
    let mut ledger = Ledger::usable(1000);
    ledger.lend(&(0..900), Access::Read).unwrap();
    for start in (100..800).step_by(10) {
        ledger.lend(&(start..start + 1), Access::Read).unwrap();
    }
    let busy = ledger.lend(&(850..860), Access::Write).unwrap_err();
    assert_eq!(
        busy,
        Error::Busy {
            asked: 850..860,
            overlaps: 0..900,
            held: Access::Read
        }
    );
    assert!(ledger.lend(&(900..1000), Access::Write).is_ok());
}

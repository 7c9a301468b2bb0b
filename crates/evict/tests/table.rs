//! The allocation table against a list of intervals.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use tierflow_evict::{
    AllocationTable, Candidates, Distance, Fragment, MAX_CAPACITY, Outlook, Policy, Score, Slot,
    TableError,
};

const CAPACITY: u64 = 1000;
const ALIGNMENT: u64 = 8;
const KEYS: u32 = 40;

/// An outlook for tests in which outlooks do not matter.
const ANY: Outlook = Outlook {
    evictable_in: Some(0),
    distance: Distance::Unhinted,
    written: 0,
    used: 0,
};

#[derive(Clone, Debug)]
enum Step {
    Insert {
        offset: u64,
        key: u8,
        size: u64,
    },
    /// At the offset of the `nth` gap, so that many insertions succeed.
    InsertInGap {
        nth: usize,
        key: u8,
        size: u64,
    },
    Remove {
        key: u8,
    },
    Shrink {
        key: u8,
        size: u64,
    },
    Limit {
        bytes: u64,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = || 0..KEYS as u8;
    let step = prop_oneof![
        1 => (0..1100_u64, key(), 0..1100_u64)
            .prop_map(|(offset, key, size)| Step::Insert { offset, key, size }),
        4 => (0..8_usize, key(), 1..120_u64)
            .prop_map(|(nth, key, size)| Step::InsertInGap { nth, key, size }),
        3 => key().prop_map(|key| Step::Remove { key }),
        2 => (key(), 0..120_u64).prop_map(|(key, size)| Step::Shrink { key, size }),
        1 => (0..CAPACITY + 100).prop_map(|bytes| Step::Limit { bytes }),
    ];
    prop::collection::vec(step, 0..200)
}

/// Copies by offset: key, size.
type Model = BTreeMap<u64, (u8, u64)>;

fn expected_insertion(
    model: &Model,
    limit: u64,
    offset: u64,
    key: u8,
    size: u64,
) -> Result<Slot, TableError> {
    let reserved = size.next_multiple_of(ALIGNMENT);
    let end = offset + reserved;
    if size == 0 {
        Err(TableError::ZeroSize)
    } else if reserved > CAPACITY {
        Err(TableError::TooLarge {
            size,
            capacity: CAPACITY,
        })
    } else if !offset.is_multiple_of(ALIGNMENT) {
        Err(TableError::Misaligned {
            offset,
            alignment: ALIGNMENT,
        })
    } else if model.values().any(|copy| copy.0 == key) {
        Err(TableError::Duplicate)
    } else if end > CAPACITY
        || model
            .iter()
            .any(|(&o, &(_, s))| o < end && offset < o + s.next_multiple_of(ALIGNMENT))
    {
        Err(TableError::NotAGap { offset, reserved })
    } else if end > limit {
        Err(TableError::BeyondLimit {
            offset,
            reserved,
            limit,
        })
    } else {
        Ok(Slot {
            offset,
            size,
            reserved,
        })
    }
}

/// Candidates that are kept from one step to the next.
fn check_kept(table: &mut AllocationTable<u8>, kept: &mut Candidates) -> Result<(), TestCaseError> {
    let outlook = |key: u8| Outlook {
        evictable_in: (!key.is_multiple_of(5)).then_some(u64::from(key % 3)),
        distance: match u64::from(key) {
            0..10 => Distance::Unhinted,
            key => Distance::At(key),
        },
        written: u64::from(key),
        ..ANY
    };
    let changed = table.take_changed();
    table.update_candidates(kept, changed, |f| f.occupant.map(outlook));
    let mut anew = Candidates::new();
    table.candidates_into(&mut anew, outlook);
    prop_assert_eq!(&*kept, &anew);
    prop_assert_eq!(table.take_changed(), 0..0);
    Ok(())
}

fn check(
    table: &mut AllocationTable<u8>,
    kept: &mut Candidates,
    model: &Model,
    limit: u64,
) -> Result<(), TestCaseError> {
    // Not after each step, so that changes gather.
    if !table.len().is_multiple_of(3) {
        check_kept(table, kept)?;
    }
    let mut end = 0;
    let mut after_gap = false;
    let mut copies = Vec::new();
    let mut largest_gap = 0;
    let mut seats = BTreeSet::new();
    for &Fragment {
        offset,
        size,
        occupant,
        seat,
    } in table.fragments()
    {
        if occupant.is_some() {
            prop_assert!(seats.insert(seat), "two copies in one seat");
            prop_assert!(seat < KEYS, "as few seats as copies at a time");
        }
        prop_assert_eq!(offset, end, "fragments tile the capacity");
        prop_assert!(size > 0);
        prop_assert!(offset % ALIGNMENT == 0 && size % ALIGNMENT == 0);
        prop_assert!(!(after_gap && occupant.is_none()), "gaps are coalesced");
        after_gap = occupant.is_none();
        match occupant {
            Some(key) => copies.push((offset, key, size)),
            None => largest_gap = largest_gap.max(end.max(limit.min(end + size)) - end),
        }
        end += size;
    }
    prop_assert_eq!(end, CAPACITY);

    let expected: Vec<_> = model
        .iter()
        .map(|(&o, &(key, size))| (o, key, size.next_multiple_of(ALIGNMENT)))
        .collect();
    let used = expected.iter().map(|copy| copy.2).sum::<u64>();
    prop_assert_eq!(&copies, &expected);
    let is_used = |byte: &u64| {
        let mut copies = expected.iter();
        copies.any(|&(offset, _, size)| (offset..offset + size).contains(byte))
    };
    let free = (0..limit).filter(|byte| !is_used(byte)).count() as u64;
    prop_assert_eq!(
        (table.limit(), table.used(), table.free()),
        (limit, used, free)
    );
    let beyond: Vec<_> = expected
        .iter()
        .filter(|&&(offset, _, size)| offset + size > limit)
        .map(|copy| copy.1)
        .collect();
    prop_assert_eq!(table.beyond_limit().collect::<Vec<_>>(), beyond);
    let mut candidates = Candidates::new();
    table.candidates_into(&mut candidates, |_| ANY);
    // All that lies within the limit, and no byte beyond.
    prop_assert!(candidates.bytes() <= limit);
    let seen: Vec<_> = candidates.iter().map(|c| (c.offset, c.size)).collect();
    let within = table.fragments().iter().filter(|f| match f.occupant {
        Some(_) => f.offset + f.size <= limit,
        None => f.offset < limit,
    });
    let within: Vec<_> = within
        .map(|f| (f.offset, f.size.min(limit - f.offset)))
        .collect();
    prop_assert_eq!(seen, within);
    for size in [8, 40, 200, largest_gap] {
        let mut gaps = table.fragments().iter().filter(|f| f.occupant.is_none());
        let fits = gaps.find(|f| f.offset + size <= limit.min(f.offset + f.size));
        prop_assert_eq!(
            table.first_gap(size.max(8)),
            fits.filter(|_| size > 0).map(|f| f.offset)
        );
    }
    prop_assert_eq!(table.largest_gap(), largest_gap);
    prop_assert_eq!(
        (table.len(), table.is_empty()),
        (model.len(), model.is_empty())
    );
    for (&offset, &(key, size)) in model {
        let reserved = size.next_multiple_of(ALIGNMENT);
        prop_assert_eq!(
            table.get(&key),
            Some(Slot {
                offset,
                size,
                reserved
            })
        );
        let fragment = table.fragment(&key).unwrap();
        prop_assert_eq!((fragment.offset, fragment.occupant), (offset, Some(key)));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn behaves_like_a_list_of_intervals(steps in steps()) {
        let mut table = AllocationTable::new(CAPACITY + 5, ALIGNMENT).unwrap();
        let mut model = Model::new();
        let mut limit = CAPACITY;
        let mut kept = Candidates::new();
        for step in steps {
            let (offset, key, size) = match step {
                Step::Remove { key } => {
                    let found = model.iter().find(|(_, copy)| copy.0 == key);
                    let found = found.map(|(&offset, &(_, size))| (offset, size));
                    let expected = found.ok_or(TableError::Unknown).map(|(offset, size)| Slot {
                        offset,
                        size,
                        reserved: size.next_multiple_of(ALIGNMENT),
                    });
                    prop_assert_eq!(table.remove(&key), expected);
                    prop_assert_eq!(table.get(&key), None);
                    if let Some((offset, _)) = found {
                        model.remove(&offset);
                    }
                    check(&mut table, &mut kept, &model, limit)?;
                    continue;
                }
                Step::Shrink { key, size } => {
                    let found = model.iter_mut().find(|(_, copy)| copy.0 == key);
                    let shrunk = table.shrink(&key, size);
                    match found {
                        _ if size == 0 => prop_assert_eq!(shrunk, Err(TableError::ZeroSize)),
                        None => prop_assert_eq!(shrunk, Err(TableError::Unknown)),
                        Some((&offset, copy)) => {
                            copy.1 = copy.1.min(size);
                            let (size, reserved) = (copy.1, copy.1.next_multiple_of(ALIGNMENT));
                            prop_assert_eq!(
                                shrunk,
                                Ok(Slot {
                                    offset,
                                    size,
                                    reserved
                                })
                            );
                        }
                    }
                    check(&mut table, &mut kept, &model, limit)?;
                    continue;
                }
                Step::Limit { bytes } => {
                    table.set_limit(bytes);
                    limit = bytes.min(CAPACITY) / ALIGNMENT * ALIGNMENT;
                    check(&mut table, &mut kept, &model, limit)?;
                    continue;
                }
                Step::Insert { offset, key, size } => (offset, key, size),
                Step::InsertInGap { nth, key, size } => {
                    let gaps = table.fragments().iter().filter(|f| f.occupant.is_none());
                    let offset = gaps.map(|gap| gap.offset).nth(nth).unwrap_or(0);
                    (offset, key, size)
                }
            };
            let expected = expected_insertion(&model, limit, offset, key, size);
            prop_assert_eq!(table.insert(offset, key, size), expected);
            if expected.is_ok() {
                model.insert(offset, (key, size));
            }
            check(&mut table, &mut kept, &model, limit)?;
        }
    }

    /// A chosen window can be emptied, and then holds the new copy.
    #[test]
    fn a_chosen_window_makes_room(sizes in prop::collection::vec(1..300_u64, 1..60)) {
        let mut table = AllocationTable::new(CAPACITY, ALIGNMENT).unwrap();
        let mut candidates = Candidates::new();
        for (key, &size) in (0_u8..).zip(&sizes) {
            table.candidates_into(&mut candidates, |key| Outlook {
                evictable_in: Some(0),
                distance: Distance::At(u64::from(key)),
                written: 0,
                used: 0,
            });
            let window = Score.choose(&candidates, table.reserved(size)).expect("all may go");
            let victims = &table.fragments()[window.first..window.last];
            let victims: Vec<_> = victims.iter().filter_map(|victim| victim.occupant).collect();
            for key in victims {
                table.remove(&key).unwrap();
            }
            let slot = table.insert(window.offset, key, size).unwrap();
            prop_assert_eq!(slot.offset, window.offset);
            prop_assert!(slot.reserved <= window.span);
        }
    }
}

#[test]
fn the_largest_cache_is_laid_out() {
    let mut table = AllocationTable::new(MAX_CAPACITY, 4096).unwrap();
    let capacity = table.capacity();
    assert_eq!(capacity, MAX_CAPACITY / 4096 * 4096);
    assert_eq!(
        table.insert(capacity - 4096, 'a', 1).unwrap().reserved,
        4096
    );
    assert_eq!(table.insert(0, 'b', capacity - 4096).unwrap().offset, 0);
    assert_eq!((table.free(), table.largest_gap()), (0, 0));
}

#[test]
fn figures_that_make_no_cache_are_refused() {
    for (capacity, alignment) in [(100, 0), (0, 1), (7, 8), (MAX_CAPACITY + 1, 1)] {
        assert_eq!(
            AllocationTable::<u8>::new(capacity, alignment).unwrap_err(),
            TableError::BadCapacity {
                capacity,
                alignment
            }
        );
    }
}

#[test]
fn sizes_that_overflow_are_too_large() {
    let mut table = AllocationTable::new(CAPACITY, ALIGNMENT).unwrap();
    let size = u64::MAX;
    assert_eq!(table.reserved(size), u64::MAX);
    assert_eq!(
        table.insert(0, 'a', size),
        Err(TableError::TooLarge {
            size,
            capacity: CAPACITY
        })
    );
    let beyond = u64::MAX / ALIGNMENT * ALIGNMENT;
    assert_eq!(
        table.insert(beyond, 'a', 8),
        Err(TableError::NotAGap {
            offset: beyond,
            reserved: 8
        })
    );
    assert!(table.is_empty());
}

#[test]
fn errors_say_what_to_do() {
    assert_eq!(
        TableError::NotAGap {
            offset: 512,
            reserved: 256
        }
        .to_string(),
        "the 256 bytes at offset 512 are not one gap: remove every copy of the window first"
    );
}

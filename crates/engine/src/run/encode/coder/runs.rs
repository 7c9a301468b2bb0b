//! Divides checkpoints into runs: bytes that are encoded together.

use crate::plan::Overhead;
use crate::{Compression, Result};
use std::ops::Range;
use tierflow_codec::{Bound, Bounded, Codec, Element as Value, Planes};
use tierflow_store::container::RegionInfo;

/// Largest number of runs of a checkpoint. Each run has a header, for which `overhead` sets room aside.
const MOST: usize = 64;

/// Bytes of a checkpoint, or of a difference, that are encoded together.
#[derive(Debug, Clone, PartialEq)]
pub(in super::super) struct Run {
    pub(super) range: Range<u64>,
    pub(super) value: Value,
    pub(super) bound: Option<Bound>,
    /// Groups runs for the choice of predictors: runs of one kind and type are taken to be similar from version to version.
    pub(super) kind: usize,
}

impl Run {
    pub(in super::super) fn lossless(range: Range<u64>, value: Value, kind: usize) -> Self {
        Self {
            range,
            value,
            bound: None,
            kind,
        }
    }

    pub(super) fn bounded(&self) -> Result<Option<Bounded>> {
        Ok(self.bound.map(Bounded::new).transpose()?)
    }

    /// Returns the run in parts of `part` bytes, except for the last one. `part` is a multiple of 1 MiB, so that `overhead`
    /// suffices for the parts. A relative bound then refers to each part's largest value, which is at most the run's.
    pub(super) fn cut(&self, part: u64) -> impl Iterator<Item = Self> + '_ {
        let Range { start, end } = self.range;
        let starts = std::iter::successors(Some(start), move |at| at.checked_add(part));
        starts.take_while(move |at| *at < end).map(move |at| Self {
            range: at..at.saturating_add(part).min(end),
            ..self.clone()
        })
    }

    /// Returns the bytes of the longest container of this run. A container of nvCOMP is never longer than this.
    pub(super) fn most(&self) -> Result<u64> {
        let len = self.range.end - self.range.start;
        Ok(match self.bounded()? {
            Some(bounded) => bounded.max_encoded_len(len, self.value)?,
            None => Planes::new().max_encoded_len(len, self.value)?,
        })
    }
}

/// Returns the runs of a checkpoint of `size` bytes. `layout` has its regions, if they are named. If there would be more runs than
/// `MOST`, the whole checkpoint is one lossless run, even regions with bounds: only bytes are lost by that. An `error` replaces the
/// bounds.
pub(in super::super) fn of(
    how: &Compression,
    layout: Option<&[RegionInfo]>,
    size: u64,
    error: Option<f64>,
) -> Vec<Run> {
    let whole = || {
        vec![Run {
            range: 0..size,
            value: how.value(),
            bound: None,
            kind: 0,
        }]
    };
    let Some(layout) = layout else {
        return whole();
    };
    let mut runs: Vec<Run> = Vec::new();
    for region in layout.iter().filter(|region| region.length > 0) {
        let (value, bound) = how.of(region);
        let bound = bound.map(|bound| error.map_or(bound, Bound::Absolute));
        let range = region.offset..region.offset + region.length;
        match runs.last_mut() {
            Some(last) if (last.value, last.bound, bound) == (value, None, None) => {
                last.range.end = range.end;
            }
            _ => runs.push(Run {
                range,
                value,
                bound,
                kind: runs.len(),
            }),
        }
    }
    let is_all = runs.last().is_some_and(|run| run.range.end == size);
    if runs.len() > MOST || !is_all {
        return whole();
    }
    runs
}

/// Returns how many bytes longer than a checkpoint its containers are, at most: `each` for every MiB, in the worst type, and
/// `fixed` for runs that end within a block.
pub(in super::super) fn overhead() -> Result<Overhead> {
    const MIB: u64 = 1 << 20;
    let (mut each, mut fixed) = (0, 0);
    for value in Value::ALL {
        let mut codecs: Vec<Box<dyn Codec>> = vec![Box::new(Planes::new())];
        if matches!(value, Value::F32 | Value::F64) {
            codecs.push(Box::new(Bounded::new(Bound::Relative(1e-3))?));
        }
        for codec in codecs {
            let most = |bytes: u64| codec.max_encoded_len(bytes, value);
            each = each.max(most(MIB)? - MIB);
            fixed = fixed.max(most(1)?);
        }
    }
    Ok(Overhead {
        fixed: fixed * MOST as u64,
        each,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tierflow_store::container::Element;

    fn layout(lengths: &[(u64, Element)]) -> Vec<RegionInfo> {
        let mut offset = 0;
        let of = |(n, &(length, element)): (usize, &(u64, Element))| {
            let info = RegionInfo {
                name: format!("r{n}"),
                offset,
                length,
                element,
                shape: Vec::new(),
            };
            offset += length;
            info
        };
        lengths.iter().enumerate().map(of).collect()
    }

    #[test]
    fn neighbours_of_one_type_are_one_run_and_bounds_stand_alone() {
        let how = Compression::lossless(Value::Bf16)
            .within("r2", Bound::Absolute(0.5))
            .within("r3", Bound::Absolute(0.5))
            .within("r4", Bound::Absolute(0.5));
        let layout = layout(&[
            (8, Element::F32),
            (16, Element::F32),
            (24, Element::F32),
            (8, Element::F32),
            (5, Element::I16),
            (0, Element::F64),
            (3, Element::Bytes),
        ]);
        let runs = of(&how, Some(&layout), 64, None);
        let found: Vec<_> = runs
            .iter()
            .map(|run| (run.range.clone(), run.value, run.bound.is_some()))
            .collect();
        let expected = [
            (0..24, Value::F32, false),
            (24..48, Value::F32, true),
            (48..56, Value::F32, true),
            (56..61, Value::I16, false),
            (61..64, Value::Bf16, false),
        ];
        assert_eq!(found, expected);
        // The call's error replaces bounds, and adds none to regions without a bound.
        let bounds = of(&how, Some(&layout), 64, Some(2.0))
            .into_iter()
            .map(|run| run.bound);
        let own = Some(Bound::Absolute(2.0));
        assert_eq!(bounds.collect::<Vec<_>>(), [None, own, own, None, None]);
        assert_eq!(of(&how, None, 64, None).len(), 1);
        assert_eq!(
            of(&how, Some(&layout), 65, None).len(),
            1,
            "of another checkpoint"
        );
        let many: Vec<_> = (0..MOST as u64 + 1)
            .map(|n| {
                (
                    8,
                    if n % 2 == 0 {
                        Element::F32
                    } else {
                        Element::I8
                    },
                )
            })
            .collect();
        assert_eq!(
            of(
                &how,
                Some(&self::layout(&many)),
                8 * many.len() as u64,
                None
            )
            .len(),
            1
        );
    }

    proptest! {
        #[test]
        fn the_room_that_is_set_aside_always_suffices(
            lengths in prop::collection::vec((1_u64..3 << 20, 0_usize..14, any::<bool>()), 1..MOST),
            part in prop_oneof![1_u64..3, Just(u64::MAX >> 20)],
        ) {
            let elements = [
                Element::Bytes, Element::U8, Element::U16, Element::U32, Element::U64, Element::I8, Element::I16,
                Element::I32, Element::I64, Element::F16, Element::F32, Element::F64, Element::Bf16, Element::C128,
            ];
            let mut how = Compression::lossless(Value::F64);
            for (n, (_, _, is_bounded)) in lengths.iter().enumerate() {
                if *is_bounded {
                    how = how.within(format!("r{n}"), Bound::Relative(1e-6));
                }
            }
            let regions: Vec<_> = lengths.iter().map(|(length, element, _)| (*length, elements[*element])).collect();
            let size = regions.iter().map(|(length, _)| length).sum();
            let runs = of(&how, Some(&layout(&regions)), size, None);
            let parts = runs.iter().flat_map(|run| run.cut(part << 20));
            let most: u64 = parts.map(|part| part.most().unwrap()).sum();
            prop_assert!(most <= overhead().unwrap().most(size), "{most} bytes of {size}");
        }
    }
}

//! A migration within a budget for the error of its maps.

use anyhow::Result;
use tierflow_device::Memory;

use super::Migration;
use crate::budget::{ErrorBudget, Of, Off, Sample};

/// A budget for the error of the maps.
pub(super) struct Budgeted {
    pub(super) budget: ErrorBudget,
    pub(super) sample: Sample,
    /// The maps as they were before a shot, in the order of [`Migration::all_maps`].
    pub(super) before: Vec<Memory>,
    /// Shots that were taken back.
    pub(super) taken_back: usize,
}

impl Budgeted {
    /// Bytes in device memory.
    pub(super) fn bytes(&self) -> usize {
        self.sample.bytes() + self.before.iter().map(Memory::len).sum::<usize>()
    }
}

impl Migration<'_> {
    /// The maps, and those of the comparison.
    pub(super) fn all_maps(&self) -> Vec<&Memory> {
        let reference = self.reference.iter().map(|reference| &reference.maps);
        let all = std::iter::once(&self.maps).chain(reference);
        all.flat_map(|maps| [&maps.image, &maps.illumination])
            .collect()
    }

    /// Keeps the maps as they are before a shot, if there is a budget for their error.
    pub(super) fn keep_maps(&self) -> Result<()> {
        self.budgeted.as_ref().map_or(Ok(()), |of| {
            self.copy(self.all_maps().into_iter().zip(&of.before))
        })
    }

    pub(super) fn copy<'m>(
        &self,
        copies: impl Iterator<Item = (&'m Memory, &'m Memory)>,
    ) -> Result<()> {
        self.propagator.finish()?;
        for (from, to) in copies {
            let copy = (from.lend(0..from.len())?, to.lend_mut(0..to.len())?);
            self.propagator.stream().copy_all([copy])?;
        }
        Ok(())
    }

    /// Returns true if the maps are within the budget with this shot, or there is none. Otherwise takes the shot back.
    pub(super) fn is_within_budget(&mut self, shot: usize) -> Result<bool> {
        let Some(of) = &mut self.budgeted else {
            return Ok(true);
        };
        if of.budget.take(&of.sample.read(self.propagator)?) {
            return Ok(true);
        }
        of.taken_back += 1;
        (self.say)(&format!(
            "budget      shot {} is beyond it, and is migrated once more with bounds by its own fields",
            shot + 1
        ));
        if let Some(of) = &self.budgeted {
            self.copy(of.before.iter().zip(self.all_maps()))?;
        }
        Ok(false)
    }

    /// The error of the maps by the sample of a budget, estimated and at most, and the number of shots that were taken back.
    pub fn budgeted(&self) -> Option<([Off; 2], usize)> {
        let of = self.budgeted.as_ref()?;
        Some((of.budget.error_of_results(), of.taken_back))
    }

    /// Takes the sample of the fields that are correlated at a checkpoint.
    pub(super) fn sample(&self, checkpoint: usize) -> Result<()> {
        let (Some(of), Some(imaging)) = (&self.budgeted, &self.imaging) else {
            return Ok(());
        };
        for (of_field, field) in [
            (Of::Restored, &self.source),
            (Of::Partner, &imaging.receiver),
        ] {
            of.sample
                .take(self.propagator, of_field, checkpoint, field)?;
        }
        Ok(())
    }
}

//! The runs before this one, on this node and elsewhere.

use super::Damage;
use std::path::Path;
use tierflow_store::{Identity, Mark, Marks, Order, Repository, Vault};

/// The last writer on external storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum LastWriter {
    /// A run elsewhere, or a run whose mark in a directory cannot be read.
    #[default]
    Elsewhere,
    /// The last writer is not known: a vault keeps no marks, or does not answer.
    Unknown,
    /// A run on this node.
    Here,
    /// No known run: every piece there was written in format 1.
    None,
}

/// The marks of the runs before this one.
#[derive(Debug, Default)]
pub(super) struct RunMarks {
    pub(super) last: LastWriter,
    /// The marks on the node, and those on external storage.
    marks: (Marks, Marks),
}

impl RunMarks {
    pub(super) fn new(
        last: LastWriter,
        local: Option<&Repository>,
        external: Option<&Repository>,
    ) -> Self {
        // If marks cannot be read now, this run assumes that the last run was elsewhere.
        let marks = |of: Option<&Repository>| {
            let marks = of.and_then(|of| of.marks().ok());
            marks.unwrap_or_default()
        };
        Self {
            last,
            marks: (marks(local), marks(external)),
        }
    }

    /// Returns true if the node's piece counts, of two pieces of one number: if it is newer, and if no run elsewhere
    /// continued from external storage, neither the last run nor an earlier run that did not know the node's versions.
    pub(super) fn prefers_node_local(&self, node_local: &Identity, external: &Identity) -> bool {
        let may_be = match self.last {
            LastWriter::Elsewhere | LastWriter::Unknown => false,
            LastWriter::Here => true,
            LastWriter::None => node_local.epoch > 0,
        };
        let (here, there) = &self.marks;
        may_be
            && node_local.is_newer_than(external)
            && !here.are_strangers(node_local.epoch, (external.epoch, there))
    }
}

/// Finds the last writer, and orders this run after all runs that it finds.
pub(super) fn last_run(
    order: &Order,
    local: Option<&Repository>,
    external: Option<&dyn Vault>,
    keeps_marks: bool,
    damage: &mut Vec<Damage>,
) -> LastWriter {
    let mut mark = |tier, mark: tierflow_store::Result<Mark>| {
        let mark = mark.unwrap_or_else(|error| {
            damage.push(Damage::unusable(tier, Path::new(""), &error));
            Mark { epoch: 1, run: 0 }
        });
        order.see(mark.epoch, 0);
        mark
    };
    local.map(|local| mark("node-local", local.last_run()));
    let last = external.map(|external| mark("external", external.last_run()));
    match (last.filter(|mark| mark.epoch > 0), local) {
        (None, _) => LastWriter::None,
        (Some(last), Some(local)) if local.was_written_by(&last).unwrap_or(false) => {
            LastWriter::Here
        }
        (Some(last), _) if last.run == 0 && !keeps_marks => LastWriter::Unknown,
        _ => LastWriter::Elsewhere,
    }
}

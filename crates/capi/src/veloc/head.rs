//! How named checkpoints are stored in an engine: the store says it, as the command line reads them, too.

pub(super) use tierflow_store::veloc::{
    Content, MOST_PARTS, VelocHead as Head, head_of, is_head, part_of, serial_of,
};

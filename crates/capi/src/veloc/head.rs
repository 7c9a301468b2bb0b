//! The storage of named checkpoints in an engine. The store defines it, as the command line reads named checkpoints, too.

pub(super) use tierflow_store::veloc::{
    Content, MOST_PARTS, VelocHead as Head, head_of, is_head, part_of, serial_of,
};

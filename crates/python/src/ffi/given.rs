//! The memory of a call's arguments, as the engine takes it.

use tierflow_bind::CallMemory;

use super::dlpack::Managed;
use super::view::View;
use crate::dtype::ArrayType;

/// A value that keeps an array's bytes in place, beside the caller's reference to the array.
pub(crate) enum Hold {
    Nothing,
    View(#[expect(dead_code, reason = "kept for its drop")] View),
    Managed(#[expect(dead_code, reason = "kept for its drop")] Managed),
}

/// The bytes of one argument, for the time of a call whose thread is attached to the interpreter when it begins and when it ends.
pub(crate) struct Given {
    pub(crate) memory: CallMemory,
    /// The element type and the shape, if they are known.
    pub(crate) array: Option<ArrayType>,
    #[expect(dead_code, reason = "kept for its drop")]
    hold: Hold,
}

impl Given {
    pub(crate) fn new(memory: CallMemory, array: Option<ArrayType>, hold: Hold) -> Self {
        Self {
            memory,
            array,
            hold,
        }
    }
}

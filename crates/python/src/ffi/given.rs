//! Arguments of a call, and what the engine is handed for them.

use tierflow_bind::CallMemory;

use super::dlpack::Managed;
use super::view::View;
use crate::dtype::ArrayType;

/// What keeps an array's bytes where they are, beside the array itself, which is the caller's argument.
pub(crate) enum Hold {
    Nothing,
    View(#[expect(dead_code, reason = "kept for its drop")] View),
    Managed(#[expect(dead_code, reason = "kept for its drop")] Managed),
}

/// The bytes of one argument, for the time of a call that is attached to the interpreter at both its ends.
pub(crate) struct Given {
    pub(crate) memory: CallMemory,
    /// What its bytes are, if that is known.
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

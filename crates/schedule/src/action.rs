use std::fmt;

/// An action of a solver. A stream of actions is like that of `checkpoint_schedules`, but says nothing about the tiers below
/// the device.
///
/// The solver has one working buffer, which holds the state of one step. A stored state enters a slot on the device. The
/// engine moves it to the tiers below and back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Steps the working buffer from step `from` to step `to`.
    Forward {
        /// The step whose state the buffer holds.
        from: usize,
        /// The step whose state it holds afterwards.
        to: usize,
    },
    /// Stores the state of `step`, which is in the working buffer.
    Save {
        /// The step whose state is stored.
        step: usize,
        /// True if the state is compressed when it goes down.
        coded: bool,
    },
    /// The state after the last step is in the working buffer for the first time.
    EndForward,
    /// Copies the stored state of `step` back to the working buffer. The state stays stored.
    Restart {
        /// The step whose state is brought back.
        step: usize,
    },
    /// Reverses `step` from its state, which is in the working buffer and is lost with it.
    Reverse {
        /// The step that is reversed.
        step: usize,
    },
    /// Drops the stored state of `step`.
    Forget {
        /// The step whose state is dropped.
        step: usize,
    },
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forward { from, to } => write!(f, "forward {from} to {to}"),
            Self::Save { step, coded: false } => write!(f, "save {step}"),
            Self::Save { step, coded: true } => write!(f, "save {step} compressed"),
            Self::EndForward => write!(f, "end of the forward sweep"),
            Self::Restart { step } => write!(f, "restart from {step}"),
            Self::Reverse { step } => write!(f, "reverse {step}"),
            Self::Forget { step } => write!(f, "forget {step}"),
        }
    }
}

use std::fmt;

/// An action of a solver. The stream of them is that of `checkpoint_schedules`, with times left to the tiers below.
///
/// The solver has one working buffer, which holds the state of one step. A stored state enters a slot on the device; its
/// way to the tiers below and back is the business of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Steps the working buffer from step `from` to step `to`.
    Forward {
        /// The step that the buffer stands at.
        from: usize,
        /// The step that it stands at afterwards.
        to: usize,
    },
    /// Stores the state of `step`, which is in the working buffer.
    Save {
        /// The step whose state is stored.
        step: usize,
        /// The state goes down compressed, if it goes down.
        coded: bool,
    },
    /// The state after the last step is in the working buffer for the first time.
    EndForward,
    /// Brings the stored state of `step` back to the working buffer. It stays stored.
    Restart {
        /// The step whose state is brought back.
        step: usize,
    },
    /// Reverses `step` from its state, which is in the working buffer and is lost with it.
    Reverse {
        /// The step that is reversed.
        step: usize,
    },
    /// Gives up the stored state of `step`.
    Forget {
        /// The step whose state is given up.
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

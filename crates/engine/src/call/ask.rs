//! The plan's answer to a call.

use crate::deadline::Deadline;
use crate::plan::{Event, Refusal, Ticket};
use crate::run::{Answer, Grant, PlanGuard};
use crate::{Engine, Error, Result, Version};

impl Engine {
    /// Asks the plan about `size` bytes of a version, where `at_ns` is the present time. Returns the place to copy to or from, or
    /// `None` if there is nothing to copy.
    pub(crate) fn ask(
        &self,
        at_ns: u64,
        version: Version,
        size: u64,
        deadline: Deadline,
        event: impl FnOnce(Ticket) -> Event,
    ) -> Result<(Ticket, Option<Grant>)> {
        self.at_home()?;
        self.ask_at_home(None, at_ns, version, size, deadline, event)
    }

    /// As [`ask`](Self::ask), for callers that have already checked the process, and may hold the plan's lock.
    pub(crate) fn ask_at_home(
        &self,
        core: Option<PlanGuard<'_>>,
        at_ns: u64,
        version: Version,
        size: u64,
        deadline: Deadline,
        event: impl FnOnce(Ticket) -> Event,
    ) -> Result<(Ticket, Option<Grant>)> {
        let (ticket, answer) = self.shared.ask(core, at_ns, size, deadline, event);
        match answer.ok_or_else(|| deadline.passed())? {
            Answer::Copy(grant) => Ok((ticket, Some(grant))),
            Answer::Done(Ok(())) => Ok((ticket, None)),
            Answer::Done(Err(refusal)) => Err(self.refused(version, size, refusal)),
        }
    }

    pub(crate) fn refused(&self, version: Version, size: u64, refusal: Refusal) -> Error {
        let cause = || self.shared.lock().last_failure();
        match refusal {
            Refusal::Empty => Error::Empty { version },
            Refusal::VersionUsed => Error::VersionUsed { version },
            Refusal::Unknown => Error::Unknown { version },
            Refusal::Discarded => Error::Discarded { version },
            Refusal::TooLarge { largest } => Error::TooLarge {
                version,
                size,
                largest,
            },
            Refusal::NoRoom => Error::NoRoom {
                version,
                cause: cause(),
            },
            Refusal::Stalled { versions } => Error::Stalled {
                versions,
                cause: cause(),
            },
        }
    }
}

//! The plan together with the executor of its commands: the one way in which a plan is driven.

use crate::{
    Coding, Command, ConfigError, Event, Misuse, Piece, Plan, PlanConfig, Refusal, Ticket, TierId,
    Transfer, TransferId, Version,
};

/// Carries out the plan's commands: moves bytes, wakes callers.
///
/// No method may wait. Begin work that takes time, and report its end by [`World::tell`] later. Report an end that is
/// known at once after the call that is being made has returned.
pub trait Executor {
    /// A caller may copy its bytes to these places; report [`Event::Written`].
    fn write(&mut self, ticket: Ticket, version: Version, pieces: Vec<Piece>);

    /// A caller may copy the bytes out of these places; report [`Event::Read`].
    fn read(&mut self, ticket: Ticket, version: Version, pieces: Vec<Piece>, coding: Coding);

    /// Copy between tiers; report [`Event::TransferDone`] or [`Event::TransferFailed`].
    fn transfer(&mut self, transfer: Transfer);

    /// A transfer is not needed any more. Report its end all the same.
    fn cancel(&mut self, id: TransferId);

    /// A call is answered without a copy: a drop or a wait is done, or any call was refused.
    fn answer(&mut self, ticket: Ticket, answer: Result<(), Refusal>);

    /// Nothing lies beyond the first `bytes` of a tier any more. Called only after [`Event::Limit`].
    fn released(&mut self, tier: TierId, bytes: u64) {
        let _ = (tier, bytes);
    }

    /// The last bytes of a version left a tier, and leave every other one if it `is_discarded`. Of interest only to tiers that keep
    /// versions under their names.
    fn removed(&mut self, version: Version, tier: TierId, bytes: u64, is_discarded: bool) {
        let _ = (version, tier, bytes, is_discarded);
    }
}

/// A plan, and the numbers of its tickets.
#[derive(Debug, Clone)]
pub struct World {
    plan: Plan,
    commands: Vec<Command>,
    tickets: u64,
}

impl World {
    /// Makes a world of empty tiers.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn new(config: PlanConfig) -> Result<Self, ConfigError> {
        Ok(Self {
            plan: Plan::new(config)?,
            commands: Vec::new(),
            tickets: 0,
        })
    }

    /// Returns the plan.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns the plan, to have it record evictions.
    pub fn plan_mut(&mut self) -> &mut Plan {
        &mut self.plan
    }

    /// Makes a ticket for one more call.
    pub fn ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }

    /// Tells the plan what happened at `now_ns`, and has `executor` carry out the commands that follow.
    ///
    /// # Errors
    /// [`Misuse`] if the event contradicts the plan's state. Nothing changed then.
    pub fn tell(
        &mut self,
        now_ns: u64,
        event: Event,
        executor: &mut impl Executor,
    ) -> Result<(), Misuse> {
        self.tell_all(now_ns, std::iter::once(event), executor)
    }

    /// Tells the plan all that happened by `now_ns` at once, which takes less time than one event after the other.
    ///
    /// # Errors
    /// As [`Plan::handle_all`].
    pub fn tell_all(
        &mut self,
        now_ns: u64,
        events: impl IntoIterator<Item = Event>,
        executor: &mut impl Executor,
    ) -> Result<(), Misuse> {
        let told = self.plan.handle_all(now_ns, events, &mut self.commands);
        for command in self.commands.drain(..) {
            match command {
                Command::Write {
                    ticket,
                    version,
                    pieces,
                } => executor.write(ticket, version, pieces),
                Command::Read {
                    ticket,
                    version,
                    pieces,
                    coding,
                } => executor.read(ticket, version, pieces, coding),
                Command::Done { ticket } => executor.answer(ticket, Ok(())),
                Command::Refuse { ticket, refusal } => executor.answer(ticket, Err(refusal)),
                Command::Transfer(transfer) => executor.transfer(transfer),
                Command::Cancel { id } => executor.cancel(id),
                Command::Released { tier, bytes } => executor.released(tier, bytes),
                Command::Remove {
                    version,
                    tier,
                    bytes,
                    is_discarded,
                } => executor.removed(version, tier, bytes, is_discarded),
            }
        }
        told
    }
}

use crate::action::Action;
use crate::machine::Machine;
use crate::online::Online;
use crate::plan::Plan;
use std::collections::VecDeque;

/// The actions of one reversed computation, one after the other: those of a plan, or those of the online rule until the
/// length of the sweep is told.
#[derive(Clone, Debug)]
pub struct Schedule {
    stage: Stage,
    /// Actions to come, of a plan all, of the rule those up to the next forward step.
    ahead: VecDeque<Action>,
    /// Actions that were returned.
    given: usize,
}

#[derive(Clone, Debug)]
enum Stage {
    /// The sweep goes on until [`Schedule::end`].
    Sweep(Online),
    Planned(Box<Plan>),
}

impl Schedule {
    /// The schedule of [`Plan::best`] for a number of steps, or of a rule for an unknown one, which forgets the state whose loss repeats the fewest steps.
    #[must_use]
    pub fn new(machine: &Machine, steps: Option<usize>) -> Self {
        match steps {
            Some(steps) => Plan::best(machine, steps).into(),
            None => Self {
                stage: Stage::Sweep(Online::new(machine)),
                ahead: VecDeque::new(),
                given: 0,
            },
        }
    }

    /// Returns the next action, or `None` after the last one. `link_free` tells of the link down to each tier whether it is
    /// idle; only a sweep of unknown length asks for it.
    pub fn next_action(&mut self, link_free: &[bool]) -> Option<Action> {
        if let (true, Stage::Sweep(rule)) = (self.ahead.is_empty(), &mut self.stage) {
            self.ahead.extend(rule.step(link_free));
        }
        let action = self.ahead.pop_front()?;
        self.given += 1;
        Some(action)
    }

    /// Ends a sweep of unknown length at the step that the last action leads to, and plans the reversal on a machine as it
    /// was measured. Does nothing if the length is known.
    pub fn end(&mut self, machine: &Machine) {
        if let Stage::Sweep(rule) = &self.stage {
            let plan = rule.clone().end(machine);
            self.ahead = plan.actions().skip(self.given).collect();
            self.stage = Stage::Planned(Box::new(plan));
        }
    }

    /// Plans the reversal again when the sweep is over, as far as actions go, on the machine as the sweep measured it: its expected
    /// time is that of this machine then. A plan of given actions ([`Plan::of`]) keeps them.
    pub fn plan_again(&mut self, machine: &Machine) {
        if let Stage::Planned(plan) = &mut self.stage
            && self.ahead.front() == Some(&Action::EndForward)
        {
            **plan = plan.again(machine);
            self.ahead = plan.actions().skip(self.given).collect();
        }
    }

    /// The plan, as soon as the length of the sweep is known.
    #[must_use]
    pub fn plan(&self) -> Option<&Plan> {
        match &self.stage {
            Stage::Sweep(_) => None,
            Stage::Planned(plan) => Some(plan),
        }
    }

    /// Actions to come. Of a sweep of unknown length, those up to the next forward step at most.
    pub fn ahead(&self) -> impl ExactSizeIterator<Item = Action> + '_ {
        self.ahead.iter().copied()
    }

    /// Steps of the states that a sweep of unknown length has stored, in the order in which hints name their restores until it ends: those
    /// for the device first, then those for each tier below, and of each the newest first. So an engine that moves down the states that are
    /// read last moves those that the rule sent down. Empty as soon as the length is known.
    #[must_use]
    pub fn by_tier(&self) -> Vec<usize> {
        match &self.stage {
            Stage::Sweep(rule) => rule.by_tier(),
            Stage::Planned(_) => Vec::new(),
        }
    }

    /// Transfers that a sweep of unknown length has begun on the link down to each tier. As long as a link has ended fewer, it
    /// is not idle. Empty as soon as the length is known.
    #[must_use]
    pub fn moved(&self) -> Vec<usize> {
        match &self.stage {
            Stage::Sweep(rule) => rule.begun(),
            Stage::Planned(_) => Vec::new(),
        }
    }
}

impl From<Plan> for Schedule {
    fn from(plan: Plan) -> Self {
        Self {
            ahead: plan.actions().collect(),
            stage: Stage::Planned(Box::new(plan)),
            given: 0,
        }
    }
}

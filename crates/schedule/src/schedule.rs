use crate::action::Action;
use crate::machine::Machine;
use crate::online::Online;
use crate::plan::Plan;

/// The actions of one reversed computation, one after the other: those of a plan, or those of the online rule until the
/// length of the sweep is told.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// The rule of a sweep that goes on until [`Schedule::end`]. There is a plan in its place afterwards.
    sweep: Option<Online>,
    plan: Option<Plan>,
    /// Actions that were returned.
    given: usize,
}

impl Schedule {
    /// The schedule of [`Plan::best`] for a number of steps, or of a rule for an unknown one, which forgets the state whose loss repeats the fewest steps.
    #[must_use]
    pub fn new(machine: &Machine, steps: Option<usize>) -> Self {
        match steps {
            Some(steps) => Plan::best(machine, steps).into(),
            None => Self {
                sweep: Some(Online::new(machine)),
                plan: None,
                given: 0,
            },
        }
    }

    /// Returns the next action, or `None` after the last one. `link_free` tells of the link down to each tier whether it is
    /// idle; only a sweep of unknown length asks for it.
    pub fn next_action(&mut self, link_free: &[bool]) -> Option<Action> {
        let ahead = self.ahead().next();
        if let (None, Some(rule)) = (ahead, &mut self.sweep) {
            rule.step(link_free);
        }
        let action = self.ahead().next()?;
        self.given += 1;
        Some(action)
    }

    /// Ends a sweep of unknown length at the step that the last action leads to, and plans the reversal on a machine as it
    /// was measured. Does nothing if the length is known.
    pub fn end(&mut self, machine: &Machine) {
        if let Some(rule) = self.sweep.take() {
            self.plan = Some(rule.end(machine));
        }
    }

    /// Plans the reversal again when the sweep is over, as far as actions go, on the machine as the sweep measured it: its expected
    /// time is that of this machine then. A plan of given actions ([`Plan::of`]) keeps them.
    pub fn plan_again(&mut self, machine: &Machine) {
        if self.ahead().next() == Some(Action::EndForward) {
            self.plan = self.plan.as_ref().map(|plan| plan.again(machine));
        }
    }

    /// The plan, as soon as the length of the sweep is known.
    #[must_use]
    pub fn plan(&self) -> Option<&Plan> {
        self.plan.as_ref()
    }

    /// Actions to come. Of a sweep of unknown length, those up to the next forward step at most.
    pub fn ahead(&self) -> impl ExactSizeIterator<Item = Action> + '_ {
        let swept = self.sweep.as_ref().map(|rule| &rule.actions);
        let actions = self.plan.as_ref().map(|plan| &plan.actions).or(swept);
        let actions = actions.map(Vec::as_slice).unwrap_or_default();
        actions.iter().copied().skip(self.given)
    }

    /// Steps of the states that a sweep of unknown length has stored, in the order in which hints name their restores until it ends: those
    /// for the device first, then those for each tier below, and of each the newest first. So an engine that moves down the states that are
    /// read last moves those that the rule sent down. Empty as soon as the length is known.
    #[must_use]
    pub fn by_tier(&self) -> Vec<usize> {
        self.sweep.as_ref().map_or_else(Vec::new, Online::by_tier)
    }

    /// Transfers that a sweep of unknown length has begun on the link down to each tier. As long as a link has ended fewer, it
    /// is not idle. Empty as soon as the length is known.
    #[must_use]
    pub fn moved(&self) -> Vec<usize> {
        self.sweep.as_ref().map_or_else(Vec::new, Online::begun)
    }
}

impl From<Plan> for Schedule {
    fn from(plan: Plan) -> Self {
        Self {
            sweep: None,
            plan: Some(plan),
            given: 0,
        }
    }
}

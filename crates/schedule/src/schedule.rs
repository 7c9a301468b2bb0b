use crate::action::Action;
use crate::machine::Machine;
use crate::online::Online;
use crate::plan::Plan;

/// The actions of one reversed computation, one after the other: those of a plan, or those of the online rule until
/// [`end`](Self::end) tells the length of the sweep.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// The rule of a sweep of unknown length. [`Schedule::end`] replaces it by a plan.
    sweep: Option<Online>,
    plan: Option<Plan>,
    /// Actions that were returned.
    given: usize,
}

impl Schedule {
    /// Makes the schedule of [`Plan::best`] for a number of steps. For `None`, an online rule makes the sweep, which forgets the states
    /// whose loss repeats the fewest steps.
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

    /// Returns the next action, or `None` after the last one. `link_free` has true for each link down that is idle; only a sweep of
    /// unknown length reads it.
    pub fn next_action(&mut self, link_free: &[bool]) -> Option<Action> {
        let ahead = self.ahead().next();
        if let (None, Some(rule)) = (ahead, &mut self.sweep) {
            rule.step(link_free);
        }
        let action = self.ahead().next()?;
        self.given += 1;
        Some(action)
    }

    /// Ends a sweep of unknown length at the step that the last action leads to, and plans the reversal on the measured machine. Does
    /// nothing if the length is known.
    pub fn end(&mut self, machine: &Machine) {
        if let Some(rule) = self.sweep.take() {
            self.plan = Some(rule.end(machine));
        }
    }

    /// Plans the reversal again on the machine that the sweep measured, if the next action is the end of the sweep. The plan's
    /// expected time is then that on this machine. A plan of given actions ([`Plan::of`]) keeps its actions.
    pub fn plan_again(&mut self, machine: &Machine) {
        if self.ahead().next() == Some(Action::EndForward) {
            self.plan = self.plan.as_ref().map(|plan| plan.again(machine));
        }
    }

    /// Returns the plan; `None` until the length of the sweep is known.
    #[must_use]
    pub fn plan(&self) -> Option<&Plan> {
        self.plan.as_ref()
    }

    /// Returns the actions to come. In a sweep of unknown length, only those up to the next forward step are known.
    pub fn ahead(&self) -> impl ExactSizeIterator<Item = Action> + '_ {
        let swept = self.sweep.as_ref().map(|rule| &rule.actions);
        let actions = self.plan.as_ref().map(|plan| &plan.actions).or(swept);
        let actions = actions.map(Vec::as_slice).unwrap_or_default();
        actions.iter().copied().skip(self.given)
    }

    /// Returns the steps of the states that a sweep of unknown length has stored: those on the device first, then those on each tier
    /// below, and on each tier the newest first. Hints name the restores in this order until the sweep ends. An engine moves down the
    /// states that are read last, so it moves the states that the rule sent down. Empty once the length is known.
    #[must_use]
    pub fn by_tier(&self) -> Vec<usize> {
        self.sweep.as_ref().map_or_else(Vec::new, Online::by_tier)
    }

    /// Returns the number of transfers that a sweep of unknown length has begun on the link down to each tier. A link that has ended
    /// fewer is not idle. Empty once the length is known.
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

//! A guard around the application's policy: panics of the policy end no thread of the engine.

use crate::plan::evict::{self, Candidates, Window};
use crate::plan::{Policy, Residency, Standing, Usage};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

/// The message of a policy's first panic; empty before one.
pub(crate) type PolicyPanic = Arc<OnceLock<String>>;

/// A policy that asks the application's policy until it panics, and [`Residency`] after that. Callers and workers ask with the plan
/// locked.
#[derive(Debug)]
pub(crate) struct GuardedPolicy {
    policy: Box<dyn Policy>,
    /// The first answer of the policy, as the plan relies on an answer that does not change.
    follows_hints: bool,
    /// As `follows_hints`.
    predicts: bool,
    name: &'static str,
    panicked: PolicyPanic,
}

impl GuardedPolicy {
    pub(crate) fn new(policy: Box<dyn Policy>) -> (Self, PolicyPanic) {
        let panicked = PolicyPanic::default();
        let follows = caught(&panicked, || policy.follows_hints());
        let predicts = caught(&panicked, || policy.predicts());
        let name = caught(&panicked, || policy.name());
        let caught = Self {
            follows_hints: follows.unwrap_or_else(|| Residency.follows_hints()),
            predicts: predicts.unwrap_or_else(|| Residency.predicts()),
            name: name.unwrap_or_else(|| Residency.name()),
            policy,
            panicked: Arc::clone(&panicked),
        };
        (caught, panicked)
    }
}

impl Policy for GuardedPolicy {
    fn standing(&self, usage: &Usage) -> Standing {
        let asked = match self.panicked.get() {
            Some(_) => None,
            None => caught(&self.panicked, || self.policy.standing(usage)),
        };
        asked.unwrap_or_else(|| Residency.standing(usage))
    }

    fn follows_hints(&self) -> bool {
        self.follows_hints
    }

    fn predicts(&self) -> bool {
        self.predicts
    }

    fn windows(&self) -> Option<Box<dyn evict::Policy + Send>> {
        if self.panicked.get().is_some() {
            return Residency.windows();
        }
        let windows = caught(&self.panicked, || self.policy.windows()).flatten()?;
        let panicked = Arc::clone(&self.panicked);
        Some(Box::new(GuardedWindows { windows, panicked }))
    }

    fn name(&self) -> &'static str {
        self.name
    }
}

/// Chooses windows as the guarded policy does, until either panics. After that, [`evict::Score`] chooses.
#[derive(Debug)]
struct GuardedWindows {
    windows: Box<dyn evict::Policy + Send>,
    panicked: PolicyPanic,
}

impl evict::Policy for GuardedWindows {
    fn choose_victims(&mut self, candidates: &Candidates, size: u64) -> Option<Window> {
        if self.panicked.get().is_none()
            && let Some(chosen) = caught(&self.panicked, || {
                self.windows.choose_victims(candidates, size)
            })
        {
            return chosen;
        }
        evict::Score.choose_victims(candidates, size)
    }
}

/// Returns the answer of `ask`. After a panic, keeps the message and returns `None`.
fn caught<T>(panicked: &OnceLock<String>, ask: impl FnOnce() -> T) -> Option<T> {
    let payload = catch_unwind(AssertUnwindSafe(ask));
    payload
        .map_err(|payload| {
            let text = message(&*payload);
            // Dropping a panic's payload may panic again.
            std::mem::forget(payload);
            tracing::error!("the policy panicked, and is asked no more: {text}");
            panicked.get_or_init(|| text);
        })
        .ok()
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "without a message".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Lru;

    #[test]
    fn a_guarded_policy_answers_as_it_would_itself() {
        let guarded = |policy: Box<dyn Policy>| GuardedPolicy::new(policy).0;
        let own: [(Box<dyn Policy>, _, _); 2] = [
            (Box::new(Residency), (true, true), "residency"),
            (Box::new(Lru), (false, false), "lru"),
        ];
        for (policy, facts, name) in own {
            let guarded = guarded(policy);
            assert_eq!((guarded.follows_hints(), guarded.predicts()), facts);
            assert_eq!(guarded.name(), name);
        }
    }

    /// Notes that it was asked for windows.
    #[derive(Debug)]
    struct Asked(Arc<OnceLock<()>>);

    impl Policy for Asked {
        fn standing(&self, usage: &Usage) -> Standing {
            Residency.standing(usage)
        }

        fn windows(&self) -> Option<Box<dyn evict::Policy + Send>> {
            self.0.get_or_init(|| ());
            None
        }

        fn name(&self) -> &'static str {
            "asked"
        }
    }

    #[test]
    fn a_policy_that_panicked_is_not_asked_for_windows() {
        let asked = Arc::default();
        let (guarded, panicked) = GuardedPolicy::new(Box::new(Asked(Arc::clone(&asked))));
        panicked.set("once".to_owned()).unwrap();
        assert!(guarded.windows().is_none());
        assert!(asked.get().is_none());
    }
}

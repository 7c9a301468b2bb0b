//! A policy of the application's, whose panics end no thread of the engine's.

use crate::plan::evict::{self, Candidates, Window};
use crate::plan::{Policy, Residency, Standing, Usage};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

/// What a policy panicked with first, if it did.
pub(crate) type Panicked = Arc<OnceLock<String>>;

/// Asks a policy until it panics, and [`Residency`] from then on: the plan is locked while a policy is asked, and who asks may
/// be any caller or worker.
#[derive(Debug)]
pub(crate) struct Caught {
    policy: Box<dyn Policy>,
    /// What the policy said first: the plan takes it for granted.
    follows_hints: bool,
    name: &'static str,
    panicked: Panicked,
}

impl Caught {
    pub(crate) fn new(policy: Box<dyn Policy>) -> (Self, Panicked) {
        let panicked = Panicked::default();
        let follows = caught(&panicked, || policy.follows_hints());
        let name = caught(&panicked, || policy.name());
        let caught = Self {
            follows_hints: follows.unwrap_or_else(|| Residency.follows_hints()),
            name: name.unwrap_or_else(|| Residency.name()),
            policy,
            panicked: Arc::clone(&panicked),
        };
        (caught, panicked)
    }
}

impl Policy for Caught {
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

    fn windows(&self) -> Option<Box<dyn evict::Policy + Send>> {
        let windows = caught(&self.panicked, || self.policy.windows()).flatten()?;
        let panicked = Arc::clone(&self.panicked);
        Some(Box::new(CaughtWindows { windows, panicked }))
    }

    fn name(&self) -> &'static str {
        self.name
    }
}

/// What such a policy chooses windows by: until one of both panics, and [`evict::Score`] from then on.
#[derive(Debug)]
struct CaughtWindows {
    windows: Box<dyn evict::Policy + Send>,
    panicked: Panicked,
}

impl evict::Policy for CaughtWindows {
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

    fn name(&self) -> &'static str {
        // It is not reported: the policy's own is.
        "windows"
    }
}

/// What is returned, or nothing after a panic, which is noted.
fn caught<T>(panicked: &OnceLock<String>, ask: impl FnOnce() -> T) -> Option<T> {
    let payload = catch_unwind(AssertUnwindSafe(ask));
    payload
        .map_err(|payload| {
            let text = message(&*payload);
            // Dropping what a panic carried may panic once more.
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

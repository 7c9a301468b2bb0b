//! The plans of all GPUs in virtual time.

mod run;

use crate::client::Client;
use crate::hardware::Hardware;
use crate::outcome::Outcome;
use crate::recorder::Recorder;
use crate::workload::Workload;
use crate::{Error, Result};
use run::Run;
use tierflow_engine::Timeline;
use tierflow_engine::plan::{AfterRestore, Plan, PlanConfig, TierConfig};
use tierflow_evict::{Cost, Policy};

/// Makes the policy of one tier.
type MakePolicy = Box<dyn Fn() -> Box<dyn Policy + Send>>;

/// A machine and a policy, on which workloads can be run in virtual time.
///
/// Every GPU has a plan of its own and a cache of its own on every tier; what GPUs share is the bandwidth of links.
/// The same workloads give the same outcome, to the nanosecond.
pub struct Simulation {
    hardware: Hardware,
    policy: MakePolicy,
    checks: bool,
}

impl Simulation {
    /// A simulation with the engine's own policy, [`Cost`].
    #[must_use]
    pub fn new(hardware: Hardware) -> Self {
        Self {
            hardware,
            policy: Box::new(|| Box::new(Cost::default())),
            checks: false,
        }
    }

    /// The eviction policy of every tier.
    #[must_use]
    pub fn policy<P: Policy + Send + 'static>(mut self, make: impl Fn() -> P + 'static) -> Self {
        self.policy = Box::new(move || Box::new(make()));
        self
    }

    /// Checks the plan's invariants after every event, which makes everything many times slower.
    #[must_use]
    pub fn check_every_event(mut self) -> Self {
        self.checks = true;
        self
    }

    /// Runs one application on each GPU: workload `g` on GPU `g`, neighbours next to each other.
    ///
    /// # Errors
    /// [`Error::Hardware`] and [`Error::Workload`] if one of them makes no sense; [`Error::Refused`] and
    /// [`Error::Stalled`] if the tiers are too small; [`Error::Defect`] if the plan does what it must not.
    pub fn run(&self, workloads: &[Workload]) -> Result<Outcome> {
        self.run_recorded(workloads, None)
    }

    /// The same, with a time line in virtual ns: rows for each GPU's application, for what its transfers pass through,
    /// and for its evictions.
    ///
    /// # Errors
    /// As [`Simulation::run`].
    pub fn run_with_timeline(
        &self,
        workloads: &[Workload],
        timeline: &mut Timeline,
    ) -> Result<Outcome> {
        self.run_recorded(workloads, Some(timeline))
    }

    fn run_recorded(
        &self,
        workloads: &[Workload],
        timeline: Option<&mut Timeline>,
    ) -> Result<Outcome> {
        self.hardware.validate()?;
        let barriers = workloads.first().map_or(0, Workload::barriers);
        for (gpu, workload) in workloads.iter().enumerate() {
            workload.validate(gpu)?;
            if workload.barriers() != barriers {
                let reason = "it has not as many barriers as that of GPU 0".to_owned();
                return Err(Error::Workload { gpu, reason });
            }
        }
        let clients = workloads
            .iter()
            .map(|workload| Ok(Client::new(self.plan(workload.after_restore)?, workload)));
        let mut clients: Vec<_> = clients.collect::<Result<_>>()?;
        let names = self.hardware.tiers.iter().map(|tier| tier.name.clone());
        let recorder = timeline.map(|timeline| {
            let plans = clients.iter_mut().map(|client| &mut client.plan);
            plans.for_each(Plan::keep_evictions);
            Recorder::new(timeline, names)
        });
        Run::new(&self.hardware, clients, self.checks, recorder).run()
    }

    fn plan(&self, after_restore: AfterRestore) -> Result<Plan> {
        let tiers = self.hardware.tiers.iter().map(|tier| TierConfig {
            capacity: tier.table_capacity(),
            alignment: tier.alignment,
            policy: (self.policy)(),
            // The bandwidth that the first flush will be measured with decides; until then any guess serves.
            flush_bandwidth: 1_000_000_000,
            flush: tier.flush,
            flush_depth: tier.flush_depth,
            prefetch_depth: tier.prefetch_depth,
        });
        let config = PlanConfig {
            tiers: tiers.collect(),
            after_restore,
            differences: None,
        };
        Plan::new(config).map_err(|error| Error::Hardware(error.to_string()))
    }
}

impl std::fmt::Debug for Simulation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Simulation")
            .field("hardware", &self.hardware)
            .finish_non_exhaustive()
    }
}

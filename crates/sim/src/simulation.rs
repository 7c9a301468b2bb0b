//! A simulation: the plans of all GPUs in virtual time.

mod machine;
mod run;

use crate::client::Client;
use crate::hardware::Hardware;
use crate::outcome::Outcome;
use crate::recorder::Recorder;
use crate::workload::Workload;
use crate::{Error, Result};
use machine::Machine;
use run::Run;
use tierflow_plan::timeline::Timeline;
use tierflow_plan::{ExtentSize, Plan, PlanConfig, Policy, Residency, TierConfig, World};

/// Makes the policy of one plan.
type MakePolicy = Box<dyn Fn() -> Box<dyn Policy>>;

/// A machine and a policy, for running workloads in virtual time.
///
/// Every GPU has a plan of its own and a cache of its own on every tier; GPUs share only the bandwidth of links. The
/// same workloads give the same outcome, to the nanosecond.
pub struct Simulation {
    hardware: Hardware,
    policy: MakePolicy,
    extents: Option<ExtentSize>,
    checks: bool,
}

impl Simulation {
    /// Makes a simulation with the plan's default policy, [`Residency`], and its default sizes of extents.
    #[must_use]
    pub fn new(hardware: Hardware) -> Self {
        Self {
            hardware,
            policy: Box::new(|| Box::new(Residency)),
            extents: None,
            checks: false,
        }
    }

    /// Sets the policy of every plan.
    #[must_use]
    pub fn policy<P: Policy + 'static>(mut self, make: impl Fn() -> P + 'static) -> Self {
        self.policy = Box::new(move || Box::new(make()));
        self
    }

    /// Sets the sizes of extents.
    #[must_use]
    pub fn extents(mut self, extents: ExtentSize) -> Self {
        self.extents = Some(extents);
        self
    }

    /// Checks the plan's invariants after every event. The run then takes many times longer.
    #[must_use]
    pub fn check_every_event(mut self) -> Self {
        self.checks = true;
        self
    }

    /// Runs one application on each GPU: workload `g` on GPU `g`, neighbours next to each other.
    ///
    /// # Errors
    /// [`Error::Hardware`] and [`Error::Workload`] if one of them makes no sense; [`Error::Refused`] and
    /// [`Error::Stalled`] if the tiers are too small; [`Error::Defect`] if the plan breaks its rules.
    pub fn run(&self, workloads: &[Workload]) -> Result<Outcome> {
        self.run_recorded(workloads, None)
    }

    /// Runs as [`Simulation::run`] does, and writes a timeline in virtual ns. The timeline has rows for each GPU's application,
    /// for the links of its transfers, and for its evictions.
    ///
    /// # Errors
    /// The errors of [`Simulation::run`].
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
        let worlds = workloads.iter().map(|workload| self.world(workload));
        let mut worlds: Vec<_> = worlds.collect::<Result<_>>()?;
        let clients = workloads.iter().map(Client::new).collect();
        let names = self.hardware.tiers.iter().map(|tier| tier.name.clone());
        let recorder = timeline.map(|timeline| {
            let plans = worlds.iter_mut().map(World::plan_mut);
            plans.for_each(Plan::keep_evictions);
            Recorder::new(timeline, names)
        });
        let machine = Machine::new(&self.hardware, clients, recorder);
        Run::new(worlds, machine, self.checks).run()
    }

    fn world(&self, workload: &Workload) -> Result<World> {
        let tiers = self.hardware.tiers.iter().zip(&self.hardware.hops);
        let tiers = tiers.map(|(tier, hop)| TierConfig {
            capacity: tier.table_capacity(),
            alignment: tier.alignment,
            depth: tier.depth,
            small: tier.small,
            part: 0,
            eager: tier.eager,
            whole: false,
            from_above: false,
            shared: hop.is_shared(),
        });
        let mut config = PlanConfig {
            after_restore: workload.after_restore,
            policy: (self.policy)(),
            ..PlanConfig::new(tiers.collect())
        };
        config.extents = self.extents.unwrap_or(config.extents);
        World::new(config).map_err(|error| Error::Hardware(error.to_string()))
    }
}

impl std::fmt::Debug for Simulation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Simulation")
            .field("hardware", &self.hardware)
            .finish_non_exhaustive()
    }
}

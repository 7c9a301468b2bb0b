//! Adjoints of a heat equation, in real time, over an engine whose storage is throttled.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

#[path = "../examples/adjoints.rs"]
mod example;

use std::sync::Arc;
use std::time::Duration;
use tierflow_device::{Choice, open};
use tierflow_engine::{AfterRestore, Engine, Region, RegionMut, Tier};
use tierflow_schedule::adjoint::{Adjoint, RunTimes, StepTimes, measure, run};
use tierflow_schedule::{Estimate, Machine, Plan, Schedule};
use tierflow_store::{Scratch, Storage, Throttled};

const CELLS: usize = 1 << 15;
const BYTES: usize = CELLS * size_of::<f64>();

/// A heat equation whose conductivity grows with the temperature, and the gradient of half the sum of squares after the last
/// step. Each step takes a set time in addition to its computation.
struct Heat {
    now: Vec<u8>,
    adjoint: Vec<f64>,
    end: usize,
    step: Duration,
    /// The set time of a step of the reversal.
    reversal_step: Duration,
}

type Result<T> = std::result::Result<T, tierflow_engine::Error>;

impl Heat {
    fn new(end: usize, step: Duration) -> Self {
        let first = (0..CELLS).map(|cell| (cell as f64 / 7.0).sin());
        Self {
            now: first.flat_map(f64::to_le_bytes).collect(),
            adjoint: vec![0.0; CELLS],
            end,
            step,
            reversal_step: step,
        }
    }

    fn field(&self) -> Vec<f64> {
        let values = self.now.chunks_exact(8);
        values
            .map(|value| f64::from_le_bytes(value.try_into().unwrap()))
            .collect()
    }
}

impl Adjoint for Heat {
    type Error = tierflow_engine::Error;

    fn advance(&mut self, _step: usize) -> Result<()> {
        std::thread::sleep(self.step);
        let field = self.field();
        let at = |cell: usize| field[cell % CELLS];
        let next = (0..CELLS).map(|cell| {
            let flow = at(cell + 1) - 2.0 * at(cell) + at(cell + CELLS - 1);
            at(cell) + 0.1 * (1.0 + 0.1 * at(cell)) * flow
        });
        self.now = next.flat_map(f64::to_le_bytes).collect();
        Ok(())
    }

    fn is_over(&mut self, step: usize) -> bool {
        step == self.end
    }

    fn end_forward(&mut self) -> Result<()> {
        self.adjoint = self.field();
        self.step = self.reversal_step;
        Ok(())
    }

    fn reverse(&mut self, _step: usize) -> Result<()> {
        std::thread::sleep(self.step);
        let field = self.field();
        let mut before = self.adjoint.clone();
        for cell in 0..CELLS {
            let (left, right) = ((cell + CELLS - 1) % CELLS, (cell + 1) % CELLS);
            let flow = field[right] - 2.0 * field[cell] + field[left];
            let by = 0.1 * (1.0 + 0.1 * field[cell]) * self.adjoint[cell];
            before[right] += by;
            before[left] += by;
            before[cell] += 0.01 * flow * self.adjoint[cell] - 2.0 * by;
        }
        self.adjoint = before;
        Ok(())
    }

    fn state(&self) -> Vec<Region<'_>> {
        vec![Region::from(&self.now[..])]
    }

    fn state_mut(&mut self) -> Vec<RegionMut<'_>> {
        vec![RegionMut::from(&mut self.now[..])]
    }
}

/// Storage whose writes and reads have a link each.
#[derive(Debug)]
struct Duplex {
    down: Throttled<Shared>,
    up: Throttled<Shared>,
}

impl Storage for Duplex {
    fn alignment(&self) -> usize {
        self.down.alignment()
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> tierflow_store::Result<()> {
        self.down.write_at(offset, bytes)
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> tierflow_store::Result<()> {
        self.up.read_at(offset, bytes)
    }
}

#[derive(Debug)]
struct Shared(Arc<Scratch>);

impl Storage for Shared {
    fn alignment(&self) -> usize {
        self.0.alignment()
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> tierflow_store::Result<()> {
        self.0.write_at(offset, bytes)
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> tierflow_store::Result<()> {
        self.0.read_at(offset, bytes)
    }
}

/// Returns an engine whose storage takes `transfer` for a state, each way. The caches hold `device` and `host` states.
fn engine(device: usize, host: usize, transfer: Duration) -> Engine {
    let rate = BYTES as f64 / transfer.as_secs_f64();
    let storage = Arc::new(Scratch::open(&std::env::temp_dir()).unwrap());
    let way = || Throttled::new(Shared(storage.clone()), rate as u64);
    let storage = Duplex {
        down: way(),
        up: way(),
    };
    Engine::builder(&open(Choice::Host).unwrap())
        .device_cache(device * BYTES)
        .host_cache(host * BYTES)
        .tier(Tier::storage(Arc::new(storage)))
        .build()
        .unwrap()
}

/// Measures the machine of an engine.
fn measured(engine: &Engine, step: Duration) -> Machine {
    measure(engine, &mut Heat::new(0, step), 8).unwrap().machine
}

/// Runs an adjoint on a machine without measurements of earlier runs.
fn run_on<A: Adjoint>(
    engine: &Engine,
    machine: &Machine,
    schedule: &mut Schedule,
    computation: &mut A,
) -> std::result::Result<RunTimes, A::Error> {
    run(engine, &mut machine.clone().into(), schedule, computation)
}

/// Every schedule gives the same gradient. The book has the times that this test prints with `TIERFLOW_SCHEDULE_LONG` on a machine with two
/// idle cores.
#[test]
fn every_schedule_has_the_gradient_of_stored_states() {
    let is_long = std::env::var_os("TIERFLOW_SCHEDULE_LONG").is_some();
    let (steps, step) = if is_long { (200, 8) } else { (60, 0) };
    let step = Duration::from_millis(step);
    let transfer = Duration::from_millis(if is_long { 24 } else { 2 });
    let mut truth = Heat::new(steps, Duration::ZERO);
    let mut states = Vec::new();
    for at in 0..steps {
        states.push(truth.now.clone());
        truth.advance(at).unwrap();
    }
    truth.end_forward().unwrap();
    for at in (0..steps).rev() {
        truth.now.clone_from(&states[at]);
        truth.reverse(at).unwrap();
    }
    let engine = engine(8, 16, transfer);
    let machine = measured(&engine, step);
    let slots_alone = Machine {
        tiers: Vec::new(),
        ..machine.clone()
    };
    let plans = [
        ("store all", Some(Plan::every(&machine, steps, 1))),
        ("every 6th", Some(Plan::every(&machine, steps, 6))),
        ("Revolve", Some(Plan::best(&slots_alone, steps))),
        ("H-Revolve", Plan::blocking(&machine, steps)),
        ("Tiered", Some(Plan::best(&machine, steps))),
        ("online", None),
    ];
    println!("{machine:?}");
    for (name, plan) in plans {
        let mut schedule = plan.map_or_else(|| Schedule::new(&machine, None), Schedule::from);
        let expected = schedule.plan().and_then(Plan::expected);
        let mut heat = Heat::new(steps, step);
        let times = run_on(&engine, &machine, &mut schedule, &mut heat).unwrap();
        let bound = times.machine.bound(steps).time;
        let of = |expected: Option<Duration>| {
            let took = times.total.as_secs_f64();
            expected.map_or(f64::NAN, |expected| took / expected.as_secs_f64())
        };
        println!(
            "{name:<10} took {:.3?}: {:.3} of the expected time, {:.3} of that at the end of the sweep, {:.3} of the bound; {} steps forward {:.3?}, reversed {:.3?}, blocked {:.3?}",
            times.total,
            of(expected),
            of(times.expected),
            of(Some(bound)),
            times.advanced,
            times.forward,
            times.backward,
            times.blocked
        );
        assert_eq!(times.reversed, steps);
        assert!(times.stored > 0 && times.stored % BYTES as u64 == 0);
        // The bound follows from the run's own times, so the run does not beat it.
        let computed = times.forward.div_f64(times.advanced as f64) * steps as u32 + times.backward;
        assert!(bound >= computed.mul_f64(0.999));
        assert!(times.expected.is_some());
        assert!(heat.adjoint == truth.adjoint, "{name} has another gradient");
        assert!(engine.versions().is_empty(), "{name} leaves states");
    }
}

#[test]
fn a_measured_machine_has_the_rooms_and_rates_of_the_engine() {
    let transfer = Duration::from_millis(5);
    let engine = engine(4, 6, transfer);
    let machine = measured(&engine, Duration::ZERO);
    let rooms: Vec<u64> = machine
        .tiers
        .iter()
        .map(|tier| tier.room / BYTES as u64)
        .collect();
    assert_eq!((machine.device, rooms[0]), (4 * BYTES as u64, 6));
    // Storage is at most as fast as its throttle.
    let most = BYTES as f64 / transfer.as_secs_f64();
    let [host, storage] = machine.tiers[..] else {
        panic!("{machine:?}");
    };
    assert!(storage.down <= most && storage.down > 0.0 && storage.up == storage.down);
    assert!(host.down > storage.down && host.down.is_finite() && machine.copy.is_finite());
    assert!(engine.versions().is_empty());
}

/// A file that was never read before, so its first reads are slow.
#[derive(Debug)]
struct Cold(Scratch);

impl Storage for Cold {
    fn alignment(&self) -> usize {
        self.0.alignment()
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> tierflow_store::Result<()> {
        self.0.write_at(offset, bytes)
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> tierflow_store::Result<()> {
        std::thread::sleep(Duration::from_millis(50));
        self.0.read_at(offset, bytes)
    }
}

#[test]
fn a_few_slow_reads_do_not_tell_how_fast_a_link_is() {
    let storage = Cold(Scratch::open(&std::env::temp_dir()).unwrap());
    let engine = Engine::builder(&open(Choice::Host).unwrap())
        .device_cache(4 * BYTES)
        .host_cache(6 * BYTES)
        .tier(Tier::storage(Arc::new(storage)))
        .build()
        .unwrap();
    let state = vec![0_u8; BYTES];
    for version in 0..40 {
        engine
            .checkpoint(version, &[Region::from(&state[..])])
            .unwrap();
    }
    engine.wait().unwrap();
    engine.hint([0, 1]);
    engine.hints().prefetch_start();
    let is_read = || engine.metrics().hops.iter().any(|hop| hop.from == "file");
    while !is_read() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let steps = StepTimes {
        forward: Duration::from_millis(1),
        backward: Duration::from_millis(1),
        state: BYTES as u64,
    };
    let machine = Machine::measured(&engine.metrics(), steps);
    let [_, storage] = machine.tiers[..] else {
        panic!("{machine:?}");
    };
    assert_eq!(storage.up, storage.down, "{:?}", engine.metrics().hops);
}

/// A computation that fails at a step.
struct Failing(Heat, usize);

impl Adjoint for Failing {
    type Error = tierflow_engine::Error;

    fn advance(&mut self, step: usize) -> Result<()> {
        self.0.advance(step)
    }

    fn reverse(&mut self, step: usize) -> Result<()> {
        if step == self.1 {
            return Err(tierflow_engine::Error::Unknown { version: 7 });
        }
        self.0.reverse(step)
    }

    fn state(&self) -> Vec<Region<'_>> {
        self.0.state()
    }

    fn state_mut(&mut self) -> Vec<RegionMut<'_>> {
        self.0.state_mut()
    }
}

#[test]
fn an_engine_that_discards_what_was_restored_is_refused_before_the_first_step() {
    let engine = Engine::builder(&open(Choice::Host).unwrap())
        .host_cache(64 * BYTES)
        .after_restore(AfterRestore::Discard)
        .build()
        .unwrap();
    assert_eq!(engine.after_restore(), AfterRestore::Discard);
    let machine = measured(&engine, Duration::ZERO);
    let mut heat = Heat::new(20, Duration::ZERO);
    let first = heat.now.clone();
    let mut schedule = Schedule::from(Plan::every(&machine, 20, 6));
    let refused = run_on(&engine, &machine, &mut schedule, &mut heat).unwrap_err();
    assert!(
        matches!(refused, tierflow_engine::Error::DiscardsRestored),
        "{refused}"
    );
    assert_eq!(heat.now, first);
}

#[test]
fn a_second_run_expects_steps_to_take_as_long_again_as_in_the_first() {
    let engine = engine(4, 4, Duration::from_millis(1));
    let machine = measured(&engine, Duration::from_millis(2));
    let mut estimate = Estimate::from(machine.clone());
    for is_second in [false, true] {
        let mut heat = Heat::new(20, Duration::from_millis(2));
        heat.reversal_step = Duration::from_millis(12);
        let mut schedule = Schedule::from(Plan::every(&machine, 20, 5));
        let times = run(&engine, &mut estimate, &mut schedule, &mut heat).unwrap();
        let least = 20 * Duration::from_millis(2 + 12);
        let again = Duration::from_millis(12).mul_f64((times.advanced - 20) as f64);
        let expected = times.expected.unwrap();
        assert!(
            !is_second || expected > least + again / 2,
            "{expected:?} for {} steps forward",
            times.advanced
        );
    }
}

#[test]
fn discards_of_the_reversal_are_expected_to_take_their_time() {
    let engine = engine(4, 4, Duration::from_millis(1));
    let trial = measure(&engine, &mut Heat::new(0, Duration::ZERO), 8);
    let mut estimate = trial.unwrap();
    assert!(!estimate.discard.is_zero());
    estimate.discard = Duration::from_secs(1_000);
    let mut schedule = Schedule::from(Plan::every(&estimate.machine, 20, 5));
    let mut heat = Heat::new(20, Duration::ZERO);
    let times = run(&engine, &mut estimate, &mut schedule, &mut heat).unwrap();
    // Each stored state is discarded once.
    let states = times.stored / BYTES as u64;
    assert_eq!(times.expected.unwrap().as_secs() / 1_000, states);
    assert!(!estimate.discard.is_zero() && estimate.discard < Duration::from_secs(1_000));
}

#[test]
fn the_gradients_of_a_wave_of_heat_and_of_lorenz_are_right() {
    example::main().unwrap();
}

#[test]
fn an_error_ends_the_run_and_leaves_no_state() {
    let engine = engine(4, 6, Duration::from_millis(1));
    let machine = measured(&engine, Duration::ZERO);
    let mut failing = Failing(Heat::new(40, Duration::ZERO), 20);
    let mut schedule = Schedule::new(&machine, Some(40));
    let ended = run_on(&engine, &machine, &mut schedule, &mut failing);
    assert!(matches!(
        ended,
        Err(tierflow_engine::Error::Unknown { version: 7 })
    ));
    assert!(engine.versions().is_empty());
}

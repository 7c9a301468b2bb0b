//! A skewed group checkpoint with real bytes: predicted and measured blocking, in one process and between processes, with a check of
//! every byte (SC'22 showcase, slides 14 to 21).
//!
//! The experiment runs on the GPUs of the machine if there are two or more, else on devices of plain memory, which share one memory bus.
//! There it shows that every byte arrives, but no rates.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tierflow_device::{Choice, Device, Kind, host, open};
use tierflow_peers::{Effort, Machine, calibrate};
use tierflow_placement::{Greedy, LocalOnly, MinTimeMaxFlow, Strategy};

use super::Run;

mod checkpoint;
mod engine;
mod lender;
mod processes;

pub(super) use lender::LenderWork;

/// The most GPUs that take part.
const MOST: usize = 4;
/// Time after which the process ends, with a message about its last step.
const WHOLE: Duration = Duration::from_secs(110);
/// The longest time of a single wait.
const PATIENCE: Duration = Duration::from_secs(15);
/// The goal for blocking: the blocking of local-only divided by it.
const LESS: f64 = 3.0;

pub(crate) fn run(run: &mut Run) -> Result<()> {
    let clock = Clock::start();
    clock.stage("opening the devices");
    let devices = devices()?;
    let is_gpu = devices[0].info().kind == Kind::Cuda;
    for device in &devices {
        let info = device.info();
        let (bus, node) = (device.bus_id(), device.numa_node());
        eprintln!(
            "  device {}: {}, {bus:?}, node {node:?}",
            info.ordinal, info.name
        );
    }
    let kind = if is_gpu { "GPUs" } else { "host memory" };
    let group = format!("devices={} {kind}", devices.len());

    clock.stage("calibrating");
    let began = Instant::now();
    let machine = calibrate(&devices, effort(is_gpu))?;
    run.time(&group, "calibration", began.elapsed())?;
    let machine = through_its_file(&machine, &devices)?;
    links(run, &group, &machine)?;
    let topology = machine.topology()?;
    eprintln!("{topology:#?}");

    clock.stage("filling the checkpoints");
    let unit = match (is_gpu, run.is_quick()) {
        (true, false) => 1 << 30,
        (true, true) => 512 << 20,
        (false, _) => 8 << 20,
    };
    let group = checkpoint::Group::new(group, &devices, unit)?;
    let problem = group.problem(&topology)?;
    let strategies: [Box<dyn Strategy>; 3] = [
        Box::new(LocalOnly),
        Box::new(Greedy),
        Box::new(MinTimeMaxFlow::default()),
    ];
    let mut local_only = None;
    for mut strategy in strategies {
        let name = strategy.name();
        clock.stage(name);
        let schedule = strategy.schedule(&problem)?;
        let blocking = group.measure(run, name, &schedule)?;
        let local = *local_only.get_or_insert(blocking);
        let row = run.value(
            &group.case(name),
            "local-only over this",
            "1",
            local / blocking,
        )?;
        if name == "min-time-max-flow" && is_gpu {
            row.against(LESS);
        }
    }

    clock.stage("between processes");
    let schedule = MinTimeMaxFlow::default().schedule(&problem)?;
    processes::measure(run, &clock, &group, &schedule)?;
    clock.stage("from engines");
    engine::measure(run, &devices)?;
    clock.stage("done");
    Ok(())
}

/// Opens up to four GPUs at the same time, or devices of plain memory if there are fewer than two GPUs.
fn devices() -> Result<Vec<Device>> {
    let first = open(Choice::Auto)?;
    if first.info().kind == Kind::Cuda {
        let others: Vec<_> = std::thread::scope(|scope| {
            let opening: Vec<_> = (1..MOST)
                .map(|ordinal| scope.spawn(move || open(Choice::Cuda { ordinal })))
                .collect();
            opening.into_iter().map(|thread| thread.join()).collect()
        });
        let mut devices = vec![first];
        for other in others {
            match other.ok().context("a thread that opened a GPU died")? {
                Ok(device) => devices.push(device),
                Err(error) => eprintln!("  {error}"),
            }
        }
        if devices.len() > 1 {
            return Ok(devices);
        }
        eprintln!("  one GPU has no peer: devices of plain memory take part instead");
    }
    let options = host::Options::default().device_bytes(1 << 30);
    let device = |ordinal| host::open(options.clone().ordinal(ordinal));
    Ok((0..MOST).map(device).collect::<Result<_, _>>()?)
}

fn effort(is_gpu: bool) -> Effort {
    if is_gpu {
        Effort::default()
    } else {
        Effort::default().bytes(4 << 20).trials(2)
    }
}

/// Writes the machine to a file, and returns the machine that is read from there.
fn through_its_file(machine: &Machine, devices: &[Device]) -> Result<Machine> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("machine.toml");
    machine.save(&path)?;
    eprintln!("{}", std::fs::read_to_string(&path)?);
    let loaded = Machine::load(&path)?;
    ensure!(loaded == *machine, "the file holds another machine");
    loaded.fits(devices)?;
    Ok(loaded)
}

fn links(run: &mut Run, group: &str, machine: &Machine) -> Result<()> {
    for link in machine.links() {
        let case = format!("{group}, from={}, to={}", link.from, link.to);
        run.value(&case, "bandwidth", "bytes/s", link.bandwidth)?;
    }
    for (at, gpu) in machine.gpus().iter().enumerate() {
        let case = format!("{group}, from={at}");
        run.value(&case, "to the host", "bytes/s", gpu.to_host)?;
        let together = [
            ("to all peers", gpu.to_peers),
            ("from all peers", gpu.from_peers),
            ("to all peers and the host", gpu.to_all),
        ];
        for (metric, bandwidth) in together {
            if let Some(bandwidth) = bandwidth {
                run.value(&case, metric, "bytes/s", bandwidth)?;
            }
        }
    }
    run.value(group, "all to the host", "bytes/s", machine.to_host())?;
    Ok(())
}

/// The experiment's current step. If the experiment takes too long, the process ends, as the machine may be lent for minutes only.
#[derive(Debug)]
struct Clock {
    began: Instant,
    stage: std::sync::Arc<Mutex<String>>,
}

impl Clock {
    fn start() -> Self {
        let clock = Self {
            began: Instant::now(),
            stage: std::sync::Arc::default(),
        };
        let stage = std::sync::Arc::clone(&clock.stage);
        std::thread::spawn(move || {
            std::thread::sleep(WHOLE);
            let stage = stage.lock().map(|stage| stage.clone()).unwrap_or_default();
            eprintln!("not done after {WHOLE:?}, while {stage}: the process ends");
            std::process::exit(124);
        });
        clock
    }

    fn stage(&self, stage: &str) {
        eprintln!("[{:7.3} s] {stage}", self.began.elapsed().as_secs_f64());
        if let Ok(mut current) = self.stage.lock() {
            stage.clone_into(&mut current);
        }
    }
}

//! A process is told to end at random moments, and the next one continues, until the work is done. The result is the same.

#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;
use tierflow_device::{Choice, open};
use tierflow_engine::{Engine, Notice, Region, RegionMut};

const STEPS: u64 = 40;
const SIZE: usize = 1 << 20;

/// The work of one step.
fn advance(state: &mut [u8]) {
    let before = state.last().copied().unwrap_or(0);
    state.iter_mut().fold(before, |before, byte| {
        *byte = byte.wrapping_mul(5).wrapping_add(before).wrapping_add(1);
        *byte
    });
}

/// The job, in a process of its own. Does nothing without a directory, as in an ordinary run of all tests.
#[test]
fn job() {
    let Some(directory) = std::env::var_os("TIERFLOW_PREEMPTED") else {
        return;
    };
    let signal = rustix::process::Signal::TERM.as_raw();
    let notice = Notice::on_signals(&[signal], Duration::from_secs(60)).unwrap();
    let engine = Engine::builder(&open(Choice::Host).unwrap())
        .host_cache(64 << 20)
        .external(directory)
        .build()
        .unwrap();
    let mut state = vec![0_u8; SIZE];
    let mut next = 0;
    if let Some(version) = engine.latest(None) {
        let mut regions = [RegionMut::from(state.as_mut_slice())];
        engine.restore(version, &mut regions).unwrap();
        next = version + 1;
    }
    for step in next..STEPS {
        println!("step {step}");
        advance(&mut state);
        engine
            .checkpoint(step, &[Region::from(state.as_slice())])
            .unwrap();
        if let Some(deadline) = notice.deadline() {
            let suspension = engine.suspend(None, deadline).unwrap();
            let version = suspension.version();
            assert!(suspension.wait().unwrap());
            println!("gone {}", version.unwrap());
            return;
        }
    }
    engine.close().unwrap();
    println!("done {:?}", &state[SIZE - 8..]);
}

#[test]
fn a_job_that_is_told_to_go_goes_on_elsewhere() {
    let directory = tempfile::tempdir().unwrap();
    let mut word = 0x2545_f491_4f6c_dd1d_u64;
    let mut gone: Option<u64> = None;
    let end = loop {
        let mut job = Command::new(std::env::current_exe().unwrap())
            .args(["job", "--exact", "--nocapture"])
            .env("TIERFLOW_PREEMPTED", directory.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let pid = rustix::process::Pid::from_child(&job);
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        let after = 1 + word % 12;
        let lines = BufReader::new(job.stdout.take().unwrap()).lines();
        let (mut steps, mut end) = (0, None);
        for line in lines.map(Result::unwrap) {
            if let Some(at) = line.find("step ") {
                let step: u64 = line[at + 5..].parse().unwrap();
                // The application continues behind the promised version.
                if steps == 0 {
                    assert_eq!(step, gone.map_or(0, |version| version + 1));
                }
                steps += 1;
                if steps == after {
                    let _gone_already =
                        rustix::process::kill_process(pid, rustix::process::Signal::TERM);
                }
            } else if let Some(version) = line.strip_prefix("gone ") {
                gone = Some(version.parse().unwrap());
            } else if let Some(state) = line.strip_prefix("done ") {
                end = Some(state.to_owned());
            }
        }
        let status: ExitStatus = job.wait().unwrap();
        assert!(status.success());
        if let Some(end) = end {
            break end;
        }
    };
    let mut state = vec![0_u8; SIZE];
    (0..STEPS).for_each(|_| advance(&mut state));
    assert_eq!(end, format!("{:?}", &state[SIZE - 8..]));
}

//! Plans played on the engine's plan, in the virtual time of the simulator, beside what their replays expect.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashMap;
use std::time::Duration;
use tierflow_schedule::{Action, Machine, Plan, Tier};
use tierflow_plan::AfterRestore;
use tierflow_sim::{self as sim, Hardware, Hop, Link, Op, Simulation, Workload};

/// The calls of a plan. At the end of the sweep all restores are hinted, in their order.
fn workload(plan: &Plan, machine: &Machine) -> Workload {
    let nanos = |time: Duration, steps: usize| time.as_nanos() as u64 * steps as u64;
    let (mut ops, mut versions, mut hints, mut next) = (Vec::new(), HashMap::new(), Vec::new(), 0);
    let mut end = 0;
    for action in plan.actions() {
        match action {
            Action::Forward { from, to } => ops.push(Op::Compute(nanos(machine.forward, to - from))),
            Action::Reverse { .. } => ops.push(Op::Compute(nanos(machine.backward, 1))),
            Action::Save { step, .. } => {
                versions.insert(step, next);
                ops.push(Op::Checkpoint { version: next, bytes: machine.state });
                next += 1;
            }
            Action::EndForward => end = ops.len(),
            Action::Restart { step } => {
                hints.push(versions[&step]);
                ops.push(Op::Restore(versions[&step]));
            }
            Action::Forget { step } => ops.push(Op::Drop(versions.remove(&step).unwrap())),
        }
    }
    if std::env::var_os("REHINT").is_some() {
        let pre = std::env::var("REHINT").unwrap() == "pre";
        let swept = ops[..end].iter().filter(|op| matches!(op, Op::Checkpoint{..})).count() as u64;
        let mut gaps = vec![(Vec::new(), Vec::new(), false)];
        for op in &ops[end..] {
            let last = gaps.last_mut().unwrap();
            last.1.push(op.clone());
            if let Op::Restore(v) = op { last.0.push(*v); }
            if let Op::Checkpoint { .. } = op { last.2 = true; }
            if matches!(op, Op::Drop(v) if *v < swept) { gaps.push((Vec::new(), Vec::new(), false)); }
        }
        let old = |gaps: &[(Vec<u64>, Vec<Op>, bool)]| -> Vec<u64> { gaps.iter().flat_map(|g| g.0.iter().copied().filter(|v| *v < swept)).collect() };
        let mut out = Vec::new();
        if pre { out.push(Op::Hint(old(&gaps))); }
        out.extend(ops[..end].iter().cloned());
        let mut n = 0;
        if !pre { out.push(Op::Hint(old(&gaps))); }
        for at in 0..gaps.len() {
            if gaps[at].2 {
                let rest = old(&gaps[at..]);
                n += rest.len();
                out.push(Op::ForgetHints(rest));
                out.push(Op::Hint(gaps[at].0.clone()));
                out.push(Op::Hint(old(&gaps[at + 1..])));
            }
            if at == 0 { out.push(Op::PrefetchStart); }
            out.extend(gaps[at].1.iter().cloned());
        }
        println!("rehinted {n}");
        ops = out;
    } else if std::env::var_os("GAPS").is_some() {
        let swept = ops[..end].iter().filter(|op| matches!(op, Op::Checkpoint{..})).count() as u64;
        let ahead: u64 = std::env::var("GAPS").unwrap().parse().unwrap();
        let mut out = ops[..end].to_vec();
        out.push(Op::PrefetchStart);
        // gaps: hints of each gap's restores, at its beginning; `ahead` gaps are hinted ahead.
        let mut gaps = vec![(Vec::new(), Vec::new())];
        for op in &ops[end..] {
            let last = gaps.last_mut().unwrap();
            last.1.push(op.clone());
            if let Op::Restore(v) = op { last.0.push(*v); }
            if matches!(op, Op::Drop(v) if *v < swept) { gaps.push((Vec::new(), Vec::new())); }
        }
        for (at, (_, ops)) in gaps.iter().enumerate() {
            let range = if at == 0 { 0..(ahead as usize).min(gaps.len()) } else { (at + ahead as usize - 1).min(gaps.len())..(at + ahead as usize).min(gaps.len()) };
            for g in range { if !gaps[g].0.is_empty() { out.push(Op::Hint(gaps[g].0.clone())); } }
            out.extend(ops.iter().cloned());
        }
        ops = out;
    } else if std::env::var_os("NOHINT").is_some() {
        ops.splice(end..end, [Op::PrefetchStart]);
    } else {
        ops.splice(end..end, [Op::Hint(hints), Op::PrefetchStart]);
    }
    Workload { ops, after_restore: AfterRestore::Keep }
}

fn hardware(machine: &Machine) -> Hardware {
    let mut hardware = Hardware::new().tier(
        sim::Tier::new("device", machine.device),
        Hop::over(Link::own(machine.copy as u64), 0),
    );
    for tier in &machine.tiers {
        let link = Link { up: tier.up as u64, ..Link::own(tier.down as u64) };
        hardware = hardware.tier(sim::Tier::new("below", tier.room), Hop::over(link, 0));
    }
    hardware
}

fn rtm(forward: u64, backward: u64, device: f64, host: f64, disk: f64) -> Machine {
    let tier = |room: f64, rate: f64| Tier { room: room as u64, down: rate, up: rate };
    Machine {
        forward: Duration::from_micros(forward),
        backward: Duration::from_micros(backward),
        state: 128 << 20,
        device: device as u64,
        tiers: vec![tier(host, 54e9), tier(1e15, disk)],
        copy: 1.4e12,
        codec: None,
    }
}

#[test]
fn plans_take_on_the_engines_plan_what_they_are_expected_to_take() {
    for (name, machine, steps) in [
        ("every step", rtm(270, 450, 10e9, 16e9, 2e9), 3000),
        ("every 10th", rtm(2700, 1800, 10e9, 16e9, 2e9), 300),
        ("64 GB, 2 GB/s", rtm(2000, 2500, 10e9, 64e9, 2e9), 3000),
        ("256 GB, 12 GB/s", rtm(2000, 2500, 10e9, 256e9, 12e9), 3000),
    ] {
        let alone = Machine { tiers: Vec::new(), ..machine.clone() };
        let always = Plan::best(&alone, steps).actions().collect();
        for (which, plan) in [
            ("auto", Plan::best(&machine, steps)),
            ("always", Plan::of(&machine, steps, always)),
        ] {
            let outcome = Simulation::new(hardware(&machine))
                .run(&[workload(&plan, &machine)])
                .unwrap();
            let client = &outcome.clients[0];
            let took = client.elapsed_ns as f64 / 1e9;
            let expected = plan.expected().unwrap().as_secs_f64();
            println!(
                "{name}, {which}: bound {:.4}, expected {expected:.4}, played {took:.4} ({:.3}); {:?}",
                plan.bound().time.as_secs_f64(),
                took / expected,
                client.stalls
            );
            for hop in &client.statistics.hops { println!("   {:?}->{:?} {} of {} states, {} busy {:.3}", hop.from, hop.to, hop.transfers, hop.bytes as f64/machine.state as f64, hop.cancelled, hop.busy_ns as f64/1e9); }
        }
    }
}

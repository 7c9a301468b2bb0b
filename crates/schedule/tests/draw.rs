use std::time::Duration;
use tierflow_schedule::{Machine, Plan, Tier};

struct Dice(u64);
impl Dice {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
    fn log(&mut self, low: f64, high: f64) -> f64 {
        low * (high / low).powf(self.next())
    }
}

fn draw(dice: &mut Dice, least: f64) -> (Machine, usize) {
    let steps = dice.log(60.0, 300.0) as usize;
    let slots = dice.log(least, (steps as f64 / 3.0).max(least)) as u64;
    let forward = 1e-3;
    let state = 1_000_000u64;
    let harsh = std::env::var("HARSH").is_ok();
    let least = if harsh { 1.0 } else { slots as f64 };
    let host = if dice.next() < 0.15 { 0 } else { dice.log(least, steps as f64) as u64 };
    let least = if harsh { 1.0 } else { host.max(slots) as f64 };
    let disk = if dice.next() < 0.15 { 0 } else if dice.next() < 0.5 { u64::MAX / state } else { dice.log(least, steps as f64) as u64 };
    let mut tier = |low, high, room: u64| {
        let down = dice.log(low, high) * forward;
        let up = down * dice.log(0.5, 2.0);
        Tier { room: room.saturating_mul(state), down: state as f64 / down, up: state as f64 / up }
    };
    let tiers = vec![tier(0.2, 20.0, host), tier(1.0, 100.0, disk)];
    let machine = Machine {
        forward: Duration::from_secs_f64(forward),
        backward: Duration::from_secs_f64(forward * (1.0 + 2.0 * dice.next())),
        state,
        device: slots * state,
        tiers,
        copy: f64::INFINITY,
        codec: None,
    };
    (machine, steps)
}

#[test]
fn over_the_bound() {
    for least in [8.0, 2.0] {
        let mut ratios = Vec::new();
        let mut dice = Dice(std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1));
        let mut hr: f64 = 0.0;
        let mut hrr = Vec::new();
        for _ in 0..std::env::var("MACHINES").ok().and_then(|s| s.parse().ok()).unwrap_or(100) {
            let (machine, steps) = draw(&mut dice, least);
            let plan = Plan::best(&machine, steps);
            let bound = plan.bound().time.as_secs_f64();
            let time = plan.expected().unwrap().as_secs_f64();
            assert!(time >= bound * 0.999999, "{time} {bound}");
            let blocking = machine.blocking(steps).unwrap().as_secs_f64();
            hr = hr.max(time / blocking);
            hrr.push(blocking / bound);
            ratios.push((time / bound, blocking / bound, machine, steps));
        }
        ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
        let n = ratios.len();
        println!("c0>={least}: mean {:.4} 90% {:.4} worst {:.4}; hrevolve mean {:.3}; most over hrevolve {hr:.4}", ratios.iter().map(|r| r.0).sum::<f64>() / n as f64, ratios[n * 9 / 10].0, ratios[n - 1].0, hrr.iter().sum::<f64>() / n as f64);
        for (r, h, m, steps) in ratios.iter().rev().take(6) {
            let u = |t: f64| m.state as f64 / t / m.forward.as_secs_f64();
            println!("  {r:.3} hr {h:.3} N {steps} b {:.2} c0 {} {:?}", m.backward.as_secs_f64() / m.forward.as_secs_f64(), m.device / m.state, m.tiers.iter().map(|t| (t.room / m.state, u(t.down), u(t.up))).collect::<Vec<_>>());
        }
    }
}

fn online(machine: &Machine, steps: usize) -> Plan {
    use tierflow_schedule::Online;
    let mut rule = Online::new(machine);
    let times: Vec<f64> = machine.tiers.iter().filter(|t| t.room >= machine.state).map(|t| machine.state as f64 / t.down).collect();
    let mut until = vec![0.0; times.len()];
    let mut now = 0.0;
    for _ in 0..steps {
        let free: Vec<bool> = until.iter().map(|&u| u <= now + 1e-12).collect();
        let before = rule.moved();
        rule.step(&free);
        for (hop, (b, a)) in before.iter().zip(rule.moved()).enumerate() {
            if a > *b { until[hop] = now + times[hop]; }
        }
        now += machine.forward.as_secs_f64();
    }
    rule.end(machine)
}

#[test]
fn unknown() {
    for least in [8.0, 2.0] {
        let mut dice = Dice(std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1));
        let mut ratios = Vec::new();
        for _ in 0..400 {
            let (machine, steps) = draw(&mut dice, least);
            let plan = online(&machine, steps);
            let Some(time) = plan.expected() else { println!("none {machine:?} {steps}"); continue };
            ratios.push((time.as_secs_f64() / plan.bound().time.as_secs_f64(), machine, steps));
        }
        ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
        let n = ratios.len();
        println!("online c0>={least}: {n} mean {:.4} 90% {:.4} worst {:.4}", ratios.iter().map(|r| r.0).sum::<f64>() / n as f64, ratios[n * 9 / 10].0, ratios[n - 1].0);
        for (r, m, steps) in ratios.iter().rev().take(8) {
            let u = |t: f64| m.state as f64 / t / m.forward.as_secs_f64();
            println!("  {r:.3} N {steps} b {:.2} c0 {} {:?}", m.backward.as_secs_f64() / m.forward.as_secs_f64(), m.device / m.state, m.tiers.iter().map(|t| (t.room / m.state, u(t.down), u(t.up))).collect::<Vec<_>>());
        }
    }
}

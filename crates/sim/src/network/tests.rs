//! Rates and ends of flows, against the definition.

use super::*;
use crate::hardware::{Hop, Link, Tier};
use std::collections::BTreeMap;

/// GPUs with links of 10 bytes/ns, two of which share 12.
fn network(gpus: usize) -> Network {
    let links = Hop::over(Link::own(10_000_000_000).together(16_000_000_000), 0)
        .and(Link::own(12_000_000_000).shared_by(2));
    Network::new(
        &Hardware::new().tier(Tier::new("host", UNLIMITED), links),
        gpus,
    )
}

/// The rates of the flows, in the order of their starts.
fn rates(network: &mut Network) -> Vec<f64> {
    network.share(0);
    let mut flows: Vec<_> = network.flows.iter().flatten().collect();
    flows.sort_by_key(|flow| flow.order);
    flows.iter().map(|flow| network.rate(flow)).collect()
}

impl Network {
    fn rate(&self, flow: &Flow) -> f64 {
        match flow.limit {
            Limit::Unknown => 0.0,
            Limit::Rate(rate) => rate,
            Limit::Trunk(at) => self.trunks[at].level,
        }
    }

    /// Returns the time at which a flow ends, in ns that are not rounded.
    fn end(&self, flow: &Flow) -> f64 {
        match flow.limit {
            Limit::Trunk(at) => self.trunks[at].end(flow.remaining),
            _ => flow.updated_at as f64 + flow.remaining / self.rate(flow),
        }
    }
}

/// Returns the rates of all flows by the definition: each round fixes the flows that pass the tightest link.
fn filled(net: &Network) -> BTreeMap<usize, f64> {
    let flows = net.flows.iter().enumerate();
    let flows: Vec<_> = flows
        .filter_map(|(index, flow)| Some((index, flow.as_ref()?)))
        .collect();
    let mut rates = vec![f64::INFINITY; flows.len()];
    let narrow = net.resources.iter().map(|link| link.capacity);
    let trunks = net.trunks.iter().map(|trunk| trunk.capacity);
    let capacities: Vec<_> = narrow.chain(trunks).collect();
    let passes = |flow: &Flow, at: usize| {
        let trunk = at.checked_sub(net.resources.len());
        flow.path.contains(&at) || trunk.is_some_and(|at| flow.trunks.contains(&at))
    };
    loop {
        let share = |at: usize| {
            let (mut left, mut users) = (capacities[at], 0.0);
            for ((_, flow), rate) in flows.iter().zip(&rates) {
                match passes(flow, at) {
                    true if rate.is_finite() => left -= rate,
                    true => users += 1.0,
                    false => {}
                }
            }
            (users > 0.0).then_some((left / users, at))
        };
        let tightest = (0..capacities.len()).filter_map(share);
        let Some((rate, at)) = tightest.min_by(|a, b| a.0.total_cmp(&b.0)) else {
            break;
        };
        for ((_, flow), own) in flows.iter().zip(&mut rates) {
            if *own == f64::INFINITY && passes(flow, at) {
                *own = rate;
            }
        }
    }
    flows.iter().map(|(index, _)| *index).zip(rates).collect()
}

/// Flows come, end and are given up at random: rates and ends are always those of the definition.
fn follow(hardware: &Hardware, gpus: usize, narrow: usize, seed: u64, steps: usize, most: u64) {
    let mut word = seed;
    let mut random = |below: u64| {
        word = word.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
        (word >> 33) % below
    };
    let hops = hardware.hops.len() as u64;
    let mut net = Network::with_narrow(hardware, gpus, narrow);
    // Bytes left of each flow, by the definition.
    let mut left: Vec<(FlowId, f64)> = Vec::new();
    let mut now = 0;
    for step in 0..steps {
        let which = format!("seed {seed}, {narrow} narrow, step {step}");
        let rates = filled(&net);
        let mut first = f64::INFINITY;
        for (id, left) in &left {
            let flow = net.flows[id.0].as_ref().unwrap();
            let rate = rates[&id.0];
            let own = net.rate(flow);
            assert!((own - rate).abs() <= 1e-8 * rate, "{which}: {own} {rate}");
            let ends = now as f64 + left / rate;
            let own = net.end(flow);
            assert!(
                (own - ends).abs() <= 0.1 + 1e-7 * left / rate,
                "{which}: {own} {ends}"
            );
            first = first.min(ends);
        }
        let next = net.next_end();
        assert_eq!(next.is_some(), !left.is_empty(), "{which}");
        assert!(
            next.is_none_or(|next| (next as f64 - first).abs() <= 1.1),
            "{which}: {next:?} {first}"
        );
        // Time passes until the next flow ends, or until the next change.
        let until = now + 1 + random(300);
        let then = next.filter(|next| *next <= until).unwrap_or(until);
        for (id, left) in &mut left {
            *left = (*left - rates[&id.0] * (then - now) as f64).max(0.0);
        }
        now = then;
        let mut last = 0;
        while let Some(ended) = net.ended(now) {
            let order = net.flows[ended.0].as_ref().unwrap().order;
            assert!(order > last, "{which}: in the order of their starts");
            last = order;
            net.remove(ended);
            left.retain(|(id, _)| *id != ended);
        }
        for _ in 0..random(most).min(40_u64.saturating_sub(left.len() as u64)) {
            let first = random(hops) as usize;
            let last = first + random(hops - first as u64) as usize;
            let direction = [Direction::Down, Direction::Up][random(2) as usize];
            let bytes = 1 + random(5_000);
            let id = net.start(random(gpus as u64) as usize, first..=last, direction, bytes);
            left.push((id, bytes as f64));
        }
        if random(5) == 0 && !left.is_empty() {
            let (id, _) = left.swap_remove(random(left.len() as u64) as usize);
            net.remove(id);
        }
        net.share(now);
    }
}

/// Links of GPUs, of nodes of four, and of all.
fn shared_files(gpus: usize, files: Link) -> Hardware {
    let link = Link::own(10_000_000_000).together(16_000_000_000);
    Hardware::new()
        .tier(
            Tier::new("host", UNLIMITED),
            Hop::over(link, 0).and(Link::own(30_000_000_000).shared_by(4)),
        )
        .tier(
            Tier::new("file", UNLIMITED),
            Hop::over(files.shared_by(gpus), 0),
        )
}

#[test]
fn components_updated_alone_are_as_if_all_were() {
    for gpus in [4, 16] {
        let hardware = shared_files(gpus, Link::own(25_000_000_000));
        follow(&hardware, gpus, usize::MAX, 7, 600, 3);
    }
}

#[test]
fn trunks_give_what_the_definition_gives() {
    for seed in 1..=12 {
        let files = match seed % 4 {
            0 => Link::own(25_000_000_000),
            1 => Link::own(60_000_000_000).together(90_000_000_000),
            2 => Link::own(150_000_000_000),
            // As much as the nodes together.
            _ => Link::own(120_000_000_000).together(120_000_000_000),
        };
        let mut hardware = shared_files(16, files);
        if seed % 3 == 0 {
            // Disks of nodes, and a link of two nodes each.
            let links = &mut hardware.hops[1].links;
            links.push(Link::own(9_000_000_000).shared_by(4));
            links.push(
                Link::own(14_000_000_000)
                    .together(20_000_000_000)
                    .shared_by(8),
            );
        }
        if seed % 5 == 0 {
            let remote = Hop::over(Link::own(40_000_000_000).shared_by(16), 0);
            hardware = hardware.tier(Tier::new("remote", UNLIMITED), remote);
        }
        for narrow in [0, 1, 4, 8] {
            follow(&hardware, 16, narrow, seed, 150, 2 + seed % 6);
        }
    }
}

#[test]
fn one_flow_has_its_link_and_two_share_what_they_share() {
    let mut net = network(3);
    net.start(0, 0..=0, Direction::Down, 100);
    assert_eq!(rates(&mut net), [10.0]);
    net.start(1, 0..=0, Direction::Down, 100);
    net.start(2, 0..=0, Direction::Down, 100);
    assert_eq!(rates(&mut net), [6.0, 6.0, 10.0]);
}

#[test]
fn what_one_flow_cannot_use_goes_to_the_others() {
    let mut net = network(2);
    for gpu in [0, 0, 0, 1] {
        net.start(gpu, 0..=0, Direction::Down, 100);
    }
    // The shared link gives 3 to each of four; no flow is limited earlier.
    assert_eq!(rates(&mut net), [3.0; 4]);
    let mut net = network(2);
    net.start(0, 0..=0, Direction::Down, 100);
    net.start(0, 0..=0, Direction::Up, 100);
    // Both directions together have 16.
    assert_eq!(rates(&mut net), [8.0, 8.0]);
    net.start(1, 0..=0, Direction::Down, 100);
    // The shared link's 12 go 6 and 6; the way up keeps what its own link leaves: 10.
    assert_eq!(rates(&mut net), [6.0, 10.0, 6.0]);
}

#[test]
fn a_flow_ends_when_its_bytes_have_passed_at_changing_rates() {
    let mut net = network(2);
    let first = net.start(0, 0..=0, Direction::Down, 1000);
    net.share(0);
    assert_eq!(net.next_end(), Some(100));
    let second = net.start(1, 0..=0, Direction::Down, 120);
    net.share(50);
    // 500 left at 6 bytes/ns; the second one's 120 take 20 ns.
    assert_eq!((net.ended(69), net.next_end()), (None, Some(70)));
    assert_eq!(net.ended(70), Some(second));
    net.remove(second);
    net.share(70);
    assert_eq!(net.next_end(), Some(108));
    net.remove(first);
    net.share(108);
    assert_eq!(net.next_end(), None);
}

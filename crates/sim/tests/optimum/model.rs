//! A machine of three tiers and an application, as states and the decisions that lead from one to the next.
//!
//! Versions stay whole, and a link carries one transfer at a time, at its full rate. Decisions are made when a copy or a time of
//! computing ends. The links have no latency.

use tierflow_plan::AfterRestore;
use tierflow_sim::{Hardware, Op, UNLIMITED, Workload};

/// The tiers.
pub(crate) const DEVICE: usize = 0;
pub(crate) const HOST: usize = 1;
pub(crate) const DISK: usize = 2;

/// In place of a call's index: the version is not read again.
const NEVER: usize = usize::MAX;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    Write(usize),
    Read(usize),
    Drop(usize),
}

/// A call, and the ns of computing before it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    pub(crate) compute: u64,
    pub(crate) kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum App {
    /// The application computes until a time.
    Computing,
    /// The call has not begun to copy.
    Waiting,
    /// The call copies until a time. A version that it writes goes to this tier.
    Copying { to: usize },
}

/// A transfer under way, and its end in ns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Flight {
    pub(crate) version: usize,
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) end: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct State {
    pub(crate) now: u64,
    pub(crate) call: usize,
    pub(crate) app: App,
    pub(crate) until: u64,
    /// The links that the application's copy passes, as bits.
    pub(crate) app_links: u8,
    /// The tiers that have each version, as bits.
    pub(crate) on: Vec<u8>,
    pub(crate) flights: Vec<Flight>,
}

pub(crate) struct Model {
    pub(crate) calls: Vec<Call>,
    pub(crate) sizes: Vec<u64>,
    /// Bytes of the device and of the host.
    pub(crate) capacity: [u64; 2],
    /// Bytes/ns by hop, down and up.
    pub(crate) rates: [[f64; 2]; 3],
    /// True if both directions of a hop share its link.
    pub(crate) shared: [bool; 3],
    /// ns of computing behind the last call.
    pub(crate) tail: u64,
    latency: u64,
    keeps: bool,
}

impl Model {
    pub(crate) fn new(hardware: &Hardware, workload: &Workload) -> Self {
        let (mut calls, mut sizes, mut compute) = (Vec::new(), Vec::new(), 0);
        for op in &workload.ops {
            let kind = match *op {
                Op::Compute(ns) => {
                    compute += ns;
                    continue;
                }
                Op::Checkpoint { version, bytes } => {
                    assert_eq!(version, sizes.len() as u64, "versions are numbered");
                    sizes.push(bytes);
                    Kind::Write(sizes.len() - 1)
                }
                Op::Restore(version) => Kind::Read(version as usize),
                Op::Drop(version) => Kind::Drop(version as usize),
                _ => continue,
            };
            calls.push(Call {
                compute: std::mem::take(&mut compute),
                kind,
            });
        }
        let links = [0, 1, 2].map(|hop| hardware.hops[hop].links[0]);
        let rate = |bandwidth: u64| bandwidth as f64 / 1e9;
        Self {
            calls,
            sizes,
            capacity: [hardware.tiers[0].capacity, hardware.tiers[1].capacity],
            rates: links.map(|link| [rate(link.down), rate(link.up)]),
            shared: links.map(|link| link.both < UNLIMITED),
            tail: compute,
            latency: hardware.hops[0].latency_ns,
            keeps: workload.after_restore == AfterRestore::Keep,
        }
    }

    pub(crate) fn start(&self) -> State {
        let mut state = State {
            now: 0,
            call: 0,
            app: App::Computing,
            until: self.calls[0].compute,
            app_links: 0,
            on: vec![0; self.sizes.len()],
            flights: Vec::new(),
        };
        self.begin_calls(&mut state);
        state
    }

    pub(crate) fn is_done(&self, state: &State) -> bool {
        state.call == self.calls.len()
    }

    /// Returns true if the application discards a version once it has read it.
    pub(crate) fn discards(&self) -> bool {
        !self.keeps
    }

    /// Returns the link that a direction of a hop passes, as a bit.
    pub(crate) fn link(&self, hop: usize, up: bool) -> u8 {
        1 << (2 * (hop - 1) + usize::from(up && !self.shared[hop]))
    }

    /// Returns the links between two tiers, as bits.
    pub(crate) fn links(&self, from: usize, to: usize) -> u8 {
        let hops = from.min(to) + 1..=from.max(to);
        hops.fold(0, |links, hop| links | self.link(hop, from > to))
    }

    fn span(&self, bytes: u64, from: usize, to: usize) -> u64 {
        let hops = from.min(to) + 1..=from.max(to);
        let rates = hops.map(|hop| self.rates[hop][usize::from(from > to)]);
        (bytes as f64 / rates.fold(f64::INFINITY, f64::min)).ceil() as u64
    }

    /// Returns the least ns of a call's copy.
    pub(crate) fn copy(&self, call: usize) -> u64 {
        match self.calls[call].kind {
            Kind::Write(version) | Kind::Read(version) => {
                self.latency + (self.sizes[version] as f64 / self.rates[0][0]).ceil() as u64
            }
            Kind::Drop(_) => 0,
        }
    }

    fn busy(&self, state: &State) -> u8 {
        let flights = state.flights.iter();
        flights.fold(state.app_links, |links, flight| {
            links | self.links(flight.from, flight.to)
        })
    }

    /// Returns the call that reads a version next, after the one whose copy is under way.
    fn next_reading(&self, state: &State, version: usize) -> usize {
        let first = state.call + usize::from(matches!(state.app, App::Copying { .. }));
        let mut later = first..self.calls.len();
        later
            .find(|&call| self.calls[call].kind == Kind::Read(version))
            .unwrap_or(NEVER)
    }

    fn is_read_once(&self, state: &State, version: usize) -> bool {
        let later = self.calls[state.call..].iter();
        let readings = later.filter(|call| call.kind == Kind::Read(version));
        readings.count() <= 1
    }

    fn is_flying(state: &State, version: usize) -> bool {
        state.flights.iter().any(|flight| flight.version == version)
    }

    /// Returns true if two versions differ in their readings alone.
    fn are_alike(&self, state: &State, one: usize, other: usize) -> bool {
        let is_flying = Self::is_flying(state, one) || Self::is_flying(state, other);
        state.on[one] == state.on[other] && self.sizes[one] == self.sizes[other] && !is_flying
    }

    fn free(&self, state: &State, tier: usize) -> u64 {
        let on = (0..self.sizes.len()).filter(|&version| state.on[version] >> tier & 1 == 1);
        let arriving = state.flights.iter().filter(|flight| flight.to == tier);
        let held = on.chain(arriving.map(|flight| flight.version));
        let held: u64 = held.map(|version| self.sizes[version]).sum();
        let written = match (state.app, self.calls.get(state.call).map(|call| call.kind)) {
            (App::Copying { to }, Some(Kind::Write(version))) if to == tier => self.sizes[version],
            _ => 0,
        };
        self.capacity[tier].saturating_sub(held + written)
    }

    /// Returns the sets of replicas whose eviction makes room, without a replica too many. `source` is about to be read.
    fn evictions(&self, state: &State, tier: usize, bytes: u64, source: usize) -> Vec<Vec<usize>> {
        if tier == DISK {
            return vec![Vec::new()];
        }
        let free = self.free(state, tier);
        if free >= bytes {
            return vec![Vec::new()];
        }
        let reading = match (state.app, self.calls[state.call].kind) {
            (App::Copying { .. }, Kind::Read(version)) => version,
            _ => NEVER,
        };
        let is_read = |version: usize| {
            let mut flights = state.flights.iter();
            let is_fastest = state.on[version].trailing_zeros() as usize == tier;
            version == source
                || (version == reading && is_fastest)
                || flights.any(|flight| (flight.version, flight.from) == (version, tier))
        };
        let is_evictable = |version: &usize| {
            let on = state.on[*version];
            on >> tier & 1 == 1 && on != 1 << tier && !is_read(*version)
        };
        let mut candidates: Vec<_> = (0..self.sizes.len()).filter(is_evictable).collect();
        candidates.sort_by_key(|&version| std::cmp::Reverse(self.next_reading(state, version)));
        let mut sets = Vec::new();
        self.choose(state, &candidates, bytes - free, &mut Vec::new(), &mut sets);
        sets
    }

    fn choose(
        &self,
        state: &State,
        candidates: &[usize],
        lack: u64,
        chosen: &mut Vec<usize>,
        sets: &mut Vec<Vec<usize>>,
    ) {
        let sizes = chosen.iter().map(|&version| self.sizes[version]);
        let (sum, least) = (sizes.clone().sum::<u64>(), sizes.min().unwrap_or(0));
        if sum >= lack {
            if sum - least < lack {
                sets.push(chosen.clone());
            }
            return;
        }
        for (at, &version) in candidates.iter().enumerate() {
            // Of versions that are alike, the one that is used last is evicted first.
            let mut before = candidates[..at].iter();
            if before.any(|&other| self.are_alike(state, version, other)) {
                continue;
            }
            chosen.push(version);
            self.choose(state, &candidates[at + 1..], lack, chosen, sets);
            chosen.pop();
        }
    }

    fn evicted(state: &State, tier: usize, set: &[usize]) -> State {
        let mut state = state.clone();
        set.iter()
            .for_each(|&version| state.on[version] &= !(1 << tier));
        state
    }

    /// Returns the states at the next event, one for each choice of what begins now.
    pub(crate) fn successors(&self, state: &State) -> Vec<State> {
        let mut successors = Vec::new();
        let begun = match (state.app, self.calls[state.call].kind) {
            (App::Waiting, Kind::Write(version)) => self.writings(state, version),
            (App::Waiting, Kind::Read(version)) => self.readings(state, version),
            _ => vec![state.clone()],
        };
        for state in begun {
            self.decide(state, 0, 0, &mut successors);
        }
        successors
    }

    fn copying(&self, state: &State, to: usize, links: u8, span: u64) -> State {
        State {
            app: App::Copying { to },
            app_links: links,
            until: state.now + span,
            ..state.clone()
        }
    }

    /// Returns the ways to go on with a checkpoint: it goes to the device at once if that has room, and may else go past it or wait.
    fn writings(&self, state: &State, version: usize) -> Vec<State> {
        let bytes = self.sizes[version];
        let mut begun = Vec::new();
        let is_free = self.free(state, DEVICE) >= bytes;
        for to in [DEVICE, HOST, DISK] {
            let links = self.links(DEVICE, to);
            if (is_free && to != DEVICE) || self.busy(state) & links != 0 {
                continue;
            }
            let span = match to {
                DEVICE => self.copy(state.call),
                _ => self.latency + self.span(bytes, DEVICE, to),
            };
            for set in self.evictions(state, to, bytes, NEVER) {
                begun.push(self.copying(&Self::evicted(state, to, &set), to, links, span));
            }
        }
        if !is_free {
            begun.push(state.clone());
        }
        begun
    }

    /// Returns the ways to go on with a restore: it reads the device at once, and may else read a lower tier or wait.
    fn readings(&self, state: &State, version: usize) -> Vec<State> {
        let from = state.on[version].trailing_zeros() as usize;
        if from == DEVICE {
            return vec![self.copying(state, DEVICE, 0, self.copy(state.call))];
        }
        let mut begun = vec![state.clone()];
        let links = self.links(from, DEVICE);
        let mut flights = state.flights.iter();
        let is_arriving =
            flights.any(|flight| flight.version == version && flight.to < flight.from);
        if !is_arriving && self.busy(state) & links == 0 {
            let span = self.latency + self.span(self.sizes[version], from, DEVICE);
            begun.push(self.copying(state, DEVICE, links, span));
        }
        begun
    }

    /// Decides about the links one after the other. The links in `idle` stay free until the next event.
    fn decide(&self, state: State, link: u8, idle: u8, successors: &mut Vec<State>) {
        if link == 4 {
            return successors.extend(self.advanced(state));
        }
        let (bit, taken) = (1 << link, self.busy(&state) | idle);
        if taken & bit == 0 {
            for (from, to) in [(0, 1), (0, 2), (1, 2), (1, 0), (2, 0), (2, 1)] {
                let links = self.links(from, to);
                if links.trailing_zeros() == u32::from(link) && links & taken == 0 {
                    self.transfer(&state, from, to, (link, idle), successors);
                }
            }
        }
        self.decide(state, link + 1, idle | bit, successors);
    }

    fn transfer(
        &self,
        state: &State,
        from: usize,
        to: usize,
        (link, idle): (u8, u8),
        successors: &mut Vec<State>,
    ) {
        let next = |version: usize| self.next_reading(state, version);
        let may_move = |&version: &usize| {
            let on = state.on[version];
            let is_there = on >> from & 1 == 1 && on >> to & 1 == 0;
            let skips = from.abs_diff(to) == 2 && on >> HOST & 1 == 1;
            let is_of_use = match from < to {
                true => next(version) != NEVER || on >> DISK & 1 == 0,
                false => next(version) != NEVER && on & 1 == 0,
            };
            is_there && !skips && is_of_use && !Self::is_flying(state, version)
        };
        let mut versions: Vec<_> = (0..self.sizes.len()).filter(may_move).collect();
        versions.sort_by_key(|&version| next(version));
        if from < to {
            versions.reverse();
        }
        for (at, &version) in versions.iter().enumerate() {
            // Of versions that are alike, the one that is used first comes up, and the one that is used last goes down.
            let mut before = versions[..at].iter();
            let is_free = from > to || self.is_read_once(state, version);
            if is_free && before.any(|&other| self.are_alike(state, version, other)) {
                continue;
            }
            for set in self.evictions(state, to, self.sizes[version], version) {
                if to == DEVICE && set.iter().any(|&other| next(other) < next(version)) {
                    continue;
                }
                let mut begun = Self::evicted(state, to, &set);
                let end = begun.now + self.span(self.sizes[version], from, to);
                begun.flights.push(Flight {
                    version,
                    from,
                    to,
                    end,
                });
                self.decide(begun, link + 1, idle, successors);
            }
        }
    }

    /// Returns the state at the next event, or `None` if nothing is under way.
    fn advanced(&self, mut state: State) -> Option<State> {
        let ends = state.flights.iter().map(|flight| flight.end);
        let own = (state.app != App::Waiting).then_some(state.until);
        state.now = ends.chain(own).min()?;
        let now = state.now;
        for flight in state.flights.extract_if(.., |flight| flight.end <= now) {
            state.on[flight.version] |= 1 << flight.to;
        }
        if let App::Copying { to } = state.app
            && state.until <= now
        {
            match self.calls[state.call].kind {
                Kind::Write(version) => state.on[version] = 1 << to,
                Kind::Read(version) if !self.keeps => Self::discard(&mut state, version),
                Kind::Read(_) | Kind::Drop(_) => {}
            }
            self.return_call(&mut state);
        }
        self.begin_calls(&mut state);
        state.flights.sort_by_key(|flight| flight.version);
        Some(state)
    }

    fn discard(state: &mut State, version: usize) {
        state.on[version] = 0;
        state.flights.retain(|flight| flight.version != version);
    }

    fn return_call(&self, state: &mut State) {
        state.call += 1;
        state.app = App::Computing;
        state.app_links = 0;
        state.until = state.now + self.calls.get(state.call).map_or(0, |call| call.compute);
    }

    /// Begins the application's call once it has computed. Drops take no time.
    fn begin_calls(&self, state: &mut State) {
        while state.app == App::Computing && state.until <= state.now && !self.is_done(state) {
            match self.calls[state.call].kind {
                Kind::Drop(version) => {
                    Self::discard(state, version);
                    self.return_call(state);
                }
                Kind::Write(_) | Kind::Read(_) => state.app = App::Waiting,
            }
        }
    }
}

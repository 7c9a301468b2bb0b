//! The timeline of a run: rows for each GPU's application, for the links of its transfers, and for its evictions.

use crate::client::{Call, CallKind, CopyId, Flight};
use crate::network::Direction;
use std::collections::BTreeMap;
use tierflow_plan::timeline::{Timeline, TimelineLane, What};
use tierflow_plan::{Eviction, Version};

/// A direction of a hop: the tier above the hop, and true for downwards.
type HopDirection = (usize, bool);

/// The row of a transfer.
#[derive(Debug)]
struct Row {
    lane: TimelineLane,
    version: Version,
}

/// Writes a timeline, in virtual ns.
#[derive(Debug)]
pub(crate) struct Recorder<'a> {
    timeline: &'a mut Timeline,
    names: Vec<String>,
    /// The transfers under way by GPU, hop and direction, each on a row of its own.
    rows: BTreeMap<(usize, HopDirection), Vec<Option<CopyId>>>,
    under_way: BTreeMap<(usize, CopyId), Row>,
}

impl<'a> Recorder<'a> {
    pub(crate) fn new(timeline: &'a mut Timeline, names: impl Iterator<Item = String>) -> Self {
        Self {
            timeline,
            names: names.collect(),
            rows: BTreeMap::new(),
            under_way: BTreeMap::new(),
        }
    }

    fn name(&self, tier: usize) -> &str {
        self.names.get(tier).map_or("", String::as_str)
    }

    /// Records a call that returns now.
    pub(crate) fn returned(&mut self, gpu: usize, call: &Call, now: u64) {
        let (wait, copy, bytes) = match call.kind {
            CallKind::Checkpoint { bytes, .. } => ("wait for room", "checkpoint", bytes),
            CallKind::Restore(_) => ("wait for arrival", "restore", 0),
            CallKind::Wait => ("wait for flushes", "", 0),
            CallKind::Drop(_) => return,
        };
        let version = (call.kind != CallKind::Wait).then_some(call.kind.version());
        let lane = self.timeline.lane(&format!("GPU {gpu}: application"));
        let granted = call.granted.map_or(now, |(at, _)| at);
        let spans = [(wait, call.began, granted), (copy, granted, now)];
        for (name, begin, end) in spans.into_iter().filter(|(_, begin, end)| begin < end) {
            let what = What {
                name,
                version,
                bytes,
                flow: None,
            };
            self.timeline.span(lane, what, begin, end);
        }
    }

    /// Records the wait of a GPU at a barrier.
    pub(crate) fn left_barrier(&mut self, gpu: usize, since: u64, now: u64) {
        let lane = self.timeline.lane(&format!("GPU {gpu}: application"));
        let what = What {
            name: "wait at a barrier",
            version: None,
            bytes: 0,
            flow: None,
        };
        self.timeline.span(lane, what, since, now);
    }

    /// Gives a transfer that begins a row.
    pub(crate) fn started(&mut self, gpu: usize, copy: CopyId, version: Version, flight: &Flight) {
        let upper = flight.hops.start() - 1;
        let is_flush = flight.direction == Direction::Down;
        let rows = self.rows.entry((gpu, (upper, is_flush))).or_default();
        let free = rows.iter().position(Option::is_none);
        let at = free.unwrap_or(rows.len());
        if at == rows.len() {
            rows.push(None);
        }
        rows[at] = Some(copy);
        let (name, number) = (self.name(upper), at + 1);
        let lane = match is_flush {
            true => format!("GPU {gpu}: {name} → below, worker {number}"),
            false => format!("GPU {gpu}: below → {name}, worker {number}"),
        };
        let lane = self.timeline.lane(&lane);
        self.under_way.insert((gpu, copy), Row { lane, version });
    }

    /// Records a transfer that is over, delivered or not.
    pub(crate) fn ended(&mut self, gpu: usize, copy: CopyId, flight: &Flight, ok: bool, now: u64) {
        let Some(Row { lane, version }) = self.under_way.remove(&(gpu, copy)) else {
            return;
        };
        let rows = self.rows.iter_mut().filter(|((of, _), _)| *of == gpu);
        let mut rows = rows.flat_map(|(_, rows)| rows);
        if let Some(row) = rows.find(|row| **row == Some(copy)) {
            *row = None;
        }
        let name = match (ok, flight.direction) {
            (false, _) => "given up",
            (true, Direction::Down) => "flush",
            (true, Direction::Up) => "prefetch",
        };
        let what = What {
            name,
            version: Some(version),
            bytes: flight.bytes,
            flow: None,
        };
        self.timeline.span(lane, what, flight.asked, now);
    }

    /// Records evictions that happened now.
    pub(crate) fn evicted(&mut self, gpu: usize, evictions: &[Eviction], now: u64) {
        for eviction in evictions {
            let lane = format!("GPU {gpu}: evictions from {}", self.name(eviction.tier.0));
            let lane = self.timeline.lane(&lane);
            let what = What {
                name: eviction.cause.name(),
                version: Some(eviction.version),
                bytes: eviction.bytes,
                flow: None,
            };
            self.timeline.moment(lane, what, now);
        }
    }
}

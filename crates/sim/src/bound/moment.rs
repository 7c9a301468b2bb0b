//! Moments between two calls: versions written shortly before and versions read shortly after share the room above a hop. Written bytes
//! that are not above have gone down before the moment. Bytes to be read that are not above come up after it.

use super::steps::{Step, StepKind};
use crate::hardware::{Hardware, Hop, Link, UNLIMITED};

/// A window of calls before a moment.
#[derive(Debug, Clone, Copy)]
struct Before {
    /// The first version checkpointed in it.
    first: usize,
    /// Bytes checkpointed in it beyond those that the window has time to write down.
    late: f64,
    /// Bytes of its versions that are restored after the moment, each once.
    restored: f64,
}

/// A hop at a moment.
#[derive(Debug)]
struct HopState {
    /// Bytes/ns.
    down: f64,
    /// Bytes/ns.
    up: f64,
    /// Bytes that the tiers above the hop hold.
    above: f64,
    /// Windows before the moment, the shortest first. Each has more late bytes than the one before; other windows limit nothing more.
    before: Vec<Before>,
}

/// A moment, and a window of calls behind it.
#[derive(Debug)]
pub(super) struct Moment<'a> {
    steps: &'a [Step],
    from: usize,
    to: usize,
    hops: Vec<HopState>,
    /// By version written before the moment: true if the window behind the moment restores it.
    seen: Vec<bool>,
    /// Bytes of versions restored after the moment, each once.
    restored: f64,
    compute_ns: f64,
}

impl<'a> Moment<'a> {
    /// Makes the moment at the beginning of the call of step `from`. `lost` has the least ns lost before each step up to that one.
    /// Returns `None` if everything written before could have gone down.
    pub(super) fn new(
        hardware: &Hardware,
        steps: &'a [Step],
        from: usize,
        lost: &[f64],
    ) -> Option<Self> {
        let mut alive = Vec::new();
        for (at, step) in steps[..from].iter().enumerate() {
            match step.kind {
                StepKind::Checkpoint { bytes, .. } => alive.push(Some((at, bytes))),
                StepKind::Restore {
                    version,
                    last: true,
                    ..
                }
                | StepKind::Drop { version, .. } => {
                    if let Some(alive) = alive.get_mut(version) {
                        *alive = None;
                    }
                }
                StepKind::Restore { .. } | StepKind::Wait | StepKind::Barrier => {}
            }
        }
        let elapsed =
            |at: usize| steps[from].computed_ns - steps[at].computed_ns + lost[from] - lost[at];
        let mut above = 0.0;
        let mut hops = Vec::new();
        for (tier, hop) in hardware.tiers.iter().zip(&hardware.hops) {
            let (down, up) = (rate(hop, |link| link.down), rate(hop, |link| link.up));
            let mut before: Vec<Before> = Vec::new();
            if above > 0.0 && down.is_finite() && up.is_finite() {
                let mut live = 0.0;
                for (first, &written) in alive.iter().enumerate().rev() {
                    let Some((at, bytes)) = written else { continue };
                    live += bytes;
                    let late = live - down * elapsed(at);
                    if late > before.last().map_or(0.0, |shorter| shorter.late) {
                        before.push(Before {
                            first,
                            late,
                            restored: 0.0,
                        });
                    }
                }
            }
            hops.push(HopState {
                down,
                up,
                above,
                before,
            });
            above += match tier.capacity {
                UNLIMITED => f64::INFINITY,
                capacity => capacity as f64,
            };
        }
        hops.retain(|hop| !hop.before.is_empty());
        (!hops.is_empty()).then(|| Self {
            steps,
            from,
            to: from,
            hops,
            seen: vec![false; alive.len()],
            restored: 0.0,
            compute_ns: 0.0,
        })
    }

    /// Extends the window by a step. Returns the ns that are lost until its end in addition to those before the moment and to
    /// `least`. The window loses `least` ns wherever bytes lie.
    pub(super) fn extend(&mut self, least: f64) -> f64 {
        let Some(step) = self.steps.get(self.to) else {
            return 0.0;
        };
        if self.to > self.from {
            self.compute_ns += step.compute_ns;
        }
        self.to += 1;
        if let StepKind::Restore { version, bytes, .. } = step.kind
            && let Some(seen @ false) = self.seen.get_mut(version)
        {
            *seen = true;
            self.restored += bytes;
            let before = self.hops.iter_mut().flat_map(|hop| &mut hop.before);
            for before in before.filter(|before| version >= before.first) {
                before.restored += bytes;
            }
        }
        let lost = self.hops.iter().map(|hop| {
            let late = self.restored - hop.up * (self.compute_ns + least);
            hop.lost_ns(late)
        });
        lost.fold(0.0, f64::max)
    }
}

impl HopState {
    /// Returns the ns lost if a window before the moment has late bytes, and the window behind it has `late` bytes.
    fn lost_ns(&self, late: f64) -> f64 {
        if late <= 0.0 {
            return 0.0;
        }
        let lost = self.before.iter().map(|before| {
            // Bytes above that are written before and read after save a way down and a way up.
            let room = self.above + before.restored.min(self.above);
            let (down, up) = ((before.late, self.down), (late, self.up));
            // The room saves most time in the slower direction.
            let (slow, fast) = match self.down < self.up {
                true => (down, up),
                false => (up, down),
            };
            let left = (room - slow.0).max(0.0);
            (slow.0 - room).max(0.0) / slow.1 + (fast.0 - left).max(0.0) / fast.1
        });
        lost.fold(0.0, f64::max)
    }
}

/// Returns the bytes/ns of a hop in one direction, if it carries nothing else.
fn rate(hop: &Hop, of: fn(&Link) -> u64) -> f64 {
    let rates = hop.links.iter().map(|link| of(link).min(link.both));
    match rates.min().unwrap_or(UNLIMITED) {
        UNLIMITED => f64::INFINITY,
        rate => rate as f64 / 1e9,
    }
}

use std::ops::Range;
use std::time::Duration;

/// A computation and the memories that its states can lie in.
///
/// The device computes one step at a time. Each link between neighbouring tiers carries one state at a time each way, and
/// all of them work beside the computation.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// Time of one forward step.
    pub forward: Duration,
    /// Time of one step of the reversed computation, from a state that is in the working buffer.
    pub backward: Duration,
    /// Bytes of one state. 0 counts as 1.
    pub state: u64,
    /// Bytes of device memory for stored states, without the working buffer. Less than one state counts as one.
    pub device: u64,
    /// The tiers below the device, the nearest first. A tier without room for a state is left out, and one without a
    /// positive rate each way is left out with all tiers below it.
    pub tiers: Vec<Tier>,
    /// Bytes per second of a copy between the working buffer and a slot on the device. [`f64::INFINITY`] for copies that
    /// are not counted.
    pub copy: f64,
    /// The codec that states may be compressed with on their way down.
    pub codec: Option<Codec>,
}

impl Machine {
    /// Returns the machine without the tiers below the device.
    pub(crate) fn without_tiers(&self) -> Self {
        Self {
            tiers: Vec::new(),
            ..self.clone()
        }
    }
}

/// A tier below the device, with the link between it and the tier above.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tier {
    /// Bytes that states may take there. [`u64::MAX`] for as many as there are.
    pub room: u64,
    /// Bytes per second of the link down to this tier.
    pub down: f64,
    /// Bytes per second of the link up from this tier.
    pub up: f64,
}

/// A codec on the device, as measured beside the application.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Codec {
    /// Bytes of a state over bytes of its encoded form. A codec with a ratio of 1 or less is not used.
    pub ratio: f64,
    /// Time that encoding a state adds to the computation.
    pub encode: Duration,
    /// Time that decoding a state adds to the computation.
    pub decode: Duration,
}

/// A hop down, in seconds and bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hop {
    pub(crate) room: u64,
    /// Seconds of a whole state.
    pub(crate) down: f64,
    /// Seconds of a whole state.
    pub(crate) up: f64,
}

/// A machine in seconds and slots, with defaults for values that make no sense.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) steps: usize,
    pub(crate) forward: f64,
    pub(crate) backward: f64,
    pub(crate) copy: f64,
    pub(crate) state: u64,
    pub(crate) slots: usize,
    pub(crate) hops: Vec<Hop>,
    /// Encoded bytes over those of a state. 1 without a codec, else less.
    pub(crate) size: f64,
    pub(crate) encode: f64,
    pub(crate) decode: f64,
}

impl Model {
    pub(crate) fn new(machine: &Machine, steps: usize) -> Self {
        let (state, steps) = (machine.state.max(1), steps.max(1));
        let bytes = state as f64;
        let tiers = machine.tiers.iter();
        let tiers = tiers.take_while(|tier| tier.down > 0.0 && tier.up > 0.0);
        let hops = tiers.filter(|tier| tier.room >= state).map(|tier| Hop {
            room: tier.room,
            down: bytes / tier.down,
            up: bytes / tier.up,
        });
        let codec = machine.codec.filter(|codec| codec.ratio > 1.0);
        let slots = usize::try_from(machine.device / state).unwrap_or(usize::MAX);
        Self {
            steps,
            // A step that takes no time would make all plans equal.
            forward: machine.forward.as_secs_f64().max(1e-12),
            backward: machine.backward.as_secs_f64(),
            copy: match machine.copy > 0.0 {
                true => bytes / machine.copy,
                false => 0.0,
            },
            state,
            slots: slots.clamp(1, steps),
            hops: hops.collect(),
            size: codec.map_or(1.0, |codec| 1.0 / codec.ratio),
            encode: codec.map_or(0.0, |codec| codec.encode.as_secs_f64()),
            decode: codec.map_or(0.0, |codec| codec.decode.as_secs_f64()),
        }
    }

    /// Returns the most states that tier `hop` holds. An encoded state counts as its part of a state.
    pub(crate) fn room(&self, hop: usize) -> f64 {
        let room = self.hops[hop].room as f64 / self.state as f64;
        let room = if self.size < 1.0 { room } else { room.floor() };
        room.min(self.steps as f64)
    }

    /// Returns the most states that the tiers of some hops hold.
    pub(crate) fn rooms(&self, hops: Range<usize>) -> f64 {
        hops.map(|hop| (self.room(hop) / self.size).floor()).sum()
    }

    /// Returns the most states that all tiers hold.
    pub(crate) fn all_room(&self) -> usize {
        let below = self.rooms(0..self.hops.len()) as usize;
        self.slots.saturating_add(below).min(self.steps)
    }
}

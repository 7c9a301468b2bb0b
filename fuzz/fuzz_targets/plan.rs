//! Any events in any order, with transfers and copies that end well or not in any order: what must hold holds after each,
//! bytes in use are never handed out, and in the end everything held can be read back.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::collections::HashMap;
use tierflow_engine::plan::{
    AfterRestore, Command, Differences, Event, Place, Plan, PlanConfig, Stored, Ticket, TierConfig,
    TierId, TransferFailure, TransferId,
};
use tierflow_engine::Flush;
use tierflow_evict::{Cost, Fifo, Lru, Policy, Score};

/// Bytes by tier, what the plan is to be, and steps: what, of which, how.
type Input = ([u8; 3], u8, Vec<(u8, u8, u8)>);

/// Something under way, with the bytes that it reads and writes.
struct UnderWay {
    reads: Option<Place>,
    writes: Option<Place>,
    what: What,
}

enum What {
    Write(Ticket),
    Read(Ticket),
    Transfer(TransferId, bool),
}

struct World {
    plan: Plan,
    under_way: Vec<UnderWay>,
    commands: Vec<Command>,
    tickets: u64,
}

fn overlap(a: &Place, b: &Place) -> bool {
    a.tier == b.tier && a.offset < b.offset + b.reserved && b.offset < a.offset + a.reserved
}

impl World {
    fn ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }

    fn begin(&mut self, reads: Option<Place>, writes: Option<Place>, what: What) {
        for other in &self.under_way {
            let written = other.writes.as_ref();
            let clash = |mine: &Option<Place>, theirs: Option<&Place>| {
                matches!((mine, theirs), (Some(a), Some(b)) if overlap(a, b))
            };
            assert!(!clash(&writes, written) && !clash(&reads, written), "bytes being written were handed out");
            assert!(!clash(&writes, other.reads.as_ref()), "bytes being read were handed out");
        }
        self.under_way.push(UnderWay {
            reads,
            writes,
            what,
        });
    }

    fn tell(&mut self, event: Event) {
        let mut commands = std::mem::take(&mut self.commands);
        self.plan.handle(event.clone(), &mut commands);
        if let Err(violation) = self.plan.check() {
            panic!("{violation} after {event:?}");
        }
        for command in commands.drain(..) {
            match command {
                Command::Write { ticket, place, .. } => {
                    self.begin(None, Some(place), What::Write(ticket));
                }
                Command::Read { ticket, place, .. } => {
                    self.begin(Some(place), None, What::Read(ticket));
                }
                Command::Transfer { id, from, to, coding, .. } => {
                    let encodes = matches!(coding, tierflow_engine::plan::Coding::Encode { .. });
                    self.begin(Some(from), Some(to), What::Transfer(id, encodes));
                }
                Command::Cancel { .. }
                | Command::Released { .. }
                | Command::Drop { .. }
                | Command::Finish { .. } => {}
            }
        }
        self.commands = commands;
    }

    /// Ends one thing that is under way.
    fn end(&mut self, which: u8, how: u8) {
        if self.under_way.is_empty() {
            return;
        }
        let ended = self.under_way.swap_remove(usize::from(which) % self.under_way.len());
        let ok = how % 8 != 0;
        self.tell(match ended.what {
            What::Write(ticket) => Event::Written { ticket, ok },
            What::Read(ticket) => Event::Read { ticket, ok },
            What::Transfer(id, _) if !ok => Event::TransferFailed {
                id,
                why: [
                    TransferFailure::Source,
                    TransferFailure::Destination,
                    TransferFailure::Cancelled,
                ][usize::from(how / 8) % 3],
            },
            What::Transfer(id, encodes) => Event::TransferDone {
                id,
                elapsed_ns: u64::from(how) * 1000,
                stored: encodes.then_some(Stored {
                    bytes: 1 + u64::from(how % 5),
                    alone: how % 3 == 0,
                }),
            },
        });
    }
}

fuzz_target!(|input: Input| {
    let (capacities, shape, steps) = input;
    let policy = || -> Box<dyn Policy + Send> {
        match shape % 4 {
            0 => Box::<Cost>::default(),
            1 => Box::new(Score),
            2 => Box::<Fifo>::default(),
            _ => Box::<Lru>::default(),
        }
    };
    let tiers = capacities.map(|capacity| TierConfig {
        capacity: u64::from(capacity) + 1,
        alignment: 1,
        policy: policy(),
        flush_bandwidth: 1_000_000,
        flush: match shape / 4 % 2 {
            0 => Flush::Foreseen,
            _ => Flush::Above { percent: 50 },
        },
        flush_depth: 1 + usize::from(shape / 8 % 2),
        prefetch_depth: 1 + usize::from(shape / 16 % 2),
    });
    let config = PlanConfig {
        tiers: tiers.into(),
        after_restore: if shape / 32 % 2 == 0 {
            AfterRestore::Discard
        } else {
            AfterRestore::Keep
        },
        differences: (shape / 64 == 3).then_some(Differences {
            overhead: 2,
            longest: 4,
            ascending: shape % 2 == 1,
        }),
    };
    let mut world = World {
        plan: Plan::new(config).expect("sound tiers"),
        under_way: Vec::new(),
        commands: Vec::new(),
        tickets: 0,
    };
    for &(what, which, how) in steps.iter().take(400) {
        let version = u64::from(which % 32);
        match what % 16 {
            0..=2 => {
                let ticket = world.ticket();
                let size = u64::from(how % 16);
                world.tell(Event::Checkpoint {
                    ticket,
                    version,
                    size,
                });
            }
            3 | 4 => {
                let ticket = world.ticket();
                world.tell(Event::Restore { ticket, version });
            }
            5 => {
                let versions = (version..version + u64::from(how % 8)).collect();
                world.tell(Event::Hint { versions });
            }
            6 => world.tell(Event::PrefetchStart),
            7 => {
                let ticket = world.ticket();
                world.tell(Event::Drop { ticket, version });
            }
            8 if how % 4 == 0 => {
                let ticket = world.ticket();
                world.tell(Event::Wait { ticket });
            }
            9 if how % 4 == 0 => {
                let (tier, bytes) = (TierId(usize::from(how / 4 % 3)), u64::from(which));
                world.tell(Event::Limit { tier, bytes });
            }
            _ => world.end(which, how),
        }
    }
    // Everything ends well, and what is held can be read.
    while !world.under_way.is_empty() {
        world.end(0, 1);
    }
    let held: HashMap<_, _> = world.plan.versions().map(|version| (version, ())).collect();
    for version in held.into_keys() {
        let ticket = world.ticket();
        world.tell(Event::Restore { ticket, version });
        while !world.under_way.is_empty() {
            world.end(0, 1);
        }
    }
});

//! Sends the plan any events in any order. Transfers and copies succeed or fail in any order. After each event the invariants must hold, the
//! plan must not give out bytes in use, and at the end all versions that it holds must be readable.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tierflow_plan::{
    AfterRestore, Coding, Differences, Event, Executor, ExtentSize, Fifo, Lru, Overhead, Piece,
    PlanConfig, Policy, Refusal, Residency, Scope, Score, Stored, Ticket, TierConfig, TierId,
    Transfer, TransferFailure, TransferId, Version, World,
};

/// Bytes of each tier, the options of the plan, and steps: the kind, the version or job, and the manner of each.
type Input = ([u8; 3], u8, Vec<(u8, u8, u8)>);

/// A copy or transfer under way, with the bytes that it reads and writes.
struct UnderWay {
    reads: Vec<Piece>,
    writes: Vec<Piece>,
    what: What,
}

enum What {
    Write(Ticket),
    Read(Ticket),
    Transfer(TransferId, Coding),
}

#[derive(Default)]
struct Hands {
    under_way: Vec<UnderWay>,
    /// Calls that are neither granted nor answered.
    open: Vec<Ticket>,
}

fn overlap(a: &[Piece], b: &[Piece]) -> bool {
    let meet = |a: &Piece, b: &Piece| {
        let (a, b) = (a.place, b.place);
        a.tier == b.tier && a.offset < b.offset + b.reserved && b.offset < a.offset + a.reserved
    };
    a.iter().any(|a| b.iter().any(|b| meet(a, b)))
}

/// Returns the pieces that a read uses: those of the version, and those of the versions that its coding builds upon.
fn read_along(mut pieces: Vec<Piece>, coding: &Coding) -> Vec<Piece> {
    if let Coding::Decode { bases } = coding {
        pieces.extend(bases.iter().map(|&(_, place)| Piece { start: 0, place }));
    }
    pieces
}

impl Hands {
    fn begin(&mut self, reads: Vec<Piece>, writes: Vec<Piece>, what: What) {
        for other in &self.under_way {
            assert!(
                !overlap(&writes, &other.writes),
                "bytes being written were handed out"
            );
            assert!(
                !overlap(&reads, &other.writes),
                "bytes being written are read"
            );
            assert!(
                !overlap(&writes, &other.reads),
                "bytes being read were handed out"
            );
        }
        self.under_way.push(UnderWay {
            reads,
            writes,
            what,
        });
    }
}

impl Executor for Hands {
    fn write(&mut self, ticket: Ticket, _: Version, pieces: Vec<Piece>) {
        self.open.retain(|&open| open != ticket);
        self.begin(Vec::new(), pieces, What::Write(ticket));
    }

    fn read(&mut self, ticket: Ticket, _: Version, pieces: Vec<Piece>, coding: Coding) {
        self.open.retain(|&open| open != ticket);
        self.begin(read_along(pieces, &coding), Vec::new(), What::Read(ticket));
    }

    fn transfer(&mut self, transfer: Transfer) {
        let reads = read_along(transfer.from, &transfer.coding);
        let what = What::Transfer(transfer.id, transfer.coding);
        self.begin(reads, transfer.to, what);
    }

    fn cancel(&mut self, id: TransferId) {
        let is = |other: &UnderWay| matches!(other.what, What::Transfer(of, _) if of == id);
        assert!(
            self.under_way.iter().any(is),
            "what is cancelled is under way"
        );
    }

    fn answer(&mut self, ticket: Ticket, _: Result<(), Refusal>) {
        self.open.retain(|&open| open != ticket);
    }
}

struct Fuzzed {
    world: World,
    hands: Hands,
    now_ns: u64,
}

impl Fuzzed {
    fn tell(&mut self, event: Event) {
        self.now_ns += 1000;
        let told = self.world.tell(self.now_ns, event.clone(), &mut self.hands);
        assert_eq!(told, Ok(()), "{event:?}");
        if let Err(violation) = self.world.plan().check() {
            panic!("{violation} after {event:?}");
        }
    }

    fn call(&mut self, event: impl FnOnce(Ticket) -> Event) {
        let ticket = self.world.ticket();
        self.hands.open.push(ticket);
        self.tell(event(ticket));
    }

    /// Ends one copy or transfer that is under way.
    fn end(&mut self, which: u8, how: u8) {
        if self.hands.under_way.is_empty() {
            return;
        }
        let which = usize::from(which) % self.hands.under_way.len();
        let ended = self.hands.under_way.swap_remove(which);
        let ok = !how.is_multiple_of(8);
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
            What::Transfer(id, coding) => Event::TransferDone {
                id,
                stored: matches!(coding, Coding::Encode { .. }).then_some(Stored {
                    bytes: 1 + u64::from(how % 5),
                    alone: how.is_multiple_of(3),
                }),
            },
        });
    }

    /// Ends all copies and transfers with success.
    fn settle(&mut self) {
        while !self.hands.under_way.is_empty() {
            self.end(0, 1);
        }
        assert_eq!(self.hands.open, [], "every call is answered");
    }
}

fuzz_target!(|input: Input| {
    let (capacities, shape, steps) = input;
    let policy: Box<dyn Policy> = match shape % 4 {
        0 => Box::new(Residency),
        1 => Box::new(Lru),
        2 => Box::new(Fifo),
        _ => Box::new(Score),
    };
    let mut tiers = capacities.map(|capacity| TierConfig {
        alignment: 1,
        depth: 1 + usize::from(shape / 8 % 2),
        small: u64::from(shape / 8 % 2) * 3,
        ..TierConfig::new(u64::from(capacity) + 1)
    });
    tiers[2].eager = shape / 4 % 2 == 1;
    tiers[2].whole = shape / 16 % 2 == 1;
    let config = PlanConfig {
        after_restore: match shape / 32 % 2 {
            0 => AfterRestore::Discard,
            _ => AfterRestore::Keep,
        },
        policy,
        extents: ExtentSize { least: 2, most: 4 },
        differences: (shape / 64 == 3).then_some(Differences {
            below: TierId(usize::from(capacities[0] % 3)),
            overhead: Overhead::fixed(2),
            longest: 1 + u32::from(capacities[1] % 4),
            ascending: shape % 2 == 1,
        }),
        ..PlanConfig::new(tiers.into())
    };
    let mut fuzzed = Fuzzed {
        world: World::new(config).expect("sound tiers"),
        hands: Hands::default(),
        now_ns: 0,
    };
    for &(what, which, how) in steps.iter().take(400) {
        let version = u64::from(which % 32);
        let size = u64::from(how % 16);
        match what % 16 {
            0 | 1 => fuzzed.call(|ticket| Event::Checkpoint {
                ticket,
                version,
                size,
            }),
            2 => fuzzed.call(|ticket| Event::Produce {
                ticket,
                version,
                size,
            }),
            3 => fuzzed.call(|ticket| Event::Restore { ticket, version }),
            4 => fuzzed.call(|ticket| Event::Consume { ticket, version }),
            5 => fuzzed.tell(Event::Hint {
                versions: (version..version + u64::from(how % 8)).collect(),
            }),
            6 if how.is_multiple_of(4) => fuzzed.tell(Event::ForgetHints {
                versions: (version..version + u64::from(how % 8)).collect(),
            }),
            6 => fuzzed.tell(Event::PrefetchStart),
            7 if how.is_multiple_of(4) => fuzzed.tell(Event::Prune {
                versions: (version..version + u64::from(how % 8)).collect(),
            }),
            7 => fuzzed.call(|ticket| Event::Drop { ticket, version }),
            8 if how.is_multiple_of(4) => fuzzed.call(|ticket| Event::Wait {
                ticket,
                version: (which % 2 == 0).then_some(version),
            }),
            9 if how.is_multiple_of(4) => fuzzed.tell(Event::Limit {
                tier: TierId(usize::from(how / 4 % 3)),
                bytes: u64::from(which),
            }),
            10 if !fuzzed.hands.open.is_empty() => {
                let which = usize::from(which) % fuzzed.hands.open.len();
                let ticket = fuzzed.hands.open.swap_remove(which);
                fuzzed.tell(Event::Abandon { ticket });
            }
            11 if how.is_multiple_of(4) => {
                let scope = match how / 4 % 2 {
                    0 => Scope::Version,
                    _ => Scope::History,
                };
                let (now, by) = (fuzzed.now_ns, fuzzed.now_ns + 1000 * u64::from(how));
                let plan = fuzzed.world.plan();
                let foreseen = plan
                    .foresee(now, by, scope)
                    .map(|foreseen| foreseen.version);
                // The suspension names the foreseen version, or any other.
                let version = foreseen.filter(|_| how / 8 % 2 == 0).unwrap_or(version);
                fuzzed.call(|ticket| Event::Suspend {
                    ticket,
                    version,
                    scope,
                });
            }
            12 if how.is_multiple_of(4) => fuzzed.tell(Event::Hold {
                version,
                is_held: how / 4 % 2 == 0,
            }),
            13 if how.is_multiple_of(4) => {
                if fuzzed.world.plan().place_to_write(version, size).is_some() {
                    fuzzed.tell(Event::WrittenAtOnce { version, size });
                }
            }
            13 if how % 4 == 1 => {
                if fuzzed.world.plan().place_to_read(version).is_some() {
                    fuzzed.tell(Event::ReadAtOnce { version });
                }
            }
            _ => fuzzed.end(which, how),
        }
    }
    fuzzed.settle();
    let held: Vec<_> = fuzzed.world.plan().versions().collect();
    for version in held {
        fuzzed.call(|ticket| Event::Restore { ticket, version });
        assert!(
            !fuzzed.hands.under_way.is_empty(),
            "what is held can be read"
        );
        fuzzed.settle();
    }
});

use std::collections::HashSet;

use super::*;
use tierflow_sim::{Hints, Op, Order, Shot};

/// A device that makes the window's moves after some time, one at a time in each direction.
struct Mover {
    window: Window,
    random: u64,
    out: Option<Out>,
    into: Option<In>,
    /// Blocks on the device.
    near: HashSet<u64>,
}

fn blocks(range: &Range<u64>) -> impl Iterator<Item = u64> + use<> {
    (range.start..range.end).step_by(BLOCK as usize)
}

impl Mover {
    fn new(length: u64, limit: u64, seed: u64) -> Self {
        Self {
            window: Window::new(length, limit),
            random: seed,
            out: None,
            into: None,
            near: HashSet::new(),
        }
    }

    fn draw(&mut self, below: u64) -> u64 {
        let next = self.random.wrapping_mul(6_364_136_223_846_793_005);
        self.random = next.wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % below
    }

    /// Begins or ends some moves. Returns true if there was one.
    fn step(&mut self) -> bool {
        let limit = self.window.limit;
        let mut did = false;
        if self.draw(2) == 0 {
            if let Some(out) = self.out.take() {
                blocks(&out.range).for_each(|block| {
                    self.near.remove(&block);
                });
                self.window.left(&out);
                did = true;
            } else {
                self.out = self.window.next_out();
                did = self.out.is_some();
            }
        } else if let Some(into) = self.into.take() {
            self.window.came(&into);
            did = true;
        } else if let Some(into) = self.window.next_in() {
            let (In::Version(_, range) | In::Ahead(range)) = &into;
            self.near.extend(blocks(range));
            self.into = Some(into);
            did = true;
        }
        self.check(limit);
        did
    }

    fn check(&self, limit: u64) {
        assert!(self.window.resident <= limit, "beyond the limit");
        let near = self.near.len() as u64 * BLOCK;
        assert_eq!(
            near, self.window.resident,
            "what is on the device is counted"
        );
    }

    /// Takes turns with the mover until the caller gets one.
    fn turn(&mut self, mut ask: impl FnMut(&mut Window) -> WindowStep) -> WindowStep {
        let mut idle = 0;
        loop {
            match ask(&mut self.window) {
                WindowStep::Later => {}
                turn => return turn,
            }
            idle = if self.step() { 0 } else { idle + 1 };
            assert!(idle < 200, "nothing moves, and the caller waits");
        }
    }

    /// Plays a shot. Returns the number of restores on the device, and the sum of the prefetch distances.
    fn play(&mut self, shot: &Shot) -> (usize, u64) {
        let (mut near, mut distances) = (0, 0);
        for op in shot.workload().ops {
            match op {
                Op::Checkpoint { version, bytes } => {
                    let turn = self.turn(|window| window.write(version, bytes).unwrap());
                    if let WindowStep::Near { range, missing } = turn {
                        self.near.extend(blocks(&missing));
                        let is_near = blocks(&range).all(|block| self.near.contains(&block));
                        assert!(is_near, "version {version} is written from afar");
                    }
                    self.window.written(version);
                }
                Op::Restore(version) => {
                    distances += self.window.distance(version);
                    let turn = self.turn(|window| window.read(version).unwrap());
                    if let WindowStep::Near { range, .. } = turn {
                        near += 1;
                        let is_near = blocks(&range).all(|block| self.near.contains(&block));
                        assert!(is_near, "version {version} is read from afar");
                    }
                    self.window.was_read(version, true);
                }
                Op::Hint(versions) => self.window.hint(&versions),
                Op::PrefetchStart => self.window.prefetch_start(),
                Op::Wait => {
                    let wait = |window: &mut Window| match window.drain() {
                        true => WindowStep::Far(0..0),
                        false => WindowStep::Later,
                    };
                    self.turn(wait);
                    assert!(self.near.is_empty(), "flushed, and still on the device");
                }
                Op::Compute(_) => {
                    for _ in 0..self.draw(12) {
                        self.step();
                    }
                }
                Op::Drop(_) | Op::HintNext(_) | Op::ForgetHints(_) | Op::Barrier => {
                    unreachable!("no shot of one does it")
                }
            }
            self.check(self.window.limit);
        }
        (near, distances)
    }
}

#[test]
fn any_shot_comes_to_its_end_within_the_limit() {
    for seed in 0..2000 {
        let mut dice = Mover::new(0, 0, seed);
        let versions = 1 + dice.draw(40);
        let sizes: Vec<_> = (0..versions).map(|_| 1 + dice.draw(24 * BLOCK)).collect();
        let length = Window::length_of(sizes.iter().copied());
        let shot = Shot {
            order: [Order::Sequential, Order::Reverse, Order::Irregular(seed)]
                [dice.draw(3) as usize],
            hints: [Hints::None, Hints::Single, Hints::All][dice.draw(3) as usize],
            wait: dice.draw(2) == 0,
            ..Shot::new(sizes, 1)
        };
        // Limits are from less than one version to more than all.
        let limit = (1 + dice.draw(2 * length / BLOCK)) * BLOCK;
        let mut mover = Mover::new(length, limit, seed + 1000);
        mover.play(&shot);
        for _ in 0..1000 {
            mover.step();
        }
        assert_eq!(
            mover.window.resident, 0,
            "consumed, and still on the device"
        );
    }
}

#[test]
fn hints_bring_versions_before_they_are_read() {
    let shot = |hints| Shot {
        order: Order::Sequential,
        hints,
        ..Shot::new(vec![4 * BLOCK; 64], 1)
    };
    let play = |hints| Mover::new(256 * BLOCK, 64 * BLOCK, 1).play(&shot(hints));
    let (near, distances) = play(Hints::All);
    assert!(near > 32, "{near} of 64 were on the device");
    assert!(distances > 64, "{distances} in 64 restores");
    let (_, distances) = play(Hints::None);
    assert_eq!(distances, 0, "no hint was given");
}

#[test]
fn what_was_written_last_is_still_there() {
    let shot = Shot {
        hints: Hints::None,
        ..Shot::new(vec![4 * BLOCK; 64], 1)
    };
    let (near, _) = Mover::new(256 * BLOCK, 64 * BLOCK, 1).play(&shot);
    assert!((8..=16).contains(&near), "{near} of the last 16");
}

#[test]
fn writing_after_reading_finds_its_room_again() {
    let mut mover = Mover::new(64 * BLOCK, 32 * BLOCK, 1);
    for version in 0..8 {
        if version > 0 {
            mover.turn(|window| window.read(version - 1).unwrap());
            mover.window.was_read(version - 1, false);
        }
        for _ in 0..mover.draw(12) {
            mover.step();
        }
        let turn = mover.turn(|window| window.write(version, 4 * BLOCK).unwrap());
        let WindowStep::Near { range, missing } = turn else {
            panic!("there is room")
        };
        mover.near.extend(blocks(&missing));
        assert!(blocks(&range).all(|block| mover.near.contains(&block)));
        mover.window.written(version);
        mover.check(32 * BLOCK);
    }
}

#[test]
fn a_version_that_is_gone_is_an_error() {
    let mut window = Window::new(8 * BLOCK, 8 * BLOCK);
    assert!(window.read(3).is_err(), "never written");
    assert!(matches!(
        window.write(3, 1).unwrap(),
        WindowStep::Near { .. }
    ));
    window.written(3);
    assert!(window.write(3, 1).is_err(), "written twice");
    assert!(window.discard(3));
    assert!(window.read(3).is_err(), "discarded");
    assert!(window.write(4, 8 * BLOCK).is_err(), "more than its memory");
}

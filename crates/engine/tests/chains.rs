//! The plan and chains of differences that an earlier run left.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod world;

use tierflow_engine::plan::{AfterRestore, Difference, Differences, TierId};
use world::World;

#[test]
fn a_chain_of_an_earlier_run_is_read_and_goes_with_the_last_that_needs_it() {
    let chains = Differences {
        overhead: 2,
        longest: 3,
        ascending: true,
    };
    let mut world = World::of(&[20, 30, 1_000], 1, 0, 0, AfterRestore::Keep, Some(chains));
    let empty = world.plan.free(TierId(2));
    world.adopt_chain(10, &[10, 3, 1], &[2, 1]);
    // Not to what is not there, not of another size, not to one that is whole, not without the stage.
    for (size, base) in [(10, 7), (9, 2)] {
        let difference = Some(Difference {
            bytes: 1,
            base: Some(base),
        });
        world.tell_adopt(5, size, 2, difference);
    }
    assert!(world.plan.versions().all(|version| version < 3));
    world.restore(2);
    world.settle();
    assert_eq!(
        world.restores_from(TierId(0)) + world.restores_from(TierId(1)),
        1
    );
    let used = empty - world.plan.free(TierId(2));
    world.drop_version(0);
    world.drop_version(1);
    world.settle();
    assert_eq!(
        empty - world.plan.free(TierId(2)),
        used,
        "another builds upon them"
    );
    world.restore(2);
    world.settle();
    world.drop_version(2);
    world.settle();
    assert_eq!(world.plan.free(TierId(2)), empty);
    // What comes now builds upon nothing of before, and upon smaller numbers only.
    world.checkpoint_as(9, 10);
    world.wait();
    world.settle();
    world.checkpoint_as(8, 10);
    world.wait();
    world.settle();
    assert_eq!((world.base_of(9), world.base_of(8)), (None, None));
    world.read_back();

    let mut plain = World::new(&[20, 1_000], 1, 0, 0, AfterRestore::Keep);
    let difference = Some(Difference {
        bytes: 1,
        base: None,
    });
    plain.tell_adopt(5, 10, 1, difference);
    assert_eq!(plain.plan.versions().count(), 0);
}

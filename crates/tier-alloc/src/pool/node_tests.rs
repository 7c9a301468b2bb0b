use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use tierflow_testing::{Process, this_test};

use crate::{HostPool, Lease, PoolOptions};

use super::*;

const SLAB: u64 = 2 << 20;

fn pool(directory: &Path, slabs: u64) -> HostPool {
    HostPool::of_node(Some(directory), options(slabs)).unwrap()
}

fn options(slabs: u64) -> PoolOptions {
    PoolOptions::new(slabs * SLAB).slab(SLAB)
}

/// Asks until the lease holds `slabs` slabs.
fn waits_for(lease: &mut Lease, slabs: u64) {
    let begun = Instant::now();
    while lease.ask(slabs * SLAB).unwrap().held < slabs * SLAB {
        assert!(begun.elapsed() < Duration::from_secs(60));
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn members_of_one_directory_share_and_those_of_others_do_not() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (folder.path().join("one"), folder.path().join("other"));
    let mut first = pool(&one, 4).join(100 * SLAB).unwrap();
    let mut second = pool(&one, 4).join(100 * SLAB).unwrap();
    let mut alone = pool(&other, 4).join(100 * SLAB).unwrap();
    assert_eq!(first.ask(4 * SLAB).unwrap().held, 4 * SLAB);
    assert_eq!(alone.ask(4 * SLAB).unwrap().held, 4 * SLAB);
    assert!(!first.has_changed());
    second.ask(3 * SLAB).unwrap();
    assert!(first.has_changed() && !alone.has_changed());
    let terms = first.ask(4 * SLAB).unwrap();
    assert_eq!((terms.held, terms.keep), (4 * SLAB, 2 * SLAB));
    assert_eq!(second.ask(3 * SLAB).unwrap().held, 0, "not given back yet");
    first.give_back(2 * SLAB).unwrap();
    assert_eq!(second.ask(3 * SLAB).unwrap().held, 2 * SLAB);
    drop(first);
    assert_eq!(
        second.ask(3 * SLAB).unwrap().held,
        4 * SLAB,
        "all of it is its equal part now, and no member lacks any"
    );
    assert_eq!(pool(&one, 4).members().unwrap().len(), 1);
}

#[test]
fn a_member_may_want_more_than_there_can_be() {
    let folder = tempfile::tempdir().unwrap();
    for pool in [
        pool(&folder.path().join("pool"), 4),
        HostPool::in_process(options(4)).unwrap(),
    ] {
        let mut lease = pool.join(u64::MAX).unwrap();
        assert_eq!(lease.ask(u64::MAX).unwrap().held, 4 * SLAB);
        assert!(pool.members().unwrap()[0].wanted >= pool.bytes());
    }
}

#[test]
fn all_name_the_same_size_as_long_as_a_member_lives() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("pool");
    let lease = pool(&directory, 4).join(SLAB).unwrap();
    let refused = pool(&directory, 5).join(SLAB).unwrap_err().to_string();
    assert!(refused.contains("4 slabs"), "{refused}");
    drop(lease);
    pool(&directory, 5).join(SLAB).unwrap();
}

#[test]
fn files_are_the_users_own_and_a_directory_that_is_not_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("pool");
    let _lease = pool(&directory, 4).join(SLAB).unwrap();
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&directory), 0o700);
    for entry in std::fs::read_dir(&directory).unwrap() {
        assert_eq!(mode(&entry.unwrap().path()), 0o600);
    }
    std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o750)).unwrap();
    let refused = HostPool::of_node(Some(&directory), options(4)).unwrap_err();
    assert!(refused.to_string().contains("chmod 700"));
}

/// The pool that the child of the test below joins.
const POOL: &str = "TIERFLOW_TEST_POOL";

/// Takes half of the pool. In a child process that is to be killed, the test reports this, and sleeps.
#[test]
fn half_of_a_pool_is_had_and_given_back() {
    let given = std::env::var_os(POOL).map(PathBuf::from);
    let folder = tempfile::tempdir().unwrap();
    let directory = given.clone().unwrap_or_else(|| folder.path().join("pool"));
    let mut lease = pool(&directory, 8).join(4 * SLAB).unwrap();
    assert_eq!(lease.ask(4 * SLAB).unwrap().held, 4 * SLAB);
    if given.is_some() {
        println!("joined");
        thread::sleep(Duration::from_secs(60));
    }
    drop(lease);
    assert_eq!(pool(&directory, 8).members().unwrap(), []);
}

/// Starts a process that has half of the pool.
fn member(directory: &Path) -> Process {
    let mut test = this_test("pool::node::tests::half_of_a_pool_is_had_and_given_back");
    let member = Process::start(test.env(POOL, directory), "joined");
    member.report();
    member
}

#[test]
fn what_a_killed_process_had_is_free() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("pool");
    let mut lease = pool(&directory, 8).join(8 * SLAB).unwrap();
    let (mut first, mut second) = (member(&directory), member(&directory));
    assert_eq!(lease.ask(8 * SLAB).unwrap().held, 0, "both live");
    first.kill();
    waits_for(&mut lease, 2);
    assert_eq!(
        lease.ask(8 * SLAB).unwrap().held,
        4 * SLAB,
        "the second lives"
    );
    second.kill();
    waits_for(&mut lease, 8);
    assert_eq!(pool(&directory, 8).members().unwrap().len(), 1);
}

/// The remains of a process that died in the middle of joining, or of making the pool.
#[test]
fn halves_that_the_dead_left_are_cleared_away() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("pool");
    let first = pool(&directory, 8);
    std::fs::write(directory.join("pool"), [7; 11]).unwrap();
    std::fs::write(directory.join(format!("{:020}", 41)), [1; 5]).unwrap();
    let mut lease = first.join(8 * SLAB).unwrap();
    assert_eq!(lease.ask(8 * SLAB).unwrap().held, 8 * SLAB);
    assert_eq!(first.members().unwrap().len(), 1);
}

/// Checks that members that want more and less all the time never use more than the pool has, by a separate count.
fn never_too_much(open: impl Fn() -> HostPool + Sync) {
    const SLABS: u64 = 7;
    let used = AtomicU64::new(0);
    thread::scope(|scope| {
        for member in 0..4_u64 {
            let (used, open) = (&used, &open);
            scope.spawn(move || {
                let mut lease = open().join(SLABS * SLAB).unwrap();
                let mut state = member + 1;
                let mut mine = 0;
                for _ in 0..300 {
                    state = state
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1);
                    let terms = lease.ask((state >> 33) % (SLABS + 1) * SLAB).unwrap();
                    let held = terms.held / SLAB;
                    let now = used.fetch_add(held - mine, Ordering::SeqCst) + held - mine;
                    assert!(now <= SLABS, "{now} slabs of {SLABS}");
                    mine = held;
                    if terms.keep < terms.held {
                        let keep = terms.keep / SLAB;
                        used.fetch_sub(mine - keep, Ordering::SeqCst);
                        mine = keep;
                        let terms = lease.give_back(terms.keep).unwrap();
                        used.fetch_add(terms.held / SLAB - mine, Ordering::SeqCst);
                        mine = terms.held / SLAB;
                    }
                }
                used.fetch_sub(mine, Ordering::SeqCst);
            });
        }
    });
}

#[test]
fn threads_and_processes_never_use_more_than_there_is() {
    let shared = HostPool::in_process(options(7)).unwrap();
    never_too_much(|| shared.clone());
    let folder = tempfile::tempdir().unwrap();
    // Each member opens its own files, as processes do.
    never_too_much(|| pool(&folder.path().join("pool"), 7));
}

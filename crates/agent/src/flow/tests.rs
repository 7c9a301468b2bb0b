//! Tests of one route, and helpers for tests of several routes.

use super::state::{LONGEST_PAUSE, SHORTEST_PAUSE};
use super::*;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tierflow_store::{Faults, Region, Repository, Snapshot};

/// Waits until `done` returns true. Panics after two minutes.
pub(crate) fn until(mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        let waited = begun.elapsed();
        assert!(waited < Duration::from_secs(120), "it never comes about");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn between(local: &Path, external: &Path) -> Arc<Flow> {
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let route = Route {
        local: text(local),
        external: text(external),
        rank: 0,
        ranks: 1,
    };
    Arc::new(Flow::new(route))
}

/// Makes a route between two directories that do not exist.
fn flow() -> (tempfile::TempDir, Arc<Flow>) {
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join("nowhere").join(name);
    let flow = between(&path("local"), &path("external"));
    (home, flow)
}

/// Makes removals hang until the value is dropped, so that a test that fails meanwhile ends.
pub(crate) struct Hanging(Arc<Faults>);

impl Hanging {
    pub(crate) fn new(faults: &Arc<Faults>) -> Self {
        faults.removals_hang.store(true, Ordering::Relaxed);
        Self(Arc::clone(faults))
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        self.0.removals_hang.store(false, Ordering::Relaxed);
    }
}

/// Makes a route between two directories. The node has version 1.
pub(crate) fn with_version() -> (tempfile::TempDir, Arc<Flow>) {
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(name);
    let flow = between(&path("local"), &path("external"));
    save(&flow, 7);
    (home, flow)
}

/// Puts faults in front of both ends of a route.
pub(crate) fn fail(flow: &Flow, faults: &Arc<Faults>) {
    let ends = faults.during(|| flow.ends().and_then(|ends| ends.node()));
    ends.unwrap();
}

/// Saves version 1 on the node, and replaces an earlier version 1.
fn save(flow: &Flow, byte: u8) {
    save_bytes(flow, &[byte; 1000]);
}

fn save_bytes(flow: &Flow, bytes: &[u8]) {
    let local = Repository::open(Path::new(&flow.route.local), Options::default()).unwrap();
    local.remove(&BTreeSet::from([1])).unwrap();
    let regions = [Region::new("state", bytes)];
    local.save(&Snapshot::new(1, &regions)).unwrap();
}

fn next(flow: &Flow) -> Option<u64> {
    let mut state = flow.state.lock();
    state.next(Instant::now(), Duration::from_secs(60))
}

/// Scans the node, and brings version 1, which is found there.
pub(crate) fn bring(flow: &Flow) {
    flow.scan();
    assert_eq!(next(flow), Some(1));
    flow.bring(1);
}

fn remove(flow: &Flow) -> crate::Result<()> {
    flow.remove(&BTreeSet::from([1]))
}

fn is_brought(flow: &Flow) -> bool {
    let ends = flow.ends().unwrap();
    !ends.external.own_pieces().unwrap().is_empty()
}

/// Returns the first byte of version 1 on external storage.
fn byte_of(flow: &Flow) -> u8 {
    let piece = flow.ends().unwrap().external.own_piece(1).unwrap();
    piece.read("state").unwrap()[0]
}

/// Makes the same route again, as the next agent has it.
fn next_agent(flow: Arc<Flow>) -> Arc<Flow> {
    let route = flow.route.clone();
    drop(flow);
    Arc::new(Flow::new(route))
}

/// Scans the node, and brings all versions that are found.
fn go_on(flow: &Flow) {
    flow.scan();
    while let Some(version) = next(flow) {
        flow.bring(version);
    }
}

/// The removal of a version returns while its copy hangs, and removes the piece that the copy publishes later.
#[test]
fn a_version_removed_while_it_is_copied_does_not_come_back() {
    // Small pieces are copied by batches.
    for bytes in [1000, 2 << 20] {
        let (_home, flow) = with_version();
        let faults = Arc::<Faults>::default();
        fail(&flow, &faults);
        save_bytes(&flow, &vec![7; bytes]);
        let ends = flow.ends().unwrap();
        let run = ends.node().unwrap().last_run().unwrap();
        ends.external.mark(run).unwrap();
        faults.sync_hangs.store(true, Ordering::Relaxed);
        flow.state.lock().watch(1);
        assert_eq!(next(&flow), Some(1));
        let told = std::thread::scope(|scope| {
            let copy = scope.spawn(|| flow.bring(1));
            until(|| faults.sync_waits.load(Ordering::Relaxed));
            let removal = scope.spawn(|| remove(&flow));
            let begun = Instant::now();
            while !removal.is_finished() && begun.elapsed() < Duration::from_secs(20) {
                std::thread::sleep(Duration::from_millis(1));
            }
            let has_returned = removal.is_finished();
            let told = flow.state.lock().outcome(1);
            if has_returned {
                flow.scan();
            }
            faults.sync_hangs.store(false, Ordering::Relaxed);
            removal.join().unwrap().unwrap();
            assert!(copy.join().unwrap().is_some(), "it published the version");
            assert!(has_returned, "the removal waited for the copy");
            told
        });
        let message = told.unwrap().unwrap_err().message;
        assert!(message.contains("was removed"), "{message}");
        assert!(!is_brought(&flow));
        assert!(flow.state.lock().is_idle());
        go_on(&flow);
        assert!(!is_brought(&flow));
    }
}

/// The agent was killed after a copy had published a piece that was removed meanwhile.
#[test]
fn the_next_agent_removes_what_was_published_after_its_removal() {
    let (_home, flow) = with_version();
    bring(&flow);
    remove(&flow).unwrap();
    let ends = flow.ends().unwrap();
    let piece = ends.node().unwrap().own_piece(1).unwrap();
    ends.external.copy(&piece).unwrap();
    drop((ends, piece));
    let flow = next_agent(flow);
    go_on(&flow);
    assert!(!is_brought(&flow));
    // A version that a client asks for is brought, and stays.
    flow.state.lock().watch(1);
    go_on(&flow);
    assert!(matches!(flow.state.lock().outcome(1), Some(Ok(()))));
    let flow = next_agent(flow);
    go_on(&flow);
    assert_eq!(byte_of(&flow), 7);
}

/// The scan listed the node before the removal.
#[test]
fn a_version_removed_during_a_scan_does_not_come_back() {
    let (_home, flow) = with_version();
    let found = flow.new_pieces();
    assert_eq!(found.as_ref().unwrap().len(), 1);
    bring(&flow);
    flow.state.lock().just_brought.clear();
    remove(&flow).unwrap();
    flow.scanned(found, true);
    go_on(&flow);
    assert!(!is_brought(&flow) && flow.state.lock().is_idle());
}

#[test]
fn a_version_removed_while_its_copy_fails_is_not_tried_again() {
    let (_home, flow) = flow();
    flow.state.lock().waiting.insert(1);
    assert_eq!(next(&flow), Some(1));
    assert!(remove(&flow).is_err());
    flow.bring(1);
    assert_eq!(next(&flow), None);
}

/// The mount of the node is away for a while.
#[test]
fn a_removal_is_remembered_though_the_node_was_gone() {
    let (home, flow) = with_version();
    bring(&flow);
    remove(&flow).unwrap();
    let (local, away) = (Path::new(&flow.route.local), home.path().join("away"));
    std::fs::rename(local, &away).unwrap();
    flow.scan();
    remove(&flow).unwrap();
    std::fs::rename(&away, local).unwrap();
    go_on(&flow);
    assert!(!is_brought(&flow));
    let flow = next_agent(flow);
    go_on(&flow);
    assert!(!is_brought(&flow));
}

#[test]
fn removals_of_what_left_the_node_are_forgotten() {
    let (_home, flow) = with_version();
    for _ in 0..9 {
        save(&flow, 7);
        go_on(&flow);
        remove(&flow).unwrap();
    }
    assert_eq!(flow.ends().unwrap().removed().unwrap().len(), 1);
}

#[test]
fn a_piece_saved_under_the_number_of_a_removed_one_is_brought() {
    let (_home, flow) = with_version();
    bring(&flow);
    remove(&flow).unwrap();
    flow.scan();
    assert_eq!(next(&flow), None);
    save(&flow, 8);
    bring(&flow);
    assert_eq!(byte_of(&flow), 8);
}

#[test]
fn a_piece_saved_before_the_older_one_of_its_number_was_removed_is_brought() {
    let (_home, flow) = with_version();
    bring(&flow);
    save(&flow, 8);
    remove(&flow).unwrap();
    bring(&flow);
    assert_eq!(byte_of(&flow), 8);
}

/// The removal would take the new piece with the old one.
#[test]
fn no_piece_is_brought_while_an_older_one_of_its_number_is_removed() {
    let (_home, flow) = with_version();
    let faults = Arc::<Faults>::default();
    fail(&flow, &faults);
    bring(&flow);
    let before = faults.removals.load(Ordering::Relaxed);
    let begun = std::thread::scope(|scope| {
        let hanging = Hanging::new(&faults);
        let removal = scope.spawn(|| remove(&flow));
        until(|| faults.removals.load(Ordering::Relaxed) > before);
        save(&flow, 8);
        flow.state.lock().watch(1);
        let begun = next(&flow);
        drop(hanging);
        removal.join().unwrap().unwrap();
        begun
    });
    assert_eq!(begun, None);
    assert_eq!(next(&flow), Some(1));
    flow.bring(1);
    assert!(matches!(flow.state.lock().outcome(1), Some(Ok(()))));
    assert_eq!(byte_of(&flow), 8);
}

#[test]
fn who_waits_for_a_version_is_told_that_it_is_removed() {
    let (_home, flow) = with_version();
    flow.state.lock().watch(1);
    remove(&flow).unwrap();
    let outcome = flow.state.lock().outcome(1);
    let message = outcome.unwrap().unwrap_err().message;
    assert!(message.contains("was removed"), "{message}");
}

/// The copy that is under way copies the removed piece.
#[test]
fn a_version_asked_for_anew_is_brought_after_the_copy_of_the_removed_one() {
    let (_home, flow) = with_version();
    flow.state.lock().watch(1);
    assert_eq!(next(&flow), Some(1));
    let told = std::thread::scope(|scope| {
        let removal = scope.spawn(|| remove(&flow));
        until(|| !flow.state.lock().removing.is_empty());
        flow.state.lock().unwatch(1);
        flow.state.lock().watch(1);
        flow.bring(1);
        removal.join().unwrap().unwrap();
        flow.state.lock().outcome(1)
    });
    assert!(told.is_none());
    assert_eq!(next(&flow), Some(1));
    flow.bring(1);
    assert!(matches!(flow.state.lock().outcome(1), Some(Ok(()))));
    assert!(is_brought(&flow));
}

#[test]
fn a_route_that_failed_pauses_but_for_what_is_asked_for() {
    let (_home, flow) = flow();
    flow.state.lock().waiting.extend([1, 2]);
    assert_eq!(
        flow.state
            .lock()
            .next(Instant::now(), Duration::from_secs(5)),
        Some(1)
    );
    assert_eq!(flow.bring(1), None);
    let mut state = flow.state.lock();
    let now = Instant::now();
    assert!(
        state.trouble(now).is_some() && state.waiting.contains(&1),
        "it is tried again"
    );
    assert_eq!(state.next(now, Duration::from_secs(5)), None);
    state.watch(2);
    assert_eq!(state.next(now, Duration::from_secs(5)), Some(2));
    drop(state);
    assert_eq!(flow.bring(2), None);
    let mut state = flow.state.lock();
    assert!(matches!(state.outcome(2), Some(Err(_))));
    // Each pause is twice as long as the one before, up to the longest.
    assert_eq!(state.back_off.pause, 4 * SHORTEST_PAUSE);
    assert_eq!(state.next(now, Duration::from_secs(5)), None);
    assert!(
        state
            .next(now + LONGEST_PAUSE, Duration::from_secs(5))
            .is_some()
    );
}

/// Replaces each directory on the node by a file while `work` runs.
fn without_node<T>(flow: &Flow, work: impl FnOnce() -> T) -> T {
    let of_rank = std::fs::read_dir(&flow.route.local).unwrap();
    let of_rank = of_rank.map(|entry| entry.unwrap().path());
    let directories: Vec<_> = of_rank.filter(|path| path.is_dir()).collect();
    for path in &directories {
        std::fs::rename(path, path.with_extension("away")).unwrap();
        std::fs::write(path, "no directory").unwrap();
    }
    let done = work();
    for path in &directories {
        std::fs::remove_file(path).unwrap();
        std::fs::rename(path.with_extension("away"), path).unwrap();
    }
    done
}

#[test]
fn a_node_that_cannot_be_read_does_not_hold_up_external_storage() {
    let (_home, flow) = with_version();
    bring(&flow);
    without_node(&flow, || {
        assert!(remove(&flow).is_err(), "there is no note of it");
        assert!(!is_brought(&flow));
    });
    remove(&flow).unwrap();
    flow.scan();
    assert_eq!(next(&flow), None, "the removed piece does not come back");
}

#[test]
fn a_removal_that_is_repeated_takes_no_piece_that_was_saved_since() {
    let (_home, flow) = with_version();
    bring(&flow);
    without_node(&flow, || assert!(remove(&flow).is_err()));
    save(&flow, 8);
    remove(&flow).unwrap();
    bring(&flow);
    assert_eq!(byte_of(&flow), 8);
    // A later removal removes the piece that was brought.
    remove(&flow).unwrap();
    flow.scan();
    assert_eq!(next(&flow), None);
}

#[test]
fn a_node_that_is_no_directory_does_not_hold_up_external_storage() {
    let (home, flow) = with_version();
    bring(&flow);
    let flow = next_agent(flow);
    let (local, away) = (Path::new(&flow.route.local), home.path().join("away"));
    std::fs::rename(local, &away).unwrap();
    std::fs::write(local, "no directory").unwrap();
    assert!(remove(&flow).is_err(), "there is no note of it");
    assert!(!is_brought(&flow));
}

#[test]
fn a_removal_whose_answer_was_lost_takes_no_piece_that_was_saved_since() {
    for is_killed in [false, true] {
        let (_home, mut flow) = with_version();
        bring(&flow);
        remove(&flow).unwrap();
        save(&flow, 8);
        if is_killed {
            flow = next_agent(flow);
        }
        remove(&flow).unwrap();
        bring(&flow);
        assert_eq!(byte_of(&flow), 8);
    }
}

#[test]
fn a_scan_that_was_late_leaves_no_trouble() {
    let (_home, flow) = with_version();
    let now = Instant::now();
    let later = now + Duration::from_secs(1);
    for is_brought in [false, true] {
        {
            let mut state = flow.state.lock();
            state.scanning = Some(now);
            assert_eq!(state.name_hanging(later), 1);
            assert!(state.trouble(later).is_some());
        }
        flow.scan();
        assert_eq!(flow.state.lock().trouble(later), None);
        if !is_brought {
            assert_eq!(next(&flow), Some(1));
            flow.bring(1);
        }
    }
}

#[test]
fn pieces_that_left_the_node_are_forgotten() {
    let (_home, flow) = with_version();
    bring(&flow);
    remove(&flow).unwrap();
    // The piece is asked for by its number, and was removed.
    flow.state.lock().waiting.insert(1);
    assert_eq!(next(&flow), Some(1));
    assert_eq!(flow.bring(1), None);
    assert_eq!(flow.state.lock().settled.len(), 1);
    save(&flow, 8);
    go_on(&flow);
    assert!(flow.state.lock().settled.is_empty());
}

/// The file system of the node is not mounted when the next agent begins.
#[test]
fn an_empty_mount_point_is_no_node_without_pieces() {
    let (home, flow) = with_version();
    let flow = next_agent(flow);
    let (local, away) = (Path::new(&flow.route.local), home.path().join("away"));
    std::fs::rename(local, &away).unwrap();
    std::fs::create_dir(local).unwrap();
    flow.scan();
    let trouble = flow.status().trouble.unwrap();
    assert!(trouble.contains("mounted"), "{trouble}");
    assert!(!flow.state.lock().scanned_without_clients);
    std::fs::remove_dir(local).unwrap();
    std::fs::rename(&away, local).unwrap();
    flow.scan();
    let after_pause = Instant::now() + LONGEST_PAUSE;
    assert_eq!(flow.state.lock().next(after_pause, LONGEST_PAUSE), Some(1));
    flow.bring(1);
    assert!(is_brought(&flow));
}

#[test]
fn a_panic_before_a_copy_leaves_its_version_to_the_next_attempt() {
    let (_home, flow) = with_version();
    let faults = Arc::<Faults>::default();
    fail(&flow, &faults);
    flow.state.lock().watch(1);
    assert_eq!(next(&flow), Some(1));
    faults.reads_panic.store(true, Ordering::Relaxed);
    assert_eq!(flow.bring(1), None);
    faults.reads_panic.store(false, Ordering::Relaxed);
    assert!(matches!(flow.state.lock().outcome(1), Some(Err(_))));
    flow.state.lock().watch(1);
    assert_eq!(next(&flow), Some(1));
    assert!(flow.bring(1).is_some());
}

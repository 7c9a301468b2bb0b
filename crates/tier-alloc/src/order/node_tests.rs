use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use tierflow_testing::{Process, this_test};

use super::*;

const LONG: Duration = Duration::from_secs(60);

fn later() -> Instant {
    Instant::now() + LONG
}

fn line() -> (tempfile::TempDir, NodeLine) {
    let folder = tempfile::tempdir().unwrap();
    let line = NodeLine::open(folder.path().join("pin")).unwrap();
    (folder, line)
}

#[test]
fn one_at_a_time_in_the_order_of_the_tickets() {
    let (folder, first) = line();
    let stop = Stop::default();
    let mut first = first.join(later(), &stop).unwrap();
    assert!(first.wait(later(), &stop));
    let turn = AtomicUsize::new(0);
    thread::scope(|scope| {
        // Joined in this order, whatever order the threads run in.
        let joined: Vec<_> = (0..8)
            .map(|_| {
                let line = NodeLine::open(folder.path().join("pin")).unwrap();
                line.join(later(), &stop).unwrap()
            })
            .collect();
        for (number, mut ticket) in joined.into_iter().enumerate().rev() {
            let (turn, stop) = (&turn, &stop);
            scope.spawn(move || {
                assert!(ticket.wait(later(), stop));
                assert_eq!(turn.fetch_add(1, Ordering::SeqCst), number);
            });
        }
        thread::sleep(Duration::from_millis(5));
        assert_eq!(turn.load(Ordering::SeqCst), 0, "somebody did not wait");
        drop(first);
    });
    let left = NodeLine::open(folder.path().join("pin")).unwrap().tickets();
    assert_eq!(left.unwrap(), [0; 0], "tickets left behind");
}

#[test]
fn a_ticket_whose_owner_is_gone_is_passed_over() {
    let (folder, line) = line();
    let stop = Stop::default();
    // As a process that died leaves it: there, and locked by nobody.
    std::fs::write(folder.path().join("pin").join(name(41)), "").unwrap();
    let mut ticket = line.join(later(), &stop).unwrap();
    assert!(ticket.path.ends_with(name(42)));
    assert!(ticket.wait(later(), &stop));
    assert_eq!(line.tickets().unwrap(), [42]);
}

/// Where the child of the test below takes its ticket, and whether it waits for its turn.
const LINE: &str = "TIERFLOW_TEST_LINE";

/// Takes a ticket, waits for its turn, and gives it back. In a child process that is to be killed
/// it says so instead, and sleeps.
#[test]
fn a_turn_is_had_and_given_back() {
    let given = std::env::var_os(LINE).map(PathBuf::from);
    let folder = tempfile::tempdir().unwrap();
    let directory = given.clone().unwrap_or_else(|| folder.path().join("pin"));
    let line = NodeLine::open(directory).unwrap();
    let mut ticket = line.join(later(), &Stop::default()).unwrap();
    if given.is_some() {
        println!("joined");
        ticket.wait(later(), &Stop::default());
        thread::sleep(LONG);
    }
    assert!(ticket.wait(later(), &Stop::default()));
    drop(ticket);
    assert_eq!(line.tickets().unwrap(), [0; 0]);
}

/// A process that has joined the line.
fn member(directory: &Path) -> Process {
    let mut test = this_test("order::node::tests::a_turn_is_had_and_given_back");
    let member = Process::start(test.env(LINE, directory), "joined");
    member.report();
    member
}

#[test]
fn nobody_waits_for_a_process_that_was_killed() {
    let (_folder, line) = line();
    let stop = Stop::default();
    // The first has its turn, the second waits for it, and we are the third.
    let mut first = member(&line.directory);
    let mut second = member(&line.directory);
    let mut third = line.join(later(), &stop).unwrap();
    let soon = || Instant::now() + Duration::from_millis(50);
    assert!(!third.wait(soon(), &stop), "both live");
    second.kill();
    assert!(!third.wait(soon(), &stop), "the first lives");
    first.kill();
    assert!(third.wait(later(), &stop));
    assert_eq!(line.tickets().unwrap().len(), 1, "dead tickets left behind");
}

#[test]
fn one_that_leaves_the_line_early_lets_nobody_overtake() {
    let (_folder, line) = line();
    let stop = Stop::default();
    let mut first = line.join(later(), &stop).unwrap();
    assert!(first.wait(later(), &stop));
    let second = line.join(later(), &stop).unwrap();
    let mut third = line.join(later(), &stop).unwrap();
    drop(second);
    let soon = Instant::now() + Duration::from_millis(20);
    assert!(!third.wait(soon, &stop), "the first is not done");
    drop(first);
    assert!(third.wait(later(), &stop));
}

#[test]
fn a_stop_ends_the_wait() {
    let (_folder, line) = line();
    let mut first = line.join(later(), &Stop::default()).unwrap();
    assert!(first.wait(later(), &Stop::default()));
    let workers = crate::workers::Workers::default();
    let stop = workers.stop();
    drop(workers);
    let mut second = line.join(later(), &Stop::default()).unwrap();
    assert!(!second.wait(later(), &stop));
}

#[test]
fn files_are_the_users_own_and_a_directory_that_is_not_is_refused() {
    let (folder, line) = line();
    let ticket = line.join(later(), &Stop::default()).unwrap();
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&ticket.path), 0o600);
    assert_eq!(mode(&line.directory.join("line")), 0o600);
    assert_eq!(mode(&line.directory), 0o700);

    let open = folder.path().join("open");
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o755)).unwrap();
    assert!(NodeLine::open(open).unwrap_err().contains("chmod 700"));
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&line.directory, &link).unwrap();
    assert!(
        NodeLine::open(link)
            .unwrap_err()
            .contains("not a directory")
    );
    let nowhere = folder.path().join("no/where");
    assert!(
        NodeLine::open(nowhere)
            .unwrap_err()
            .contains("cannot be made")
    );
}

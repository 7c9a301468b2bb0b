//! Tests of memory that one process lends to another. The program runs without the test harness, as it starts itself again as the
//! lender: `processes lend PATH`.

#![allow(clippy::unwrap_used, reason = "a test panics where it fails")]

mod common;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use common::{hosts, read, write};
use rustix::process::{Resource, Rlimit, Signal, setrlimit};
use tierflow_device::Device;
use tierflow_peers::{Borrowed, Error, Lender, Loan, Overflow, Remainder, TransferTarget};
use tierflow_placement::{MinTimeMaxFlow, Problem, Share, Strategy, Topology};
use tierflow_testing::{Process, assert_matches, noise};

const PATIENCE: Duration = Duration::from_secs(20);
const SPARE: u64 = 8 << 20;

type Case = (&'static str, fn(&Device));

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["lend", path] => lend(Path::new(path)),
        ["borrow", path] => borrow(Path::new(path)),
        ["copy"] => copy(),
        ["touch"] => touch(),
        // The program has no list of tests, and no ignored ones.
        ref other if other.contains(&"--list") || other.contains(&"--ignored") => {}
        _ => {
            let device = hosts(1, 64 << 20).remove(0);
            let cases: [Case; 8] = [
                ("a loan is recalled and given back", recalled),
                ("a lender lends what it has", no_more_than_spare),
                ("a lender that dies", lender_dies),
                ("a lender of another user", another_user),
                ("a process that says nonsense", nonsense),
                ("a wait that is interrupted over and over", interrupted),
                ("a process that may start few threads", few_threads),
                ("a process that may start no thread", no_threads),
            ];
            for (name, case) in cases {
                case(&device);
                println!("test {name} ... ok");
            }
        }
    }
}

/// Lends memory until the process is killed. Recalls each loan once the memory has the bytes that belong to its length.
fn lend(path: &Path) {
    let device = hosts(1, SPARE).remove(0);
    let lender = Lender::bind(&device, path, SPARE).unwrap();
    loop {
        let lent = match lender.lend(PATIENCE) {
            Ok(lent) => lent,
            Err(Error::TimedOut { .. }) => return,
            Err(error) => {
                println!("{error}");
                continue;
            }
        };
        let len = lent.chunk().len();
        let own = device.reserve_for_exported(len).unwrap();
        own.map_exported(0, lent.chunk()).unwrap();
        while read(&device, own.memory(), len) != noise(len as u64, len) {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(own);
        lent.recall().unwrap();
        lent.wait_returned(PATIENCE).unwrap();
        drop(lent);
        assert_eq!(lender.spare(), SPARE);
    }
}

/// Asks for memory from a lender that does not answer.
fn borrow(path: &Path) {
    println!("asks");
    let error = Borrowed::ask(path, 1, Duration::from_secs(1)).unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error}");
    println!("gave up");
}

struct Neighbour {
    process: Process,
    path: PathBuf,
    _folder: tempfile::TempDir,
}

fn lender() -> Neighbour {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lender");
    let mut command = Command::new(std::env::current_exe().unwrap());
    let process = Process::start(command.arg("lend").arg(&path), "");
    Neighbour {
        process,
        path,
        _folder: folder,
    }
}

fn wait_for_recall(loan: &Loan) -> bool {
    (0..20_000).any(|_| {
        std::thread::sleep(Duration::from_millis(1));
        loan.is_recalled().unwrap()
    })
}

fn recalled(device: &Device) {
    let lender = lender();
    for len in [4 << 20, 1 << 20] {
        let loan = Loan::ask(device, &lender.path, len as u64, PATIENCE).unwrap();
        assert!(!loan.is_recalled().unwrap());
        write(device, loan.memory(), &noise(len as u64, len));
        assert!(
            wait_for_recall(&loan),
            "the lender saw what was written, and wants it back"
        );
        // The borrower may save the bytes first. Meanwhile the loan cannot be given back.
        let reader = loan.memory().lend(0..1).unwrap();
        assert_matches!(loan.give_back(), Err(Error::Device { .. }));
        drop(reader);
        loan.give_back().unwrap();
    }
}

fn no_more_than_spare(device: &Device) {
    let lender = lender();
    assert_matches!(
        Loan::ask(device, &lender.path, SPARE + 1, PATIENCE),
        Err(Error::NothingToLend { spare: SPARE, .. })
    );
    let nothing = Loan::ask(device, &lender.path, 0, PATIENCE).unwrap_err();
    assert!(matches!(nothing, Error::NothingToLend { .. }), "{nothing}");
    let all = Loan::ask(device, &lender.path, SPARE, PATIENCE).unwrap();
    assert_eq!(all.memory().len() as u64, SPARE);
    let absent = Path::new("/nonexistent/lender");
    let absent = Loan::ask(device, absent, 1, Duration::from_millis(50)).unwrap_err();
    assert!(matches!(absent, Error::TimedOut { .. }), "{absent}");
}

fn lender_dies(device: &Device) {
    let mut lender = lender();
    let loan = Loan::ask(device, &lender.path, 1 << 20, PATIENCE).unwrap();
    let bytes = noise(5, 1 << 20);
    write(device, loan.memory(), &bytes);
    lender.process.kill();
    assert_matches!(loan.is_recalled(), Err(Error::Gone { .. }));
    // Mapped memory stays mapped: reading it kills no process.
    assert!(read(device, loan.memory(), bytes.len()) == bytes);
    assert_matches!(loan.give_back(), Err(Error::Gone { .. }));
}

/// Runs only as root, which can start a process of another user.
fn another_user(device: &Device) {
    if !rustix::process::geteuid().is_root() {
        println!("NOT RUN: a lender of another user; run the test as root");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
    let path = folder.path().join("lender");
    // The other user may not be allowed to enter the folder in which the test was built.
    let program = folder.path().join("test");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let mut command = Command::new(program);
    let _lender = Process::start(command.uid(61_103).arg("lend").arg(&path), "");
    let refused = Loan::ask(device, &path, 1 << 20, PATIENCE).unwrap_err();
    assert!(
        matches!(&refused, Error::Protocol(why) if why.contains("another user")),
        "{refused}"
    );
}

fn nonsense(device: &Device) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lender");
    let lender = Lender::bind(device, &path, SPARE).unwrap();
    // A stream socket cannot even connect.
    assert!(std::os::unix::net::UnixStream::connect(&path).is_err());
    let early = lender.lend(Duration::from_millis(20)).unwrap_err();
    assert!(matches!(early, Error::TimedOut { .. }), "{early}");
    drop(lender);
    assert!(!path.exists());
}

/// Stops and continues a process again and again, as a debugger does. Each of its waits is interrupted, and its calls succeed.
fn interrupted(device: &Device) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lender");
    let _lender = Lender::bind(device, &path, SPARE).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    let mut borrower = Process::start(command.arg("borrow").arg(&path), "");
    assert_eq!(borrower.report(), "asks");
    let id = rustix::process::Pid::from_raw(borrower.id().cast_signed()).unwrap();
    let ended = (0..200).any(|_| {
        for signal in [Signal::STOP, Signal::CONT] {
            rustix::process::kill_process(id, signal).unwrap();
            std::thread::sleep(Duration::from_millis(50));
        }
        borrower.has_ended()
    });
    assert!(ended, "it waits for ever");
    assert_eq!(borrower.report(), "gave up");
}

fn few_threads(_: &Device) {
    assert_eq!(report_with_large_stacks("copy"), "refused");
}

fn no_threads(_: &Device) {
    assert_eq!(report_with_large_stacks("touch"), "touched");
}

/// Runs this program in a process whose threads have stacks of 32 MiB. Returns its report.
fn report_with_large_stacks(argument: &str) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let command = command.arg(argument).env("RUST_MIN_STACK", "33554432");
    Process::start(command, "").report()
}

/// Limits this process to `room` more bytes of address space.
fn limit_address_space(room: u64) {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = pages.split(' ').next().unwrap().parse().unwrap();
    let room = Some(pages * rustix::param::page_size() as u64 + room);
    let limit = Rlimit {
        current: room,
        maximum: room,
    };
    setrlimit(Resource::As, limit).unwrap();
}

/// Allocates host memory for a transfer without room for the stack of a thread.
fn touch() {
    let devices = hosts(2, 64 << 20);
    let mut shares = [Share::Spare(1 << 20); 8];
    shares[0] = Share::Remainder(1 << 20);
    let topology = Topology::dgx_1();
    let problem = Problem::new(&topology, &shares).unwrap();
    let schedule = MinTimeMaxFlow::default().schedule(&problem).unwrap();
    limit_address_space(24 << 20);
    let target = TransferTarget::on_host(&devices[0], &schedule.transfers()[0]).unwrap();
    assert!(target.memory.host_accessible());
    println!("touched");
}

/// Copies to eight peers at once, with room for the stack of one thread.
fn copy() {
    let devices = hosts(8, 64 << 20);
    let mut shares = [Share::Spare(1 << 20); 8];
    shares[0] = Share::Remainder(6 << 20);
    let topology = Topology::dgx_1();
    let problem = Problem::new(&topology, &shares).unwrap();
    let schedule = MinTimeMaxFlow::default().schedule(&problem).unwrap();
    assert!(schedule.transfers().len() > 2);
    let overflow = Overflow::new(&devices, &schedule).unwrap();
    let memory = devices[0].alloc(6 << 20).unwrap();
    let remainders = [Some(Remainder { memory, start: 0 })];
    limit_address_space(48 << 20);
    let refused = overflow.store(&remainders, PATIENCE);
    assert!(matches!(refused, Err(Error::System { .. })), "{refused:?}");
    println!("refused");
}

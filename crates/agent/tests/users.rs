//! Two users of one node share its scratch directory, each with an agent and a job. Neither can read, remove, change or delay the files
//! and processes of the other, and the directory of each job stays within its limit.
//!
//! Only root can start processes of other users. The tests print that they did not run if another user runs them.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod homes;

use homes::{Home, PROGRAM, bytes_of};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tierflow_agent::Client;
use tierflow_device::{Choice, open};
use tierflow_engine::{Engine, Error, Region, RegionMut, Tier};
use tierflow_store::{Options, Repository};
use tierflow_testing::{Process, assert_matches};

/// Numbers of two users that no system has.
const USERS: [u32; 2] = [61_101, 61_102];
const ROLE: &str = "TIERFLOW_USERS_ROLE";
const ROOT: &str = "TIERFLOW_USERS_ROOT";
const OTHER: &str = "TIERFLOW_USERS_OTHER";
/// The bytes that a job may have on the node.
const LIMIT: u64 = 8 << 20;
/// Versions that fit into the cache and the limit together, and those of a job.
const FEW: u64 = 6;
const ALL: u64 = 48;
const THREADS: usize = 3;

/// A node. Every user may make directories in its directories.
struct Node {
    root: PathBuf,
    _kept: Option<tempfile::TempDir>,
}

impl Node {
    /// Returns `None` if this process may not start processes of other users.
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("NOT RUN: users other than this one; run the test as root");
            return None;
        }
        let kept = tempfile::tempdir().unwrap();
        let node = Self {
            root: kept.path().to_owned(),
            _kept: Some(kept),
        };
        fs::set_permissions(&node.root, Permissions::from_mode(0o755)).unwrap();
        for name in ["scratch", "local", "external"] {
            let path = node.root.join(name);
            fs::create_dir(&path).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o1777)).unwrap();
        }
        // Other users may not be allowed to enter the folders in which the programs were built.
        fs::copy(PROGRAM, node.root.join("agent")).unwrap();
        fs::copy(std::env::current_exe().unwrap(), node.root.join("test")).unwrap();
        Some(node)
    }

    fn command(&self, program: &str, user: u32) -> Command {
        let mut command = Command::new(self.root.join(program));
        command.uid(user).gid(user).current_dir(&self.root);
        command
    }

    fn agent(&self, user: u32) -> Process {
        let mut agent = self.command("agent", user);
        Process::start(agent.arg(self.root.join("scratch")), "")
    }

    /// Starts a process of the user in which the test `child` plays the role.
    fn start(&self, role: &str, user: u32) -> Process {
        let mut process = self.command("test", user);
        process
            .args(["--exact", "child", "--nocapture"])
            .env(ROLE, role)
            .env(ROOT, &self.root);
        let [first, second] = USERS;
        let other = if user == first { second } else { first };
        Process::start(process.env(OTHER, other.to_string()), "did ")
    }

    fn done(&self, role: &str, user: u32) {
        assert!(self.start(role, user).wait().success(), "{role} of {user}");
    }

    /// Returns the directories of a user's job.
    fn home(&self, user: u32) -> Home {
        let of = |name: &str| self.root.join(name).join(user.to_string());
        Home::at(self.root.join("scratch"), of("local"), of("external"))
    }

    /// Returns the paths of all files and directories that the user owns.
    fn belongings(&self, user: u32) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut folders = vec![self.root.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                // An agent at work removes files.
                let Ok(metadata) = path.symlink_metadata() else {
                    continue;
                };
                if metadata.is_dir() {
                    folders.push(path.clone());
                }
                if metadata.uid() == user {
                    found.push(path);
                }
            }
        }
        found.sort();
        found
    }

    /// Returns the files of the user's job on the node: the path, the inode and the bytes on the disk of each.
    fn files(&self, user: u32) -> Vec<(PathBuf, u64, u64)> {
        let local = self.home(user).near;
        let mut files = self.belongings(user);
        files.retain(|path| path.starts_with(&local));
        let file = |path: PathBuf| {
            let metadata = path.symlink_metadata().ok()?;
            Some((path, metadata.ino(), metadata.blocks() * 512))
        };
        files.into_iter().filter_map(file).collect()
    }

    /// Returns the bytes of the user's job on the node. Lists the files until two lists agree, so that none came or went meanwhile.
    fn used(&self, user: u32) -> u64 {
        let mut before = self.files(user);
        loop {
            let files = self.files(user);
            if files == before {
                return files.into_iter().map(|(_, _, bytes)| bytes).sum();
            }
            before = files;
        }
    }

    /// Waits for the processes of both users. Returns the most bytes that either job had on the node meanwhile.
    fn watched(&self, processes: &mut [Process; 2]) -> u64 {
        let mut most = 0;
        while !processes.iter_mut().all(Process::has_ended) {
            most = USERS
                .map(|user| self.used(user))
                .into_iter()
                .fold(most, u64::max);
        }
        for process in processes {
            assert!(process.wait().success());
        }
        most
    }
}

/// The work of a process of one user. Does nothing without a role, as in an ordinary run of all tests.
#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let root = PathBuf::from(std::env::var_os(ROOT).unwrap());
    let node = Node { root, _kept: None };
    let home = node.home(rustix::process::geteuid().as_raw());
    let other: u32 = std::env::var(OTHER).unwrap().parse().unwrap();
    match role.as_str() {
        "job" => job(&home),
        "stuck job" => stuck_job(&home),
        "job that goes on" => goes_on(&home),
        "intruder" => intrude(&node, other),
        "idle agent" => home.until(|| {
            let status = Client::connect(&home.scratch).unwrap().status();
            status.unwrap().routes.is_empty()
        }),
        "stop" => Client::connect(&home.scratch).unwrap().stop().unwrap(),
        _ => unreachable!("{role}"),
    }
}

fn engine(home: &Home) -> Engine {
    home.until(|| Client::connect(&home.scratch).is_ok());
    let vault = home.vault(None);
    assert!(vault.has_agent());
    let device = open(Choice::Host).unwrap();
    let near = Tier::node_local(&home.near).limit(LIMIT);
    let builder = Engine::builder(&device).host_cache(8 << 20).tier(near);
    builder.tier(Tier::vault(vault)).build().unwrap()
}

/// Returns the bytes of a version: small ones, and large ones of several lengths, so that the file of one is not reused as it is for the next.
fn length_of(version: u64) -> usize {
    [1_100_000, 1_600_000, 2_200_000, 3_000][version as usize % 4]
}

fn checkpoint(engine: &Engine, version: u64) {
    let bytes = bytes_of(version, length_of(version));
    let regions = [Region::from(bytes.as_slice())];
    engine.checkpoint(version, &regions).unwrap();
}

/// A job: several threads write several times the limit of its directory. Prints the process of its agent.
fn job(home: &Home) {
    let engine = engine(home);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let versions = (0..ALL).skip(thread).step_by(THREADS);
            let engine = &engine;
            scope.spawn(move || versions.for_each(|version| checkpoint(engine, version)));
        }
    });
    engine.wait().unwrap();
    let status = Client::connect(&home.scratch).unwrap().status().unwrap();
    let routes = status.routes.iter();
    let routes: Vec<&str> = routes.map(|route| route.route.local.as_str()).collect();
    assert_eq!(routes, [home.near.to_str().unwrap()]);
    drop(engine);
    assert_eq!(home.external(), (0..ALL).collect::<Vec<_>>());
    println!("did {}", status.process);
}

/// A job whose external storage cannot be used, so no version may leave the node.
fn stuck_job(home: &Home) {
    let engine = engine(home);
    (0..FEW).for_each(|version| checkpoint(&engine, version));
    let error = engine.wait().unwrap_err();
    assert_matches!(error, Error::Stalled { cause: Some(_), .. });
    println!("did {error}");
    io::stdout().flush().unwrap();
}

/// Opens the directories of an ended job again: all versions are there, and a new one becomes durable.
fn goes_on(home: &Home) {
    let engine = engine(home);
    for version in 0..ALL {
        let mut bytes = vec![0; length_of(version)];
        let mut regions = [RegionMut::from(bytes.as_mut_slice())];
        engine.restore(version, &mut regions).unwrap();
        assert!(bytes == bytes_of(version, length_of(version)));
    }
    checkpoint(&engine, ALL);
    engine.wait().unwrap();
}

/// Tries ten kinds of access to each file and directory of another user. Root wrote the list of these before.
fn intrude(node: &Node, other: u32) {
    let taken = node.root.join("scratch/taken");
    assert!(fs::read_dir(node.root.join("scratch")).is_ok());
    let listed = fs::read_to_string(node.root.join("belongings")).unwrap();
    let mut attempts = 0;
    let mut refused = |what: &str, path: &Path, attempt: io::Result<()>| {
        attempts += 1;
        assert!(attempt.is_err(), "{what} {}", path.display());
    };
    for path in listed.lines().map(Path::new) {
        refused("opens", path, File::open(path).map(drop));
        let appended = OpenOptions::new().append(true).open(path);
        refused("writes", path, appended.map(drop));
        refused("lists", path, fs::read_dir(path).map(drop));
        refused("adds to", path, File::create(path.join("new")).map(drop));
        refused("connects to", path, UnixStream::connect(path).map(drop));
        refused("moves", path, fs::rename(path, &taken));
        refused("links", path, fs::hard_link(path, &taken));
        let opened = fs::set_permissions(path, Permissions::from_mode(0o777));
        refused("lets others into", path, opened);
        refused("removes", path, fs::remove_file(path));
        refused("removes all of", path, fs::remove_dir_all(path));
    }
    let theirs = node.home(other);
    for place in [&theirs.near, &theirs.far] {
        assert!(Repository::read_only(place, Options::default()).is_err());
        assert!(Repository::open(place, Options::default()).is_err());
        assert!(Repository::maintain(place, Options::default()).is_err());
    }
    println!("did {attempts}");
}

#[test]
fn two_users_with_an_agent_and_a_job_each_do_not_meet() {
    let Some(node) = Node::new() else {
        return;
    };
    let mut agents = USERS.map(|user| node.agent(user));
    let mut jobs = USERS.map(|user| node.start("job", user));
    let most = node.watched(&mut jobs);
    assert!((1..=LIMIT).contains(&most), "{most} bytes of {LIMIT}");
    for (job, agent) in jobs.iter().zip(&agents) {
        assert_eq!(job.report(), agent.id().to_string());
    }
    // Each user tries to reach the files of the other while both agents are idle.
    USERS.iter().for_each(|&user| node.done("idle agent", user));
    let [first, second] = USERS;
    for (user, other) in [(first, second), (second, first)] {
        let belongings = node.belongings(other);
        let listed: Vec<&str> = belongings
            .iter()
            .map(|path| path.to_str().unwrap())
            .collect();
        fs::write(node.root.join("belongings"), listed.join("\n")).unwrap();
        let mut intruder = node.start("intruder", user);
        assert!(intruder.wait().success());
        let attempts: usize = intruder.report().parse().unwrap();
        assert_eq!(attempts, 10 * belongings.len());
        assert_eq!(node.belongings(other), belongings);
        println!("{attempts} attempts on {} belongings", belongings.len());
    }
    // The jobs of both users continue.
    for user in USERS {
        node.done("job that goes on", user);
        node.done("stop", user);
    }
    agents
        .iter_mut()
        .for_each(|agent| assert!(agent.wait().success()));
}

#[test]
fn a_job_at_its_limit_is_told_and_holds_up_no_other_user() {
    let Some(node) = Node::new() else {
        return;
    };
    let _agents = USERS.map(|user| node.agent(user));
    let [stuck, other] = USERS;
    // A file has the path of its external storage.
    fs::write(node.home(stuck).far, "").unwrap();
    let mut jobs = [node.start("stuck job", stuck), node.start("job", other)];
    let most = node.watched(&mut jobs);
    assert!((1..=LIMIT).contains(&most), "{most} bytes of {LIMIT}");
    let told = jobs[0].report();
    assert!(told.contains("external"), "{told}");
}

#[test]
fn names_that_others_have_taken_keep_no_agent_away() {
    for plant in [
        "mkdir -m 700 .tierflow-agent",
        "mkdir -m 777 .tierflow-agent",
        "touch .tierflow-agent",
        "ln -s /tmp .tierflow-agent",
        "mkfifo .tierflow-agent",
        "mkdir .tierflow-agent .tierflow-agent.1 && touch .tierflow-agent.2",
    ] {
        let Some(node) = Node::new() else {
            return;
        };
        let [user, planter] = USERS;
        let mut planted = Command::new("sh");
        planted.uid(planter).gid(planter).args(["-c", plant]);
        let planted = planted.current_dir(node.root.join("scratch")).status();
        assert!(planted.unwrap().success());
        let before = node.belongings(planter);
        let mut agent = node.agent(user);
        let mut job = node.start("job", user);
        assert!(job.wait().success(), "{plant}");
        assert_eq!(job.report(), agent.id().to_string());
        node.done("stop", user);
        assert!(agent.wait().success());
        assert_eq!(node.belongings(planter), before);
    }
}

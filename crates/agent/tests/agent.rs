//! Tests of the agent through its clients. The agent is a separate process that may end at any time.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod homes;

use homes::{Home, PROGRAM, bytes_of, length_of};
use std::collections::BTreeSet;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::{Duration, Instant};
use tierflow_agent::{Client, Error, Settings, serve};
use tierflow_engine::Error as EngineError;
use tierflow_store::{Options, Repository, Vault};
use tierflow_testing::assert_matches;

#[test]
fn an_engine_waits_for_the_pieces_that_the_agent_brings() {
    let home = Home::new();
    let mut agent = home.agent(&[]);
    let vault = home.vault(None);
    assert!(vault.has_agent());
    let engine = home.engine(vault);
    (0..12).for_each(|version| home.checkpoint(&engine, version));
    engine.wait().unwrap();
    assert_eq!(home.external(), (0..12).collect::<Vec<_>>());
    let status = Client::connect(&home.scratch).unwrap().status().unwrap();
    assert_eq!(status.process, agent.id());
    assert!(status.routes[0].brought >= 12, "{status:?}");
    assert_eq!(status.routes[0].trouble, None);
    // A discarded version is removed from external storage too, and the agent does not bring it again.
    engine.discard(3).unwrap();
    drop(engine);
    home.stop(&mut agent);
    assert_eq!(home.external(), [0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11]);
    home.check();
}

#[test]
fn pieces_that_an_application_left_are_brought_after_its_end() {
    let home = Home::new();
    let mut agent = home.agent(&[]);
    let vault = home.vault(None);
    // The application saves on the node, tells no agent of it, and ends.
    let local = home.local();
    (0..8).for_each(|version| homes::save(&local, version));
    drop((local, vault));
    home.until(|| home.external().len() == 8);
    // No client is on the route, and nothing is left: the directory is free for others.
    home.until(|| {
        let status = Client::connect(&home.scratch).unwrap().status().unwrap();
        status.routes.is_empty()
    });
    home.stop(&mut agent);
    home.check();
}

#[test]
fn an_agent_that_was_killed_continues_from_the_disk() {
    let home = Home::new();
    let mut agent = home.agent(&[]);
    let vault = home.vault(None);
    agent.kill();
    let local = home.local();
    (0..8).for_each(|version| homes::save(&local, version));
    drop((local, vault));
    assert!(home.external().is_empty());
    let mut agent = home.agent(&["--exit-when-idle", "0"]);
    assert!(agent.wait().success());
    assert_eq!(home.external(), (0..8).collect::<Vec<_>>());
    home.check();
}

#[test]
fn removed_pieces_do_not_come_back_after_the_agent_was_killed() {
    let home = Home::new();
    let mut agent = home.agent(&[]);
    let vault = home.vault(None);
    let local = home.local();
    [0, 3].into_iter().for_each(|version| {
        homes::save(&local, version);
        let piece = local.own_piece(version).unwrap();
        vault.copy(&piece, &|| Ok(())).unwrap();
    });
    // The node still has both.
    vault.remove(&BTreeSet::from([0, 3])).unwrap();
    agent.kill();
    // Another piece takes the number of one of them.
    local.remove(&BTreeSet::from([3])).unwrap();
    homes::save(&local, 3);
    homes::save(&local, 6);
    drop((local, vault));
    for _ in 0..2 {
        let mut agent = home.agent(&["--exit-when-idle", "0"]);
        assert!(agent.wait().success());
        assert_eq!(home.external(), [3, 6]);
        // The removed pieces do not come back either when a client opens the route again.
        let mut agent = home.agent(&[]);
        drop(home.vault(None));
        home.stop(&mut agent);
        assert_eq!(home.external(), [3, 6]);
    }
    home.check();
}

#[test]
fn without_an_agent_the_application_does_it_itself() {
    let home = Home::new();
    let vault = home.vault(None);
    assert!(!vault.has_agent());
    let engine = home.engine(vault);
    (0..5).for_each(|version| home.checkpoint(&engine, version));
    engine.wait().unwrap();
    assert_eq!(home.external(), [0, 1, 2, 3, 4]);
    engine.discard(2).unwrap();
    drop(engine);
    assert_eq!(home.external(), [0, 1, 3, 4]);
}

/// No node has an agent, and one is killed before it has brought all of its versions.
#[test]
fn without_an_agent_versions_that_another_node_left_behind_do_not_count() {
    let kept = tempfile::tempdir().unwrap();
    let path = |name: &str| kept.path().join(name);
    let [one, other] =
        ["one", "other"].map(|near| Home::at(path("scratch"), path(near), path("far")));
    std::fs::create_dir(&one.scratch).unwrap();
    let (local, vault) = (one.local(), one.vault(None));
    for version in 1..10 {
        homes::save(&local, version);
        if version <= 5 {
            let piece = local.own_piece(version).unwrap();
            vault.copy(&piece, &|| Ok(())).unwrap();
        }
    }
    drop((local, vault));
    let engine = other.engine(other.vault(None));
    assert_eq!(engine.latest(None), Some(5));
    (6..9).for_each(|version| other.checkpoint(&engine, version));
    engine.wait().unwrap();
    drop(engine);
    let engine = one.engine(one.vault(None));
    assert_eq!(engine.latest(None), Some(8));
}

#[test]
fn pieces_removed_without_an_agent_are_not_brought_by_a_later_one() {
    let home = Home::new();
    let vault = home.vault(None);
    assert!(!vault.has_agent());
    let local = home.local();
    for version in [0, 3] {
        homes::save(&local, version);
        let piece = local.own_piece(version).unwrap();
        vault.copy(&piece, &|| Ok(())).unwrap();
    }
    // The node still has both.
    vault.remove(&BTreeSet::from([0, 3])).unwrap();
    // The application copies version 3 again after its removal.
    let piece = local.own_piece(3).unwrap();
    vault.copy(&piece, &|| Ok(())).unwrap();
    drop((local, vault));
    let mut agent = home.agent(&[]);
    drop(home.vault(None));
    home.stop(&mut agent);
    assert_eq!(home.external(), [3]);
    home.check();
}

#[test]
fn a_suspension_goes_by_way_of_the_agent() {
    let home = Home::new();
    let mut agent = home.agent(&[]);
    let engine = home.engine(home.vault(None));
    (0..6).for_each(|version| home.checkpoint(&engine, version));
    let soon = Instant::now() + Duration::from_secs(60);
    let suspension = engine.suspend(Some(5), soon).unwrap();
    assert!(suspension.wait().unwrap());
    assert!(home.external().contains(&5));
    drop(engine);
    home.stop(&mut agent);
    home.check();
}

#[test]
fn an_agent_that_dies_is_done_without() {
    let home = Home::new();
    let mut agent = home.agent(&[]);
    let engine = home.engine(home.vault(None));
    (0..3).for_each(|version| home.checkpoint(&engine, version));
    engine.wait().unwrap();
    agent.kill();
    (3..6).for_each(|version| home.checkpoint(&engine, version));
    engine.wait().unwrap();
    assert_eq!(home.external(), [0, 1, 2, 3, 4, 5]);
    drop(engine);
    home.check();
}

#[test]
fn a_vault_starts_the_agent_if_it_has_its_program() {
    let home = Home::new();
    let vault = home.vault(Some(Path::new(PROGRAM)));
    assert!(vault.has_agent());
    let engine = home.engine(vault);
    home.checkpoint(&engine, 1);
    engine.wait().unwrap();
    drop(engine);
    Client::connect(&home.scratch).unwrap().stop().unwrap();
    home.until(|| Client::connect(&home.scratch).is_err());
    home.check();
}

#[test]
fn an_agent_that_cannot_be_started_is_done_without() {
    let home = Home::new();
    let vault = home.vault(Some(Path::new("/nonexistent/tierflow-agent")));
    let engine = home.engine(vault);
    home.checkpoint(&engine, 1);
    engine.wait().unwrap();
    assert_eq!(home.external(), [1]);
}

#[test]
fn two_agents_of_one_directory_are_one_too_many() {
    let home = Home::new();
    let mut agent = home.agent(&[]);
    let second = serve(&home.scratch, Settings::default());
    assert!(matches!(second, Err(Error::Busy { .. })), "{second:?}");
    let second = std::process::Command::new(PROGRAM)
        .arg(&home.scratch)
        .output();
    let second = second.unwrap();
    let said = String::from_utf8_lossy(&second.stderr);
    assert!(
        !second.status.success() && said.contains("another agent serves"),
        "{said}"
    );
    home.stop(&mut agent);
}

#[test]
fn external_storage_that_is_not_there_yet_is_tried_again() {
    let mut home = Home::new();
    home.far = home.far.join("not/mounted");
    let mut agent = home.agent(&[]);
    let engine = home.engine(home.vault(None));
    home.checkpoint(&engine, 1);
    assert_matches!(
        engine.wait(),
        Err(EngineError::Stalled {
            versions: 1,
            cause: Some(_)
        })
    );
    std::fs::create_dir_all(home.far.parent().unwrap()).unwrap();
    drop(engine);
    home.until(|| home.far.exists() && home.external() == [1]);
    home.stop(&mut agent);
}

/// An agent that waits before its next attempt is told to end: it makes that attempt at once.
#[test]
fn an_agent_that_is_stopped_tries_once_more() {
    let mut home = Home::new();
    home.far = home.far.join("not/mounted");
    homes::save(&home.local(), 1);
    let mut agent = home.agent(&[]);
    drop(home.vault(None));
    // After several failed attempts the agent waits for longer than this test does.
    std::thread::sleep(Duration::from_secs(4));
    std::fs::create_dir_all(home.far.parent().unwrap()).unwrap();
    home.stop(&mut agent);
    assert_eq!(home.external(), [1]);
}

#[test]
fn files_planted_by_others_are_refused() {
    let home = Home::new();
    let own = home.scratch.join(".tierflow-agent");
    let refused = |what: &str| {
        let client = Client::connect(&home.scratch);
        assert!(
            matches!(client, Err(Error::Refused { .. })),
            "{what}: {client:?}"
        );
    };
    let serve = || serve(&home.scratch, Settings::default());
    // A directory that others may enter.
    std::fs::create_dir(&own).unwrap();
    for mode in [0o750, 0o701, 0o777] {
        std::fs::set_permissions(&own, std::fs::Permissions::from_mode(mode)).unwrap();
        refused("an open directory");
        assert!(matches!(serve(), Err(Error::Refused { .. })));
    }
    std::fs::set_permissions(&own, std::fs::Permissions::from_mode(0o700)).unwrap();
    // A file, and a link to another socket, in the socket's place.
    std::fs::write(own.join("socket"), "").unwrap();
    refused("a file");
    std::fs::remove_file(own.join("socket")).unwrap();
    let elsewhere = home.scratch.parent().unwrap().join("elsewhere");
    let _listener = UnixListener::bind(&elsewhere).unwrap();
    symlink(&elsewhere, own.join("socket")).unwrap();
    refused("a link");
    // A file of routes with other contents, and a link in its place.
    std::fs::write(own.join("routes.json"), "[1]").unwrap();
    assert!(matches!(serve(), Err(Error::Refused { .. })));
    std::fs::remove_file(own.join("routes.json")).unwrap();
    symlink("/etc/passwd", own.join("routes.json")).unwrap();
    assert!(matches!(serve(), Err(Error::Refused { .. })));
    // A link in the directory's place is not followed: there is no agent, and one that starts makes a directory beside it.
    let moved = home.scratch.join("moved");
    std::fs::rename(&own, &moved).unwrap();
    symlink(&moved, &own).unwrap();
    assert_matches!(Client::connect(&home.scratch), Err(Error::Absent { .. }));
    let once = Settings {
        idle: Some(Duration::ZERO),
        ..Settings::default()
    };
    tierflow_agent::serve(&home.scratch, once).unwrap();
    assert!(home.scratch.join(".tierflow-agent.1/lock").exists());
    assert_eq!(std::fs::read_link(moved.join("socket")).unwrap(), elsewhere);
}

#[test]
fn leftovers_do_not_replace_versions_of_another_run() {
    let home = Home::new();
    let options = Options::default();
    let write = |directory: &Path, version: u64, bytes: &[u8]| {
        let repository = Repository::open(directory, options.clone()).unwrap();
        let regions = [tierflow_store::Region::new("state", bytes)];
        let snapshot = tierflow_store::Snapshot::new(version, &regions);
        repository.save(&snapshot).unwrap();
    };
    // The node has versions that no agent brought, and a run on another node wrote one of these numbers to external storage.
    for version in 1..4 {
        write(&home.near, version, b"left");
    }
    write(&home.far, 3, b"acknowledged");
    let mut agent = home.agent(&[]);
    drop(home.vault(None));
    home.until(|| home.external() == [1, 2, 3]);
    home.stop(&mut agent);
    // The second agent finds external storage as the first one left it, and also leaves version 3 as it is.
    let mut agent = home.agent(&[]);
    drop(home.vault(None));
    home.stop(&mut agent);
    let read = |version| {
        let far = Repository::read_only(&home.far, options.clone()).unwrap();
        far.piece(version).unwrap().read("state").unwrap()
    };
    assert_eq!(read(2), b"left");
    assert_eq!(read(3), b"acknowledged");
    // The next run on the node knows of the run elsewhere, removes its version 3 and saves another one of that number.
    let order = tierflow_store::Order::default();
    let far = Repository::read_only(&home.far, options.clone()).unwrap();
    order.see(far.last_run().unwrap().epoch, 0);
    let near = Repository::open(&home.near, options.clone().order(&order)).unwrap();
    near.remove(&BTreeSet::from([3])).unwrap();
    homes::save(&near, 3);
    let mut agent = home.agent(&[]);
    let vault = home.vault(None);
    vault.copy(&near.own_piece(3).unwrap(), &|| Ok(())).unwrap();
    assert_eq!(read(3), bytes_of(3, length_of(3)));
    drop((near, vault));
    home.stop(&mut agent);
}

#[test]
fn leftovers_behind_another_runs_version_are_not_brought() {
    let home = Home::new();
    let near = home.local();
    (1..6).for_each(|version| homes::save(&near, version));
    // Two of the versions are on external storage, as if the agent was killed then. A later run elsewhere continues from them.
    let order = tierflow_store::Order::default();
    order.see(near.last_run().unwrap().epoch, 0);
    let far = Repository::open(&home.far, Options::default().order(&order)).unwrap();
    (1..3).for_each(|version| far.copy(&near.own_piece(version).unwrap()).unwrap());
    homes::save(&far, 3);
    drop((near, far));
    let mut agent = home.agent(&[]);
    drop(home.vault(None));
    // The agent ends once every piece that it may bring is on external storage.
    home.stop(&mut agent);
    assert_eq!(home.external(), [1, 2, 3]);
}

#[test]
fn versions_of_a_group_are_completed_by_its_agents() {
    let home = Home::new();
    let mut agent = home.agent(&[]);
    let mut locals = Vec::new();
    for rank in 0..3 {
        let options = Options::default().rank(rank, 3).run(5);
        let near = home.near.with_extension(rank.to_string());
        let local = Repository::open(&near, options).unwrap();
        homes::save(&local, 1);
        let connection =
            tierflow_agent::AgentConnection::new(&home.scratch, &near, &home.far).rank(rank, 3);
        let vault = connection.open().unwrap();
        assert_eq!(vault.versions().unwrap(), []);
        vault
            .copy(&local.own_piece(1).unwrap(), &|| Ok(()))
            .unwrap();
        locals.push((local, vault));
    }
    let versions = locals[0].1.versions().unwrap();
    assert_eq!((versions[0].version, versions[0].ranks), (1, 3));
    let bytes = locals[2].1.piece(1).unwrap().read("state").unwrap();
    assert!(bytes == bytes_of(1, length_of(1)));
    locals[0].1.remove(&BTreeSet::from([1])).unwrap();
    assert_eq!(locals[1].1.versions().unwrap(), []);
    drop(locals);
    home.stop(&mut agent);
}

#[test]
fn a_group_agrees_whether_or_not_an_agent_answers() {
    let home = Home::new();
    let mut agent = home.agent(&[]);
    let ranks = |run: u64| -> Vec<_> {
        std::thread::scope(|scope| {
            let rank = |rank: u32| {
                let home = &home;
                scope.spawn(move || home.rank(rank, 2, run))
            };
            let threads = [rank(0), rank(1)];
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        })
    };
    let mut newest = None;
    for run in 1..=4 {
        let engines = ranks(run);
        for engine in &engines {
            assert_eq!(engine.latest(None), newest, "run {run}");
        }
        let first = newest.map_or(0, |newest| newest + 1);
        // Rank 1 gets two versions further.
        for (engine, end) in engines.iter().zip([first + 3, first + 5]) {
            (first..end).for_each(|version| home.checkpoint(engine, version));
            engine.wait().unwrap();
        }
        newest = Some(first + 2);
        drop(engines);
        if run == 2 {
            home.stop(&mut agent);
        }
    }
}

//! Tests of external storage through an agent.

use super::*;
use std::sync::atomic::Ordering;
use tierflow_store::{Faults, Region};

#[test]
fn a_version_whose_saving_hangs_holds_up_no_other_call() {
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(name);
    let connection = AgentConnection::new(home.path(), path("near"), path("far"));
    let faults = Arc::<Faults>::default();
    let vault = faults.during(|| connection.open()).unwrap();
    // There is no agent, so the vault writes to external storage itself from then on.
    vault.remove(&BTreeSet::from([1])).unwrap();
    faults.sync_hangs.store(true, Ordering::Relaxed);
    let bytes = vec![7; 2 << 20];
    let regions = [Region::new("state", &bytes)];
    let (is_saving, is_free) = std::thread::scope(|scope| {
        let saving = scope.spawn(|| vault.save(&Snapshot::new(2, &regions), &|| Ok(())));
        let hangs = || faults.sync_waits.load(Ordering::Relaxed) || saving.is_finished();
        crate::flow::tests::until(hangs);
        let found = (
            !saving.is_finished(),
            vault.writer.open.try_lock().is_some(),
        );
        faults.sync_hangs.store(false, Ordering::Relaxed);
        saving.join().unwrap().unwrap();
        found
    });
    assert!(is_saving && is_free);
}

#[test]
fn external_storage_that_is_slow_to_open_holds_up_no_other_call() {
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(name);
    let connection = AgentConnection::new(home.path(), path("near"), path("far"));
    let faults = Arc::<Faults>::default();
    let vault = faults.during(|| connection.open()).unwrap();
    faults.sync_hangs.store(true, Ordering::Relaxed);
    let regions = [Region::new("state", &[7])];
    let versions = BTreeSet::from([1]);
    let is_free = std::thread::scope(|scope| {
        let removing = [0, 1].map(|_| scope.spawn(|| vault.remove(&versions)));
        crate::flow::tests::until(|| faults.sync_waits.load(Ordering::Relaxed));
        let saving = scope.spawn(|| {
            vault.renumber(3);
            vault.save(&Snapshot::new(2, &regions), &|| Ok(()))
        });
        let begun = Instant::now();
        while !saving.is_finished() && begun.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let is_free = saving.is_finished();
        faults.sync_hangs.store(false, Ordering::Relaxed);
        let _depends_on_the_order = saving.join().unwrap();
        // Both removals use the storage that one of them opened.
        for removing in removing {
            removing.join().unwrap().unwrap();
        }
        is_free
    });
    assert!(is_free);
}

/// Bytes that come one by one do not restart the client's time limit.
#[test]
fn an_answer_that_does_not_come_as_a_whole_breaks_the_connection() {
    let (stream, mut agent) = UnixStream::pair().unwrap();
    let silence = Duration::from_millis(300);
    let mut client = Client { stream, silence };
    let begun = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // The length of a frame, and the 256 bytes of the frame.
            let head = [0, 1, 0, 0];
            for byte in head.into_iter().chain([b' '; 256]) {
                if std::io::Write::write_all(&mut agent, &[byte]).is_err() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let status = client.status();
        assert!(matches!(status, Err(Error::Connection(_))), "{status:?}");
        assert!(begun.elapsed() < Duration::from_secs(3));
        drop(client);
    });
}

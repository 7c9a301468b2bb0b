//! How engines and slots end. One test, as the list of open engines is the process's.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tierflow_bind::{
    Door, EngineHandle, Failure, Options, OrderAfter, Slot, SlotEnd, Status, Until, end_of_process,
};

const MIB: usize = 1 << 20;

static LOST: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn lost(failure: &Failure) {
    LOST.lock().unwrap().push(failure.to_string());
}

fn open(external: &Path, patience: &str) -> Arc<EngineHandle> {
    let mut options = Options::default();
    for (key, value) in [
        ("device", "host"),
        ("host_cache", "64MiB"),
        ("closing_patience", patience),
        ("external", external.to_str().unwrap()),
    ] {
        options.set(key, value).unwrap().unwrap();
    }
    let door = Door {
        lost,
        ..Door::default()
    };
    EngineHandle::open(options, door).unwrap()
}

fn versions(external: &Path) -> Vec<u64> {
    open(external, "60").engine.versions()
}

fn produce(engine: &Arc<EngineHandle>, version: u64) {
    let mut slot = Slot::produce(engine, version, 16 * MIB, Until::default()).unwrap();
    slot.end(SlotEnd::Keep, OrderAfter::AllWork).unwrap();
    let again = slot.end(SlotEnd::Cancel, OrderAfter::AllWork);
    assert_eq!(again.unwrap_err().status, Status::Closed);
}

#[test]
fn engines_end_as_they_say() {
    let home = tempfile::tempdir().unwrap();
    let place = |name: &str| home.path().join(name);
    // 16 MiB are not durable within no time: the engine stays open, and closes when it may wait.
    let engine = open(&place("closed"), "60");
    produce(&engine, 1);
    let none = Until::patience(Duration::ZERO);
    assert_eq!(
        Failure::from(engine.close(none).unwrap_err()).status,
        Status::TimedOut
    );
    produce(&engine, 2);
    engine.close(Until::default()).unwrap();
    // A slot may hold it beyond that, and what is committed then is durable, too.
    let mut slot = Slot::produce(&engine, 3, 10, Until::default()).unwrap();
    drop(engine);
    slot.end(SlotEnd::Keep, OrderAfter::AllWork).unwrap();
    drop(slot);
    assert_eq!(versions(&place("closed")), [1, 2, 3]);

    // Nobody closes it: its end waits.
    let engine = open(&place("dropped"), "60");
    produce(&engine, 1);
    drop(Slot::produce(&engine, 2, 10, Until::default()).unwrap());
    drop(engine);
    assert_eq!(versions(&place("dropped")), [1]);
    assert!(LOST.lock().unwrap().is_empty());

    // It may not wait: what is lost is named once.
    let engine = open(&place("lost"), "0");
    produce(&engine, 7);
    drop(engine);
    let told = std::mem::take(&mut *LOST.lock().unwrap());
    assert_eq!(told.len(), 1);
    assert!(told[0].starts_with("version 7 is lost"), "{told:?}");

    // The process ends.
    let (waits, hurries) = (open(&place("waits"), "60"), open(&place("hurries"), "0"));
    produce(&waits, 1);
    produce(&hurries, 5);
    let told = end_of_process(None);
    assert_eq!(told.len(), 1);
    assert!(told[0].text.starts_with("version 5 is lost"), "{told:?}");
    assert!(waits.engine.is_durable(1));
    assert!(end_of_process(None).is_empty());
    drop((waits, hurries));
    assert!(LOST.lock().unwrap().is_empty(), "it was told before");
}

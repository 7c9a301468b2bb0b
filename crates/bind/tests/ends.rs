//! Tests how engines and slots end. All is one test, as the process has one list of open engines.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tierflow_bind::{
    Door, EngineHandle, Failure, Level, LevelFilter, Options, OrderAfter, Slot, SlotEnd, Status,
    Until, end_of_process, log_to,
};

const MIB: usize = 1 << 20;

static LOST: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn lost(failure: &Failure) {
    LOST.lock().unwrap().push(failure.to_string());
}

fn options(external: &Path) -> Options {
    let mut options = Options::default();
    for (key, value) in [
        ("device", "host"),
        ("host_cache", "64MiB"),
        ("external", external.to_str().unwrap()),
    ] {
        options.set(key, value).unwrap().unwrap();
    }
    options
}

fn open(external: &Path) -> Arc<EngineHandle> {
    let door = Door {
        lost,
        ..Door::default()
    };
    EngineHandle::open(options(external), door).unwrap()
}

fn versions(external: &Path) -> Vec<u64> {
    open(external).engine.versions()
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
    let engine = open(&place("closed"));
    (1..3).for_each(|version| produce(&engine, version));
    engine.close(Until::default()).unwrap();
    // A slot may keep the engine open after `close`. A version that is committed then becomes durable, too.
    let mut slot = Slot::produce(&engine, 3, 10, Until::default()).unwrap();
    drop(engine);
    slot.end(SlotEnd::Keep, OrderAfter::AllWork).unwrap();
    drop(slot);
    assert_eq!(versions(&place("closed")), [1, 2, 3]);

    // The engine writes its statistics when it ends, by `close` or by its drop.
    for closes in [true, false] {
        let mut options = options(&place("measured"));
        let file = place(&format!("{closes}-%r.json"));
        options
            .set("statistics", file.to_str().unwrap())
            .unwrap()
            .unwrap();
        options.set("rank", "0").unwrap().unwrap();
        let engine = EngineHandle::open(options, Door::default()).unwrap();
        produce(&engine, 1 + u64::from(closes));
        assert!(
            engine
                .statistics()
                .starts_with(r#"{"rank":0,"ranks":1,"host":""#)
        );
        if closes {
            engine.close(Until::default()).unwrap();
        } else {
            drop(engine);
        }
        let text = std::fs::read_to_string(place(&format!("{closes}-0.json"))).unwrap();
        assert!(text.contains(r#"{"call":"produce","value":1}"#), "{text}");
    }
    // A missing directory of the statistics is no error.
    let mut none = options(&place("measured"));
    none.set("statistics", "/nonexistent/file")
        .unwrap()
        .unwrap();
    let engine = EngineHandle::open(none, Door::default()).unwrap();
    engine.close(Until::default()).unwrap();
    drop(engine);

    // An engine that is dropped without `close` waits until its versions are durable.
    let engine = open(&place("dropped"));
    produce(&engine, 1);
    drop(Slot::produce(&engine, 2, 10, Until::default()).unwrap());
    drop(engine);
    assert_eq!(versions(&place("dropped")), [1]);
    assert!(LOST.lock().unwrap().is_empty());

    // Storage is gone: `close` fails, the engine stays open, and the lost versions are named once.
    let engine = open(&place("lost"));
    std::fs::remove_dir_all(place("lost")).unwrap();
    produce(&engine, 7);
    let error = engine.close(Until::default()).unwrap_err();
    assert_eq!(Failure::from(error).status, Status::Stalled);
    assert!(engine.engine.versions().contains(&7));
    drop(engine);
    let told = std::mem::take(&mut *LOST.lock().unwrap());
    assert_eq!(told.len(), 1);
    assert!(told[0].starts_with("version 7 is lost"), "{told:?}");

    // The end of the process waits for one engine, and names the lost versions of the other.
    let (waits, loses) = (open(&place("waits")), open(&place("loses")));
    std::fs::remove_dir_all(place("loses")).unwrap();
    produce(&waits, 1);
    produce(&loses, 5);
    end_of_process(None);
    let told = std::mem::take(&mut *LOST.lock().unwrap());
    assert_eq!(told.len(), 1);
    assert!(told[0].starts_with("version 5 is lost"), "{told:?}");
    assert!(waits.engine.is_durable(1));
    end_of_process(None);
    drop((waits, loses));
    assert!(LOST.lock().unwrap().is_empty(), "it was told before");

    // The versions that a suspension gave up are named in the log, once.
    let lines = Arc::new(Mutex::new(Vec::new()));
    let written = Arc::clone(&lines);
    let sink = move |level, text: &str| written.lock().unwrap().push((level, text.to_owned()));
    log_to(LevelFilter::Warn, Arc::new(sink));
    let engine = open(&place("suspended"));
    produce(&engine, 1);
    engine.wait(Until::default()).unwrap();
    std::fs::remove_dir_all(place("suspended")).unwrap();
    (2..5).for_each(|version| produce(&engine, version));
    assert_eq!(
        engine.suspend(None, Duration::ZERO).unwrap().version,
        Some(1)
    );
    end_of_process(None);
    drop(engine);
    let lines = std::mem::take(&mut *lines.lock().unwrap());
    let named = "versions 2 to 4 are lost, as the engine ended before that was durable";
    assert!(
        lines.contains(&(Level::Warn, named.to_owned())),
        "{lines:?}"
    );
    assert_eq!(
        lines
            .iter()
            .filter(|(_, text)| text.contains("lost"))
            .count(),
        1
    );
    assert!(LOST.lock().unwrap().is_empty());
}

//! An engine that ends without `close`, or whose suspension dropped versions, names the lost versions in the log.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Debug;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tierflow_device::{Choice, open};
use tierflow_engine::{Engine, Region, Tier};
use tierflow_store::{Faults, Options, Repository};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// A subscriber that collects the warnings of this thread.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

struct Message<'a>(&'a mut String);

impl Visit for Message<'_> {
    fn record_debug(&mut self, _: &Field, value: &dyn Debug) {
        *self.0 += &format!("{value:?}");
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = String::new();
        event.record(&mut Message(&mut text));
        self.0.lock().unwrap().push(text);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Returns the warnings of an engine whose directory can no longer be written once version 1 is durable.
fn warnings(end: impl Fn(Engine)) -> Vec<String> {
    let home = tempfile::tempdir().unwrap();
    let faults = Arc::new(Faults::default());
    let builder = Engine::builder(&open(Choice::Host).unwrap())
        .host_cache(8 << 20)
        .external(home.path())
        .closing_patience(Duration::from_millis(50));
    let engine = faults.during(|| builder.build()).unwrap();
    let bytes = [5_u8; 4096];
    engine.checkpoint(1, &[Region::from(&bytes[..])]).unwrap();
    engine.wait().unwrap();
    faults.full.store(true, Ordering::Relaxed);
    for version in 2..5 {
        engine
            .checkpoint(version, &[Region::from(&bytes[..])])
            .unwrap();
    }
    let warnings = Warnings::default();
    tracing::subscriber::with_default(warnings.clone(), || end(engine));
    Arc::into_inner(warnings.0).unwrap().into_inner().unwrap()
}

const LOST: &str = "versions 2 to 4 are lost, as the engine ended before that was durable";

#[test]
fn an_engine_that_is_dropped_names_what_is_lost() {
    assert_eq!(warnings(drop), [LOST]);
}

#[test]
fn versions_that_a_suspension_gave_up_are_named_once_the_engine_is_closed() {
    let warned = warnings(|engine| {
        let suspension = engine.suspend(None, Instant::now()).unwrap();
        assert_eq!(suspension.version(), Some(1));
        engine.close().unwrap();
    });
    assert_eq!(warned, [LOST]);
}

#[test]
fn versions_that_an_error_names_are_not_named_again() {
    let warned = warnings(|engine| {
        let error = engine.close().unwrap_err().to_string();
        assert!(error.contains("versions 2 to 4 are lost"), "{error}");
    });
    assert_eq!(warned, Vec::<String>::new());
}

const TOLD: &str = "versions 2 to 4 are on this node alone, where the next engine finds that, as the engine ended before that was durable";

#[test]
fn versions_that_lie_on_the_node_are_not_called_lost() {
    let (node, external) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let faults = Arc::new(Faults::default());
    let open_external = || Repository::open(external.path(), Options::default());
    let far = Arc::new(faults.during(open_external).unwrap());
    let build = || {
        let builder = Engine::builder(&open(Choice::Host).unwrap()).host_cache(8 << 20);
        let builder = builder
            .node_local(node.path())
            .tier(Tier::vault(Arc::clone(&far) as _));
        builder
            .closing_patience(Duration::from_millis(50))
            .build()
            .unwrap()
    };
    let bytes = [5_u8; 4096];
    for is_closed in [false, true] {
        let engine = build();
        faults.full.store(true, Ordering::Relaxed);
        for version in 2..5 {
            engine
                .checkpoint(version, &[Region::from(&bytes[..])])
                .unwrap();
        }
        while !(2..5).all(|version| engine.call().is_kept(version)) {
            std::thread::yield_now();
        }
        let warnings = Warnings::default();
        tracing::subscriber::with_default(warnings.clone(), || {
            if is_closed {
                let error = engine.close().unwrap_err();
                assert!(error.to_string().starts_with(TOLD), "{error}");
            } else {
                drop(engine);
            }
        });
        let warned = if is_closed { &[][..] } else { &[TOLD] };
        assert_eq!(*warnings.0.lock().unwrap(), warned);
        faults.full.store(false, Ordering::Relaxed);
        let next = build();
        assert_eq!(next.versions(), [2, 3, 4]);
        (2..5).for_each(|version| next.discard(version).unwrap());
    }
}

#[test]
fn an_engine_that_nothing_outlives_ends_without_a_word() {
    let engine = Engine::builder(&open(Choice::Host).unwrap())
        .host_cache(1 << 20)
        .build()
        .unwrap();
    engine.checkpoint(1, &[Region::from(&[0; 64][..])]).unwrap();
    let warnings = Warnings::default();
    tracing::subscriber::with_default(warnings.clone(), || drop(engine));
    assert_eq!(*warnings.0.lock().unwrap(), Vec::<String>::new());
}

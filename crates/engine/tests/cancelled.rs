//! A version that is discarded while it is copied to a durable tier is not published there.

#![allow(clippy::unwrap_used, clippy::panic)]

mod vaults;

use std::sync::{Arc, Condvar, Mutex};
use tierflow_device::{Choice, open};
use tierflow_engine::{Engine, Region, Tier};
use tierflow_store::{Error, Result};
use tierflow_testing::assert_matches;
use vaults::{Call, Watch, Watched};

/// The state of the save of the first version.
#[derive(Debug, Default)]
enum Save {
    #[default]
    NotBegun,
    Begun,
    Discarded,
    Over(Result<()>),
}

/// Holds the save of the first version back until the version was discarded.
#[derive(Debug, Default)]
struct Slow {
    save: Mutex<Save>,
    changed: Condvar,
}

impl Slow {
    fn wait(&self, until: impl Fn(&Save) -> bool) {
        let save = self.save.lock().unwrap();
        drop(self.changed.wait_while(save, |save| !until(save)).unwrap());
    }

    fn set(&self, save: Save) {
        *self.save.lock().unwrap() = save;
        self.changed.notify_all();
    }
}

impl Watch for Slow {
    fn meet(&self, call: Call<'_>) -> Result<()> {
        match call {
            Call::Save(0) => {
                self.set(Save::Begun);
                self.wait(|save| matches!(save, Save::Discarded));
            }
            Call::Saved(0, saved) => self.set(Save::Over(saved.clone())),
            _ => {}
        }
        Ok(())
    }
}

#[test]
fn a_version_discarded_on_its_way_is_not_published() {
    // A version with a file of its own, and one in a segment.
    for length in [3_000_000, 1_000] {
        let home = tempfile::tempdir().unwrap();
        let vault = Watched::new(home.path(), Slow::default());
        let device = open(Choice::Host).unwrap();
        let engine = Engine::builder(&device)
            .host_cache(16 << 20)
            .tier(Tier::vault(Arc::clone(&vault) as _));
        let engine = engine.build().unwrap();
        let bytes = vec![7; length];
        let regions = [Region::from(bytes.as_slice())];
        engine.checkpoint(0, &regions).unwrap();
        vault.wait(|save| matches!(save, Save::Begun));
        engine.discard(0).unwrap();
        vault.set(Save::Discarded);
        vault.wait(|save| matches!(save, Save::Over(_)));
        let over = std::mem::take(&mut *vault.save.lock().unwrap());
        assert_matches!(over, Save::Over(Err(Error::Cancelled)));
        // The next version becomes durable.
        engine.checkpoint(1, &regions).unwrap();
        engine.wait().unwrap();
        let versions = vault.directory.versions().unwrap();
        let versions: Vec<u64> = versions.iter().map(|info| info.version).collect();
        assert_eq!(versions, [1]);
    }
}

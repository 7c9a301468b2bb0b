//! Options, pools of host memory, and the opening and closing of engines.

use std::ffi::c_char;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tierflow_bind::{Door, Options, Pool, Until};
use tierflow_tier_alloc::{HostPool, PoolOptions};

use crate::core::OpenEngine;
use crate::failure::{Failure, Outcome, exported};
use crate::ffi::{In, Out, Text};
use crate::group::{Group, RawGroup};
use crate::handles::{Handle, Named};

type LockedOptions = Mutex<Options>;

impl Named for LockedOptions {
    const NAME: &'static str = "tf_options";
}

impl Named for HostPool {
    const NAME: &'static str = "tf_host_pool";
}

#[unsafe(no_mangle)]
extern "C" fn tf_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

exported! {
    fn tf_options_new(options: Out<Handle<LockedOptions>>) {
        options.exists("options")?;
        options.put(Handle::new(LockedOptions::new(Options::of_site(|_| true)?)), "options")
    }

    fn tf_options_set(options: Handle<LockedOptions>, key: Text<'_>, value: Text<'_>) {
        let options = options.get()?;
        let (key, value) = (key.read("key")?, value.read("value")?);
        let unknown = || Err(Failure::argument(format!("no option is called {key:?}")));
        options.lock().set(key, value).unwrap_or_else(unknown)
    }

    fn tf_options_free(options: Handle<LockedOptions>) { options.take().map(drop) }

    fn tf_host_pool_new(bytes: u64, slab: u64, pool: Out<Handle<HostPool>>) {
        pool.exists("pool")?;
        let options = PoolOptions::new(bytes);
        let options = if slab == 0 { options } else { options.slab(slab) };
        let made = HostPool::in_process(options).map_err(tierflow_engine::Error::from)?;
        pool.put(Handle::new(made), "pool")
    }

    fn tf_options_set_pool(options: Handle<LockedOptions>, pool: Handle<HostPool>) {
        let pool = HostPool::clone(&*pool.get()?);
        options.get()?.lock().host_pool = Some(Pool::Given(pool));
        Ok(())
    }

    fn tf_host_pool_free(pool: Handle<HostPool>) { pool.take().map(drop) }

    fn tf_open(options: Handle<LockedOptions>, group: In<'_, RawGroup>, engine: Out<Handle<OpenEngine>>) {
        // The group comes first: the caller has given it away, so that it is released if anything below fails.
        let group = group.read().as_ref().map(Group::new).transpose()?;
        let options = options.get()?.lock().clone();
        engine.exists("engine")?;
        let core = OpenEngine::open(Door::default(), &options, group.map(Arc::new))?;
        engine.put(Handle::new(core), "engine")
    }

    fn tf_close(engine: Handle<OpenEngine>) {
        let core = engine.take()?;
        let until = Until::patience(core.closing_patience());
        let closed = core.lends_nothing().and_then(|()| Ok(core.close(until)?));
        match closed {
            Ok(()) => close(core),
            Err(failure) => {
                engine.put_back(core);
                Err(failure)
            }
        }
    }

    fn tf_end(engine: Handle<OpenEngine>) {
        let core = engine.take()?;
        if let Err(failure) = core.lends_nothing() {
            engine.put_back(core);
            return Err(failure);
        }
        core.end(Duration::ZERO)
    }
}

/// Ends an engine once its versions are durable, if its lowest tier outlives it. A failure names the lost versions.
pub(crate) fn close(core: OpenEngine) -> Outcome {
    let patience = core.closing_patience();
    core.end(patience)
}

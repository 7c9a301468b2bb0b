//! Storage in memory whose reads and writes take their time, and which can be closed.

use shuttle::thread::yield_now;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tierflow_store::{Error, Result, Storage};

/// Storage in memory. The state uses the locks of `std`, which shuttle does not explore.
#[derive(Debug, Default)]
pub(crate) struct Store {
    pages: Mutex<BTreeMap<u64, Vec<u8>>>,
    closed: AtomicBool,
    refuses: AtomicBool,
    /// True after an access behind the close. A panic at the access would count as an error of the storage.
    misused: AtomicBool,
}

const PAGE: usize = 4096;

impl Store {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Forbids further accesses.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    /// Lets every write fail from now on.
    pub(crate) fn refuse_writes(&self) {
        self.refuses.store(true, Ordering::SeqCst);
    }

    fn look(&self) {
        let closed = self.closed.load(Ordering::SeqCst);
        self.misused.fetch_or(closed, Ordering::SeqCst);
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let misused = self.misused.load(Ordering::SeqCst);
        assert!(
            !misused || std::thread::panicking(),
            "used after its engine was gone"
        );
    }
}

impl Storage for Store {
    fn alignment(&self) -> usize {
        PAGE
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.look();
        yield_now();
        self.look();
        if self.refuses.load(Ordering::SeqCst) {
            let bytes = bytes.len();
            return Err(Error::Full {
                place: None,
                offset,
                bytes,
            });
        }
        let pages = (offset..).step_by(PAGE).zip(bytes.chunks(PAGE));
        for (at, page) in pages {
            self.pages.lock().unwrap().insert(at, page.to_vec());
            yield_now();
        }
        Ok(())
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.look();
        for (at, page) in (offset..).step_by(PAGE).zip(bytes.chunks_mut(PAGE)) {
            yield_now();
            self.look();
            match self.pages.lock().unwrap().get(&at) {
                Some(stored) => page.copy_from_slice(stored),
                None => page.fill(0),
            }
        }
        Ok(())
    }
}

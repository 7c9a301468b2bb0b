//! Runs the test suite of every repository over object stores.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod common;

use common::{change, path_of, remove};
use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use std::sync::Arc;
use std::time::Duration;
use tierflow_objects::ObjectBlobs;
use tierflow_store::conformance::Home;
use tierflow_store::{Options, Repository, Result};

/// A place for a repository: a store that is empty at first.
#[derive(Debug)]
struct StoreHome {
    store: Arc<dyn ObjectStore>,
    /// The directory of a store on files.
    _directory: Option<tempfile::TempDir>,
}

impl StoreHome {
    fn in_memory() -> Self {
        Self {
            store: Arc::new(InMemory::new()),
            _directory: None,
        }
    }

    fn in_directory() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self {
            store: Arc::new(LocalFileSystem::new_with_prefix(directory.path()).unwrap()),
            _directory: Some(directory),
        }
    }

    fn blobs(&self) -> Result<Arc<ObjectBlobs>> {
        let patience = Duration::from_secs(60);
        ObjectBlobs::new(Arc::clone(&self.store), "runs/7", patience).map(Arc::new)
    }
}

impl Home for StoreHome {
    fn open(&self, options: Options) -> Result<Repository> {
        Repository::open_blobs(self.blobs()?, options)
    }

    fn read(&self) -> Result<Repository> {
        Ok(Repository::read_blobs(self.blobs()?, Options::default()))
    }

    fn maintain(&self) -> Result<Repository> {
        Repository::maintain_blobs(self.blobs()?, Options::default())
    }

    fn damage(&self, version: u64, how: &dyn Fn(&mut [u8])) {
        change(&self.store, &path_of(version), |bytes| how(bytes));
    }

    fn lose(&self, version: u64) {
        remove(&self.store, &path_of(version));
    }
}

mod in_memory {
    tierflow_store::repository_suite!(super::StoreHome::in_memory());
}

mod in_a_directory {
    tierflow_store::repository_suite!(super::StoreHome::in_directory());
}

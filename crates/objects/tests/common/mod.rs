//! Helpers that save versions in an object store, and change its objects.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "helpers of tests; each test file uses a part"
)]

use futures_util::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};
use std::sync::Arc;
use tierflow_objects::{Settings, repository};
use tierflow_store::{Error, Region, Repository, Snapshot, Vault};

/// Returns the bytes of a version.
pub(crate) fn bytes_of(version: u64, length: usize) -> Vec<u8> {
    let word = |i: u64| {
        (version + 1)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            .rotate_left(i as u32 % 63)
            ^ i
    };
    (0..length as u64).map(|i| (word(i) >> 8) as u8).collect()
}

/// Saves a version of one region.
pub(crate) fn save(vault: &dyn Vault, version: u64, bytes: &[u8]) -> Result<(), Error> {
    let regions = [Region::new("state", bytes)];
    vault.save(&Snapshot::new(version, &regions), &|| Ok(()))
}

/// Returns the versions that a vault lists.
pub(crate) fn numbers(vault: &dyn Vault) -> Vec<u64> {
    let versions = vault.versions().unwrap();
    versions.into_iter().map(|info| info.version).collect()
}

/// Returns the vault of a single rank.
pub(crate) fn objects(store: &Arc<dyn ObjectStore>) -> Repository {
    open(store, "runs/7", Settings::default())
}

/// Returns the vault of a rank under a prefix.
pub(crate) fn open(store: &Arc<dyn ObjectStore>, prefix: &str, settings: Settings) -> Repository {
    repository(Arc::clone(store), prefix, &settings).unwrap()
}

/// Opens the versions of all ranks for maintenance.
pub(crate) fn all_ranks(store: &Arc<dyn ObjectStore>) -> Repository {
    let patience = std::time::Duration::from_secs(60);
    let blobs = tierflow_objects::ObjectBlobs::new(Arc::clone(store), "runs/7", patience).unwrap();
    Repository::maintain_blobs(Arc::new(blobs), tierflow_store::Options::default()).unwrap()
}

/// Changes the bytes of an object.
pub(crate) fn change(store: &Arc<dyn ObjectStore>, path: &str, how: impl FnOnce(&mut Vec<u8>)) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async {
        let path = Path::from(path);
        let mut bytes = store
            .get(&path)
            .await
            .unwrap()
            .bytes()
            .await
            .unwrap()
            .to_vec();
        how(&mut bytes);
        store.put(&path, PutPayload::from(bytes)).await.unwrap();
    });
}

/// Removes an object.
pub(crate) fn remove(store: &Arc<dyn ObjectStore>, path: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(store.delete(&Path::from(path))).unwrap();
}

/// Returns the path of a version's object.
pub(crate) fn path_of(version: u64) -> String {
    format!("runs/7/rank-0/v{version:020}.tfc")
}

/// Returns the paths of the indexes, the objects that hold heads of other objects.
pub(crate) fn indexes(store: &Arc<dyn ObjectStore>) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let all: Vec<_> = runtime
        .block_on(store.list(Some(&Path::from("runs/7"))).try_collect())
        .unwrap();
    let paths = all.into_iter().map(|meta| meta.location.to_string());
    paths.filter(|path| path.ends_with(".tfi")).collect()
}

//! The objects under a prefix of a store, as blobs.

use crate::remote::{Object, Remote};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tierflow_store::container::checksum;
use tierflow_store::{
    BlobStamp, Blobs, ByteSource, Options, PutRule, Ready, RecordBytes, Repository, Result, Written,
};

/// The settings of versions in an object store.
#[derive(Debug, Clone)]
pub struct Settings {
    rank: u32,
    ranks: u32,
    run: u64,
    patience: Duration,
    threads: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            rank: 0,
            ranks: 1,
            run: 0,
            patience: Duration::from_secs(60),
            threads: 4,
        }
    }
}

impl Settings {
    /// Chooses the rank whose pieces are kept, counted from 0, the number of ranks, and the number of this `run` of the application, which
    /// changes with each restart. Without this call, rank 0 of 1.
    #[must_use]
    pub fn group(self, rank: u32, ranks: u32, run: u64) -> Self {
        Self {
            rank,
            ranks,
            run,
            ..self
        }
    }

    /// Chooses the longest time of a request (of 16 MiB at most) with its repetitions; the default is a minute. If the store is given by its URL, a
    /// single try takes half of it at most, or as long as `AWS_TIMEOUT`, `GOOGLE_TIMEOUT` or `AZURE_TIMEOUT` says.
    #[must_use]
    pub fn patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Chooses the number of requests (at least 1) that read a large piece at a time; the default is 4.
    #[must_use]
    pub fn threads(self, threads: usize) -> Self {
        Self { threads, ..self }
    }

    fn options(&self) -> Options {
        let Self {
            rank,
            ranks,
            run,
            threads,
            ..
        } = *self;
        Options::default()
            .rank(rank, ranks)
            .run(run)
            .threads(threads)
    }
}

/// The objects under a prefix of a store.
#[derive(Debug)]
pub struct ObjectBlobs {
    remote: Arc<Remote>,
    prefix: Path,
}

impl ObjectBlobs {
    /// Makes blobs of the objects under `prefix` of `store`. `patience` is the longest time of a request (of 16 MiB at most). Makes no request
    /// yet.
    ///
    /// # Errors
    /// [`Error::Remote`](tierflow_store::Error::Remote) if no thread can be started.
    pub fn new(
        store: Arc<dyn ObjectStore>,
        prefix: impl Into<Path>,
        patience: Duration,
    ) -> Result<Self> {
        Ok(Self {
            remote: Arc::new(Remote::new(store, patience)?),
            prefix: prefix.into(),
        })
    }

    /// Makes blobs of the objects under the prefix of a URL: `s3://bucket/prefix`, `gs://bucket/prefix` or `az://container/prefix`. The
    /// environment variables of the [`object_store`] crate have the address and the credentials. Lists the prefix once, to check them.
    ///
    /// # Errors
    /// [`Error::Argument`](tierflow_store::Error::Argument) if the URL is wrong, if the store does not accept the credentials or has no such
    /// bucket, and without the feature `cloud`; [`Error::Remote`](tierflow_store::Error::Remote) if the store cannot be reached.
    pub fn open(url: &str, patience: Duration) -> Result<Self> {
        #[cfg(feature = "cloud")]
        return crate::cloud::open(url, patience);
        #[cfg(not(feature = "cloud"))]
        {
            let _unused = patience;
            let scheme = url.split("://").next().unwrap_or_default();
            Err(tierflow_store::Error::Argument(format!(
                "{scheme}:// URLs need object stores, with which this program was not built: add the feature `cloud` of \
                 tierflow-objects, or `objects` of tierflow-engine"
            )))
        }
    }

    /// Returns the names of the prefixes directly below this one.
    pub(crate) fn prefixes(&self) -> Result<Vec<String>> {
        self.remote.prefixes(&self.prefix)
    }

    fn path(&self, name: &str) -> Path {
        let parts = name.split('/');
        parts.fold(self.prefix.clone(), |path, part| path.join(part))
    }
}

/// Opens the versions under a prefix of a store, as one rank of their group. Makes no request yet.
///
/// # Errors
/// [`Error::Argument`](tierflow_store::Error::Argument) for a rank outside the group; [`Error::Remote`](tierflow_store::Error::Remote) if no
/// thread can be started.
pub fn repository(
    store: Arc<dyn ObjectStore>,
    prefix: impl Into<Path>,
    settings: &Settings,
) -> Result<Repository> {
    let blobs = ObjectBlobs::new(store, prefix, settings.patience)?;
    Repository::open_blobs(Arc::new(blobs), settings.options())
}

/// Opens the versions under the prefix of a URL, as one rank of their group. URLs are those of [`ObjectBlobs::open`].
///
/// # Errors
/// The errors of [`ObjectBlobs::open`] and [`repository`].
pub fn open(url: &str, settings: &Settings) -> Result<Repository> {
    let blobs = ObjectBlobs::open(url, settings.patience)?;
    Repository::open_blobs(Arc::new(blobs), settings.options())
}

/// Opens the versions under the prefix of a URL for reading only.
pub(crate) fn read(url: &str) -> Result<Repository> {
    let settings = Settings::default();
    let blobs = ObjectBlobs::open(url, settings.patience)?;
    Ok(Repository::read_blobs(Arc::new(blobs), settings.options()))
}

/// Opens the versions under the prefix of a URL as all ranks at once, for removing versions while no rank writes.
pub(crate) fn maintain(url: &str) -> Result<Repository> {
    let settings = Settings::default();
    let blobs = ObjectBlobs::open(url, settings.patience)?;
    Repository::maintain_blobs(Arc::new(blobs), settings.options())
}

fn stamp_of(meta: &ObjectMeta) -> BlobStamp {
    BlobStamp {
        size: meta.size,
        tag: match &meta.e_tag {
            Some(tag) => tag_of(tag),
            None => checksum(&meta.last_modified.timestamp_micros().to_le_bytes()),
        },
        is_exact: meta.e_tag.is_some(),
    }
}

/// Returns a checksum of the store's entity tag, which changes with the object.
fn tag_of(tag: &str) -> u64 {
    checksum(tag.trim_matches('"').as_bytes())
}

impl Blobs for ObjectBlobs {
    fn list(&self, found: &mut (dyn FnMut(&str, BlobStamp) + Send)) -> Result<()> {
        self.remote.list(&self.prefix, |meta| {
            if let Some(parts) = meta.location.prefix_match(&self.prefix) {
                let parts: Vec<_> = parts.collect();
                let parts: Vec<&str> = parts.iter().map(AsRef::as_ref).collect();
                found(&parts.join("/"), stamp_of(&meta));
            }
        })
    }

    fn stamp(&self, name: &str) -> Result<Option<BlobStamp>> {
        let meta = self.remote.head(&self.path(name))?;
        Ok(meta.as_ref().map(stamp_of))
    }

    /// Opens an object with a single request, which also reads its first `ahead` bytes.
    fn open(&self, name: &str, size: u64, ahead: u64) -> Result<Option<Box<dyn ByteSource>>> {
        let path = self.path(name);
        let first = self.remote.read(&path, 0..size.min(ahead))?;
        Ok(first.map(|first| {
            let remote = Arc::clone(&self.remote);
            Box::new(Object::new(remote, path, size, first)) as _
        }))
    }

    fn put(
        &self,
        name: &str,
        record: &RecordBytes<'_>,
        how: PutRule,
        ready: &Ready<'_>,
    ) -> Result<Written> {
        let put = self.remote.put(&self.path(name), record, how, ready)?;
        Ok(match put {
            None => Written::Taken,
            Some(tag) => Written::Done(tag.as_deref().map_or(0, tag_of)),
        })
    }

    fn note(&self, name: &str) -> Result<()> {
        self.remote.put_empty(&self.path(name))
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.remote.remove(&self.path(name))
    }

    fn shown(&self, name: &str) -> PathBuf {
        self.path(name).as_ref().into()
    }
}

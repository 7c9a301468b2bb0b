//! An object store that fails or hangs on demand.

use futures_util::stream::{self, BoxStream, StreamExt};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
    UploadPart,
};
use std::collections::BTreeSet;
use std::fmt::{self, Display, Formatter};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// An object store that forwards every request to a store in memory, unless a fault is set.
#[derive(Debug)]
pub(crate) struct Faulty {
    inner: InMemory,
    pub(crate) fails: AtomicBool,
    pub(crate) hangs: AtomicBool,
    /// Requests that still succeed.
    pub(crate) fail_after: AtomicU64,
    /// True if a written object arrives and its answer is lost. The caller gets a failure.
    pub(crate) loses_answers: AtomicBool,
    /// True if a written object arrives and its answer is lost. The caller gets the error that the object exists, as a retry on the way does.
    pub(crate) retries: AtomicBool,
    /// True if indexes cannot be written.
    pub(crate) no_indexes: AtomicBool,
    pub(crate) puts: AtomicU64,
    /// Number of uploaded parts.
    pub(crate) parts: Arc<AtomicU64>,
    /// True if uploads cannot be completed.
    pub(crate) no_completions: AtomicBool,
    /// Number of aborted uploads.
    pub(crate) aborts: Arc<AtomicU64>,
    pub(crate) gets: AtomicU64,
    pub(crate) lists: AtomicU64,
    /// True if requests for bytes wait until twelve can be answered together.
    pub(crate) gets_meet: AtomicBool,
    together: tokio::sync::Barrier,
    /// Number of the last written objects that lists leave out.
    pub(crate) lags: AtomicUsize,
    /// True if the store supports no conditional writes.
    pub(crate) no_conditions: AtomicBool,
    /// Paths of the written objects, the latest write last.
    written: Arc<Mutex<Vec<Path>>>,
}

impl Default for Faulty {
    fn default() -> Self {
        Self {
            inner: InMemory::new(),
            fails: AtomicBool::new(false),
            hangs: AtomicBool::new(false),
            fail_after: AtomicU64::new(u64::MAX),
            loses_answers: AtomicBool::new(false),
            retries: AtomicBool::new(false),
            no_indexes: AtomicBool::new(false),
            puts: AtomicU64::new(0),
            parts: Arc::default(),
            no_completions: AtomicBool::new(false),
            aborts: Arc::default(),
            gets: AtomicU64::new(0),
            lists: AtomicU64::new(0),
            gets_meet: AtomicBool::new(false),
            together: tokio::sync::Barrier::new(12),
            lags: AtomicUsize::new(0),
            no_conditions: AtomicBool::new(false),
            written: Arc::default(),
        }
    }
}

fn failure() -> Error {
    Error::Generic {
        store: "faulty",
        source: "a fault".into(),
    }
}

impl Faulty {
    async fn begin(&self) -> Result<()> {
        if self.hangs.load(Relaxed) {
            std::future::pending::<()>().await;
        }
        let left = self.fail_after.load(Relaxed);
        if left < u64::MAX {
            self.fail_after.store(left.saturating_sub(1), Relaxed);
        }
        if self.fails.load(Relaxed) || left == 0 {
            return Err(failure());
        }
        Ok(())
    }
}

/// Notes that an object was written.
fn note(written: &Mutex<Vec<Path>>, path: &Path) {
    let mut written = written.lock().unwrap_or_else(PoisonError::into_inner);
    written.retain(|known| known != path);
    written.push(path.clone());
}

impl Display for Faulty {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("faulty")
    }
}

/// An upload whose parts fail as other requests do.
#[derive(Debug)]
struct Upload {
    inner: Box<dyn MultipartUpload>,
    parts_left: u64,
    parts: Arc<AtomicU64>,
    is_completed: bool,
    aborts: Arc<AtomicU64>,
    path: Path,
    written: Arc<Mutex<Vec<Path>>>,
}

#[async_trait::async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        if self.parts_left == 0 {
            return Box::pin(async { Err(failure()) });
        }
        self.parts_left -= 1;
        self.parts.fetch_add(1, Relaxed);
        self.inner.put_part(data)
    }

    async fn complete(&mut self) -> Result<PutResult> {
        if self.parts_left == 0 || !self.is_completed {
            return Err(failure());
        }
        let put = self.inner.complete().await?;
        note(&self.written, &self.path);
        Ok(put)
    }

    async fn abort(&mut self) -> Result<()> {
        self.aborts.fetch_add(1, Relaxed);
        self.inner.abort().await
    }
}

#[async_trait::async_trait]
impl ObjectStore for Faulty {
    async fn put_opts(
        &self,
        path: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.begin().await?;
        self.puts.fetch_add(1, Relaxed);
        if self.no_indexes.load(Relaxed) && path.as_ref().ends_with(".tfi") {
            return Err(failure());
        }
        if self.no_conditions.load(Relaxed) && options.mode != PutMode::Overwrite {
            return Err(Error::NotImplemented {
                operation: "a conditional write".into(),
                implementer: "faulty".into(),
            });
        }
        let put = self.inner.put_opts(path, payload, options).await;
        if put.is_ok() {
            note(&self.written, path);
        }
        if put.is_ok() && self.loses_answers.load(Relaxed) {
            return Err(failure());
        }
        if put.is_ok() && self.retries.load(Relaxed) {
            return Err(Error::AlreadyExists {
                path: path.to_string(),
                source: "a condition did not hold".into(),
            });
        }
        put
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.begin().await?;
        Ok(Box::new(Upload {
            inner: self.inner.put_multipart_opts(path, options).await?,
            parts_left: self.fail_after.load(Relaxed),
            parts: Arc::clone(&self.parts),
            is_completed: !self.no_completions.load(Relaxed),
            aborts: Arc::clone(&self.aborts),
            path: path.clone(),
            written: Arc::clone(&self.written),
        }))
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.begin().await?;
        self.gets.fetch_add(1, Relaxed);
        if self.gets_meet.load(Relaxed) {
            self.together.wait().await;
        }
        self.inner.get_opts(path, options).await
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.lists.fetch_add(1, Relaxed);
        if self.hangs.load(Relaxed) {
            return stream::pending().boxed();
        }
        if self.fails.load(Relaxed) {
            return stream::iter([Err(failure())]).boxed();
        }
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let latest = written.iter().rev().take(self.lags.load(Relaxed));
        let hidden: BTreeSet<Path> = latest.cloned().collect();
        let is_seen = move |meta: &Result<ObjectMeta>| {
            let is_hidden = |meta: &ObjectMeta| hidden.contains(&meta.location);
            !meta.as_ref().is_ok_and(is_hidden)
        };
        let listed = self.inner.list(prefix);
        listed
            .filter(move |meta| std::future::ready(is_seen(meta)))
            .boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

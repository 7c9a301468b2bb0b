//! Requests to the object store, made from ordinary threads and each with a deadline.

use futures_util::TryStreamExt;
use object_store::path::Path;
use object_store::{
    ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload, WriteMultipart,
};
use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use tierflow_store::container::Source;
use tierflow_store::{Encoded, Error, Result};
use tokio::runtime::{Builder, Handle, Runtime};

/// Bytes of one part of an upload. Stores take at most 10 000 parts, and none of less than 5 MiB but the last.
const PART: u64 = 16 << 20;
/// Parts of an upload under way at a time.
const PARTS_AT_A_TIME: usize = 4;

/// An object store, and the threads that talk to it.
#[derive(Debug)]
pub(crate) struct Remote {
    store: Arc<dyn ObjectStore>,
    patience: Duration,
    /// There until this is dropped.
    runtime: Option<Runtime>,
}

impl Remote {
    pub(crate) fn new(store: Arc<dyn ObjectStore>, patience: Duration) -> Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("tierflow-objects")
            .enable_all()
            .build()
            .map_err(|error| Error::Remote(format!("no thread could be started: {error}")))?;
        Ok(Self {
            store,
            patience,
            runtime: Some(runtime),
        })
    }

    /// Waits for an answer, wherever it is called from.
    fn wait<T: Send>(&self, work: impl Future<Output = Result<T>> + Send) -> Result<T> {
        let Some(runtime) = &self.runtime else {
            return Err(Error::Remote("the object store was closed".to_owned()));
        };
        if Handle::try_current().is_err() {
            return runtime.block_on(work);
        }
        // A thread of somebody else's runtime may not wait for ours.
        std::thread::scope(
            |scope| match scope.spawn(|| runtime.block_on(work)).join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            },
        )
    }

    /// One request, within the deadline.
    async fn request<T>(
        &self,
        path: &Path,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T> {
        match tokio::time::timeout(self.patience, request).await {
            Ok(answer) => answer.map_err(|error| failed(path, &error)),
            Err(_) => Err(Error::Remote(format!(
                "{path}: the object store did not answer within {:?}; try again",
                self.patience
            ))),
        }
    }

    pub(crate) fn list(&self, prefix: &Path) -> Result<Vec<ObjectMeta>> {
        let list = self.store.list(Some(prefix)).try_collect();
        self.wait(self.request(prefix, list))
    }

    pub(crate) fn read(&self, path: &Path, range: Range<u64>) -> Result<Vec<u8>> {
        if range.is_empty() {
            // Which stores refuse.
            return Ok(Vec::new());
        }
        let read = self.store.get_range(path, range);
        self.wait(async { Ok(self.request(path, read).await?.to_vec()) })
    }

    /// Removes an object; it need not be there.
    pub(crate) fn remove(&self, path: &Path) -> Result<()> {
        self.wait(async {
            match tokio::time::timeout(self.patience, self.store.delete(path)).await {
                Ok(Ok(()) | Err(object_store::Error::NotFound { .. })) => Ok(()),
                Ok(Err(error)) => Err(failed(path, &error)),
                Err(_) => Err(Error::Remote(format!(
                    "{path}: it could not be removed in time"
                ))),
            }
        })
    }

    /// Makes an object of a record. It is there as a whole, or not at all. `None` if there is one already and it may not be
    /// written over; a large one is looked for before. Else
    /// what the store calls it, if it does.
    pub(crate) fn put(
        &self,
        path: &Path,
        record: &Encoded<'_>,
        over: bool,
    ) -> Result<Option<Option<String>>> {
        let length = record.head().record_length();
        if length > PART {
            return self.put_in_parts(path, record).map(Some);
        }
        let mut bytes = record.head_bytes().to_vec();
        bytes.resize(length as usize, 0);
        record.fill(0, &mut bytes[record.head_bytes().len()..])?;
        let options = PutOptions {
            mode: if over {
                PutMode::Overwrite
            } else {
                PutMode::Create
            },
            ..PutOptions::default()
        };
        let put = self.store.put_opts(path, PutPayload::from(bytes), options);
        self.wait(async {
            match tokio::time::timeout(self.patience, put).await {
                Ok(Ok(put)) => Ok(Some(put.e_tag)),
                Ok(Err(object_store::Error::AlreadyExists { .. })) => Ok(None),
                Ok(Err(error)) => Err(failed(path, &error)),
                Err(_) => Err(Error::Remote(format!(
                    "{path}: it could not be written in time"
                ))),
            }
        })
    }

    fn put_in_parts(&self, path: &Path, record: &Encoded<'_>) -> Result<Option<String>> {
        self.wait(async {
            let upload = self.request(path, self.store.put_multipart(path)).await?;
            let mut write = WriteMultipart::new_with_chunk_size(upload, PART as usize);
            write.write(record.head_bytes());
            let length = record.head().payload_length;
            let mut part = Vec::new();
            for at in (0..length).step_by(PART as usize) {
                part.resize((length - at).min(PART) as usize, 0);
                let ready = match record.fill(at, &mut part) {
                    Ok(()) => {
                        self.request(path, write.wait_for_capacity(PARTS_AT_A_TIME))
                            .await
                    }
                    error => error,
                };
                if let Err(error) = ready {
                    // What was sent is nothing until it is finished, and the store clears it away in time.
                    let _cleared_by_the_store = self.request(path, write.abort()).await;
                    return Err(error);
                }
                write.write(&part);
            }
            // The last parts are still on their way.
            self.request(path, write.finish())
                .await
                .map(|put| put.e_tag)
        })
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Waiting is not allowed on a thread of somebody else's runtime, and a store that hangs is not waited for.
            runtime.shutdown_background();
        }
    }
}

fn failed(path: &Path, error: &object_store::Error) -> Error {
    Error::Remote(format!("{path}: {error}"))
}

/// The bytes of one object.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) remote: Arc<Remote>,
    pub(crate) path: Path,
    pub(crate) size: u64,
    /// Its first bytes, as far as they were asked for.
    pub(crate) first: Vec<u8>,
}

impl Source for Object {
    type Error = Error;

    fn size(&self) -> Result<u64> {
        Ok(self.size)
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        if bytes.is_empty() {
            // Which stores refuse.
            return Ok(());
        }
        let known = usize::try_from(offset)
            .ok()
            .and_then(|at| self.first.get(at..));
        if let Some(known) = known.and_then(|known| known.get(..bytes.len())) {
            bytes.copy_from_slice(known);
            return Ok(());
        }
        let read = self
            .remote
            .read(&self.path, offset..offset + bytes.len() as u64)?;
        if read.len() != bytes.len() {
            return Err(Error::Remote(format!(
                "{}: an answer is cut off",
                self.path
            )));
        }
        bytes.copy_from_slice(&read);
        Ok(())
    }
}

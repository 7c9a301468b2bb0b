//! Requests to an object store. Ordinary threads make them, and each request has a deadline.

use futures_util::StreamExt;
use object_store::path::Path;
use object_store::{
    Error as StoreError, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode,
    PutOptions, PutPayload,
};
use std::fmt::{self, Debug, Formatter};
use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tierflow_store::container::Source;
use tierflow_store::{Error, PutRule, Ready, RecordBytes, Result};
use tierflow_sync::Mutex;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinSet;

/// The bytes of one part of an upload, unless there would be too many parts. Stores refuse parts below 5 MiB, except for the last.
const PART: u64 = 16 << 20;
/// The most parts of an upload that stores take.
const MOST_PARTS: u64 = 10_000;
/// The most parts of an upload that are sent at a time. Another part waits, and another is being filled, so six are in memory.
const PARTS_AT_A_TIME: usize = 4;

/// An object store, and the threads that talk to it.
pub(crate) struct Remote {
    store: Arc<dyn ObjectStore>,
    patience: Duration,
    /// The process that started the runtime's threads. A fork of it has neither the threads nor connections.
    process: u32,
    /// `None` only while the value is dropped.
    runtime: Option<Runtime>,
}

/// Does not use the store's `Debug`, which may show credentials.
impl Debug for Remote {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "Remote({}, {:?})", self.store, self.patience)
    }
}

impl Remote {
    pub(crate) fn new(store: Arc<dyn ObjectStore>, patience: Duration) -> Result<Self> {
        let build = || {
            Builder::new_multi_thread()
                .worker_threads(2)
                .thread_name("tierflow-objects")
                .enable_all()
                .build()
        };
        // Tokio panics if the system starts none of the threads.
        let runtime =
            std::panic::catch_unwind(build).map_err(|_| no_thread("the system refused"))?;
        Ok(Self {
            store,
            patience,
            process: std::process::id(),
            runtime: Some(runtime.map_err(no_thread)?),
        })
    }

    /// Runs `work` and waits for its result. The calling thread may belong to another runtime.
    fn wait<T: Send>(&self, work: impl Future<Output = Result<T>> + Send) -> Result<T> {
        let Some(runtime) = &self.runtime else {
            return Err(Error::Remote("the object store was closed".to_owned()));
        };
        if self.process != std::process::id() {
            return Err(Error::Argument(
                "the object store was opened by another process, of which this one is a fork: open it again here"
                    .to_owned(),
            ));
        }
        if Handle::try_current().is_err() {
            return runtime.block_on(work);
        }
        // A thread of another runtime must not block on this runtime, so a new thread does.
        thread::scope(|scope| {
            let thread = thread::Builder::new().spawn_scoped(scope, || runtime.block_on(work));
            match thread.map_err(no_thread)?.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    /// Sends a request, and waits for the answer up to the deadline.
    async fn answer<T>(&self, request: impl Future<Output = T>) -> Result<T> {
        let answer = tokio::time::timeout(self.patience, request).await;
        answer.map_err(|_| {
            Error::Remote(format!(
                "the object store did not answer within {:?}: try again",
                self.patience
            ))
        })
    }

    async fn request<T>(
        &self,
        path: &Path,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T> {
        match self.answer(request).await {
            Ok(answer) => answer.map_err(|error| failed(path, &error)),
            Err(error) => Err(at(path, &error)),
        }
    }

    /// Calls `take` with every object below `prefix`, while the list arrives. A request lists a thousand names.
    pub(crate) fn list(
        &self,
        prefix: &Path,
        mut take: impl FnMut(ObjectMeta) + Send,
    ) -> Result<()> {
        let mut list = self.store.list(Some(prefix));
        self.wait(async {
            loop {
                let next = self.answer(list.next()).await;
                match next.map_err(|error| at(prefix, &error))? {
                    Some(meta) => take(meta.map_err(|error| failed(prefix, &error))?),
                    None => return Ok(()),
                }
            }
        })
    }

    /// Returns the names of the prefixes directly below `prefix`, up to the next slash.
    pub(crate) fn prefixes(&self, prefix: &Path) -> Result<Vec<String>> {
        let list = self.store.list_with_delimiter(Some(prefix));
        let listed = self.wait(self.request(prefix, list))?;
        let names = listed.common_prefixes.iter().filter_map(Path::filename);
        Ok(names.map(str::to_owned).collect())
    }

    /// Asks for the first object below `prefix`, to find out whether the store can be used at all.
    #[cfg(feature = "cloud")]
    pub(crate) fn probe(&self, prefix: &Path) -> Result<object_store::Result<()>> {
        let mut list = self.store.list(Some(prefix));
        self.wait(async {
            let first = self.answer(list.next()).await?;
            Ok(first.transpose().map(|_| ()))
        })
    }

    /// Reads some bytes of an object; `None` if there is no object of this name.
    pub(crate) fn read(&self, path: &Path, range: Range<u64>) -> Result<Option<Vec<u8>>> {
        if range.is_empty() {
            // Stores refuse requests for an empty range.
            return Ok(Some(Vec::new()));
        }
        let read = self.store.get_range(path, range);
        self.wait(async {
            match self.answer(read).await.map_err(|error| at(path, &error))? {
                Ok(bytes) => Ok(Some(bytes.to_vec())),
                Err(StoreError::NotFound { .. }) => Ok(None),
                Err(error) => Err(failed(path, &error)),
            }
        })
    }

    /// Returns the metadata of an object; `None` if there is no object of this name. Lists may not show a new object yet.
    pub(crate) fn head(&self, path: &Path) -> Result<Option<ObjectMeta>> {
        self.wait(async {
            let head = self.answer(self.store.head(path)).await;
            match head.map_err(|error| at(path, &error))? {
                Ok(meta) => Ok(Some(meta)),
                Err(StoreError::NotFound { .. }) => Ok(None),
                Err(error) => Err(failed(path, &error)),
            }
        })
    }

    /// Makes an object without bytes.
    pub(crate) fn put_empty(&self, path: &Path) -> Result<()> {
        let put = self.store.put(path, PutPayload::default());
        self.wait(self.request(path, put)).map(|_| ())
    }

    /// Removes an object, if it exists.
    pub(crate) fn remove(&self, path: &Path) -> Result<()> {
        self.wait(async {
            let delete = self.answer(self.store.delete(path)).await;
            match delete.map_err(|error| at(path, &error))? {
                Ok(()) | Err(StoreError::NotFound { .. }) => Ok(()),
                Err(error) => Err(failed(path, &error)),
            }
        })
    }

    /// Makes an object of a record, atomically, and not before `ready` returns. The parts of a large object are sent earlier. Returns `None` if
    /// the object exists and `how` does not replace it, else the entity tag, if the store has one.
    ///
    /// Uploads in parts, and some stores, cannot refuse to replace an object. There, the store is asked for the object first; if two
    /// processes then write the same name at the same time, the last one wins.
    pub(crate) fn put(
        &self,
        path: &Path,
        record: &RecordBytes<'_>,
        how: PutRule,
        ready: &Ready<'_>,
    ) -> Result<Option<Option<String>>> {
        let overwrite = how == PutRule::Replace;
        let length = record.head().record_length();
        if length > PART {
            if !overwrite && self.head(path)?.is_some() {
                return Ok(None);
            }
            return self.put_in_parts(path, record, ready).map(Some);
        }
        let mut bytes = record.head_bytes().to_vec();
        bytes.resize(length as usize, 0);
        record.fill(0, &mut bytes[record.head_bytes().len()..])?;
        let bytes = PutPayload::from(bytes);
        ready()?;
        let put = |mode| {
            let options = PutOptions {
                mode,
                ..PutOptions::default()
            };
            self.answer(self.store.put_opts(path, bytes.clone(), options))
        };
        self.wait(async {
            let first = match overwrite {
                true => PutMode::Overwrite,
                false => PutMode::Create,
            };
            let mut put_once = put(first).await.map_err(|error| at(path, &error))?;
            if let (false, Err(StoreError::NotImplemented { .. })) = (overwrite, &put_once) {
                match self.answer(self.store.head(path)).await {
                    Ok(Err(StoreError::NotFound { .. })) => {}
                    Ok(Ok(_)) => return Ok(None),
                    Ok(Err(error)) => return Err(failed(path, &error)),
                    Err(error) => return Err(at(path, &error)),
                }
                put_once = put(PutMode::Overwrite)
                    .await
                    .map_err(|error| at(path, &error))?;
            }
            match put_once {
                Ok(put) => Ok(Some(put.e_tag)),
                Err(StoreError::AlreadyExists { .. }) => Ok(None),
                Err(error) => Err(failed(path, &error)),
            }
        })
    }

    fn put_in_parts(
        &self,
        path: &Path,
        record: &RecordBytes<'_>,
        ready: &Ready<'_>,
    ) -> Result<Option<String>> {
        let begun = self.request(path, self.store.put_multipart(path));
        let mut upload = self.wait(begun)?;
        let sent = self.wait(self.send_parts(path, record, upload.as_mut()));
        let put = sent
            .and_then(|()| ready())
            .and_then(|()| self.wait(self.request(path, upload.complete())));
        if put.is_err() {
            // Parts of an upload that is not completed are no object. If they cannot be removed, the store's rule for incomplete uploads
            // removes them, if it has one. If the completion succeeded and only its answer was lost, the abort does not affect the object.
            let _kept_by_the_store = self.wait(self.request(path, upload.abort()));
        }
        put.map(|put| put.e_tag)
    }

    /// Sends all parts of a record, and waits until the store has them.
    async fn send_parts(
        &self,
        path: &Path,
        record: &RecordBytes<'_>,
        upload: &mut dyn MultipartUpload,
    ) -> Result<()> {
        let part_bytes = part_bytes(record.head().record_length()) as usize;
        let mut under_way = JoinSet::new();
        let length = record.head().payload_length;
        // The head, which may be longer than a part, comes first, then the payload.
        let (mut bytes, mut at) = (record.head_bytes().to_vec(), 0);
        let mut next = Vec::with_capacity(part_bytes);
        loop {
            let mut rest = bytes.as_slice();
            while !rest.is_empty() {
                let (now, later) = rest.split_at((part_bytes - next.len()).min(rest.len()));
                next.extend_from_slice(now);
                rest = later;
                if next.len() == part_bytes {
                    let empty = Vec::with_capacity(part_bytes);
                    let part = std::mem::replace(&mut next, empty);
                    self.send_part(path, part, upload, &mut under_way).await?;
                }
            }
            if at == length {
                break;
            }
            bytes.resize((length - at).min(part_bytes as u64) as usize, 0);
            record.fill(at, &mut bytes)?;
            at += bytes.len() as u64;
        }
        if !next.is_empty() {
            self.send_part(path, next, upload, &mut under_way).await?;
        }
        while !under_way.is_empty() {
            self.finish_part(path, &mut under_way).await?;
        }
        Ok(())
    }

    /// Sends a part. Waits first while [`PARTS_AT_A_TIME`] others are being sent.
    async fn send_part(
        &self,
        path: &Path,
        part: Vec<u8>,
        upload: &mut dyn MultipartUpload,
        under_way: &mut JoinSet<object_store::Result<()>>,
    ) -> Result<()> {
        while under_way.len() >= PARTS_AT_A_TIME {
            self.finish_part(path, under_way).await?;
        }
        under_way.spawn(upload.put_part(PutPayload::from(part)));
        Ok(())
    }

    async fn finish_part(
        &self,
        path: &Path,
        under_way: &mut JoinSet<object_store::Result<()>>,
    ) -> Result<()> {
        let finished = self.answer(under_way.join_next()).await;
        match finished.map_err(|error| at(path, &error))? {
            None | Some(Ok(Ok(()))) => Ok(()),
            Some(Ok(Err(error))) => Err(failed(path, &error)),
            Some(Err(error)) => Err(Error::Remote(format!(
                "{path}: a part was given up: {error}"
            ))),
        }
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            match self.process == std::process::id() {
                // The shutdown must not block: the thread may belong to another runtime, and the store may hang.
                true => runtime.shutdown_background(),
                // In a fork, the runtime's threads do not exist, but may have held its locks.
                false => std::mem::forget(runtime),
            }
        }
    }
}

/// Returns the bytes of each part of an upload of `length` bytes: a multiple of 1 MiB.
fn part_bytes(length: u64) -> u64 {
    let least = length.div_ceil(MOST_PARTS - 1);
    least.next_multiple_of(1 << 20).max(PART)
}

fn no_thread(why: impl fmt::Display) -> Error {
    Error::Remote(format!(
        "no thread could be started for the object store: {why}; raise the limit of processes (`ulimit -u`, or `pids.max` of \
         the control group), or stop some threads"
    ))
}

fn at(path: &Path, error: &Error) -> Error {
    Error::Remote(format!("{path}: {error}"))
}

fn failed(path: &Path, error: &StoreError) -> Error {
    Error::Remote(format!("{path}: {}", message(error)))
}

/// Returns the message of a store's error. Of an answer in XML, only the code and the message: the rest may repeat the request, and with it
/// the key that signed it.
pub(crate) fn message(error: &StoreError) -> String {
    let text = error.to_string();
    let within = |name: &str| {
        let (_, after) = text.split_once(&format!("<{name}>"))?;
        Some(after.split_once(&format!("</{name}>"))?.0.trim())
    };
    let (Some(code), message) = (within("Code"), within("Message")) else {
        return text;
    };
    match message.filter(|message| !message.is_empty()) {
        Some(message) => format!("{code}: {message}"),
        None => code.to_owned(),
    }
}

/// The bytes of one object.
#[derive(Debug)]
pub(crate) struct Object {
    remote: Arc<Remote>,
    path: Path,
    size: u64,
    /// The first bytes, which were read when the object was opened. Cleared when the object's last byte was read from them: a second read makes
    /// a request, as the object may have changed.
    first: Mutex<Vec<u8>>,
}

impl Object {
    /// Makes an object of `size` bytes. `first` has its first bytes.
    pub(crate) fn new(remote: Arc<Remote>, path: Path, size: u64, first: Vec<u8>) -> Self {
        Self {
            remote,
            path,
            size,
            first: Mutex::new(first),
        }
    }

    fn read_first(&self, offset: u64, bytes: &mut [u8]) -> bool {
        let mut first = self.first.lock();
        let known = usize::try_from(offset).ok().and_then(|at| first.get(at..));
        let Some(known) = known.and_then(|known| known.get(..bytes.len())) else {
            return false;
        };
        bytes.copy_from_slice(known);
        if offset + bytes.len() as u64 == self.size {
            first.clear();
        }
        true
    }
}

impl Source for Object {
    type Error = Error;

    fn size(&self) -> Result<u64> {
        Ok(self.size)
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        if bytes.is_empty() {
            // Stores refuse requests for an empty range.
            return Ok(());
        }
        if self.read_first(offset, bytes) {
            return Ok(());
        }
        let read = self
            .remote
            .read(&self.path, offset..offset + bytes.len() as u64)?;
        let path = &self.path;
        let read =
            read.ok_or_else(|| Error::Remote(format!("{path}: it was removed while it was read")))?;
        if read.len() != bytes.len() {
            return Err(Error::Remote(format!("{path}: an answer is cut off")));
        }
        bytes.copy_from_slice(&read);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uploads_have_no_more_parts_than_stores_take() {
        assert_eq!(part_bytes(PART + 1), PART);
        for length in [1 << 30, 156 << 30, 157 << 30, 4 << 40, 5 << 40] {
            let part = part_bytes(length);
            assert!(length.div_ceil(part) <= MOST_PARTS && part.is_multiple_of(1 << 20));
        }
    }

    #[test]
    fn of_an_answer_only_the_code_and_the_message_are_in_the_error() {
        let text = "403: <Error><Code>SignatureDoesNotMatch</Code><Message>no.</Message><AWSAccessKeyId>KEY\
                    </AWSAccessKeyId><StringToSign>secret</StringToSign></Error>";
        let error = |text: &str| StoreError::Generic {
            store: "S3",
            source: text.into(),
        };
        assert_eq!(message(&error(text)), "SignatureDoesNotMatch: no.");
        assert_eq!(message(&error("<Code>X</Code>")), "X");
        assert!(message(&error("it broke")).contains("it broke"));
    }
}

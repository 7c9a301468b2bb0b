//! The group of an engine in Python: an object by which its ranks meet and send each other bytes.

use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use tierflow_bind::{Failure, Options};
use tierflow_redundancy::{Error, Redundancy, Transport};
use tierflow_store::{Collective, Error as StoreError};

use crate::errors::Answer;
use crate::patience::{Timeout, keep_interrupt, raise_interrupt};

/// Returns a description of a scheme of redundancy, such as "rs:8+2", in words.
#[pyfunction]
pub(crate) fn words_of_redundancy(scheme: &str) -> Answer<String> {
    let scheme: Result<Redundancy, Error> = scheme.parse();
    let scheme = scheme.map_err(|error| Failure::argument(error.to_string()))?;
    Ok(scheme.to_string())
}

/// A Python object with `rank`, `ranks`, `threads`, `patience`, `all_gather`, `send`, `receive` and `flush`, such as a `tierflow.mpi.Group`.
#[derive(Debug)]
struct Group {
    object: Py<PyAny>,
    rank: u32,
    threads: bool,
}

/// Sets the options of a group. `given` is an object such as a `tierflow.mpi.Group`, or a communicator of mpi4py.
///
/// # Errors
/// `ArgumentError` if `rank` or `ranks` was given, too; the exceptions of the object, and Ctrl-C's; `StorageError` if the ranks do not agree on the
/// number of the run.
pub(crate) fn tell(given: &Bound<'_, PyAny>, options: &mut Options) -> Answer {
    let py = given.py();
    if (options.ranks.rank, options.ranks.ranks) != (0, 1) {
        let text = "the group says which rank this is: leave out rank and ranks";
        return Err(Failure::argument(text).into());
    }
    let object = match given.hasattr("all_gather")? {
        true => given.clone(),
        false => py
            .import("tierflow.mpi")?
            .getattr("Group")?
            .call1((given,))?,
    };
    let patience = Timeout::new(object.getattr("patience")?.extract()?)?.0;
    options.group_patience = Some(patience);
    let (rank, ranks) = (
        object.getattr("rank")?.extract()?,
        object.getattr("ranks")?.extract()?,
    );
    let group = Arc::new(Group {
        rank,
        threads: object.getattr("threads")?.is_truthy()?,
        object: object.unbind(),
    });
    let told = &mut options.ranks;
    (told.rank, told.ranks) = (rank, ranks);
    told.collective = Some(Arc::clone(&group) as _);
    told.transport = Some(group);
    let agreed = py.detach(|| told.agree_on_run(patience));
    raise_interrupt()?;
    Ok(agreed?)
}

/// Converts a time to seconds that Python's clocks can add.
fn seconds(patience: Duration) -> f64 {
    patience.as_secs_f64().min(1e9)
}

impl Group {
    /// Calls a method of the object. An exception becomes a text. The call of the application still raises Ctrl-C's.
    fn call<T>(
        &self,
        call: impl FnOnce(Python<'_>, &Bound<'_, PyAny>) -> PyResult<T>,
    ) -> Result<T, String> {
        let called = Python::try_attach(|py| {
            call(py, self.object.bind(py)).map_err(|error| {
                let text = error.to_string();
                keep_interrupt(py, error);
                text
            })
        });
        called.unwrap_or_else(|| Err("the interpreter has ended".to_owned()))
    }
}

impl Collective for Group {
    fn all_gather(&self, mine: &[u8], patience: Duration) -> tierflow_store::Result<Vec<Vec<u8>>> {
        let gathered = self.call(|py, object| {
            let arguments = (PyBytes::new(py, mine), seconds(patience));
            let all = object.call_method1("all_gather", arguments)?;
            let all = all.cast::<PyList>()?.iter();
            all.map(|one| Ok(one.cast::<PyBytes>()?.as_bytes().to_vec()))
                .collect()
        });
        gathered.map_err(|why| StoreError::Remote(format!("the ranks did not meet: {why}")))
    }
}

/// Converts the answer of a method: `None` means that `rank` did not answer in time.
fn in_time<T>(
    answer: Result<Option<T>, String>,
    rank: u32,
    patience: Duration,
) -> tierflow_redundancy::Result<T> {
    let answer = answer.map_err(|why| Error::Transport { rank, why })?;
    answer.ok_or(Error::Absent { rank, patience })
}

impl Transport for Group {
    fn send(&self, to: u32, message: &[u8], patience: Duration) -> tierflow_redundancy::Result<()> {
        let sent = self.call(|py, object| {
            let arguments = (to, PyBytes::new(py, message), seconds(patience));
            let is_sent = object.call_method1("send", arguments)?.is_truthy()?;
            Ok(is_sent.then_some(()))
        });
        in_time(sent, to, patience)
    }

    fn receive(&self, from: u32, patience: Duration) -> tierflow_redundancy::Result<Vec<u8>> {
        let received = self.call(|_, object| {
            let message = object.call_method1("receive", (from, seconds(patience)))?;
            let message = Some(message).filter(|message| !message.is_none());
            let bytes = message.map(|message| Ok(message.cast::<PyBytes>()?.as_bytes().to_vec()));
            bytes.transpose()
        });
        in_time(received, from, patience)
    }

    fn is_concurrent(&self) -> bool {
        self.threads
    }

    fn flush(&self, patience: Duration) -> tierflow_redundancy::Result<()> {
        let flushed = self.call(|_, object| {
            let done = object.call_method1("flush", (seconds(patience),))?;
            Ok(done.is_truthy()?.then_some(()))
        });
        in_time(flushed, self.rank, patience)
    }
}

//! Ranks that Python's programs run as: how they meet and send each other bytes.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use tierflow_bind::Options;
use tierflow_redundancy::{Error, Transport};
use tierflow_store::{Collective, Error as StoreError};

use crate::errors::{self, OrRaise};
use crate::options;

/// What other ranks of the group keep of `node_local`, so that it outlives nodes: "partner", "xor:8" or "rs:8+2".
///
/// `failure_domain` is what this rank fails together with, such as its rack: the host, unless it is given. `exchange` is a directory
/// that all nodes see, by which the ranks send each other bytes if not by the `group` of the engine.
#[pyclass(frozen, from_py_object, module = "tierflow")]
#[derive(Clone, Debug)]
pub(crate) struct Redundancy {
    scheme: tierflow_redundancy::Redundancy,
    #[pyo3(get)]
    failure_domain: Option<String>,
    #[pyo3(get)]
    exchange: Option<PathBuf>,
}

#[pymethods]
impl Redundancy {
    #[new]
    #[pyo3(signature = (scheme, *, failure_domain = None, exchange = None))]
    fn new(
        py: Python<'_>,
        scheme: &str,
        failure_domain: Option<String>,
        exchange: Option<PathBuf>,
    ) -> PyResult<Self> {
        let scheme = scheme.parse();
        Ok(Self {
            scheme: scheme.map_err(|error: Error| errors::argument(py, error.to_string()))?,
            failure_domain,
            exchange,
        })
    }

    fn __repr__(&self) -> String {
        format!("<tierflow.Redundancy, {}>", self.scheme)
    }
}

/// An object that has `rank`, `ranks`, `threads`, `patience`, `all_gather`, `send`, `receive` and `flush`, as `tierflow.mpi.Group` has.
#[derive(Debug)]
struct Group {
    object: Py<PyAny>,
    rank: u32,
    threads: bool,
}

/// Tells an engine of its group, which is one or an mpi4py communicator.
pub(crate) fn tell(given: &Bound<'_, PyAny>, options: &mut Options) -> PyResult<()> {
    let py = given.py();
    if (options.ranks.rank, options.ranks.ranks) != (0, 1) {
        let text = "the group says which rank this is: leave out rank and ranks";
        return Err(errors::argument(py, text.to_owned()));
    }
    let object = match given.hasattr("all_gather")? {
        true => given.clone(),
        false => py
            .import("tierflow.mpi")?
            .getattr("Group")?
            .call1((given,))?,
    };
    let patience = options::duration(py, Some(object.getattr("patience")?.extract()?))?;
    options.group_patience = Some(patience.unwrap_or(Duration::MAX));
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
    py.detach(|| told.agree_on_run(patience.unwrap_or(Duration::MAX)))
        .or_raise(py)
}

impl Redundancy {
    /// Tells an engine what other ranks keep.
    pub(crate) fn tell(&self, options: &mut Options) {
        options.redundancy = Some(self.scheme);
        options.failure_domain.clone_from(&self.failure_domain);
        options.exchange.clone_from(&self.exchange);
    }
}

/// Seconds that Python's clocks understand.
fn seconds(patience: Duration) -> f64 {
    patience.as_secs_f64().min(1e9)
}

impl Group {
    /// Calls a method; what it raises is text.
    fn call<T>(
        &self,
        call: impl FnOnce(Python<'_>, &Bound<'_, PyAny>) -> PyResult<T>,
    ) -> Result<T, String> {
        let called =
            Python::try_attach(|py| call(py, self.object.bind(py)).map_err(|e| e.to_string()));
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

/// The answer of a method, which is none if it took too long.
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

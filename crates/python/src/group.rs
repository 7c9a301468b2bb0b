//! Ranks that Python's programs run as: how they meet and send each other bytes.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use tierflow_engine::EngineBuilder;
use tierflow_redundancy::{Directory, Error, Transport};
use tierflow_store::{Collective, Error as StoreError};

use crate::{errors, options};

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

/// The rank whose pieces of versions an engine has, and the number of ranks.
pub(crate) struct Ranks {
    pub(crate) rank: u32,
    pub(crate) ranks: u32,
    run: u64,
    group: Option<(Arc<Group>, Duration)>,
}

impl Ranks {
    /// Those of `group`, which is one or an mpi4py communicator; without it, those that were given by their numbers.
    pub(crate) fn of(
        group: Option<&Bound<'_, PyAny>>,
        (rank, ranks, run): (u32, u32, u64),
    ) -> PyResult<Self> {
        let Some(given) = group else {
            return Ok(Self {
                rank,
                ranks,
                run,
                group: None,
            });
        };
        let py = given.py();
        if (rank, ranks) != (0, 1) {
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
        let (rank, ranks) = (
            object.getattr("rank")?.extract()?,
            object.getattr("ranks")?.extract()?,
        );
        let patience = options::duration(py, Some(object.getattr("patience")?.extract()?))?;
        let patience = patience.unwrap_or(Duration::MAX);
        let group = Arc::new(Group {
            rank,
            threads: object.getattr("threads")?.is_truthy()?,
            object: object.unbind(),
        });
        let run = match run {
            0 => py
                .detach(|| group.draw(patience))
                .map_err(|error| errors::storage(py, &error))?,
            run => run,
        };
        Ok(Self {
            rank,
            ranks,
            run,
            group: Some((group, patience)),
        })
    }

    /// Tells an engine of its group, and what that keeps of its versions.
    pub(crate) fn tell(
        self,
        py: Python<'_>,
        mut builder: EngineBuilder,
        redundancy: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<EngineBuilder> {
        let (rank, ranks, run) = (self.rank, self.ranks, self.run);
        if (rank, ranks, run) != (0, 1, 0) {
            builder = builder.group(rank, ranks, run);
        }
        if let Some((group, patience)) = &self.group {
            let collective: Arc<dyn Collective> = Arc::clone(group) as _;
            builder = builder.collective(collective).group_patience(*patience);
        }
        let Some(given) = redundancy else {
            return Ok(builder);
        };
        let chosen = match given.extract::<String>() {
            Ok(scheme) => Redundancy::new(py, &scheme, None, None)?,
            Err(_) => given.cast::<Redundancy>()?.get().clone(),
        };
        let transport: Arc<dyn Transport> = match (&chosen.exchange, self.group) {
            (Some(_), None) if run == 0 => {
                let text = "redundancy by a directory needs the number of this run: give run=, another one after each restart";
                return Err(errors::argument(py, text.to_owned()));
            }
            (Some(directory), _) => {
                let opened = Directory::open(directory, run, rank);
                let failed = |error: Error| StoreError::Remote(error.to_string());
                Arc::new(opened.map_err(|error| errors::storage(py, &failed(error)))?)
            }
            (None, Some((group, _))) => group,
            (None, None) => {
                let text = "redundancy passes between ranks: give group=, such as mpi4py.MPI.COMM_WORLD, or Redundancy(..., \
                            exchange=) with a directory that all nodes see";
                return Err(errors::argument(py, text.to_owned()));
            }
        };
        let nodes = chosen.scheme.over(transport);
        Ok(builder.redundancy(match chosen.failure_domain {
            Some(name) => nodes.failure_domain(name),
            None => nodes,
        }))
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

    /// A number of this run, the same for all: rank 0 draws it.
    fn draw(&self, patience: Duration) -> tierflow_store::Result<u64> {
        let mut drawn = [0; 8];
        let source = std::fs::File::open("/dev/urandom");
        let read = source.and_then(|mut file| std::io::Read::read_exact(&mut file, &mut drawn));
        read.map_err(|error| StoreError::Remote(format!("/dev/urandom: {error}")))?;
        let all = self.all_gather(&drawn, patience)?;
        let first = all.first().and_then(|first| first.first_chunk());
        Ok(first.map_or(1, |first| u64::from_le_bytes(*first).max(1)))
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

impl Transport for Group {
    fn send(&self, to: u32, message: &[u8], patience: Duration) -> tierflow_redundancy::Result<()> {
        let sent = self.call(|py, object| {
            let arguments = (to, PyBytes::new(py, message), seconds(patience));
            object.call_method1("send", arguments)?.is_truthy()
        });
        match sent {
            Ok(true) => Ok(()),
            Ok(false) => Err(Error::Absent { rank: to, patience }),
            Err(why) => Err(Error::Transport { rank: to, why }),
        }
    }

    fn receive(&self, from: u32, patience: Duration) -> tierflow_redundancy::Result<Vec<u8>> {
        let received = self.call(|_, object| {
            let message = object.call_method1("receive", (from, seconds(patience)))?;
            match message.is_none() {
                true => Ok(None),
                false => Ok(Some(message.cast::<PyBytes>()?.as_bytes().to_vec())),
            }
        });
        match received {
            Ok(Some(message)) => Ok(message),
            Ok(None) => Err(Error::Absent {
                rank: from,
                patience,
            }),
            Err(why) => Err(Error::Transport { rank: from, why }),
        }
    }

    fn is_concurrent(&self) -> bool {
        self.threads
    }

    fn flush(&self, patience: Duration) -> tierflow_redundancy::Result<()> {
        let rank = self.rank;
        let flushed = self.call(|_, object| {
            let done = object.call_method1("flush", (seconds(patience),))?;
            done.is_truthy()
        });
        match flushed {
            Ok(true) => Ok(()),
            Ok(false) => Err(Error::Absent { rank, patience }),
            Err(why) => Err(Error::Transport { rank, why }),
        }
    }
}

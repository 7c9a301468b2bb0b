//! Host memory that several engines share.

use std::path::PathBuf;

use pyo3::prelude::*;
use tierflow_engine::Error;
use tierflow_tier_alloc::{HostPool as Pool, PoolOptions};

use crate::errors::Answer;
use crate::options::Bytes;

/// A budget of so many `bytes` of host memory for several engines: each has an equal part when it wants it, borrows what the others leave idle,
/// and gives it back when they want it, in pieces of `slab` bytes.
///
/// Of this process, or with `node=True` or a `directory`, of all processes of this user on this machine that name the same.
#[pyclass(frozen, from_py_object, module = "tierflow")]
#[derive(Clone, Debug)]
pub(crate) struct HostPool {
    pub(crate) pool: Pool,
}

#[pymethods]
impl HostPool {
    #[new]
    #[pyo3(signature = (bytes, *, slab = None, node = false, directory = None))]
    fn new(
        py: Python<'_>,
        bytes: Bytes,
        slab: Option<Bytes>,
        node: bool,
        directory: Option<PathBuf>,
    ) -> Answer<Self> {
        let options = PoolOptions::new(bytes.0);
        let options = slab.map_or(options, |slab| options.slab(slab.0));
        let made = py.detach(|| match node || directory.is_some() {
            true => Pool::of_node(directory.as_deref(), options),
            false => Pool::in_process(options),
        });
        let pool = made.map_err(Error::from)?;
        Ok(Self { pool })
    }

    /// Bytes that there are to share.
    #[getter]
    fn bytes(&self) -> u64 {
        self.pool.bytes()
    }
}

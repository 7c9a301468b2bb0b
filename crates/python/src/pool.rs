//! Host memory that several engines share.

use std::path::PathBuf;

use pyo3::prelude::*;
use tierflow_engine::Error;
use tierflow_tier_alloc::{HostPool as Pool, PoolOptions};

use crate::errors::Answer;
use crate::options::Bytes;

/// A budget of `bytes` bytes of host memory that several engines share. Each engine has an equal part when it needs it, borrows memory
/// that the others leave idle, and gives it back when they need it, in pieces of `slab` bytes.
///
/// The engines are those of this process. With `node=True` or a `directory`, they are those of all processes of this user on this
/// machine that name the same pool.
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

    /// Bytes that the engines share.
    #[getter]
    fn bytes(&self) -> u64 {
        self.pool.bytes()
    }
}

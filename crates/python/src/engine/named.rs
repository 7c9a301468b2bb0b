//! Regions by their names.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use tierflow_engine::{Region, RegionMut, Version};

use super::Engine;
use crate::array::{Arrays, Use};
use crate::errors::{self, OrRaise};
use crate::patience::Patience;

/// Names and arrays of a mapping, in its order.
pub(crate) fn parts<'py>(
    given: &Bound<'py, PyDict>,
) -> PyResult<(Vec<String>, Bound<'py, PyTuple>)> {
    let names = given.keys().iter().map(|name| name.extract());
    Ok((names.collect::<PyResult<_>>()?, given.values().to_tuple()))
}

/// Gives regions their names, one for each.
pub(super) fn named<'a>(
    py: Python<'_>,
    regions: Vec<Region<'a>>,
    names: Option<&'a [String]>,
) -> PyResult<Vec<Region<'a>>> {
    let Some(names) = names else {
        return Ok(regions);
    };
    if names.len() != regions.len() {
        let (names, arrays) = (names.len(), regions.len());
        let text = format!("there are {names} names for {arrays} arrays: each has its own");
        return Err(errors::argument(py, text));
    }
    let named = regions.into_iter().zip(names);
    Ok(named.map(|(region, name)| region.named(name)).collect())
}

impl Engine {
    pub(super) fn restore_named(
        &self,
        py: Python<'_>,
        version: Version,
        given: &Bound<'_, PyDict>,
        stream: Option<&Bound<'_, PyAny>>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let patience = Patience::new(py, timeout)?;
        let core = self.core(py)?;
        let (names, arrays) = parts(given)?;
        let mut order = core.order(stream)?;
        let mut targets = Arrays::of(&arrays, Use::Write, &mut order)?;
        let regions = names.iter().map(String::as_str);
        let mut regions: Vec<(&str, RegionMut<'_>)> = regions.zip(targets.regions_mut()).collect();
        let done = patience.spend(py, |py, patience| {
            Ok(py.detach(|| match order.stream() {
                Some(stream) => {
                    patience
                        .of(&core.engine)
                        .restore_regions_on(stream, version, &mut regions)
                }
                None => patience
                    .of(&core.engine)
                    .restore_regions(version, &mut regions),
            }))
        });
        drop(order);
        done
    }

    pub(super) fn restore_of_rank(
        &self,
        py: Python<'_>,
        (version, rank): (Version, u32),
        given: &Bound<'_, PyDict>,
    ) -> PyResult<()> {
        let core = self.core(py)?;
        let (names, arrays) = parts(given)?;
        let mut order = core.order(None)?;
        let mut targets = Arrays::of(&arrays, Use::Write, &mut order)?;
        let mut regions: Vec<(&str, &mut [u8])> = Vec::new();
        for (name, target) in names.iter().zip(targets.regions_mut()) {
            match target {
                RegionMut::Bytes(bytes) => regions.push((name, bytes)),
                _ => {
                    let text = "another rank's regions come to main memory: pass arrays there";
                    return Err(errors::argument(py, text.to_owned()));
                }
            }
        }
        let read = py.detach(|| core.engine.restore_rank(version, rank, &mut regions));
        read.or_raise(py)
    }
}

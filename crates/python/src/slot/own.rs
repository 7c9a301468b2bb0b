//! The reference of a slot's Python object to the lent slot, and functions that both classes of slots share.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use pyo3::exceptions::{PyAttributeError, PyBufferError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use tierflow_bind::{Failure, SlotEnd, Status};
use tierflow_device::OwnerProcess;
use tierflow_engine::{Error, Version};

use super::lent::LentSlot;
use crate::array::{Arrays, Use};
use crate::errors::{Answer, Raised};
use crate::ffi;
use crate::ffi::copies::Wait;
use crate::ffi::detached;
use crate::ffi::dlpack;
use crate::order;

/// The reference of a slot's Python object to the lent slot, until the object ends it. Other fields stay after that.
pub(super) struct SlotOwner {
    lent: Mutex<Option<Arc<LentSlot>>>,
    /// The process that has the engine.
    process: OwnerProcess,
    pub(super) version: Version,
    shape: Vec<i64>,
    pub(super) dtype: &'static str,
    pub(super) bytes: usize,
    /// True if the slot's bytes are those in the cache; false for a copy, and for a slot to write.
    pub(super) is_cached: bool,
}

impl SlotOwner {
    pub(super) fn new(lent: LentSlot) -> Self {
        let layout = lent.layout();
        Self {
            version: lent.version,
            process: lent.process,
            shape: layout.shape().to_vec(),
            dtype: layout.dtype().name,
            bytes: layout.bytes(),
            is_cached: lent.slot.consumed().is_some_and(|slot| slot.is_cached()),
            lent: Mutex::new(Some(Arc::new(lent))),
        }
    }

    /// Locks the object's reference.
    ///
    /// # Errors
    /// `ForkedError` in a fork, before a lock is taken: a thread that the fork does not have may hold it.
    fn part(&self) -> Answer<MutexGuard<'_, Option<Arc<LentSlot>>>> {
        match self.process {
            owner if owner.is_current() => Ok(self.lent.lock()),
            owner => Err(Error::OtherProcess { owner: owner.id() }.into()),
        }
    }

    /// Returns true until the object has ended its reference.
    pub(super) fn is_there(&self) -> Answer<bool> {
        Ok(self.part()?.is_some())
    }

    /// Returns a reference to the lent slot for one more user of the bytes.
    ///
    /// # Errors
    /// `ClosedError` if the object has ended its own; `ForkedError` in a fork.
    pub(super) fn shared(&self) -> Answer<Arc<LentSlot>> {
        let lent = self.part()?.clone();
        lent.ok_or_else(|| self.ended())
    }

    /// Takes the object's reference. References of other users of the bytes stay.
    ///
    /// # Errors
    /// As [`SlotOwner::shared`].
    pub(super) fn taken(&self) -> Answer<Arc<LentSlot>> {
        let lent = self.part()?.take();
        lent.ok_or_else(|| self.ended())
    }

    /// Ends the slot, which has no other user, as [`LentSlot::end`] does. If that fails, the object has the slot again.
    pub(super) fn end(
        &self,
        py: Python<'_>,
        mut lent: LentSlot,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> Answer {
        let ended = lent.end(py, SlotEnd::Keep, stream);
        if ended.is_err() && lent.slot.is_there() {
            *self.part()? = Some(Arc::new(lent));
        }
        ended
    }

    /// Takes the slot out of the object if the bytes have no other user. `what` says in the error's text what the slot was to become.
    ///
    /// # Errors
    /// `BufferError` if there are other users; else as [`SlotOwner::shared`].
    pub(super) fn alone(&self, what: &str) -> Answer<LentSlot> {
        let taken = {
            let mut own = self.part()?;
            own.take().map(|lent| {
                Arc::try_unwrap(lent).map_err(|lent| {
                    let others = Arc::strong_count(&lent) - 1;
                    *own = Some(lent);
                    others
                })
            })
        };
        match taken {
            Some(Ok(lent)) => Ok(lent),
            Some(Err(others)) => Err(PyBufferError::new_err(format!(
                "arrays or views still use the bytes of version {} ({others} of them): `del` them first, for it to be {what}",
                self.version
            ))
            .into()),
            None => Err(self.ended()),
        }
    }

    /// Copies between an array and the slot's bytes from `offset` on: to the slot for [`Use::Read`], to the array for [`Use::Write`].
    pub(super) fn copy(
        &self,
        array: &Bound<'_, PyAny>,
        (access, offset): (Use, usize),
        stream: Option<&Bound<'_, PyAny>>,
    ) -> Answer {
        let py = array.py();
        let lent = self.shared()?;
        let engine = Arc::clone(lent.engine());
        let mut order = order::behind(&engine.streams, stream)?;
        let arrays = PyTuple::new(py, [array])?;
        let given = Arrays::of(&arrays, access, &mut order)?;
        let stream = py.detach(|| order.choose())?;
        let wait = Wait::on(stream, given.are_on_device());
        let copied = given.each(|array| {
            let array = &array.lendable(&engine.device)?;
            py.detach(|| match (lent.slot.produced(), lent.slot.consumed()) {
                (Some(slot), _) => ffi::copies::fill((stream, wait), slot, offset, array),
                (_, Some(slot)) => ffi::copies::read((stream, wait), slot, offset, array),
                (None, None) => Ok(()),
            })
        });
        drop(order);
        Ok(copied?)
    }

    fn ended(&self) -> Raised {
        let version = self.version;
        let text =
            format!("the slot of version {version} was given back: it has no bytes any more");
        Failure::new(Status::Closed, text).into()
    }

    pub(super) fn shape<'py>(&self, py: Python<'py>) -> Answer<Bound<'py, PyTuple>> {
        Ok(PyTuple::new(py, &self.shape)?)
    }

    pub(super) fn described(&self, class: &str) -> Answer<String> {
        let (version, shape, dtype) = (self.version, &self.shape, self.dtype);
        let state = match self.part()?.as_deref() {
            None => "given back".to_owned(),
            Some(lent) if lent.is_on_host() => "host".to_owned(),
            Some(lent) => format!("cuda:{}", lent.dlpack_device().number),
        };
        Ok(format!(
            "<tierflow.{class} of version {version}, {dtype}{shape:?}, {state}>"
        ))
    }

    pub(super) fn dlpack<'py>(
        &self,
        py: Python<'py>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> Answer<Bound<'py, PyAny>> {
        let lent = self.shared()?;
        if copy == Some(true) {
            return Err(PyBufferError::new_err(
                "a slot is lent, not copied: leave copy out, and copy what you get",
            )
            .into());
        }
        let own = lent.dlpack_device();
        if dl_device.is_some_and(|asked| asked != (own.kind, own.number)) {
            return Err(PyBufferError::new_err(format!(
                "the slot lies on device {:?} of DLPack and stays there: copy what you get without dl_device",
                (own.kind, own.number)
            ))
            .into());
        }
        let versioned = max_version.is_some_and(|(major, _)| major >= dlpack::VERSION.major);
        Ok(ffi::export::capsule(py, lent, versioned)?)
    }

    pub(super) fn dlpack_device(&self) -> Answer<(i32, i32)> {
        let device = self.shared()?.dlpack_device();
        Ok((device.kind, device.number))
    }

    pub(super) fn cuda_interface<'py>(&self, py: Python<'py>) -> Answer<Bound<'py, PyDict>> {
        let lent = self.shared()?;
        if lent.is_on_host() {
            return Err(PyAttributeError::new_err(
                "the slot lies in host memory: use np.asarray(slot)",
            )
            .into());
        }
        let typestr = lent.layout().dtype().typestr.ok_or_else(|| {
            PyAttributeError::new_err(format!(
                "__cuda_array_interface__ has no name for {}: go by DLPack",
                self.dtype
            ))
        })?;
        let interface = PyDict::new(py);
        interface.set_item("shape", self.shape(py)?)?;
        interface.set_item("typestr", typestr)?;
        interface.set_item("data", (lent.address(), lent.is_read_only()))?;
        interface.set_item("strides", py.None())?;
        // The work that made the bytes is done.
        interface.set_item("stream", py.None())?;
        interface.set_item("version", 3)?;
        Ok(interface)
    }
}

impl Drop for SlotOwner {
    fn drop(&mut self) {
        let lent = &mut self.lent;
        detached::detached(&mut || drop(lent.get_mut().take()));
    }
}

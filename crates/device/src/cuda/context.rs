//! The device's primary context, retained while an object made in it lives, and current on a thread during a call.

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{
    self, CUdevice_P2PAttribute as P2p, CUresult, CUstreamCaptureMode as CaptureMode,
};

use crate::error::{Error, Result, Unavailable};
use crate::info::PeerLink;

/// The oldest usable driver, as 1000 × major + 10 × minor: the version of the CUDA headers behind the bindings, so that
/// every symbol they look up exists.
pub(crate) const DRIVER_NEEDED: i32 = 13_000;

/// A retained primary context.
#[derive(Debug)]
pub(crate) struct Context {
    device: sys::CUdevice,
    handle: sys::CUcontext,
}

// SAFETY: a context handle is a name that the driver accepts from any thread; the driver locks.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// Finds the GPU and retains its primary context. Returns it and the driver's version. An absent or old driver is
    /// an error, not a panic of the bindings.
    pub(crate) fn retain(ordinal: usize) -> Result<(Self, i32)> {
        let version = driver_version()?;
        match result::init() {
            Ok(()) => {}
            Err(DriverError(CUresult::CUDA_ERROR_STUB_LIBRARY)) => {
                return Err(Unavailable::NoDriver.into());
            }
            Err(error @ DriverError(CUresult::CUDA_ERROR_NO_DEVICE)) => {
                return Err(Unavailable::NoGpu {
                    reason: words(error),
                }
                .into());
            }
            Err(error) => return Err(failure("cuInit", error)),
        }
        let count = checked("cuDeviceGetCount", result::device::get_count())?;
        let count = usize::try_from(count).unwrap_or(0);
        let number = match i32::try_from(ordinal) {
            Ok(number) if ordinal < count => number,
            _ if count == 0 => {
                let reason = String::from("it counts 0");
                return Err(Unavailable::NoGpu { reason }.into());
            }
            _ => return Err(Unavailable::NoSuchGpu { ordinal, count }.into()),
        };
        let device = checked("cuDeviceGet", result::device::get(number))?;
        // SAFETY: `device` is one that the driver just named.
        let retained = unsafe { result::primary_ctx::retain(device) };
        let handle = checked("cuDevicePrimaryCtxRetain", retained)?;
        Ok((Self { device, handle }, version))
    }

    pub(crate) fn device(&self) -> sys::CUdevice {
        self.device
    }

    pub(crate) fn handle(&self) -> sys::CUcontext {
        self.handle
    }

    pub(crate) fn attribute(&self, attribute: sys::CUdevice_attribute) -> Result<i32> {
        // SAFETY: the device is one that the driver named.
        let value = unsafe { result::device::get_attribute(self.device, attribute) };
        checked("cuDeviceGetAttribute", value)
    }

    /// Returns the link over which this GPU reaches the memory of GPU `peer`, if there is one.
    pub(crate) fn link_to(&self, peer: usize) -> Result<Option<PeerLink>> {
        let number = i32::try_from(peer).unwrap_or(-1);
        let peer = checked("cuDeviceGet", result::device::get(number))?;
        let mut can = 0;
        // SAFETY: `can` is a valid place for the answer, and the driver named both devices.
        let asked = unsafe { sys::cuDeviceCanAccessPeer(&raw mut can, self.device, peer) };
        checked("cuDeviceCanAccessPeer", asked.result())?;
        if can == 0 {
            return Ok(None);
        }
        let about = |attribute| {
            let mut value = 0;
            // SAFETY: as above.
            let asked = unsafe {
                sys::cuDeviceGetP2PAttribute(&raw mut value, attribute, self.device, peer)
            };
            checked("cuDeviceGetP2PAttribute", asked.result()).map(|()| value)
        };
        Ok(Some(PeerLink {
            performance_rank: about(P2p::CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK)?,
            native_atomics: about(P2p::CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED)? != 0,
        }))
    }

    /// Returns the GPU's address on the PCI bus, as `0000:0F:00.0`.
    pub(crate) fn bus_id(&self) -> Result<String> {
        let mut text: [std::ffi::c_char; 32] = [0; 32];
        // SAFETY: `text` is a live array of the length that is passed.
        let asked = unsafe { sys::cuDeviceGetPCIBusId(text.as_mut_ptr(), 32, self.device) };
        checked("cuDeviceGetPCIBusId", asked.result())?;
        let bytes = text.iter().map(|&c| c as u8);
        Ok(bytes
            .take_while(|&byte| byte != 0)
            .map(char::from)
            .collect())
    }

    /// Makes the context current on this thread until the guard is dropped. Until then, the thread's calls do not spoil a CUDA graph that
    /// another thread captures, and the capture does not make the driver refuse them. Dropping the guard restores the application's context
    /// and capture mode; a thread that had no context keeps this one. Costs three thread-local look-ups if the context is current already.
    pub(crate) fn enter(&self) -> Result<Entered> {
        let mut before =
            result::ctx::get_current().map_err(|error| lost("cuCtxGetCurrent", error))?;
        if before == Some(self.handle) {
            before = None;
        } else {
            // SAFETY: the handle is retained as long as `self` lives.
            let set = unsafe { result::ctx::set_current(self.handle) };
            set.map_err(|error| lost("cuCtxSetCurrent", error))?;
        }
        // Dropping this makes the other context current again if the mode is refused.
        let mut entered = Entered {
            before,
            capture: None,
        };
        let relaxed = CaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        entered.capture = Some(exchange_capture_mode(relaxed)?);
        Ok(entered)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: retained once, in `retain`, and everything made in it keeps it alive.
        let released = unsafe { result::primary_ctx::release(self.device) };
        // At the end of a process the driver may be gone before this value; nothing is left to give back then.
        let _ = released;
    }
}

/// Keeps the device's context current on this thread until it is dropped: see [`Cuda::enter`](super::Cuda::enter).
#[must_use = "the context is current only while this lives"]
#[derive(Debug)]
pub struct Entered {
    before: Option<sys::CUcontext>,
    capture: Option<CaptureMode>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Some(mode) = self.capture {
            let _ = exchange_capture_mode(mode);
        }
        if let Some(before) = self.before {
            // SAFETY: `before` was current on entry, and the code that made it current keeps it alive.
            let _ = unsafe { result::ctx::set_current(before) };
        }
    }
}

/// Sets the calls that this thread may make while a graph is being captured. Returns the mode that it had.
fn exchange_capture_mode(mut mode: CaptureMode) -> Result<CaptureMode> {
    // SAFETY: `mode` is a valid place for the answer, which is a mode.
    let exchanged = unsafe { sys::cuThreadExchangeStreamCaptureMode(&raw mut mode) };
    checked("cuThreadExchangeStreamCaptureMode", exchanged.result())?;
    Ok(mode)
}

fn driver_version() -> Result<i32> {
    // SAFETY: loading the driver runs its initialisers, which are sound to run at any time.
    if !unsafe { sys::is_culib_present() } {
        return Err(Unavailable::NoDriver.into());
    }
    let mut found = 0;
    // SAFETY: `found` is a valid place for the answer; the call needs no initialisation and exists
    // in every driver.
    let asked = unsafe { sys::cuDriverGetVersion(&raw mut found) };
    match asked.result() {
        Ok(()) if found >= DRIVER_NEEDED => Ok(found),
        Ok(()) => Err(Unavailable::DriverTooOld {
            found,
            needed: DRIVER_NEEDED,
        }
        .into()),
        Err(DriverError(CUresult::CUDA_ERROR_STUB_LIBRARY)) => Err(Unavailable::NoDriver.into()),
        Err(error) => Err(failure("cuDriverGetVersion", error)),
    }
}

/// Turns the driver's answer into this crate's.
pub(crate) fn checked<T>(call: &'static str, answer: Result<T, DriverError>) -> Result<T> {
    answer.map_err(|error| failure(call, error))
}

/// Sorts an error of the driver by whether the context stays usable.
pub(crate) fn failure(call: &'static str, error: DriverError) -> Error {
    let reason = words(error);
    if is_sticky(error) {
        Error::Lost { call, reason }
    } else {
        Error::Driver { call, reason }
    }
}

/// Makes the error for a context that is unusable, in which work may still run.
pub(crate) fn lost(call: &'static str, error: DriverError) -> Error {
    Error::Lost {
        call,
        reason: words(error),
    }
}

/// Returns true for errors that, in the words of the driver's manual, "leave the process in an inconsistent state":
/// every later call fails with the same error.
fn is_sticky(DriverError(code): DriverError) -> bool {
    matches!(
        code,
        CUresult::CUDA_ERROR_DEINITIALIZED
            | CUresult::CUDA_ERROR_ECC_UNCORRECTABLE
            | CUresult::CUDA_ERROR_NVLINK_UNCORRECTABLE
            | CUresult::CUDA_ERROR_CONTAINED
            | CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
            | CUresult::CUDA_ERROR_LAUNCH_TIMEOUT
            | CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED
            | CUresult::CUDA_ERROR_ASSERT
            | CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR
            | CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION
            | CUresult::CUDA_ERROR_MISALIGNED_ADDRESS
            | CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE
            | CUresult::CUDA_ERROR_INVALID_PC
            | CUresult::CUDA_ERROR_LAUNCH_FAILED
            | CUresult::CUDA_ERROR_TENSOR_MEMORY_LEAK
            | CUresult::CUDA_ERROR_MPS_CLIENT_TERMINATED
            | CUresult::CUDA_ERROR_EXTERNAL_DEVICE
    )
}

/// Returns name and text of an error, as in `CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected`.
pub(crate) fn words(error: DriverError) -> String {
    let text = |words: Result<&std::ffi::CStr, DriverError>| {
        words.map(|words| words.to_string_lossy().into_owned()).ok()
    };
    match (text(error.error_name()), text(error.error_string())) {
        (Some(name), Some(string)) => format!("{name}: {string}"),
        _ => format!("error {}", error.0 as u32),
    }
}

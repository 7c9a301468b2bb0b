//! Kernels: modules loaded from PTX, their functions, and launches.

use std::ffi::{CString, c_void};
use std::sync::Arc;

use cudarc::driver::result;
use cudarc::driver::sys;

use super::Cuda;
use super::context::{Context, checked, failure};
use super::stream::CudaQueue;
use crate::error::{Error, Invalid, Result};
use crate::stream::Stream;

/// PTX compiled by the driver for the device. Load it once and keep its functions.
#[derive(Debug)]
pub struct Module {
    loaded: Arc<LoadedModule>,
}

#[derive(Debug)]
struct LoadedModule {
    context: Arc<Context>,
    handle: sys::CUmodule,
}

// SAFETY: a module handle is a name that the driver accepts from any thread; the driver locks.
unsafe impl Send for LoadedModule {}
// SAFETY: as above.
unsafe impl Sync for LoadedModule {}

impl Drop for LoadedModule {
    fn drop(&mut self) {
        if let Ok(_entered) = self.context.enter() {
            // SAFETY: loaded once and unloaded once; every function of it keeps it alive.
            let _ = unsafe { result::module::unload(self.handle) };
        }
    }
}

impl Module {
    /// Compiles PTX for the device and loads it. Costs milliseconds the first time; the driver caches the result.
    ///
    /// # Errors
    ///
    /// [`Invalid::Name`] if the text holds a NUL byte; [`Error::Driver`] with the compiler's log if the text is no PTX,
    /// or is for newer devices or drivers.
    pub fn load(cuda: &Cuda, ptx: &str) -> Result<Self> {
        Self::load_in(&cuda.context, ptx)
    }

    pub(super) fn load_in(context: &Arc<Context>, ptx: &str) -> Result<Self> {
        const LOG_BYTES: usize = 8192;
        let image = c_string("PTX", ptx)?;
        let _entered = context.enter()?;
        let mut log = vec![0_u8; LOG_BYTES];
        let mut options = [
            sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER,
            sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
        ];
        // The driver takes the size where it takes a pointer for other options.
        let size = std::ptr::without_provenance_mut::<c_void>(LOG_BYTES);
        let mut values = [log.as_mut_ptr().cast::<c_void>(), size];
        let mut handle = std::ptr::null_mut();
        // SAFETY: the image is text with a NUL at its end; there are two options with two values,
        // of which the first is a buffer as long as the second says; all outlive the call.
        let answer = unsafe {
            sys::cuModuleLoadDataEx(
                &raw mut handle,
                image.as_ptr().cast(),
                2,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        if let Err(error) = answer.result() {
            let mut failed = failure("cuModuleLoadDataEx", error);
            let said = log.split(|&byte| byte == 0).next().unwrap_or_default();
            if let Error::Driver { reason, .. } = &mut failed
                && !said.is_empty()
            {
                reason.push_str("; ");
                reason.push_str(String::from_utf8_lossy(said).trim_end());
            }
            return Err(failed);
        }
        Ok(Self {
            loaded: Arc::new(LoadedModule {
                context: Arc::clone(context),
                handle,
            }),
        })
    }

    /// Returns a kernel of the module, by the name of its `.entry`.
    ///
    /// # Errors
    ///
    /// [`Invalid::Name`] if the module has no such kernel.
    pub fn function(&self, name: &str) -> Result<Function> {
        let c_name = c_string("kernel", name)?;
        let _entered = self.loaded.context.enter()?;
        // SAFETY: the module is loaded as long as `loaded` lives.
        match unsafe { result::module::get_function(self.loaded.handle, c_name) } {
            Ok(handle) => Ok(Function {
                module: Arc::clone(&self.loaded),
                handle,
            }),
            Err(error) if error.0 == sys::CUresult::CUDA_ERROR_NOT_FOUND => {
                let reason = String::from("the module has no such entry");
                Err(Invalid::Name {
                    what: "kernel",
                    name: name.to_owned(),
                    reason,
                }
                .into())
            }
            Err(error) => Err(failure("cuModuleGetFunction", error)),
        }
    }
}

fn c_string(what: &'static str, text: &str) -> Result<CString> {
    CString::new(text).map_err(|nul| {
        let name = text.chars().take(40).collect();
        let reason = format!("it has a NUL byte at {}", nul.nul_position());
        Invalid::Name { what, name, reason }.into()
    })
}

/// A kernel. The value keeps its module loaded.
#[derive(Clone, Debug)]
pub struct Function {
    module: Arc<LoadedModule>,
    handle: sys::CUfunction,
}

// SAFETY: a function handle is a name that the driver accepts from any thread; the driver locks.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

impl Function {
    pub(super) fn handle(&self) -> sys::CUfunction {
        self.handle
    }
}

/// The shape of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Blocks in x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y and z.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
}

/// An argument of a kernel, of the type of its parameter.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub struct Arg {
    bytes: [u8; 8],
}

impl Arg {
    /// The largest number of arguments of a launch.
    pub const MOST: usize = 64;

    /// A pointer parameter: an address on the device, such as a loan's.
    pub fn address(address: u64) -> Self {
        Self {
            bytes: address.to_ne_bytes(),
        }
    }
}

macro_rules! args {
    ($($type:ident: $words:literal),*) => {
        impl Arg {$(
            #[doc = concat!("A parameter of type ", $words, ".")]
            pub fn $type(value: $type) -> Self {
                let mut bytes = [0; 8];
                let value = value.to_ne_bytes();
                bytes[..value.len()].copy_from_slice(&value);
                Self { bytes }
            }
        )*}
    };
}

args! {
    u32: "`unsigned int`", i32: "`int`", u64: "`unsigned long long`, `size_t`",
    i64: "`long long`", f32: "`float`", f64: "`double`"
}

impl Stream {
    /// Enqueues a kernel behind the stream's work so far, and returns without waiting.
    ///
    /// # Errors
    ///
    /// [`Invalid::NotCuda`] on the host back end; [`Invalid::OtherDevice`] if the function was
    /// loaded for another one; [`Invalid::OutOfBounds`] with more than [`Arg::MOST`] arguments;
    /// [`Error::Driver`] if the device cannot run that shape.
    ///
    /// # Safety
    ///
    /// - `args` are as many as the kernel's parameters, in their order, each of its type and size.
    /// - Every address that the kernel accesses, however it computes it, lies in bytes that the device can reach. The
    ///   caller holds a loan of these bytes (for writing, if the kernel writes). The loans last until the stream is
    ///   synchronised after the launch, or an event recorded after it is done. Dropping the stream does not wait.
    pub unsafe fn launch(&self, function: &Function, shape: Launch, args: &[Arg]) -> Result<()> {
        let Some(queue) = self.queue().as_any().downcast_ref::<CudaQueue>() else {
            return Err(Invalid::NotCuda {
                what: "launching a kernel",
            }
            .into());
        };
        if queue.context().device() != function.module.context.device() {
            return Err(Invalid::OtherDevice.into());
        }
        if args.len() > Arg::MOST {
            return Err(Invalid::OutOfBounds {
                range: 0..args.len(),
                len: Arg::MOST,
            }
            .into());
        }
        let mut parameters = [std::ptr::null_mut::<c_void>(); Arg::MOST];
        for (parameter, arg) in parameters.iter_mut().zip(args) {
            // The driver copies from here during the call and writes nothing.
            *parameter = std::ptr::from_ref(&arg.bytes).cast_mut().cast();
        }
        let Launch {
            grid: [gx, gy, gz],
            block: [bx, by, bz],
            shared_bytes,
        } = shape;
        let _entered = queue.context().enter()?;
        // SAFETY: stream and function are alive and of one context; there is a pointer to a value
        // for every parameter, and the rest is the caller's promise.
        let launched = unsafe {
            result::launch_kernel(
                function.handle,
                (gx, gy, gz),
                (bx, by, bz),
                shared_bytes,
                queue.handle(),
                &mut parameters,
            )
        };
        checked("cuLaunchKernel", launched)
    }
}

//! A kernel that makes the GPU fail, for tests of the consequences of a lost device.

use std::time::Duration;

use super::module::{Arg, Function, Launch, Module};
use crate::device::Device;
use crate::error::{Invalid, Result};
use crate::stream::Stream;

const FAIL: &str = "
.version 8.0
.target sm_80
.address_size 64
.visible .entry fail(.param .u64 after)
{
    .reg .pred %p; .reg .b64 %t<4>;
    ld.param.u64 %t1, [after]; mov.u64 %t2, %globaltimer; add.u64 %t2, %t2, %t1;
AGAIN:
    mov.u64 %t3, %globaltimer; setp.lt.u64 %p, %t3, %t2; @%p bra AGAIN;
    trap;
}
";

/// A kernel after which this process cannot use its GPU any more. Other processes can.
#[derive(Debug)]
pub struct Failure(Function);

impl Failure {
    /// Loads the kernel.
    ///
    /// # Errors
    /// [`Invalid::NotCuda`] on the host back end; the driver's error if it does not load the kernel.
    pub fn load(device: &Device) -> Result<Self> {
        let what = "making a GPU fail";
        let cuda = device.as_cuda().ok_or(Invalid::NotCuda { what })?;
        Module::load(cuda, FAIL)?.function("fail").map(Self)
    }

    /// Enqueues the kernel, which runs for `time` and stops the GPU then. Does not wait.
    ///
    /// # Errors
    /// The driver's error if it refuses the launch.
    pub fn enqueue(&self, stream: &Stream, time: Duration) -> Result<()> {
        let one = Launch {
            grid: [1, 1, 1],
            block: [1, 1, 1],
            shared_bytes: 0,
        };
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        // SAFETY: the kernel takes a number of 64 bits, and accesses no memory.
        unsafe { stream.launch(&self.0, one, &[Arg::u64(nanoseconds)]) }
    }
}

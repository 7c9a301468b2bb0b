//! Errors of copies between files and device memory.

use std::fmt;

use crate::error::Error;

/// Reasons why cuFile does not copy between a file and device memory. The variant says what the caller does next.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DirectError {
    /// The library cannot be loaded, or lacks a function: install it, or copy another way.
    #[error(
        "cuFile cannot be loaded ({reason}): install it (nvidia-gds, or nvidia-cufile of PyPI), and name the directory of \
         libcufile.so.0 in LD_LIBRARY_PATH before the program starts"
    )]
    NoLibrary {
        /// The loader's message.
        reason: String,
    },
    /// The kernel has no loadable modules: libcufile reads their list as it opens, and waits for ever without one.
    #[error("cuFile does not open on a kernel without loadable modules: there is no /proc/modules")]
    NoModules,
    /// The library does not open, or does not tell its properties.
    #[error("cuFile does not open its driver: {0}; it writes why to cufile.log")]
    Driver(StatusCode),
    /// The library does not reach the file's storage, or the file has no name.
    #[error(
        "cuFile refuses the file: {0}; it writes why to cufile.log. It takes files with a name, on a disk that udev knows: a container \
         needs /run/udev"
    )]
    File(StatusCode),
    /// The bytes are not in the device's own memory: copy them another way.
    #[error("cuFile is for memory of the device that it was opened for: copy this with a stream")]
    Memory,
    /// Offset plus length exceeds the largest length of a file (`i64::MAX`): mend the caller.
    #[error("{bytes} bytes at {offset} are beyond the end of any file")]
    Offset {
        /// Offset in the file, in bytes.
        offset: u64,
        /// Length in bytes.
        bytes: usize,
    },
    /// The file ends before the bytes do.
    #[error("{doing} {bytes} bytes at {offset}: the file ends after {done} of them")]
    Short {
        /// "reading" or "writing".
        doing: &'static str,
        /// Offset in the file, in bytes.
        offset: u64,
        /// Length in bytes.
        bytes: usize,
        /// Bytes before the file's end.
        done: usize,
    },
    /// The operating system failed. The target's bytes are unspecified.
    #[error(
        "{doing} {bytes} bytes at {offset}: {}",
        std::io::Error::from_raw_os_error(*.errno)
    )]
    Io {
        /// "reading" or "writing".
        doing: &'static str,
        /// Offset in the file, in bytes.
        offset: u64,
        /// Length in bytes.
        bytes: usize,
        /// The `errno` value.
        errno: i32,
    },
    /// The library failed. The target's bytes are unspecified.
    #[error("cuFile failed, {doing} {bytes} bytes at {offset}: {status}")]
    Failed {
        /// "reading" or "writing".
        doing: &'static str,
        /// Offset in the file, in bytes.
        offset: u64,
        /// Length in bytes.
        bytes: usize,
        /// The library's status.
        status: StatusCode,
    },
    /// The device failed, or the system gave no descriptor.
    #[error(transparent)]
    Device(#[from] Error),
}

/// Status of a failed call of libcufile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusCode {
    /// The library's code (`CUfileOpError`).
    pub cufile: i32,
    /// The CUDA driver's code, where `cufile` is 5011.
    pub cuda: i32,
}

impl fmt::Display for StatusCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.cufile {
            5001 => "DRIVER_NOT_INITIALIZED",
            5004 => "DRIVER_VERSION_MISMATCH",
            5007 => "PLATFORM_NOT_SUPPORTED",
            5008 => "IO_NOT_SUPPORTED",
            5009 => "DEVICE_NOT_SUPPORTED",
            5010 => "NVFS_DRIVER_ERROR",
            5011 => {
                return write!(
                    f,
                    "CU_FILE_CUDA_DRIVER_ERROR (5011), CUDA error {}",
                    self.cuda
                );
            }
            5018 => "INVALID_FILE_TYPE",
            5019 => "INVALID_FILE_OPEN_FLAG",
            5022 => "INVALID_VALUE",
            5025 => "PERMISSION_DENIED",
            5027 => "HANDLE_NOT_REGISTERED",
            5028 => "HANDLE_ALREADY_REGISTERED",
            5030 => "INTERNAL_ERROR",
            5031 => "GETNEWFD_FAILED",
            5033 => "NVFS_SETUP_ERROR",
            5034 => "IO_DISABLED",
            code => return write!(f, "code {code}"),
        };
        write!(f, "CU_FILE_{name} ({})", self.cufile)
    }
}

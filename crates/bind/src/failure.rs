//! Failures, sorted by the caller's next step.

use rustix::io::Errno;
use std::path::{Path, PathBuf};
use tierflow_device::Error as DeviceError;
use tierflow_engine::{BuildError, Error};
use tierflow_store::Error as StoreError;

/// Failures sorted by the caller's next step: the codes of `enum tf_status` in `tierflow.h`, and the classes of `tierflow/_errors.py`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Status {
    /// Nothing went wrong.
    Ok = 0,
    /// Correct the call, or the options.
    Argument = 1,
    /// Ask for another version.
    Unknown = 2,
    /// Make room, then call again.
    NoRoom = 3,
    /// Wait again, or go on without the result.
    TimedOut = 4,
    /// Some versions are not on the lowest tier: correct the cause, and wait again.
    Stalled = 5,
    /// Go on from an older version.
    Damaged = 6,
    /// Make the storage usable, then call again.
    Storage = 7,
    /// Make the device usable, or choose another one.
    Device = 8,
    /// Start all ranks together, as many as there were.
    Group = 9,
    /// The engine or slot is closed, or belongs to another process.
    Closed = 10,
    /// A defect of the library: report it.
    Internal = 11,
}

/// The failure of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The caller's next step.
    pub status: Status,
    /// The message for the user, with the cause.
    pub text: String,
    /// The system's error behind the failure, if there is one.
    pub system: System,
}

/// The system's error and the file that it concerns, for the attributes of Python's `OSError`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct System {
    /// The system's number of the error.
    pub errno: Option<i32>,
    /// The file or directory.
    pub path: Option<PathBuf>,
}

impl System {
    /// Makes the system's error for a file.
    pub(crate) fn of(path: &Path, error: &std::io::Error) -> Self {
        Self {
            errno: error.raw_os_error(),
            path: Some(path.to_owned()),
        }
    }
}

impl From<&Error> for System {
    fn from(error: &Error) -> Self {
        match error {
            Error::Storage(error) => error.into(),
            Error::Stalled { cause, .. } => cause.as_deref().map(Self::from).unwrap_or_default(),
            _ => Self::default(),
        }
    }
}

impl From<&StoreError> for System {
    fn from(error: &StoreError) -> Self {
        let of = |errno: i32, path: &Path| Self {
            errno: Some(errno),
            path: Some(path.to_owned()),
        };
        match error {
            StoreError::Open { directory, source } => of(source.raw_os_error(), directory),
            StoreError::File { path, source, .. } => of(source.raw_os_error(), path),
            StoreError::Write { source, .. } | StoreError::Read { source, .. } => Self {
                errno: Some(source.raw_os_error()),
                path: None,
            },
            StoreError::Full { place, .. } => Self {
                errno: Some(Errno::NOSPC.raw_os_error()),
                path: place.clone(),
            },
            StoreError::Busy { directory } => of(Errno::BUSY.raw_os_error(), directory),
            StoreError::Vanished { directory } => of(Errno::NOENT.raw_os_error(), directory),
            StoreError::Refused { path, .. } => of(Errno::PERM.raw_os_error(), path),
            StoreError::Damaged { path, .. } => of(Errno::IO.raw_os_error(), path),
            _ => Self::default(),
        }
    }
}

/// The result of a fallible call.
pub type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// Makes a failure of this status.
    pub fn new(status: Status, text: impl Into<String>) -> Self {
        let text = text.into();
        Self {
            status,
            text,
            system: System::default(),
        }
    }

    /// Makes the failure of a call, or an option, that the caller has to correct.
    pub fn argument(text: impl Into<String>) -> Self {
        Self::new(Status::Argument, text)
    }

    /// Makes the failure of a file that cannot be used.
    #[must_use]
    pub fn file(path: &Path, error: &std::io::Error) -> Self {
        Self {
            system: System::of(path, error),
            ..Self::new(Status::Storage, format!("{}: {error}", path.display()))
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Failure {}

impl From<&Error> for Status {
    fn from(error: &Error) -> Self {
        match error {
            Error::Unknown { .. } | Error::Discarded { .. } => Self::Unknown,
            Error::NoRoom { .. } => Self::NoRoom,
            Error::TimedOut { .. } | Error::Interrupted => Self::TimedOut,
            Error::Stalled { .. } => Self::Stalled,
            Error::Lost { cause, .. } => (&**cause).into(),
            Error::OtherProcess { .. } => Self::Closed,
            Error::Build(BuildError::OtherGroup { .. } | BuildError::OtherRun { .. }) => {
                Self::Group
            }
            Error::Build(BuildError::Unreadable { .. }) | Error::Pool(_) => Self::Storage,
            Error::Internal { .. } => Self::Internal,
            Error::Storage(error) => error.into(),
            Error::Device(error) => error.into(),
            Error::Damaged(_) => Self::Damaged,
            Error::Memory(_) | Error::Thread(_) => Self::Device,
            Error::Build(_)
            | Error::NothingLasts { .. }
            | Error::Undecodable { .. }
            | Error::DiscardsRestored
            | Error::Signals(_)
            | Error::NotResizable { .. }
            | Error::NoMemoryTier
            | Error::OtherEngine { .. }
            | Error::Empty { .. }
            | Error::VersionUsed { .. }
            | Error::NoNumbers { .. }
            | Error::Region { .. }
            | Error::NamedRegion { .. }
            | Error::SizeMismatch { .. }
            | Error::TooLarge { .. } => Self::Argument,
            // The engine's errors may get new variants. Sort each of them above.
            _ => Self::Internal,
        }
    }
}

impl From<&StoreError> for Status {
    fn from(error: &StoreError) -> Self {
        match error {
            StoreError::Damaged { .. } | StoreError::Lost { .. } => Self::Damaged,
            StoreError::NoVersion { .. } => Self::Unknown,
            StoreError::Absent { .. } | StoreError::Unprotected(_) => Self::Group,
            StoreError::Argument(_) | StoreError::Exists { .. } => Self::Argument,
            _ => Self::Storage,
        }
    }
}

impl From<&DeviceError> for Status {
    fn from(error: &DeviceError) -> Self {
        match error {
            DeviceError::OutOfMemory { .. } => Self::NoRoom,
            DeviceError::Invalid(_) | DeviceError::Unavailable(_) => Self::Argument,
            _ => Self::Device,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self {
            system: (&error).into(),
            ..Self::new((&error).into(), error.to_string())
        }
    }
}

impl From<DeviceError> for Failure {
    fn from(error: DeviceError) -> Self {
        Self::new((&error).into(), error.to_string())
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self {
            system: (&error).into(),
            ..Self::new((&error).into(), error.to_string())
        }
    }
}

impl From<tierflow_redundancy::Error> for Failure {
    fn from(error: tierflow_redundancy::Error) -> Self {
        Self::new(Status::Storage, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_called_is_not_told_to_mend_the_call_where_the_machine_failed() {
        let refused = || std::io::Error::from(Errno::AGAIN);
        for error in [Error::Memory(Box::new(refused())), Error::Thread(refused())] {
            assert_eq!(Status::from(&error), Status::Device, "{error:?}");
        }
        // A signal that cannot be received, such as SIGKILL, is named by the caller.
        let named = Error::Signals(refused());
        assert_eq!(Status::from(&named), Status::Argument);
    }
}

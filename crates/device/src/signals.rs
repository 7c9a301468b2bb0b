//! Signals that one process receives, and that keep their default action in its forks.

use std::sync::atomic::{AtomicU32, Ordering};
use std::{io, mem, process, ptr};

use signal_hook::low_level::{emulate_default_handler, exit, register};

/// For each signal, the process that receives it; 0 while none does.
static RECEIVERS: [AtomicU32; 65] = [const { AtomicU32::new(0) }; 65];

/// Makes this process the receiver of `signal`. In forks of the receiver, the signal keeps its default action, if it has that now. Call
/// this before a handler is installed by `signal-hook`.
///
/// # Errors
/// The errors of the system, such as for a number that is no signal.
pub fn receive_signal(signal: i32) -> io::Result<()> {
    let receiver = usize::try_from(signal).ok();
    let receiver = receiver.and_then(|signal| RECEIVERS.get(signal));
    let receiver = receiver.ok_or(io::ErrorKind::InvalidInput)?;
    let is_first = receiver.swap(process::id(), Ordering::Relaxed) == 0;
    if !is_first || !has_default_action(signal)? {
        return Ok(());
    }
    let action = move || {
        if receiver.load(Ordering::Relaxed) != process::id()
            && emulate_default_handler(signal).is_err()
        {
            // The signal is a real-time one, which ends a process by default.
            exit(128 + signal);
        }
    };
    // SAFETY: the action loads a number, asks for the process id, and calls functions that are made for handlers.
    unsafe { register(signal, action) }.map(drop)
}

/// Returns true if the signal has its default action.
fn has_default_action(signal: i32) -> io::Result<bool> {
    // SAFETY: zeros are a value of the structure.
    let mut now: libc::sigaction = unsafe { mem::zeroed() };
    // SAFETY: without a new action, the call only writes to `now`.
    match unsafe { libc::sigaction(signal, ptr::null(), &raw mut now) } {
        0 => Ok(now.sa_sigaction == libc::SIG_DFL),
        _ => Err(io::Error::last_os_error()),
    }
}

//! The log, and the end of a process that did not close all of its engines.

use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::{Arc, Once};

use tierflow_bind::{
    Level, LevelFilter, LogSink, at_exit, end_of_process, log_to, to_standard_error,
};

use crate::failure::{Failure, exported};

static LOG: Once = Once::new();
static EXIT: Once = Once::new();

/// `tf_log_line` of the header.
type LogLine = unsafe extern "C" fn(context: *mut c_void, level: c_int, line: *const c_char);

/// The context that a callback gets back.
struct CallbackContext(*mut c_void);

// SAFETY: `tierflow.h` says that the callback is called from any thread.
unsafe impl Send for CallbackContext {}
// SAFETY: as above, also from several threads at a time.
unsafe impl Sync for CallbackContext {}

/// The levels by their numbers in the header.
const LEVELS: [(&str, LevelFilter); 5] = [
    ("off", LevelFilter::Off),
    ("error", LevelFilter::Error),
    ("warn", LevelFilter::Warn),
    ("info", LevelFilter::Info),
    ("debug", LevelFilter::Debug),
];

/// Prepares the process before an engine is opened: the log goes to the standard error, unless [`tf_log`] was called before, and engines
/// that are open when the process exits are ended.
pub(crate) fn prepare() {
    LOG.call_once(|| {
        let asked = std::env::var("TIERFLOW_LOG").unwrap_or_default();
        let level = LEVELS.iter().find(|(name, _)| *name == asked);
        let level = level.map_or(LevelFilter::Warn, |(_, level)| *level);
        log_to(level, Arc::new(to_standard_error));
    });
    EXIT.call_once(|| {
        if !at_exit(end_of_program) {
            let text = "the end of this process will not wait for engines that are not closed: atexit failed";
            to_standard_error(Level::Error, text);
        }
    });
}

extern "C" fn end_of_program() {
    // The process exits even if this fails.
    let _ended_or_not = std::panic::catch_unwind(|| end_of_process(None));
}

exported! {
    fn tf_log(level: c_int, line: Option<LogLine>, context: *mut c_void) {
        let known = usize::try_from(level).ok().and_then(|at| LEVELS.get(at));
        let unknown = || Failure::argument(format!("{level} is no tf_log_level"));
        let (_, most) = *known.ok_or_else(unknown)?;
        let context = CallbackContext(context);
        let to_callback = line.map(|line| -> Arc<LogSink> {
            Arc::new(move |level, text| {
                let CallbackContext(context) = &context;
                let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
                // SAFETY: the application's function, by the contract of `tf_log`: it is called from any thread.
                unsafe { line(*context, level as c_int, text.as_ptr()) };
            })
        });
        LOG.call_once(|| ());
        log_to(most, to_callback.unwrap_or_else(|| Arc::new(to_standard_error)));
        Ok(())
    }
}

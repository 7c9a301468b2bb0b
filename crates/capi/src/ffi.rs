//! What C hands over, read and written.

use std::ffi::{CStr, c_char};
use std::time::Duration;

use crate::failure::{Failure, Outcome};

/// A text.
///
/// # Safety
/// `text` is null, or the start of a string that ends with a zero and is there for `'a`.
pub(crate) unsafe fn text<'a>(text: *const c_char, what: &str) -> Outcome<&'a str> {
    if text.is_null() {
        return Err(Failure::argument(format!("{what} is null")));
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    let wrong = |_| Failure::argument(format!("{what} is not UTF-8"));
    text.to_str().map_err(wrong)
}

/// Elements one after the other.
///
/// # Safety
/// `first` is null, or the first of `count` elements that are valid for `'a` and not written meanwhile.
pub(crate) unsafe fn list<'a, T>(first: *const T, count: usize, what: &str) -> Outcome<&'a [T]> {
    match (first.is_null(), count) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Failure::argument(format!("{what} is null"))),
        // SAFETY: the caller's promise.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts(first, count) }),
    }
}

/// One value.
///
/// # Safety
/// `from` is null, or a value that can be read.
pub(crate) unsafe fn read<T: Copy>(from: *const T) -> Option<T> {
    if from.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    Some(unsafe { from.read() })
}

/// Answers through `to`.
///
/// # Safety
/// `to` is null, or can be written.
pub(crate) unsafe fn put<T>(to: *mut T, value: T, what: &str) -> Outcome {
    if to.is_null() {
        return Err(Failure::argument(format!("{what} is null")));
    }
    // SAFETY: the caller's promise.
    unsafe { to.write(value) };
    Ok(())
}

/// Writes `text` and a zero into a buffer, as far as it fits, and says how long it is without the zero.
///
/// # Safety
/// `buffer` is null, or `size` bytes that can be written.
pub(crate) unsafe fn put_text(buffer: *mut c_char, size: usize, text: &str) -> usize {
    let Some(room) = size.checked_sub(1).filter(|_| !buffer.is_null()) else {
        return text.len();
    };
    let bytes = &text.as_bytes()[..text.len().min(room)];
    // SAFETY: the bytes fit into the caller's buffer, which is no part of a text of ours.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), buffer.cast(), bytes.len()) };
    // SAFETY: there is room for one more.
    let end = unsafe { buffer.add(bytes.len()) };
    // SAFETY: as above.
    unsafe { end.write(0) };
    text.len()
}

/// Seconds, as C gives them: negative ones, and infinity, are for ever, which is the longest duration.
pub(crate) fn patience(seconds: f64) -> Outcome<Duration> {
    if seconds.is_nan() {
        return Err(Failure::argument("a time is a number of seconds, not nan"));
    }
    if seconds < 0.0 {
        return Ok(Duration::MAX);
    }
    Ok(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
}

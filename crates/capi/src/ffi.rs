//! The types of arguments that C passes.
//!
//! # The contract
//! Values of these types come from C alone, as arguments of the exported functions, and are not kept beyond the call. The headers say of
//! each pointer what it points to, for how long, and whether it may be null. Each `unsafe` block here relies on this contract.

use std::ffi::{CStr, c_char, c_void};
use std::marker::PhantomData;
use std::ptr;
use std::time::Duration;

use tierflow_bind::parse;

use crate::failure::{Failure, Outcome};

fn null(what: &str) -> Failure {
    Failure::argument(format!("{what} is null"))
}

/// A text that ends with a zero byte.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Text<'a>(*const c_char, PhantomData<&'a c_char>);

impl<'a> Text<'a> {
    pub(crate) fn read(self, what: &str) -> Outcome<&'a str> {
        if self.0.is_null() {
            return Err(null(what));
        }
        // SAFETY: the contract above.
        let text = unsafe { CStr::from_ptr(self.0) };
        let wrong = |_| Failure::argument(format!("{what} is not UTF-8"));
        text.to_str().map_err(wrong)
    }

    /// Returns the text, or an empty text for null.
    pub(crate) fn or_empty(self, what: &str) -> Outcome<&'a str> {
        match self.0.is_null() {
            true => Ok(""),
            false => self.read(what),
        }
    }
}

/// A pointer to one element or to the first of several, or null for none. Nobody writes the elements during the call.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct In<'a, T>(*const T, PhantomData<&'a T>);

impl<'a, T> In<'a, T> {
    pub(crate) fn list(self, count: usize, what: &str) -> Outcome<&'a [T]> {
        match (self.0.is_null(), count) {
            (_, 0) => Ok(&[]),
            (true, _) => Err(null(what)),
            // SAFETY: the contract above.
            (false, _) => Ok(unsafe { std::slice::from_raw_parts(self.0, count) }),
        }
    }

    pub(crate) fn read(self) -> Option<T>
    where
        T: Copy,
    {
        // SAFETY: the contract above.
        unsafe { self.0.as_ref() }.copied()
    }
}

/// A pointer to room for one result or for several.
#[repr(transparent)]
#[derive(Debug)]
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Writes the result. Fails for null; `what` names the argument.
    pub(crate) fn put(&self, value: T, what: &str) -> Outcome {
        self.exists(what)?;
        // SAFETY: the contract above.
        unsafe { self.0.write(value) };
        Ok(())
    }

    /// Fails for null.
    pub(crate) fn exists(&self, what: &str) -> Outcome {
        match self.0.is_null() {
            true => Err(null(what)),
            false => Ok(()),
        }
    }

    /// Writes the result if the pointer is not null.
    pub(crate) fn put_if_asked(&self, value: T) {
        // The only failure is that the pointer is null.
        let _put_or_not = self.put(value, "");
    }

    /// Writes the first `room` of these values.
    pub(crate) fn put_all(&self, values: &[T], room: usize, what: &str) -> Outcome
    where
        T: Copy,
    {
        let values = &values[..values.len().min(room)];
        if values.is_empty() {
            return Ok(());
        }
        self.exists(what)?;
        // SAFETY: the contract above: there is room for this many values, and the room is not part of `values`.
        unsafe { ptr::copy_nonoverlapping(values.as_ptr(), self.0, values.len()) };
        Ok(())
    }
}

impl Out<c_char> {
    /// Writes the letters of the text that fit, and a zero byte. Returns the bytes of the whole text, without the zero.
    pub(crate) fn put_text(&self, room: usize, text: &str) -> usize {
        if let Some(room) = room.checked_sub(1).filter(|_| !self.0.is_null()) {
            let mut ends = (0..=room.min(text.len())).rev();
            let end = ends.find(|end| text.is_char_boundary(*end)).unwrap_or(0);
            let letters = text[..end].bytes().chain([0]);
            let letters: Vec<c_char> = letters.map(|one| c_char::from_ne_bytes([one])).collect();
            // The pointer is not null, so this succeeds.
            let _put = self.put_all(&letters, letters.len(), "");
        }
        text.len()
    }
}

/// A `cudaStream_t` that is not destroyed before the call ends; null for none.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawStream(*mut c_void);

impl RawStream {
    pub(crate) const NONE: Self = Self(ptr::null_mut());

    pub(crate) fn handle(self) -> u64 {
        self.0.addr() as u64
    }
}

/// Converts seconds from C to a duration. Negative and infinite seconds are without a limit: the longest duration.
pub(crate) fn patience(seconds: f64) -> Outcome<Duration> {
    let seconds = if seconds < 0.0 {
        f64::INFINITY
    } else {
        seconds
    };
    parse::patience(seconds).map_err(Failure::argument)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_letters() {
        for (room, expected) in [(1, ""), (2, "a"), (3, "a"), (4, "a\u{fc}"), (9, "a\u{fc}b")] {
            let mut written = [1; 9];
            let out: Out<c_char> = Out(written.as_mut_ptr().cast());
            assert_eq!(out.put_text(room, "a\u{fc}b"), 4);
            let end = written.iter().position(|byte| *byte == 0);
            assert_eq!(written.get(..end.unwrap_or(9)), Some(expected.as_bytes()));
        }
    }
}

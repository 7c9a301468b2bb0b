//! Arguments as C hands them over.
//!
//! # The contract
//! Values of these types come from C alone, as arguments of the exported functions, and are not kept beyond the call. The headers say of
//! each pointer what it points to, for how long, and that it may be null only where they say so. This is the proof of each block here.

use std::ffi::{CStr, c_char, c_void};
use std::marker::PhantomData;
use std::ptr;
use std::time::Duration;

use tierflow_bind::parse;

use crate::failure::{Failure, Outcome};

fn null(what: &str) -> Failure {
    Failure::argument(format!("{what} is null"))
}

/// A text that ends with a zero.
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

    /// The same, or an empty text in the place of null.
    pub(crate) fn or_empty(self, what: &str) -> Outcome<&'a str> {
        match self.0.is_null() {
            true => Ok(""),
            false => self.read(what),
        }
    }
}

/// The first of several elements, which nobody writes meanwhile; or one, or null for none.
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

/// A place for an answer, or for several.
#[repr(transparent)]
#[derive(Debug)]
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Answers.
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

    /// Answers, if it is asked for.
    pub(crate) fn put_if_asked(&self, value: T) {
        // The one failure is that nobody asks.
        let _put_or_not = self.put(value, "");
    }

    /// Answers with the first `room` of these values.
    pub(crate) fn put_all(&self, values: &[T], room: usize, what: &str) -> Outcome
    where
        T: Copy,
    {
        let values = &values[..values.len().min(room)];
        if values.is_empty() {
            return Ok(());
        }
        self.exists(what)?;
        // SAFETY: the contract above: there is room for so many, which are no values of ours.
        unsafe { ptr::copy_nonoverlapping(values.as_ptr(), self.0, values.len()) };
        Ok(())
    }
}

impl Out<c_char> {
    /// Answers with a text and a zero, as far as they fit, and says how long the text is.
    pub(crate) fn put_text(&self, room: usize, text: &str) -> usize {
        if let Some(room) = room.checked_sub(1).filter(|_| !self.0.is_null()) {
            let letters = text.bytes().take(room).chain([0]);
            let letters: Vec<c_char> = letters.map(|one| c_char::from_ne_bytes([one])).collect();
            // The place is not null.
            let _put = self.put_all(&letters, letters.len(), "");
        }
        text.len()
    }
}

/// A `cudaStream_t`, which is not destroyed before the call ends; null for none.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawStream(*mut c_void);

impl RawStream {
    pub(crate) const NONE: Self = Self(ptr::null_mut());

    pub(crate) fn handle(self) -> u64 {
        self.0.addr() as u64
    }
}

/// Seconds, as C gives them: negative ones, and infinity, are for ever, which is the longest duration.
pub(crate) fn patience(seconds: f64) -> Outcome<Duration> {
    let seconds = if seconds < 0.0 {
        f64::INFINITY
    } else {
        seconds
    };
    parse::patience(seconds).map_err(Failure::argument)
}

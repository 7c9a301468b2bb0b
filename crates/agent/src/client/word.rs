//! A time limit for one whole message.

use std::io::{ErrorKind, Read, Result, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// A connection for one message, in either direction. The time limit counts from the beginning: neither a signal nor a part of the message
/// restarts it.
#[derive(Debug)]
pub(super) struct Word<'c> {
    stream: &'c UnixStream,
    begun: Instant,
    patience: Duration,
}

impl<'c> Word<'c> {
    pub(super) fn new(stream: &'c UnixStream, patience: Duration) -> Self {
        Self {
            stream,
            begun: Instant::now(),
            patience,
        }
    }

    fn left(&self) -> Result<Option<Duration>> {
        match self.patience.saturating_sub(self.begun.elapsed()) {
            Duration::ZERO => Err(ErrorKind::TimedOut.into()),
            left => Ok(Some(left)),
        }
    }
}

impl Read for Word<'_> {
    fn read(&mut self, into: &mut [u8]) -> Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        let mut stream = self.stream;
        stream.read(into)
    }
}

impl Write for Word<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        let mut stream = self.stream;
        stream.write(bytes)
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

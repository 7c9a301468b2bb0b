//! Tells the names of directories from the URLs of object stores.

use crate::{Error, Result};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// The place of versions that a name denotes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A directory, named by a path or by the URL `file:///path`.
    Directory(PathBuf),
    /// An object store, by its URL: `s3://bucket/prefix`.
    Url(String),
}

impl Place {
    /// Parses a name. A scheme and `://` make a URL; every other name is a path, taken literally.
    ///
    /// # Errors
    /// [`Error::Argument`] for an empty name, and for a `file://` URL that names another host, or that is not encoded properly.
    pub fn of(name: impl AsRef<Path>) -> Result<Self> {
        let name = name.as_ref();
        if name.as_os_str().is_empty() {
            let text = "a place has no name: name a directory (\".\" is the current one) or the URL of an object store";
            return Err(Error::Argument(text.to_owned()));
        }
        let Some((scheme, rest)) = name.to_str().and_then(split) else {
            return Ok(Self::Directory(name.to_path_buf()));
        };
        if scheme != "file" {
            return Ok(Self::Url(name.display().to_string()));
        }
        let path = rest.strip_prefix("localhost").unwrap_or(rest);
        let path = decoded(path).filter(|path| path.is_absolute());
        path.map(Self::Directory).ok_or_else(|| {
            let name = name.display();
            Error::Argument(format!(
                "{name} names no directory of this machine: write file:///path, with %XX for what a URL cannot hold, or the path \
                 alone"
            ))
        })
    }

    /// Returns true if a name is a URL of another kind of place than a directory.
    #[must_use]
    pub fn is_url(name: impl AsRef<Path>) -> bool {
        matches!(Self::of(name), Ok(Self::Url(_)))
    }
}

/// Splits a URL into the scheme and the text after `://`.
fn split(name: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = name.split_once("://")?;
    let mut letters = scheme.bytes();
    let is_scheme = letters
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic())
        && letters.all(|letter| letter.is_ascii_alphanumeric() || b"+.-".contains(&letter));
    is_scheme.then_some((scheme, rest))
}

/// Returns the path of a URL, with `%XX` replaced; `None` if the encoding is wrong.
fn decoded(path: &str) -> Option<PathBuf> {
    let (mut bytes, mut rest) = (Vec::new(), path.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        // The parser of numbers accepts a sign.
        let digits = std::str::from_utf8(digits).ok();
        let digits = digits.filter(|digits| !digits.starts_with('+'))?;
        let byte = u8::from_str_radix(digits, 16).ok().filter(|byte| *byte > 0);
        bytes.push(byte?);
        rest = after;
    }
    Some(OsString::from_vec(bytes).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_path_stays_what_it_is() {
        for path in [
            "/a/b",
            "a",
            "s3:/a",
            "a/b://c",
            "1s://x",
            "://x",
            "/s3://bucket",
        ] {
            assert_eq!(
                Place::of(path).ok(),
                Some(Place::Directory(path.into())),
                "{path}"
            );
        }
        assert!(Place::of("").is_err());
        for url in ["s3://bucket/prefix", "gs://b", "az://c/d", "nonsense://x"] {
            assert_eq!(Place::of(url).ok(), Some(Place::Url(url.to_owned())));
        }
    }

    #[test]
    fn file_urls_are_directories() {
        for (url, path) in [
            ("file:///a/b", "/a/b"),
            ("file://localhost/a", "/a"),
            ("file:///a%20b%25", "/a b%"),
        ] {
            assert_eq!(
                Place::of(url).ok(),
                Some(Place::Directory(path.into())),
                "{url}"
            );
        }
        for wrong in [
            "file://",
            "file://a/b",
            "file:///%2",
            "file:///%zz",
            "file:///%+f",
            "file:///%00",
        ] {
            assert!(Place::of(wrong).is_err(), "{wrong}");
        }
    }
}

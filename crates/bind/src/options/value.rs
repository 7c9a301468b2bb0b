//! Values of options: texts, or values of a language.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use bytesize::ByteSize;
use tierflow_device::Choice;

/// The value of an option.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// A text, as a file has it.
    Text(&'a str),
    /// A number, such as of bytes or of entries.
    Number(u64),
    /// Seconds; infinity means for ever.
    Seconds(f64),
    /// True or false.
    Flag(bool),
    /// Directories.
    Paths(Vec<PathBuf>),
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

impl<'a> From<&'a String> for Value<'a> {
    fn from(text: &'a String) -> Self {
        Self::Text(text)
    }
}

impl std::fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Number(number) => number.fmt(f),
            Self::Seconds(seconds) => seconds.fmt(f),
            Self::Flag(flag) => flag.fmt(f),
            Self::Paths(paths) => write!(f, "{paths:?}"),
        }
    }
}

impl Value<'_> {
    pub(super) fn bytes(&self) -> Result<u64, String> {
        match self {
            Self::Number(bytes) => Ok(*bytes),
            other => bytes(other.text()?),
        }
    }

    pub(super) fn size(&self) -> Result<usize, String> {
        usize::try_from(self.bytes()?).map_err(|error| error.to_string())
    }

    pub(super) fn number<T: FromStr + TryFrom<u64>>(&self) -> Result<T, String> {
        match self {
            Self::Number(number) => {
                T::try_from(*number).map_err(|_| "write a smaller number".to_owned())
            }
            other => number(other.text()?),
        }
    }

    pub(super) fn flag(&self) -> Result<bool, String> {
        match self {
            Self::Flag(flag) => Ok(*flag),
            other => {
                let text = other.text()?.to_ascii_lowercase();
                one_of(&text, &[("true", true), ("false", false)])
            }
        }
    }

    pub(super) fn duration(&self) -> Result<Duration, String> {
        match self {
            Self::Number(number) => Ok(Duration::from_secs(*number)),
            Self::Seconds(time) => time_of(*time),
            other => seconds(other.text()?),
        }
    }

    pub(super) fn path(&self) -> Result<PathBuf, String> {
        match self {
            Self::Paths(paths) if paths.len() == 1 => path(&paths[0]),
            other => path(other.text()?.as_ref()),
        }
    }

    pub(super) fn paths(&self) -> Result<Vec<PathBuf>, String> {
        match self {
            Self::Paths(paths) => paths.iter().map(|each| path(each)).collect(),
            other => match other.text()? {
                "" => Err(UNNAMED.to_owned()),
                text => std::env::split_paths(text)
                    .map(|each| path(&each))
                    .collect(),
            },
        }
    }

    pub(super) fn text(&self) -> Result<&str, String> {
        match self {
            Self::Text(text) => Ok(text),
            _ => Err("write a text".to_owned()),
        }
    }

    pub(super) fn one_of<T: Copy>(&self, all: &[(&str, T)]) -> Result<T, String> {
        one_of(self.text()?, all)
    }
}

const UNNAMED: &str = "a place has no name: name a directory (\".\" is the current one)";

/// Parses a path or the URL of an object store: replaces `$NAME` and `${NAME}` by the values of environment variables, and `$$` by a dollar.
///
/// # Errors
/// A text if the path is empty, a variable is malformed, or a variable is not set or empty: the path would name another directory than was
/// meant.
pub fn path(given: &Path) -> Result<PathBuf, String> {
    match given.to_str() {
        Some("") => Err(UNNAMED.to_owned()),
        Some(text) if text.contains('$') => expanded(text).map(PathBuf::from),
        // Names of variables are UTF-8, so a path that is not UTF-8 is taken as it is.
        _ => Ok(given.to_owned()),
    }
}

fn expanded(text: &str) -> Result<OsString, String> {
    let mut parts = text.split('$');
    let mut path = OsString::from(parts.next().unwrap_or_default());
    while let Some(part) = parts.next() {
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let (name, rest) = match part.strip_prefix('{') {
            Some(braced) => braced.split_once('}').unwrap_or(("", "")),
            None => part.split_at(part.find(|c| !is_of_name(c)).unwrap_or(part.len())),
        };
        if part.is_empty()
            && let Some(after) = parts.next()
        {
            path.push("$");
            path.push(after);
            continue;
        }
        if name.is_empty() || !name.chars().all(is_of_name) {
            return Err("write a variable as $NAME or ${NAME}, and a dollar as $$".to_owned());
        }
        let value = std::env::var_os(name).filter(|value| !value.is_empty());
        let unset = || format!("the variable {name} is not set, or empty; a dollar is written $$");
        path.push(value.ok_or_else(unset)?);
        path.push(rest);
    }
    Ok(path)
}

/// Converts seconds to a duration. Infinity becomes the longest duration, and a negative time becomes 0.
///
/// # Errors
/// A text that says how to write a time, if `seconds` is NaN.
pub fn patience(seconds: f64) -> Result<Duration, String> {
    match seconds.is_nan() {
        true => Err("a time is a number of seconds, not nan".to_owned()),
        false => Ok(Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX)),
    }
}

/// Parses a number of bytes, with or without a unit.
///
/// # Errors
/// A text that says how to write a number of bytes.
pub fn bytes(text: &str) -> Result<u64, String> {
    let parsed = text.trim().replace('_', "").parse();
    let parsed = parsed.ok().map(|ByteSize(bytes)| bytes);
    // The parser reads a number that is too large as the largest number.
    let parsed = parsed.filter(|bytes| *bytes < u64::MAX);
    parsed.ok_or_else(|| "write a number of bytes, such as 512MiB or 4GiB".to_owned())
}

/// Parses a whole number.
///
/// # Errors
/// A text that says how to write a number.
pub fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| "write a number".to_owned())
}

/// Parses a time in seconds. `inf` becomes the longest duration.
///
/// # Errors
/// A text that says how to write a time.
pub fn seconds(text: &str) -> Result<Duration, String> {
    time_of(text.parse().unwrap_or(f64::NAN))
}

/// Converts the seconds of an option, as a text or a number, by one rule: infinity means for ever, and a negative time is an error.
fn time_of(seconds: f64) -> Result<Duration, String> {
    match seconds >= 0.0 {
        true => patience(seconds),
        false => Err("write a number of seconds, 0 or more, or inf".to_owned()),
    }
}

/// Finds the value of a name.
///
/// # Errors
/// A text with all names.
pub fn one_of<T: Copy>(text: &str, all: &[(&str, T)]) -> Result<T, String> {
    let found = all.iter().find(|(name, _)| *name == text);
    found.map(|(_, chosen)| *chosen).ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
        format!("write {}", names.join(" or "))
    })
}

/// Parses the name of a device.
///
/// # Errors
/// A text that says how to name a device.
pub fn device(text: &str) -> Result<Choice, String> {
    let ordinal = |number: &str| {
        Some(Choice::Cuda {
            ordinal: number.parse().ok()?,
        })
    };
    let chosen = match text {
        "auto" => Some(Choice::Auto),
        "host" | "cpu" => Some(Choice::Host),
        "cuda" => Some(Choice::Cuda { ordinal: 0 }),
        other => other.strip_prefix("cuda:").and_then(ordinal),
    };
    chosen.ok_or_else(|| "write auto, host, cuda or cuda:1".to_owned())
}

#[cfg(test)]
mod tests {
    use super::{Duration, Value, path};

    #[test]
    fn a_time_is_the_same_as_a_text_and_as_a_number() {
        for (text, number, time) in [
            ("0", 0.0, Some(Duration::ZERO)),
            ("-0", -0.0, Some(Duration::ZERO)),
            ("1.5", 1.5, Some(Duration::from_millis(1500))),
            ("inf", f64::INFINITY, Some(Duration::MAX)),
            ("1e300", 1e300, Some(Duration::MAX)),
            ("-1", -1.0, None),
            ("-inf", f64::NEG_INFINITY, None),
            ("nan", f64::NAN, None),
        ] {
            assert_eq!(Value::Text(text).duration().ok(), time, "{text}");
            assert_eq!(Value::Seconds(number).duration().ok(), time, "{number}");
        }
        assert!(Value::Text("soon").duration().is_err());
    }

    #[test]
    fn variables_stand_for_their_values() {
        // Cargo sets this one.
        let name = env!("CARGO_PKG_NAME");
        for (given, expected) in [
            ("/run/$CARGO_PKG_NAME/a", format!("/run/{name}/a")),
            ("s3://b/${CARGO_PKG_NAME}x", format!("s3://b/{name}x")),
            ("$CARGO_PKG_NAME$$", format!("{name}$")),
            ("/a$$b/$$$CARGO_PKG_NAME", format!("/a$b/${name}")),
            ("/plain", "/plain".to_owned()),
        ] {
            assert_eq!(path(given.as_ref()), Ok(expected.into()), "{given}");
        }
    }

    #[test]
    fn what_names_no_value_is_an_error() {
        let why = path("/run/$TIERFLOW_NOT_SET/a".as_ref()).unwrap_err();
        assert!(why.starts_with("the variable TIERFLOW_NOT_SET is not set"));
        for wrong in [
            "",
            "/a/$",
            "/a/$/b",
            "/a/${",
            "/a/${X",
            "/a/${}",
            "/a/${b c}",
            "/$-x",
        ] {
            assert!(path(wrong.as_ref()).is_err(), "{wrong}");
        }
    }
}

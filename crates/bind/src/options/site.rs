//! Options that a machine sets for all programs, in a file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::Options;
use crate::failure::{Failure, Outcome};

/// The environment variable that names the file. An empty value means no file.
const VARIABLE: &str = "TIERFLOW_CONFIG";

/// The file that is read if the variable is not set and the file exists.
const FILE: &str = "/etc/tierflow.conf";

impl Options {
    /// Reads the options of the file that `TIERFLOW_CONFIG` names, or else of `/etc/tierflow.conf`, if it exists. The lines are such as
    /// `key = value`. A program sets its own choices afterwards, so that they count more. A key for which `takes` returns false is checked
    /// and has no effect.
    ///
    /// # Errors
    /// `Storage` if the file cannot be read; `Argument` if a line is not such as `key = value`, a key is no option, or a value is wrong.
    pub fn of_site(takes: impl Fn(&str) -> bool) -> Outcome<Self> {
        match std::env::var_os(VARIABLE) {
            Some(path) if path.is_empty() => Ok(Self::default()),
            Some(path) => Self::of_file(&PathBuf::from(path), takes),
            None => Self::of_file_if_there(FILE.as_ref(), takes),
        }
    }

    fn of_file_if_there(path: &Path, takes: impl Fn(&str) -> bool) -> Outcome<Self> {
        match is_there(path)? {
            true => Self::of_file(path, takes),
            false => Ok(Self::default()),
        }
    }

    fn of_file(path: &Path, takes: impl Fn(&str) -> bool) -> Outcome<Self> {
        let read = std::fs::read_to_string(path);
        let text = read.map_err(|error| Failure::file(path, &error))?;
        let wrong = |why: String| Failure::argument(format!("{}: {why}", path.display()));
        let (mut options, mut left_out) = (Self::default(), Self::default());
        for (key, value) in lines(&text).map_err(wrong)? {
            let options = match takes(&key) {
                true => &mut options,
                false => &mut left_out,
            };
            match options.set(&key, &value) {
                Some(set) => set.map_err(|failure| wrong(failure.text))?,
                None => return Err(wrong(format!("no option is called {key}"))),
            }
        }
        Ok(options)
    }
}

/// Returns true if the file exists.
///
/// # Errors
/// `Storage` if that cannot be told, such as without permission for a directory above it.
pub(super) fn is_there(path: &Path) -> Outcome<bool> {
    let tried = path.try_exists();
    tried.map_err(|error| Failure::file(path, &error))
}

/// Parses lines `key = value` as in VELOC's configuration: `#` and `;` begin a comment at the beginning of a line and behind a space or a
/// tab, and section titles are ignored. Keys are returned in lower case.
///
/// # Errors
/// A text with the number of the first line of another form.
pub fn lines(text: &str) -> Result<BTreeMap<String, String>, String> {
    let mut given = BTreeMap::new();
    for (number, line) in (1_usize..).zip(text.lines()) {
        let line = before_comment(line).trim();
        if line.is_empty() || line.starts_with('[') {
            continue;
        }
        let wrong = || format!("line {number} is not such as `key = value`");
        let (key, value) = line.split_once(['=', ':']).ok_or_else(wrong)?;
        given.insert(key.trim().to_ascii_lowercase(), value.trim().to_owned());
    }
    Ok(given)
}

/// Returns a line without its comment.
fn before_comment(line: &str) -> &str {
    let begins = |&(at, _): &(usize, &str)| {
        line[..at]
            .chars()
            .next_back()
            .is_none_or(char::is_whitespace)
    };
    let comment = line.match_indices(['#', ';']).find(begins);
    comment.map_or(line, |(at, _)| &line[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Options, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Options::of_file(file.path(), |key| key != "keep_every").map_err(|failure| failure.text)
    }

    #[test]
    fn a_program_chooses_otherwise_than_the_machine() {
        let mut options = of("# ours\nhost_cache = 1MiB ; small\n[x]\nFLUSH: eager\n").unwrap();
        assert_eq!(options.host_cache, 1 << 20);
        assert!(options.flush.is_some());
        options.set("host_cache", "2MiB").unwrap().unwrap();
        assert_eq!(options.host_cache, 2 << 20);
    }

    #[test]
    fn a_file_of_which_nothing_can_be_told_is_an_error() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("tierflow.conf");
        let opened = || Options::of_file_if_there(&path, |_| true);
        opened().unwrap();
        // A link to itself stands for a directory without permission, which root has.
        std::os::unix::fs::symlink(&path, &path).unwrap();
        assert_eq!(opened().unwrap_err().status, crate::Status::Storage);
    }

    #[test]
    fn a_comment_begins_at_the_first_of_its_signs_behind_a_space() {
        let text = "; all\na = 1 # small; or ; large\nb = /x #y ;z\nc = 1MiB\t# tab\nd = x#1;2\n\t# indented";
        let lines = lines(text).unwrap();
        let values: Vec<_> = lines.values().map(String::as_str).collect();
        assert_eq!(values, ["1", "/x", "1MiB", "x#1;2"]);
    }

    #[test]
    fn keys_that_a_program_does_not_take_are_checked_and_have_no_effect() {
        let options = of("keep_every = 3\nkeep_newest = 2").unwrap();
        assert_eq!((options.keep_every, options.keep_newest), (None, Some(2)));
        let why = of("keep_every = often").unwrap_err();
        assert!(why.contains("keep_every = often"), "{why}");
    }

    #[test]
    fn what_is_wrong_is_named_with_the_file() {
        for (text, named) in [
            ("host_cash = 1", "no option is called host_cash"),
            ("flush = soon", "flush = soon: write eager or needed"),
            ("nonsense", "line 1 is not such as"),
        ] {
            let why = of(text).unwrap_err();
            assert!(why.starts_with('/') && why.contains(named), "{why}");
        }
        let missing = Options::of_file("/nonexistent/tierflow.conf".as_ref(), |_| true);
        assert_eq!(missing.unwrap_err().status, crate::Status::Storage);
    }
}

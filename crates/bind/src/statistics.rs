//! The statistics of one engine, as a JSON document for the programs of a centre.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::system::uname;
use tierflow_engine::Engine;
use tierflow_store::replace_file;

use crate::options::Options;

/// The rank of an engine, and the file for the engine's statistics.
#[derive(Debug)]
pub(crate) struct Statistics {
    rank: u32,
    ranks: u32,
    path: Option<PathBuf>,
}

impl Statistics {
    pub(crate) fn new(options: &Options) -> Self {
        let (rank, ranks) = (options.ranks.rank, options.ranks.ranks);
        let path = options.statistics.as_deref();
        Self {
            rank,
            ranks,
            path: path.map(|path| path_of_rank(path, rank)),
        }
    }

    /// Returns the document.
    pub(crate) fn text(&self, engine: &Engine) -> String {
        let host = uname();
        let losses = engine.reports().losses.into_iter();
        let losses = losses.map(|gone| format!("version {}: {}", gone.version, gone.why));
        format!(
            "{{\"rank\":{},\"ranks\":{},\"host\":{},\"process\":{},\"damage\":{},\"lost\":{},\"metrics\":{}}}\n",
            self.rank,
            self.ranks,
            quoted(&host.nodename().to_string_lossy()),
            std::process::id(),
            list(engine.damage().iter().map(ToString::to_string)),
            list(losses),
            engine.metrics().json()
        )
    }

    /// Replaces the file by the document, in one step. A failure only goes to the log, as it is no reason to lose versions.
    pub(crate) fn leave(&self, engine: &Engine) {
        let Some(path) = &self.path else {
            return;
        };
        if let Err(error) = replace_file(path, self.text(engine).as_bytes(), false) {
            tracing::warn!("statistics were not written: {}: {error}", path.display());
        }
    }
}

/// Returns the path with the rank, the host and the process in the places of `%r`, `%h` and `%p`.
fn path_of_rank(path: &Path, rank: u32) -> PathBuf {
    let host = uname();
    let (mut filled, mut rest) = (Vec::new(), path.as_os_str().as_bytes());
    while let Some((&first, after)) = rest.split_first() {
        let (value, after) = match rest {
            [b'%', b'r', after @ ..] => (rank.to_string().into_bytes(), after),
            [b'%', b'p', after @ ..] => (std::process::id().to_string().into_bytes(), after),
            [b'%', b'h', after @ ..] => (host.nodename().to_bytes().to_vec(), after),
            _ => (vec![first], after),
        };
        filled.extend(value);
        rest = after;
    }
    OsString::from_vec(filled).into()
}

fn list(texts: impl Iterator<Item = String>) -> String {
    let texts: Vec<String> = texts.map(|text| quoted(&text)).collect();
    format!("[{}]", texts.join(","))
}

/// Returns a text as a string of JSON.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for char in text.chars() {
        match char {
            '"' | '\\' => quoted.extend(['\\', char]),
            control if control < ' ' => quoted.push_str(&format!("\\u{:04x}", u32::from(control))),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_one_string_of_json() {
        assert_eq!(
            quoted("a \"b\"\\\n\u{e9}"),
            "\"a \\\"b\\\"\\\\\\u000a\u{e9}\""
        );
    }

    #[test]
    fn each_rank_has_a_file() {
        let path = path_of_rank("/var/log/%r.json".as_ref(), 12);
        assert_eq!(path, Path::new("/var/log/12.json"));
        let path = path_of_rank("%p".as_ref(), 0);
        assert_eq!(path, Path::new(&std::process::id().to_string()));
        let path = path_of_rank(std::ffi::OsStr::from_bytes(b"%%\xff%r%").as_ref(), 3);
        assert_eq!(path.as_os_str().as_bytes(), b"%%\xff3%");
    }
}

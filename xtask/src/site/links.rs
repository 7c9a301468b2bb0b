//! Links between the pages of the site. The pages are files that tools wrote; web checkers take minutes for thousands of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::install::files_below;

/// Pages with text of other projects, whose links work only there.
const NOT_LOOKED_AT: &[&str] = &[
    "print.html",
    "404.html",
    "toc.html",
    "help.html",
    "settings.html",
];

/// Links in texts of tracing, log and the standard library, which work only in the references of those crates.
const OF_OTHERS: &[&str] = &[
    "dispatcher#setting-the-default-subscriber",
    "macro.log_enabled.html",
    "macro.log.html",
    "fn.max_level.html",
    "fn.set_max_level.html",
    "../../../nomicon/atomics.html",
    "./index.html#naming-threads",
    "./index.html#stack-size",
];

/// A page: its anchors, and its links.
#[derive(Default)]
struct Page {
    /// True if the page redirects to another one, and has no anchors of its own.
    leads_on: bool,
    anchors: BTreeSet<String>,
    links: Vec<String>,
}

/// Returns a line for each link of a page below `site` that leads to no file, or to no anchor of a page. Links to other sites are not
/// checked.
pub(super) fn dead(site: &Path) -> Result<Vec<String>> {
    let files = files_below(site)?;
    let mut pages = BTreeMap::new();
    for file in &files {
        if file.extension().is_some_and(|kind| kind == "html") {
            let text = fs::read(file).with_context(|| format!("{}", file.display()))?;
            pages.insert(file.as_path(), page(&String::from_utf8_lossy(&text)));
        }
    }
    let mut dead = Vec::new();
    for (path, page) in &pages {
        let name = path.file_name().and_then(|name| name.to_str());
        if name.is_some_and(|name| NOT_LOOKED_AT.contains(&name)) {
            continue;
        }
        let here = path.strip_prefix(site).unwrap_or(path).display();
        for link in &page.links {
            // rustdoc names scripts for traits that need not exist.
            if OF_OTHERS.contains(&link.as_str()) || link.contains("trait.impl/") {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let file = file.split('?').next().unwrap_or(file);
            let to = target(path, file);
            if !files.contains(&to) {
                dead.push(format!("{here}: {link} is missing"));
                continue;
            }
            let known = pages.get(to.as_path());
            if !anchor.is_empty() && known.is_some_and(|known| !known.has(anchor)) {
                dead.push(format!("{here}: {link}: the page has no such place"));
            }
        }
    }
    Ok(dead)
}

impl Page {
    /// Returns true if the page has this anchor. A range of lines is there if its first line is.
    fn has(&self, anchor: &str) -> bool {
        let line = anchor.split_once('-').map_or(anchor, |(first, _)| first);
        let is_range = anchor.bytes().all(|b| b.is_ascii_digit() || b == b'-');
        self.leads_on || self.anchors.contains(anchor) || is_range && self.anchors.contains(line)
    }
}

/// Returns the file that a link of the page `from` names. A folder stands for its index.
fn target(from: &Path, link: &str) -> PathBuf {
    if link.is_empty() {
        return from.into();
    }
    let mut to = from.parent().unwrap_or(from).to_path_buf();
    for part in link.split('/') {
        match part {
            ".." => _ = to.pop(),
            "" | "." => {}
            name => to.push(name),
        }
    }
    match link.ends_with('/') || to.is_dir() {
        true => to.join("index.html"),
        false => to,
    }
}

/// Reads the attributes of a page's tags. Text within scripts has none.
fn page(text: &str) -> Page {
    let mut page = Page {
        leads_on: text.contains("http-equiv=\"refresh\""),
        ..Page::default()
    };
    let mut rest = text;
    while let Some(start) = rest.find('<') {
        rest = &rest[start + 1..];
        if rest.starts_with("!--") {
            rest = rest.find("-->").map_or("", |end| &rest[end..]);
        }
        if rest.starts_with(|first: char| first.is_ascii_alphabetic()) {
            let (tag, end) = attributes(rest, &mut page);
            rest = &rest[end..];
            if matches!(tag, "script" | "style") {
                let closing = format!("</{tag}");
                rest = rest.find(&closing).map_or("", |end| &rest[end..]);
            }
        }
    }
    page
}

/// Reads the attributes of the tag that `text` begins with. Returns the tag's name and the index of its end.
fn attributes<'a>(text: &'a str, page: &mut Page) -> (&'a str, usize) {
    let tag = text.split(|c: char| !c.is_ascii_alphanumeric()).next();
    let tag = tag.unwrap_or_default();
    let mut at = tag.len();
    while let Some(next) = text[at..].find(|c: char| !c.is_ascii_whitespace()) {
        at += next;
        if text[at..].starts_with('>') {
            break;
        }
        let is_end = |c: char| c.is_ascii_whitespace() || matches!(c, '=' | '>');
        let name = &text[at..at + text[at..].find(is_end).unwrap_or(text.len() - at)];
        at += name.len();
        let Some(value) = text[at..].strip_prefix('=') else {
            continue;
        };
        at += 1;
        let (skip, ends): (usize, &[char]) = match value.chars().next() {
            Some('"') => (1, &['"']),
            Some('\'') => (1, &['\'']),
            _ => (0, &[' ', '\n', '>']),
        };
        let length = value[skip..].find(ends).unwrap_or(value.len() - skip);
        let value = &value[skip..skip + length];
        // A quote that is not closed ends with the text.
        at = (at + length + 2 * skip).min(text.len());
        match name {
            "id" | "name" => _ = page.anchors.insert(unescaped(value)),
            "href" | "src" if !is_elsewhere(value) => page.links.push(unescaped(value)),
            _ => {}
        }
    }
    (tag, at)
}

/// Returns true for links that have a scheme, or lead to another host.
fn is_elsewhere(link: &str) -> bool {
    let path = link.split(['#', '/', '?']).next().unwrap_or(link);
    path.contains(':') || link.starts_with("//")
}

/// Returns a link without the escapes of HTML and of URLs.
fn unescaped(link: &str) -> String {
    let link = link.replace("&amp;", "&").replace("&lt;", "<");
    let link = link.replace("&gt;", ">").replace("&#x27;", "'");
    let mut bytes = Vec::new();
    let mut rest = link.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let hex = after.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        let escaped = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match escaped.filter(|_| first == b'%') {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_to_files_and_places() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text);
        fs::create_dir(folder.path().join("below"))?;
        let good = "<a href='below/'>1</a> <a class=x href=#7-9 id=7>2</a> <img src=\"a%20b.txt\"> <a href=\"https://example.org/x\">\
                    <script>let x = '<a href=\"gone\">';</script><!-- <a href=\"gone\"> --><a id=\"impl-A%3CB%3E\" href=\"#impl-A&lt;B&gt;\">";
        write("index.html", good)?;
        write("a b.txt", "<a href=\"gone\">")?;
        write("moved.html", "<meta http-equiv=\"refresh\" content=\"0\">")?;
        write(
            "below/index.html",
            "<a href=../index.html?x#7><a href=../moved.html#7>",
        )?;
        assert_eq!(dead(folder.path())?, [""; 0]);
        write("moved.html", "<a href=\"x")?;
        assert!(!dead(folder.path())?.is_empty(), "a quote may lack its end");
        write("moved.html", "<meta http-equiv=\"refresh\" content=\"0\">")?;
        write(
            "below/index.html",
            "<a href=\"../gone.html\"><a href=\"../index.html#8\">",
        )?;
        let found = dead(folder.path())?;
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("gone.html is missing") && found[1].contains("no such place"));
        Ok(())
    }
}

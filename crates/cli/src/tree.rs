//! Trees of arrays, as `Engine.save` of Python stores them. The region `~tree` has the structure of a tree as JSON.

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::{Deserializer, Value};
use std::collections::BTreeMap;
use std::fmt::Write;
use tierflow_store::Piece;
use tierflow_store::container::RegionInfo;

/// The name of the region that has the structure.
pub(crate) const TREE: &str = "~tree";
/// The most letters that are shown of a plain value.
const MOST_LETTERS: usize = 60;
/// The most levels of JSON in a structure, so that a hostile file does not exhaust the stack. A tree of Python has up to 200 levels, of three
/// of JSON each.
const MOST_LEVELS: usize = 700;

/// Reads the structure of a piece that is not encoded; `None` if the piece is no tree.
pub(crate) fn of(piece: &Piece) -> Result<Option<Value>> {
    if !piece.regions().iter().any(|region| region.name == TREE) {
        return Ok(None);
    }
    let text = piece.read(TREE)?;
    let failed = || {
        format!(
            "the region {TREE} of version {} is no JSON",
            piece.version()
        )
    };
    Ok(Some(parsed(&text).with_context(failed)?))
}

/// Parses a structure, which may be deeper than `serde_json` allows by default.
pub(crate) fn parsed(text: &[u8]) -> Result<Value> {
    let levels = levels(text);
    ensure!(
        levels <= MOST_LEVELS,
        "the tree has {levels} levels of JSON, more than {MOST_LEVELS}"
    );
    let mut parser = Deserializer::from_slice(text);
    parser.disable_recursion_limit();
    let structure = Value::deserialize(&mut parser)?;
    parser.end()?;
    Ok(structure)
}

/// Returns the number of levels of arrays and objects in a JSON text.
fn levels(text: &[u8]) -> usize {
    let (mut level, mut most, mut is_string) = (0_usize, 0, false);
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' if is_string => _ = bytes.next(),
            b'"' => is_string = !is_string,
            b'[' | b'{' if !is_string => level += 1,
            b']' | b'}' if !is_string => level = level.saturating_sub(1),
            _ => {}
        }
        most = most.max(level);
    }
    most
}

/// Draws a tree: a line for each branch and leaf, with the types and shapes of arrays.
pub(crate) fn drawn(structure: &Value, regions: &[RegionInfo]) -> String {
    let regions = regions.iter().map(|region| (region.name.as_str(), region));
    let mut drawing = Drawing {
        regions: regions.collect(),
        text: String::new(),
    };
    drawing.node("", structure.get("root").unwrap_or(structure), 0);
    drawing.text
}

struct Drawing<'a> {
    regions: BTreeMap<&'a str, &'a RegionInfo>,
    text: String,
}

impl Drawing<'_> {
    fn node(&mut self, key: &str, node: &Value, depth: usize) {
        let field = |name: &str| node.get(name).and_then(Value::as_array);
        let pairs = ["dict", "fields"].iter().find_map(|name| field(name));
        let list = field("tuple").or_else(|| node.as_array());
        if let Some(pairs) = pairs {
            let class = ["named tuple", "dataclass"]
                .iter()
                .find_map(|kind| node.get(kind));
            self.line(
                key,
                class.and_then(Value::as_str).unwrap_or_default(),
                depth,
            );
            for pair in pairs {
                let (Some(key), Some(child)) = (pair.get(0), pair.get(1)) else {
                    continue;
                };
                let key = key.as_str().map_or_else(|| key.to_string(), str::to_owned);
                self.node(&key, child, depth + 1);
            }
        } else if let Some(list) = list {
            self.line(key, "", depth);
            for (index, child) in list.iter().enumerate() {
                self.node(&index.to_string(), child, depth + 1);
            }
        } else if let Some(name) = node.get("array").and_then(Value::as_str) {
            let region = self.regions.get(name);
            let shown = region.map_or_else(
                || format!("the region {name:?} is missing"),
                |region| format!("{} {:?}", region.element.numpy(), region.shape),
            );
            self.line(key, &shown, depth);
        } else {
            let text = node.to_string();
            let mut shown: String = text.chars().take(MOST_LETTERS).collect();
            if shown.len() < text.len() {
                shown.push('…');
            }
            self.line(key, &shown, depth);
        }
    }

    fn line(&mut self, key: &str, value: &str, depth: usize) {
        // The root has no key.
        let Some(depth) = depth.checked_sub(1) else {
            if !value.is_empty() {
                let _written = writeln!(self.text, "  {value}");
            }
            return;
        };
        let line = format!("  {:indent$}{key}  {value}", "", indent = 2 * depth);
        let _written = writeln!(self.text, "{}", line.trim_end());
    }
}

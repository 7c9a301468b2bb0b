//! Zarr, format 3: a folder for each group and array, with a `zarr.json`, and a file for each chunk.

use crate::contents::PieceContents;
use crate::tree::{TREE, parsed};
use anyhow::{Context, Result, bail, ensure};
use indicatif::ProgressBar;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::path::Path;
use tierflow_store::container::{Element, RegionInfo};

/// The most bytes of a chunk, unless one row of an array has more.
const CHUNK_BYTES: u64 = 64 << 20;

/// Returns the format's name of a type; `None` if the format lacks the type.
fn data_type(element: Element) -> Option<String> {
    let bits = 8 * element.size();
    Some(match element.numpy().chars().nth(1)? {
        'b' => "bool".to_owned(),
        'u' => format!("uint{bits}"),
        'i' => format!("int{bits}"),
        'f' => format!("float{bits}"),
        'c' => format!("complex{bits}"),
        _ => return None,
    })
}

/// Returns the description of an array whose chunks have `rows` rows.
fn array(region: &RegionInfo, shape: &[u64], rows: u64) -> Result<Value> {
    let data_type = data_type(region.element).with_context(|| {
        format!(
            "Zarr has no type for region {:?}: export it with --format npy, or name other regions",
            region.name
        )
    })?;
    let fill = match data_type.as_str() {
        "bool" => json!(false),
        complex if complex.starts_with("complex") => json!([0.0, 0.0]),
        _ => json!(0),
    };
    let mut chunk: Vec<u64> = shape.iter().map(|extent| (*extent).max(1)).collect();
    if let Some(first) = chunk.first_mut() {
        *first = rows;
    }
    Ok(json!({
        "zarr_format": 3,
        "node_type": "array",
        "shape": shape,
        "data_type": data_type,
        "chunk_grid": { "name": "regular", "configuration": { "chunk_shape": chunk } },
        "chunk_key_encoding": { "name": "default", "configuration": { "separator": "/" } },
        "fill_value": fill,
        "codecs": [{ "name": "bytes", "configuration": { "endian": "little" } }],
        "attributes": {},
    }))
}

/// Checks a region's name, as it comes from a file that is not trusted: the name must not lead out of the folder, nor be the name of a file
/// that Zarr writes itself.
fn check_name(name: &str) -> Result<()> {
    let plain = |part: &str| {
        !part.is_empty()
            && !part.starts_with(['.', '_'])
            && part != "zarr.json"
            && !part.contains(|c: char| c.is_control() || c == '\\')
    };
    ensure!(
        name.split('/').all(plain),
        "region {name:?} cannot be an array of Zarr: export it with --format npz, or name other regions"
    );
    Ok(())
}

/// Writes regions into a new folder. The parts of a name between slashes are groups; the attributes of the first group have the tree.
pub(super) fn write(
    folder: &Path,
    contents: &PieceContents,
    regions: &[&RegionInfo],
    bar: &ProgressBar,
) -> Result<()> {
    let structure = super::structure(contents, regions)?;
    let attributes = match &structure {
        Some(text) => json!({ "tree": parsed(text)? }),
        None => json!({}),
    };
    group(folder, &attributes)?;
    let arrays: HashSet<&str> = regions.iter().map(|region| region.name.as_str()).collect();
    for region in regions.iter().filter(|region| region.name != TREE) {
        check_name(&region.name)?;
        let mut above = region
            .name
            .match_indices('/')
            .map(|(end, _)| &region.name[..end]);
        if let Some(above) = above.find(|above| arrays.contains(above)) {
            bail!(
                "regions {above:?} and {:?} cannot both be arrays of Zarr: export them with --format npz, or name other regions",
                region.name
            );
        }
        let shape = match region.element {
            Element::Bytes => vec![region.length],
            _ => region.shape.clone(),
        };
        let row = region.length / shape.first().map_or(1, |rows| (*rows).max(1));
        let rows = (CHUNK_BYTES / row.max(1)).max(1);
        let rows = shape.first().map_or(1, |extent| rows.min(*extent).max(1));
        let mut at = folder.to_owned();
        let mut parts = region.name.split('/').peekable();
        while let Some(part) = parts.next() {
            at.push(part);
            if parts.peek().is_some() && !at.exists() {
                group(&at, &json!({}))?;
            }
        }
        node(&at, &array(region, &shape, rows)?)?;
        let bytes = contents.read(region)?;
        let chunk = (rows * row).max(1) as usize;
        for (number, part) in bytes.chunks(chunk).enumerate() {
            let mut keys = vec!["c".to_owned()];
            keys.extend(shape.first().map(|_| number.to_string()));
            keys.extend(shape.iter().skip(1).map(|_| "0".to_owned()));
            let path = at.join(keys.join("/"));
            if let Some(parent) = path.parent() {
                std::fs::create_dir_all(parent)?;
            }
            // All chunks have the same shape, so the last one may have rows beyond the array.
            let mut part = part.to_vec();
            part.resize(chunk, 0);
            std::fs::write(path, part)?;
        }
        bar.inc(region.length);
    }
    Ok(())
}

fn group(folder: &Path, attributes: &Value) -> Result<()> {
    let described = json!({ "zarr_format": 3, "node_type": "group", "attributes": attributes });
    node(folder, &described)
}

/// Makes the folder of a group or an array. Fails if the folder exists: another region has the same name.
fn node(folder: &Path, described: &Value) -> Result<()> {
    std::fs::create_dir(folder)
        .and_then(|()| std::fs::write(folder.join("zarr.json"), described.to_string()))
        .with_context(|| format!("cannot make {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_leads_out_of_the_folder() {
        for name in [
            "../up",
            "/etc",
            "a//b",
            "a/..",
            "a\nb",
            "a/zarr.json",
            "__x",
            "",
        ] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
        check_name("model/layers.0.weight").unwrap();
    }
}

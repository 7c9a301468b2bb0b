//! The format safetensors: eight bytes of length, a head of JSON, and the arrays one after the other.

use crate::tree::TREE;
use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value, json};
use tierflow_store::container::{Element, RegionInfo};

/// The name that the format keeps for the metadata of a file.
const METADATA: &str = "__metadata__";

/// Returns the format's name of a type; `None` if the format lacks the type.
fn dtype(element: Element) -> Option<&'static str> {
    Some(match element {
        Element::Bytes | Element::U8 => "U8",
        Element::Bool => "BOOL",
        Element::I8 => "I8",
        Element::F8E4M3 => "F8_E4M3",
        Element::F8E5M2 => "F8_E5M2",
        Element::I16 => "I16",
        Element::U16 => "U16",
        Element::F16 => "F16",
        Element::Bf16 => "BF16",
        Element::I32 => "I32",
        Element::U32 => "U32",
        Element::F32 => "F32",
        Element::C64 => "C64",
        Element::F64 => "F64",
        Element::I64 => "I64",
        Element::U64 => "U64",
        _ => return None,
    })
}

/// Returns the head of a file with these arrays, in their order. `structure` is the JSON of the tree that the arrays belong to, and
/// becomes the entry `tree` of the file's metadata.
pub(super) fn head(regions: &[&RegionInfo], structure: Option<&str>) -> Result<Vec<u8>> {
    let mut entries = Map::new();
    if let Some(structure) = structure {
        entries.insert(METADATA.to_owned(), json!({ "tree": structure }));
    }
    let mut offset = 0;
    for region in regions.iter().filter(|region| region.name != TREE) {
        ensure!(
            region.name != METADATA,
            "safetensors keeps the name {METADATA:?} for its metadata: export this region with --format npy, or name other regions"
        );
        let dtype = dtype(region.element).with_context(|| {
            format!(
                "safetensors has no type for region {:?}: export it with --format npy, or name other regions",
                region.name
            )
        })?;
        let shape = match region.element {
            Element::Bytes => vec![region.length],
            _ => region.shape.clone(),
        };
        let end = offset + region.length;
        let entry = json!({ "dtype": dtype, "shape": shape, "data_offsets": [offset, end] });
        entries.insert(region.name.clone(), entry);
        offset = end;
    }
    let mut text = Value::Object(entries).to_string();
    let padding = text.len().next_multiple_of(8) - text.len();
    text.extend(std::iter::repeat_n(' ', padding));
    let mut head = (text.len() as u64).to_le_bytes().to_vec();
    head.extend(text.as_bytes());
    Ok(head)
}

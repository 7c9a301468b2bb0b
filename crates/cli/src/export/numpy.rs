//! NumPy's format.

use tierflow_store::container::{Element, RegionInfo};

/// Returns the head of an .npy file, format 1.0.
pub(super) fn head(region: &RegionInfo) -> Vec<u8> {
    let extents = match region.element {
        Element::Bytes => vec![region.length],
        _ => region.shape.clone(),
    };
    let extents: String = extents.iter().map(|extent| format!("{extent}, ")).collect();
    let kind = region.element.numpy();
    let mut text = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({extents}), }}");
    // The head has 6 bytes of magic, two of version, two of length, the text and a newline: together a multiple of 64.
    let padding = (10 + text.len() + 1).next_multiple_of(64) - (10 + text.len() + 1);
    text.extend(std::iter::repeat_n(' ', padding));
    text.push('\n');
    let mut head = b"\x93NUMPY\x01\x00".to_vec();
    // Eight extents of twenty digits are far below 64 KiB.
    head.extend((text.len() as u16).to_le_bytes());
    head.extend(text.as_bytes());
    head
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(name: &str, element: Element, shape: &[u64]) -> RegionInfo {
        RegionInfo {
            name: name.to_owned(),
            offset: 0,
            length: 24,
            element,
            shape: shape.to_vec(),
        }
    }

    #[test]
    fn numpys_head_is_padded_to_64_bytes() {
        let bytes = head(&region("grid", Element::F32, &[2, 3]));
        assert_eq!(bytes.len(), 128);
        let text = String::from_utf8_lossy(&bytes[10..]);
        let expected = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3, ), }";
        assert_eq!(text.trim_end(), expected);
        assert!(text.ends_with(" \n"));
        let text = String::from_utf8(head(&region("b", Element::Bytes, &[]))[10..].to_vec());
        assert!(
            text.unwrap()
                .contains("'|u1', 'fortran_order': False, 'shape': (24, )")
        );
    }
}

//! Reading velocity models: raw little-endian float32, and NumPy's `.npy`.
//!
//! Both are hostile input: every length is checked against the file before memory is taken.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use crate::grid::{Shape, cells};
use crate::model::Model;

/// Reads a model file. `.npy` files say their shape themselves; for raw ones it must be given.
pub fn read(path: &Path, shape: Option<Shape>, spacing: f32) -> Result<Model> {
    read_values(path, shape)
        .and_then(|(shape, velocity)| Model::new(shape, spacing, velocity))
        .with_context(|| format!("model file {}", path.display()))
}

fn read_values(path: &Path, shape: Option<Shape>) -> Result<(Shape, Vec<f32>)> {
    let file = File::open(path).context("cannot be opened")?;
    let length = file.metadata().context("cannot be examined")?.len();
    let mut reader = BufReader::new(file);
    if path
        .extension()
        .is_some_and(|e| e.eq_ignore_ascii_case("npy"))
    {
        read_npy(&mut reader, length, shape)
    } else {
        let shape = shape.context(
            "raw files do not say their shape: pass --shape NXxNZ (or NXxNYxNZ), x slowest, z fastest",
        )?;
        read_raw(&mut reader, length, shape).map(|velocity| (shape, velocity))
    }
}

fn read_raw(reader: &mut impl Read, length: u64, shape: Shape) -> Result<Vec<f32>> {
    let count = cells(shape)?;
    let expected = count as u64 * 4;
    ensure!(
        length == expected,
        "{} float32 make {expected} bytes, but the file has {length}: pass the --shape that the \
         file was written with ({} values)",
        display(shape),
        if length.is_multiple_of(4) {
            (length / 4).to_string()
        } else {
            "not a whole number of".into()
        }
    );
    read_floats(reader, count, 4)
}

/// Format: <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>.
fn read_npy(
    reader: &mut impl Read,
    length: u64,
    asked: Option<Shape>,
) -> Result<(Shape, Vec<f32>)> {
    let mut start = [0; 8];
    reader
        .read_exact(&mut start)
        .context("too short for an .npy file")?;
    ensure!(
        start.starts_with(b"\x93NUMPY"),
        "no .npy file: it does not begin with \\x93NUMPY"
    );
    let (prefix, header_length) = match start[6] {
        1 => {
            let mut bytes = [0; 2];
            reader
                .read_exact(&mut bytes)
                .context("the .npy header is cut short")?;
            (10, u64::from(u16::from_le_bytes(bytes)))
        }
        2 | 3 => {
            let mut bytes = [0; 4];
            reader
                .read_exact(&mut bytes)
                .context("the .npy header is cut short")?;
            (12, u64::from(u32::from_le_bytes(bytes)))
        }
        other => {
            bail!("the .npy file has version {other}: versions 1 to 3 are known; save it again")
        }
    };
    // NumPy itself refuses longer ones unless told that the file is trusted.
    ensure!(
        header_length <= 10_000,
        "the .npy header claims {header_length} bytes, 10000 at most"
    );
    let mut header = vec![0; header_length as usize];
    reader
        .read_exact(&mut header)
        .context("the .npy header is cut short")?;
    let header = String::from_utf8(header).context("the .npy header is no text")?;

    let width = match quoted(field(&header, "descr")?) {
        Some("<f4") => 4,
        Some("<f8") => 8,
        other => bail!(
            "the .npy file holds {} and not little-endian floats ('<f4' or '<f8'): save \
             array.astype('<f4')",
            other.unwrap_or("a structure")
        ),
    };
    ensure!(
        field(&header, "fortran_order")?.starts_with("False"),
        "the .npy file is in Fortran order: save numpy.ascontiguousarray(array)"
    );
    let shape = tuple(field(&header, "shape")?)?;
    if let Some(asked) = asked {
        ensure!(
            asked == shape,
            "the .npy file says its shape is {}, --shape says {}: leave --shape out",
            display(shape),
            display(asked)
        );
    }
    let count = cells(shape)?;
    let (expected, actual) = (
        count as u64 * width as u64,
        length - (prefix + header_length).min(length),
    );
    ensure!(
        actual == expected,
        "its header announces {} values of {width} bytes, which make {expected} bytes, but \
         {actual} follow: the file is damaged, save it again",
        display(shape)
    );
    Ok((shape, read_floats(reader, count, width)?))
}

/// Returns the text behind `'name':` in the header, a Python dictionary.
fn field<'a>(header: &'a str, name: &str) -> Result<&'a str> {
    ['\'', '"']
        .into_iter()
        .find_map(|q| header.split_once(&format!("{q}{name}{q}")))
        .and_then(|(_, rest)| rest.trim_start().strip_prefix(':'))
        .map(str::trim_start)
        .with_context(|| format!("the .npy header does not tell '{name}': {header:?}"))
}

fn quoted(value: &str) -> Option<&str> {
    let q = value.chars().next().filter(|q| matches!(q, '\'' | '"'))?;
    value[1..].split_once(q).map(|(inside, _)| inside)
}

fn tuple(value: &str) -> Result<Shape> {
    let (inside, _) = value
        .strip_prefix('(')
        .and_then(|rest| rest.split_once(')'))
        .with_context(|| format!("the .npy header's shape is not a tuple: {value:?}"))?;
    let axes: Vec<usize> = inside
        .split(',')
        .map(str::trim)
        .filter(|axis| !axis.is_empty())
        .map(|axis| {
            axis.parse()
                .with_context(|| format!("{axis:?} in the .npy header's shape"))
        })
        .collect::<Result<_>>()?;
    from_axes(&axes)
}

/// A section (x, z) or a volume (x, y, z).
pub fn from_axes(axes: &[usize]) -> Result<Shape> {
    match *axes {
        [x, z] => Ok([x, 1, z]),
        [x, y, z] => Ok([x, y, z]),
        _ => bail!(
            "{} axes: a model has two (x, z) or three (x, y, z)",
            axes.len()
        ),
    }
}

fn read_floats(reader: &mut impl Read, count: usize, width: usize) -> Result<Vec<f32>> {
    let mut values = Vec::new();
    values
        .try_reserve_exact(count)
        .with_context(|| format!("no memory for {count} values"))?;
    let mut buffer = [0; 8 << 10];
    let mut left = count * width;
    while left > 0 {
        let piece = left.min(buffer.len());
        reader
            .read_exact(&mut buffer[..piece])
            .context("cannot be read to its end")?;
        if width == 4 {
            values.extend(
                buffer[..piece]
                    .as_chunks()
                    .0
                    .iter()
                    .map(|b| f32::from_le_bytes(*b)),
            );
        } else {
            values.extend(
                buffer[..piece]
                    .as_chunks()
                    .0
                    .iter()
                    .map(|b| f64::from_le_bytes(*b) as f32),
            );
        }
        left -= piece;
    }
    Ok(values)
}

fn display([x, y, z]: Shape) -> String {
    if y == 1 {
        format!("{x}x{z}")
    } else {
        format!("{x}x{y}x{z}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn npy(version: u8, header: &str, data: &[u8]) -> Vec<u8> {
        let mut bytes = b"\x93NUMPY".to_vec();
        bytes.extend([version, 0]);
        if version == 1 {
            bytes.extend((header.len() as u16).to_le_bytes());
        } else {
            bytes.extend((header.len() as u32).to_le_bytes());
        }
        bytes.extend(header.as_bytes());
        bytes.extend(data);
        bytes
    }

    fn parse(bytes: &[u8], shape: Option<Shape>) -> Result<(Shape, Vec<f32>)> {
        read_npy(&mut &bytes[..], bytes.len() as u64, shape)
    }

    const HEADER: &str = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }   \n";

    #[test]
    fn npy_of_every_version_and_width() {
        let single: Vec<u8> = (0..6)
            .flat_map(|i| (i as f32 + 0.5).to_le_bytes())
            .collect();
        let double: Vec<u8> = (0..6)
            .flat_map(|i| (f64::from(i) + 0.5).to_le_bytes())
            .collect();
        let values = vec![0.5, 1.5, 2.5, 3.5, 4.5, 5.5];
        for version in 1..=3 {
            let (shape, read) = parse(&npy(version, HEADER, &single), None).unwrap();
            assert_eq!((shape, read), ([2, 1, 3], values.clone()));
        }
        let (_, read) = parse(&npy(1, &HEADER.replace("f4", "f8"), &double), None).unwrap();
        assert_eq!(read, values);
        let volume = HEADER.replace("(2, 3)", "(1, 2, 3)");
        assert_eq!(parse(&npy(1, &volume, &single), None).unwrap().0, [1, 2, 3]);
    }

    #[test]
    fn broken_npy_says_what_to_do() {
        let data = [0; 24];
        let good = npy(1, HEADER, &data);
        let cases: Vec<(Vec<u8>, Option<Shape>, &str)> = vec![
            (b"\x93NUM".to_vec(), None, "too short"),
            (b"not numpy".to_vec(), None, "does not begin"),
            (npy(9, HEADER, &data), None, "version 9"),
            (npy(1, &HEADER.replace("<f4", ">f4"), &data), None, "astype"),
            (
                npy(1, &HEADER.replace("'<f4'", "[('a', '<f4')]"), &data),
                None,
                "astype",
            ),
            (
                npy(1, &HEADER.replace("False", "True"), &data),
                None,
                "ascontiguousarray",
            ),
            (
                npy(1, &HEADER.replace("shape", "size"), &data),
                None,
                "'shape'",
            ),
            (
                npy(1, &HEADER.replace("(2, 3)", "(6,)"), &data),
                None,
                "1 axes",
            ),
            (
                npy(1, &HEADER.replace("(2, 3)", "(-2, 3)"), &data),
                None,
                "\"-2\"",
            ),
            (
                npy(1, &HEADER.replace("(2, 3)", "2, 3"), &data),
                None,
                "tuple",
            ),
            (
                npy(
                    1,
                    &HEADER.replace("(2, 3)", "(9999999999, 9999999999)"),
                    &data,
                ),
                None,
                "too large",
            ),
            (
                npy(1, &HEADER.replace("(2, 3)", "(2, 4)"), &data),
                None,
                "make 32 bytes, but 24",
            ),
            (
                good[..good.len() - 1].to_vec(),
                None,
                "make 24 bytes, but 23",
            ),
            (good[..40].to_vec(), None, "cut short"),
            (good[..9].to_vec(), None, "cut short"),
            (good.clone(), Some([3, 1, 2]), "leave --shape out"),
        ];
        for (bytes, shape, says) in cases {
            let error = format!("{:#}", parse(&bytes, shape).unwrap_err());
            assert!(error.contains(says), "{error:?} does not say {says:?}");
        }
        let mut long = npy(2, HEADER, &data);
        long[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(
            parse(&long, None)
                .unwrap_err()
                .to_string()
                .contains("10000 at most")
        );
    }

    #[test]
    fn raw_files_must_have_the_shape_told() {
        let bytes = [0u8; 48];
        assert_eq!(read_raw(&mut &bytes[..], 48, [3, 1, 4]).unwrap().len(), 12);
        let error = read_raw(&mut &bytes[..], 48, [3, 1, 5])
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("60 bytes") && error.contains("has 48"),
            "{error}"
        );
        assert!(
            error.contains("--shape") && error.contains("(12 values)"),
            "{error}"
        );
        let error = read(Path::new("/does/not/exist.bin"), None, 1.0).unwrap_err();
        assert!(format!("{error:#}").contains("/does/not/exist.bin"));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("v.bin");
        std::fs::write(&path, bytes).unwrap();
        let error = format!("{:#}", read(&path, None, 1.0).unwrap_err());
        assert!(error.contains("--shape NXxNZ"), "{error}");
    }
}

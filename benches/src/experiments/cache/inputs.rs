//! Recorded inputs if a path is given, else made-up inputs.
//!
//! `TIERFLOW_TRACES` names a folder of `*.csv` files with the columns `version,bytes`, one for each shot.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use tierflow_sim::{made_up_sizes, sizes_from_csv};

/// Bytes of a shot of 384 versions, as recorded ones have.
const SHOT_BYTES: u64 = 46_000_000_000;

/// The sizes of shots, and their origin: recorded or made up.
pub(super) struct Shots {
    pub(super) origin: &'static str,
    pub(super) sizes: Vec<Vec<u64>>,
}

/// Returns the sizes of `shots` shots: recorded shots, thinned out to `versions`, then made-up shots.
pub(super) fn shots(shots: usize, versions: usize) -> Result<Shots> {
    let total = SHOT_BYTES / 384 * versions as u64;
    let made_up = (0..shots as u64).map(|seed| made_up_sizes(versions, total, seed));
    let Some(recorded) = recorded_shots()? else {
        return Ok(Shots {
            origin: "made up",
            sizes: made_up.collect(),
        });
    };
    let thinned = recorded.into_iter().map(|sizes| {
        let step = sizes.len().div_ceil(versions).max(1);
        sizes.into_iter().step_by(step).collect()
    });
    let mut sizes: Vec<_> = thinned.collect();
    let origin = match sizes.len() {
        recorded if recorded >= shots => "recorded",
        _ => "recorded, then made up",
    };
    sizes.extend(made_up.skip(sizes.len()));
    sizes.truncate(shots);
    Ok(Shots { origin, sizes })
}

/// Returns the sizes of each shot in the folder that `TIERFLOW_TRACES` names; `None` if it is not set.
pub(crate) fn recorded_shots() -> Result<Option<Vec<Vec<u64>>>> {
    let Some(folder) = std::env::var_os("TIERFLOW_TRACES") else {
        return Ok(None);
    };
    let files = read(Path::new(&folder), "csv")?.into_iter();
    let shots =
        files.map(|(name, text)| sizes(&text).with_context(|| format!("{name} is no trace")));
    shots.collect::<Result<_>>().map(Some)
}

fn sizes(text: &str) -> Result<Vec<u64>> {
    let sizes = sizes_from_csv(text)?;
    ensure!(!sizes.is_empty(), "there is no version");
    Ok(sizes)
}

/// Returns the names, without extension, and the contents of all files with an extension, in the order of their names.
fn read(folder: &Path, extension: &str) -> Result<Vec<(String, String)>> {
    let listed = std::fs::read_dir(folder);
    let listed = listed.with_context(|| format!("cannot list {}", folder.display()))?;
    let mut files = Vec::new();
    for entry in listed {
        let path = entry?.path();
        if path.extension().is_some_and(|own| own == extension) {
            let text = std::fs::read_to_string(&path);
            let text = text.with_context(|| format!("cannot read {}", path.display()))?;
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            files.push((name.into_owned(), text));
        }
    }
    files.sort();
    ensure!(
        !files.is_empty(),
        "{} has no .{extension} file",
        folder.display()
    );
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_are_read_and_what_is_none_is_named() {
        assert_eq!(sizes("version,bytes\n0,7\n1,8\n").unwrap(), [7, 8]);
        assert!(sizes("version,bytes\n").is_err());
        assert!(sizes("0,7\n").is_err());
        let error = sizes("version,bytes\n0,7\n1,x\n").unwrap_err().to_string();
        assert!(error.contains("line 3"), "{error}");
    }
}

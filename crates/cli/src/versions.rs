//! The versions of a place, under the numbers that the application gave them.

use crate::contents::{ANY_SIZE, PieceContents};
use crate::names::{NamedHistory, head_of};
use crate::output::Output;
use crate::show::{chosen, opened};
use anyhow::{Result, ensure};
use std::path::Path;
use tierflow_objects::History;
use tierflow_store::VersionInfo;

/// A place to read versions from, and perhaps another place with versions that its differences build upon.
#[derive(Debug)]
pub(crate) struct Versions {
    histories: Vec<History>,
    names: Option<NamedHistory>,
}

impl Versions {
    pub(crate) fn open(place: &Path, also: Option<&Path>, output: Output) -> Result<Self> {
        let history = opened(place, output)?;
        let names = NamedHistory::of(&history)?;
        let also = also.map(|place| opened(place, output)).transpose()?;
        Ok(Self {
            histories: [Some(history), also].into_iter().flatten().collect(),
            names,
        })
    }

    /// Lists the whole versions. If VELOC's interface wrote them, lists the checkpoints of a name.
    pub(crate) fn list(&self, name: Option<&str>) -> Result<Vec<VersionInfo>> {
        match &self.names {
            Some(names) => {
                let versions = names.of_name(name)?.iter();
                Ok(versions.map(|named| named.info).collect())
            }
            None => {
                ensure_no(name)?;
                Ok(self.histories[0].versions()?)
            }
        }
    }

    /// Returns the number of a version, the newest if none is given, and the contents of one rank's piece.
    pub(crate) fn contents(
        &self,
        name: Option<&str>,
        version: Option<u64>,
        rank: u32,
    ) -> Result<(u64, PieceContents)> {
        let histories = &self.histories;
        match &self.names {
            Some(names) => {
                let number = names.chosen(name, version)?.head.number();
                let head = head_of(&histories[0], number, rank)?;
                let contents = PieceContents::of_named(histories, &head, rank)?;
                Ok((head.version, contents))
            }
            None => {
                ensure_no(name)?;
                let version = chosen(&histories[0], version)?;
                let contents = PieceContents::of(histories, version, rank, ANY_SIZE)?;
                Ok((version, contents))
            }
        }
    }
}

fn ensure_no(name: Option<&str>) -> Result<()> {
    ensure!(
        name.is_none(),
        "the versions there have no names: leave out --name"
    );
    Ok(())
}

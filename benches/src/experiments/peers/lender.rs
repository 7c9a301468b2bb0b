//! The other process, which lends memory of its GPU and reports a checksum of the bytes there.

use std::io::BufRead;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use tierflow_device::{Choice, host, open};
use tierflow_peers::{Lender, Lent};

use super::PATIENCE;
use super::checkpoint::sum;
use crate::process::say;

/// The work of the process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::experiments) struct LenderWork {
    /// The socket.
    pub(super) path: PathBuf,
    /// Bytes to lend.
    pub(super) bytes: u64,
    /// The GPU's number; `None` for plain memory.
    pub(super) ordinal: Option<usize>,
}

impl LenderWork {
    /// Lends once, to the first process that connects. Then answers the lines on standard input: `sum` with a checksum of the lent memory,
    /// `recall` by taking the memory back. Ends at the end of the input.
    pub(in crate::experiments) fn serve(&self) -> Result<()> {
        let device = match self.ordinal {
            Some(ordinal) => open(Choice::Cuda { ordinal })?,
            None => host::open(host::Options::default())?,
        };
        let lender = Lender::bind(&device, &self.path, self.bytes)?;
        say("ready")?;
        let mut lent: Option<Lent> = Some(lender.lend(PATIENCE)?);
        say("lent")?;
        for line in std::io::stdin().lock().lines() {
            match line?.as_str() {
                "sum" => {
                    let lent = lent.as_ref().context("nothing is lent any more")?;
                    let len = lent.chunk().len();
                    let own = device.reserve_for_exported(len)?;
                    own.map_exported(0, lent.chunk())?;
                    let mut bytes = vec![0; len];
                    let loan = own.memory().lend(0..len)?;
                    device.stream()?.read(&loan, &mut bytes)?;
                    say(&format!("sum {}", sum(&bytes)))?;
                }
                "recall" => {
                    let lent = lent.take().context("nothing is lent any more")?;
                    lent.recall()?;
                    lent.wait_returned(PATIENCE)?;
                    drop(lent);
                    say(&format!("returned {}", lender.spare()))?;
                }
                other => bail!("what is {other:?}?"),
            }
        }
        Ok(())
    }
}

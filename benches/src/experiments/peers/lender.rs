//! The other process: it lends memory of its GPU, and says what it sees there.

use std::io::BufRead;
use std::path::Path;

use anyhow::{Context, Result, bail};
use tierflow_device::{Choice, host, open};
use tierflow_peers::{Lender, Lent};

use super::PATIENCE;
use super::checkpoint::sum;
use crate::process::say;

/// Lends once, to the first that connects, then answers the lines on standard input: `sum` of what it lent, and
/// `recall`. It ends with its input.
///
/// # Errors
/// Of the device and of the loan; a line that it does not know.
pub fn lender(path: &Path, bytes: u64, ordinal: Option<usize>) -> Result<()> {
    let device = match ordinal {
        Some(ordinal) => open(Choice::Cuda { ordinal })?,
        None => host::open(host::Options::default())?,
    };
    let lender = Lender::bind(&device, path, bytes)?;
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

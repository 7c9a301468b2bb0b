//! The group checkpoint with a process for each peer, a recall, and a lender that is killed.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tierflow_device::{Device, Kind};
use tierflow_peers::{Error, Loan, Overflow, TransferTarget};
use tierflow_placement::{Destination, Schedule, Transfer};

use super::checkpoint::{Group, pattern, sum};
use super::{Clock, LenderWork, PATIENCE};
use crate::experiments::Run;
use crate::process::Process;

/// Measures a schedule for which separate processes lend the peers' room.
pub(super) fn measure(
    run: &mut Run,
    clock: &Clock,
    group: &Group<'_>,
    schedule: &Schedule,
) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut lenders = Vec::new();
    for (at, transfer) in schedule.transfers().iter().enumerate() {
        if let Destination::Peer(peer) = transfer.to {
            let device = &group.devices[peer.0];
            let path = folder.path().join(format!("lender-{at}"));
            let granularity = device.info().granularity as u64;
            let bytes = transfer.bytes.next_multiple_of(granularity);
            lenders.push((*transfer, LenderProcess::start(&path, device, bytes)?));
        }
    }
    ensure!(!lenders.is_empty(), "the schedule sends nothing to peers");
    clock.stage("waiting for the lenders");
    for (_, lender) in &lenders {
        lender.expect("ready")?;
    }
    clock.stage("borrowing");
    let began = Instant::now();
    let mut loans = Vec::new();
    for (transfer, lender) in &lenders {
        let from = &group.devices[transfer.from.0];
        loans.push(Loan::ask(from, &lender.path, transfer.bytes, PATIENCE)?);
        lender.expect("lent")?;
    }
    let borrowing = began.elapsed();
    let case = group.case("min-time-max-flow, between processes");
    run.time(&case, "all loans", borrowing)?;
    let overflow = with_loans(group, schedule, &lenders, &loans)?;

    clock.stage("storing with lenders");
    group.time(run, &case, schedule, &overflow)?;
    clock.stage("what the lenders see");
    for (transfer, lender) in &mut lenders {
        lender.process.tell("sum")?;
        let wanted = format!("sum {}", wanted(transfer, lender.bytes as usize)?);
        lender.expect(&wanted).context(transfer.to_string())?;
    }

    clock.stage("recall");
    let (_, first) = &mut lenders[0];
    first.process.tell("recall")?;
    let began = Instant::now();
    while !loans[0].is_recalled()? {
        ensure!(began.elapsed() < PATIENCE, "no recall arrives");
        std::thread::sleep(Duration::from_micros(50));
    }
    // The bytes are saved before the memory is given back.
    group.spoil()?;
    overflow.load(group.remainders(), PATIENCE)?;
    ensure!(group.wrong()? == 0, "what was saved at the recall is wrong");
    drop(overflow);
    loans[0].give_back()?;
    first.expect(&format!("returned {}", first.bytes))?;
    run.time(&case, "recall to return", began.elapsed())?;

    clock.stage("a lender is killed");
    let (_, mut killed) = lenders.pop().context("there is no lender")?;
    let last = loans.last().context("there is no loan")?;
    eprintln!("  killed: {}", killed.process.kill()?);
    if lenders.is_empty() {
        // The only lender has recalled its memory.
        return Ok(());
    }
    let began = Instant::now();
    let gone = loop {
        match last.is_recalled() {
            Err(gone) => break gone,
            Ok(_) => ensure!(
                began.elapsed() < PATIENCE,
                "the lender's end is not reported"
            ),
        }
    };
    ensure!(matches!(gone, Error::Gone { .. }), "{gone}");
    run.time(&case, "until a dead lender is known", began.elapsed())?;
    // The lent memory counts as lost. A copy from there may fail, but must not hang.
    let device = &group.devices[0];
    let mut bytes = vec![0; last.memory().len().min(1 << 20)];
    let loan = last.memory().lend(0..bytes.len())?;
    let read = device.stream()?.read(&loan, &mut bytes);
    eprintln!("  a copy from the dead lender's memory: {read:?}");
    run.value(
        &case,
        "memory of a dead lender is readable",
        "1",
        f64::from(u8::from(read.is_ok())),
    )?;
    // The device still works.
    let own = device.alloc(1 << 20)?;
    device.stream()?.fill(&mut own.lend_mut(0..1 << 20)?, 3)?;
    Ok(())
}

fn with_loans(
    group: &Group<'_>,
    schedule: &Schedule,
    lenders: &[(Transfer, LenderProcess)],
    loans: &[Loan],
) -> Result<Overflow> {
    let room = |transfer: &Transfer| {
        let at = lenders.iter().position(|(lent, _)| lent == transfer);
        match at {
            Some(at) => Ok(TransferTarget {
                memory: loans[at].memory().clone(),
                start: 0,
            }),
            None => TransferTarget::on_host(&group.devices[transfer.from.0], transfer),
        }
    };
    Ok(Overflow::with_targets(group.devices, schedule, room)?)
}

/// Returns the checksum of the bytes that a transfer sent. The transfer must fill the lent chunk, as the bytes after it are not known.
fn wanted(transfer: &Transfer, lent: usize) -> Result<u64> {
    let (offset, bytes) = (transfer.offset as usize, transfer.bytes as usize);
    ensure!(bytes == lent, "{bytes} bytes are sent to a chunk of {lent}");
    let all = pattern(transfer.from.0, offset + bytes);
    Ok(sum(&all[offset..]))
}

/// A process that lends memory of its device.
struct LenderProcess {
    process: Process,
    path: PathBuf,
    bytes: u64,
}

impl LenderProcess {
    fn start(path: &Path, device: &Device, bytes: u64) -> Result<Self> {
        let info = device.info();
        let work = LenderWork {
            path: path.to_owned(),
            bytes,
            ordinal: (info.kind == Kind::Cuda).then_some(info.ordinal),
        };
        Ok(Self {
            process: Process::start("peers", &work)?,
            path: work.path,
            bytes,
        })
    }

    fn expect(&self, wanted: &str) -> Result<()> {
        let line = self.process.hear_within(PATIENCE)?;
        ensure!(line == wanted, "a lender says {line:?}, not {wanted:?}");
        Ok(())
    }
}

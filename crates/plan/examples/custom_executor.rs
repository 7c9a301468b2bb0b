//! An engine of one's own, made of the plan and three stores: plain memory, compressed memory, and a file.
//!
//! `cargo run -p tierflow-plan --example custom_executor`

use std::collections::{HashMap, HashSet, VecDeque};
use std::error::Error;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::time::Instant;
use tierflow_plan::{
    AfterRestore, Coding, Event, Executor, ExtentSize, Piece, PlanConfig, Refusal, Ticket,
    TierConfig, Transfer, TransferFailure, TransferId, Version, World,
};

const KIB: u64 = 1 << 10;
const BLOCK: usize = 4 << 10;
const VERSIONS: Version = 64;

/// Where bytes lie. Offsets are multiples of 4 KiB, the tiers' alignment.
trait Store {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> io::Result<()>;
}

impl Store for Vec<u8> {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        bytes.copy_from_slice(&self[offset as usize..][..bytes.len()]);
        Ok(())
    }
}

/// Blocks by their offset, each as pairs of a length and a byte. The plan counts the bytes before they are compressed.
#[derive(Default)]
struct Compressed(HashMap<u64, Vec<(u16, u8)>>);

impl Store for Compressed {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        for (at, block) in (offset..).step_by(BLOCK).zip(bytes.chunks(BLOCK)) {
            let runs = block.chunk_by(|a, b| a == b);
            self.0
                .insert(at, runs.map(|run| (run.len() as u16, run[0])).collect());
        }
        Ok(())
    }

    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        for (at, block) in (offset..).step_by(BLOCK).zip(bytes.chunks_mut(BLOCK)) {
            let runs = self.0.get(&at).into_iter().flatten();
            let plain = runs.flat_map(|&(len, byte)| std::iter::repeat_n(byte, len.into()));
            block
                .iter_mut()
                .zip(plain)
                .for_each(|(to, from)| *to = from);
        }
        Ok(())
    }
}

impl Store for File {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.seek(SeekFrom::Start(offset))?;
        self.write_all(bytes)
    }

    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.seek(SeekFrom::Start(offset))?;
        self.read_exact(bytes)
    }
}

/// What the plan wants done: kept until the call that it was said in has returned.
struct Hands {
    stores: Vec<Box<dyn Store>>,
    granted: HashMap<Ticket, Vec<Piece>>,
    answers: HashMap<Ticket, Result<(), Refusal>>,
    transfers: VecDeque<Transfer>,
    cancelled: HashSet<TransferId>,
}

impl Executor for Hands {
    fn write(&mut self, ticket: Ticket, _: Version, pieces: Vec<Piece>) {
        self.granted.insert(ticket, pieces);
    }

    fn read(&mut self, ticket: Ticket, _: Version, pieces: Vec<Piece>, _: Coding) {
        self.granted.insert(ticket, pieces);
    }

    fn transfer(&mut self, transfer: Transfer) {
        self.transfers.push_back(transfer);
    }

    fn cancel(&mut self, id: TransferId) {
        self.cancelled.insert(id);
    }

    fn answer(&mut self, ticket: Ticket, answer: Result<(), Refusal>) {
        self.answers.insert(ticket, answer);
    }
}

impl Hands {
    /// Copies the bytes of a transfer; tells at which end it failed, if it did.
    fn copy(&mut self, transfer: &Transfer) -> Result<(), TransferFailure> {
        if self.cancelled.remove(&transfer.id) {
            return Err(TransferFailure::Cancelled);
        }
        for (Piece { place: from, .. }, Piece { place: to, .. }) in
            transfer.from.iter().zip(&transfer.to)
        {
            let mut bytes = vec![0; from.size as usize];
            let read = self.stores[from.tier.0].read(from.offset, &mut bytes);
            read.map_err(|_| TransferFailure::Source)?;
            let written = self.stores[to.tier.0].write(to.offset, &bytes);
            written.map_err(|_| TransferFailure::Destination)?;
        }
        Ok(())
    }
}

struct Engine {
    world: World,
    hands: Hands,
    began: Instant,
}

impl Engine {
    fn tell(&mut self, event: Event) -> Result<(), Box<dyn Error>> {
        let now = self.began.elapsed().as_nanos() as u64;
        Ok(self.world.tell(now, event, &mut self.hands)?)
    }

    /// Carries out one transfer. A real engine has threads or streams for this.
    fn advance(&mut self) -> Result<bool, Box<dyn Error>> {
        let Some(transfer) = self.hands.transfers.pop_front() else {
            return Ok(false);
        };
        let id = transfer.id;
        let event = match self.hands.copy(&transfer) {
            Ok(()) => Event::TransferDone { id, stored: None },
            Err(why) => Event::TransferFailed { id, why },
        };
        self.tell(event)?;
        Ok(true)
    }

    /// Waits until a call may copy.
    fn granted(&mut self, ticket: Ticket) -> Result<Vec<Piece>, Box<dyn Error>> {
        loop {
            if let Some(pieces) = self.hands.granted.remove(&ticket) {
                return Ok(pieces);
            }
            if let Some(answer) = self.hands.answers.remove(&ticket) {
                return Err(format!("no copy was granted: {answer:?}").into());
            }
            if !self.advance()? {
                return Err("nothing is under way, and a call is not answered".into());
            }
        }
    }

    fn checkpoint(&mut self, version: Version, bytes: &[u8]) -> Result<(), Box<dyn Error>> {
        let (ticket, size) = (self.world.ticket(), bytes.len() as u64);
        self.tell(Event::Checkpoint {
            ticket,
            version,
            size,
        })?;
        for Piece { start, place } in self.granted(ticket)? {
            let run = &bytes[start as usize..][..place.size as usize];
            self.hands.stores[place.tier.0].write(place.offset, run)?;
        }
        self.tell(Event::Written { ticket, ok: true })
    }

    fn restore(&mut self, version: Version, bytes: &mut [u8]) -> Result<(), Box<dyn Error>> {
        let ticket = self.world.ticket();
        self.tell(Event::Restore { ticket, version })?;
        for Piece { start, place } in self.granted(ticket)? {
            let run = &mut bytes[start as usize..][..place.size as usize];
            self.hands.stores[place.tier.0].read(place.offset, run)?;
        }
        self.tell(Event::Read { ticket, ok: true })
    }
}

/// What a version holds: between 20 KB and 420 KB, no two alike.
fn contents(version: Version) -> Vec<u8> {
    let size = 20_000 + version * 7_919 % 401 * 1_000;
    (0..size).map(|at| (version * 31 + at / 97) as u8).collect()
}

fn main() -> Result<(), Box<dyn Error>> {
    let directory: PathBuf = std::env::temp_dir().join(format!("plan-{}", std::process::id()));
    fs::create_dir(&directory)?;
    let done = run(&directory);
    fs::remove_dir_all(&directory)?;
    done
}

fn run(directory: &std::path::Path) -> Result<(), Box<dyn Error>> {
    let capacities = [2 << 20, 4 << 20, 64 << 20];
    let mut config = PlanConfig::new(capacities.map(TierConfig::new).to_vec());
    config.after_restore = AfterRestore::Discard;
    config.extents = ExtentSize {
        least: 32 * KIB,
        most: 128 * KIB,
    };
    let mut file = File::options();
    let file = file
        .read(true)
        .write(true)
        .create_new(true)
        .open(directory.join("tier"))?;
    let memory = vec![0_u8; capacities[0] as usize];
    let mut engine = Engine {
        world: World::new(config)?,
        hands: Hands {
            stores: vec![
                Box::new(memory),
                Box::new(Compressed::default()),
                Box::new(file),
            ],
            granted: HashMap::new(),
            answers: HashMap::new(),
            transfers: VecDeque::new(),
            cancelled: HashSet::new(),
        },
        began: Instant::now(),
    };
    engine.tell(Event::Hint {
        versions: (0..VERSIONS).rev().collect(),
    })?;
    for version in 0..VERSIONS {
        engine.checkpoint(version, &contents(version))?;
        // The application computes; two transfers end meanwhile.
        engine.advance()?;
        engine.advance()?;
    }
    for version in (0..VERSIONS).rev() {
        let expected = contents(version);
        let mut bytes = vec![0; expected.len()];
        engine.restore(version, &mut bytes)?;
        if bytes != expected {
            return Err(format!("version {version} came back changed").into());
        }
        engine.advance()?;
        engine.advance()?;
    }
    let statistics = engine.world.plan().statistics();
    for (name, tier) in ["memory", "compressed memory", "file"]
        .iter()
        .zip(&statistics.tiers)
    {
        println!(
            "{} restores found all bytes on {name} or faster",
            tier.restores
        );
    }
    for hop in &statistics.hops {
        println!(
            "tier {} to {}: {} transfers, {} bytes",
            hop.from, hop.to, hop.transfers, hop.bytes
        );
    }
    Ok(())
}

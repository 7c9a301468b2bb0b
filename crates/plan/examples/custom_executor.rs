//! A custom engine, made of the plan and three stores: plain memory, compressed memory, and a file.
//!
//! `cargo run -p tierflow-plan --example custom_executor`

use std::collections::{HashMap, HashSet, VecDeque};
use std::error::Error;
use std::fs::{self, File};
use std::io::{self, Cursor, Read, Seek, SeekFrom, Write};
use tierflow_plan::{
    AfterRestore, Coding, Event, Executor, Piece, PlanConfig, Refusal, Ticket, TierConfig,
    Transfer, TransferFailure, TransferId, Version, World,
};

/// Storage of one tier's bytes. Offsets are multiples of 4 KiB, the tiers' alignment.
trait Store {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> io::Result<()>;
}

/// Blocks of 4 KiB by their offsets, each as runs of a length and a byte. The plan counts bytes before they are compressed.
struct Compressed(HashMap<u64, Vec<(u16, u8)>>);

impl Store for Compressed {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        for (at, block) in (offset..).step_by(4096).zip(bytes.chunks(4096)) {
            let runs = block
                .chunk_by(|a, b| a == b)
                .map(|run| (run.len() as u16, run[0]));
            self.0.insert(at, runs.collect());
        }
        Ok(())
    }
    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        for (at, block) in (offset..).step_by(4096).zip(bytes.chunks_mut(4096)) {
            let runs = self.0.get(&at).ok_or(io::ErrorKind::NotFound)?.iter();
            let plain = runs.flat_map(|&(len, byte)| std::iter::repeat_n(byte, len.into()));
            block
                .iter_mut()
                .zip(plain)
                .for_each(|(to, from)| *to = from);
        }
        Ok(())
    }
}

/// A file, or memory.
impl<T: Read + Write + Seek> Store for T {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.seek(SeekFrom::Start(offset))?;
        self.write_all(bytes)
    }
    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.seek(SeekFrom::Start(offset))?;
        self.read_exact(bytes)
    }
}

/// The stores, and the plan's commands, kept until the call that emitted them has returned.
#[derive(Default)]
struct StoreExecutor {
    stores: Vec<Box<dyn Store>>,
    answers: HashMap<Ticket, Result<Vec<Piece>, Refusal>>,
    transfers: VecDeque<Transfer>,
    cancelled: HashSet<TransferId>,
}

impl Executor for StoreExecutor {
    fn write(&mut self, ticket: Ticket, _: Version, pieces: Vec<Piece>) {
        self.answers.insert(ticket, Ok(pieces));
    }
    fn read(&mut self, ticket: Ticket, _: Version, pieces: Vec<Piece>, _: Coding) {
        self.answers.insert(ticket, Ok(pieces));
    }
    fn transfer(&mut self, transfer: Transfer) {
        self.transfers.push_back(transfer);
    }
    fn cancel(&mut self, id: TransferId) {
        self.cancelled.insert(id);
    }
    fn answer(&mut self, ticket: Ticket, answer: Result<(), Refusal>) {
        self.answers.insert(ticket, answer.map(|()| Vec::new()));
    }
}

struct Engine {
    world: World,
    executor: StoreExecutor,
}

impl Engine {
    /// Passes an event to the plan. Only statistics use the time, so it is 0 here.
    fn tell(&mut self, event: Event) -> Result<(), Box<dyn Error>> {
        Ok(self.world.tell(0, event, &mut self.executor)?)
    }

    /// Copies the bytes of a transfer. The error names the end that failed.
    fn copy(&mut self, transfer: &Transfer) -> Result<(), TransferFailure> {
        if self.executor.cancelled.remove(&transfer.id) {
            return Err(TransferFailure::Cancelled);
        }
        let stores = &mut self.executor.stores;
        for (from, to) in transfer.from.iter().zip(&transfer.to) {
            let mut bytes = vec![0; from.place.size as usize];
            let read = stores[from.place.tier.0].read(from.place.offset, &mut bytes);
            read.map_err(|_| TransferFailure::Source)?;
            let written = stores[to.place.tier.0].write(to.place.offset, &bytes);
            written.map_err(|_| TransferFailure::Destination)?;
        }
        Ok(())
    }

    /// Carries out one transfer if there is one. A larger engine has threads for this.
    fn advance(&mut self) -> Result<bool, Box<dyn Error>> {
        let Some(transfer) = self.executor.transfers.pop_front() else {
            return Ok(false);
        };
        let (id, stored) = (transfer.id, None);
        let event = match self.copy(&transfer) {
            Ok(()) => Event::TransferDone { id, stored },
            Err(why) => Event::TransferFailed { id, why },
        };
        self.tell(event).map(|()| true)
    }

    /// Makes a call, and waits until it may copy.
    fn call(&mut self, ticket: Ticket, event: Event) -> Result<Vec<Piece>, Box<dyn Error>> {
        self.tell(event)?;
        loop {
            if let Some(answer) = self.executor.answers.remove(&ticket) {
                return answer.map_err(|refusal| format!("refused: {refusal:?}").into());
            }
            let goes_on = self.advance()?.then_some(());
            goes_on.ok_or("nothing is under way, and a call is not answered")?;
        }
    }

    fn checkpoint(&mut self, version: Version, bytes: &[u8]) -> Result<(), Box<dyn Error>> {
        let (ticket, size) = (self.world.ticket(), bytes.len() as u64);
        #[rustfmt::skip]
        let pieces = self.call(ticket, Event::Checkpoint { ticket, version, size })?;
        for Piece { start, place } in pieces {
            let run = &bytes[start as usize..][..place.size as usize];
            self.executor.stores[place.tier.0].write(place.offset, run)?;
        }
        self.tell(Event::Written { ticket, ok: true })
    }

    fn restore(&mut self, version: Version, bytes: &mut [u8]) -> Result<(), Box<dyn Error>> {
        let ticket = self.world.ticket();
        for Piece { start, place } in self.call(ticket, Event::Restore { ticket, version })? {
            let run = &mut bytes[start as usize..][..place.size as usize];
            self.executor.stores[place.tier.0].read(place.offset, run)?;
        }
        self.tell(Event::Read { ticket, ok: true })
    }
}

/// Returns the content of a version: between 20 KB and 420 KB.
fn contents(version: Version) -> Vec<u8> {
    let size = 20_000 + version * 7_919 % 401 * 1_000;
    (0..size).map(|at| (version * 31 + at / 97) as u8).collect()
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::temp_dir().join(format!("three-stores-{}", std::process::id()));
    let done = File::create_new(&path).map_err(Into::into).and_then(run);
    fs::remove_file(&path)?;
    done
}

fn run(file: File) -> Result<(), Box<dyn Error>> {
    let mut config = PlanConfig::new([2 << 20, 4 << 20, 64 << 20].map(TierConfig::new).into());
    config.after_restore = AfterRestore::Discard;
    (config.extents.least, config.extents.most) = (32 << 10, 128 << 10);
    let memory = Cursor::new(vec![0; 2 << 20]);
    let compressed = Compressed(HashMap::new());
    let executor = StoreExecutor {
        stores: vec![Box::new(memory), Box::new(compressed), Box::new(file)],
        ..StoreExecutor::default()
    };
    let world = World::new(config)?;
    let mut engine = Engine { world, executor };
    let versions = (0..64).rev().collect();
    engine.tell(Event::Hint { versions })?;
    for version in 0..64 {
        engine.checkpoint(version, &contents(version))?; // The application computes meanwhile:
        (0..3).try_for_each(|_| engine.advance().map(drop))?;
    }
    for version in (0..64).rev() {
        let expected = contents(version);
        let mut bytes = vec![0; expected.len()];
        engine.restore(version, &mut bytes)?;
        assert_eq!(bytes, expected, "version {version}");
        (0..3).try_for_each(|_| engine.advance().map(drop))?;
    }
    let tiers = engine.world.plan().statistics().tiers;
    let [memory, compressed, file] = [0, 1, 2].map(|tier: usize| tiers[tier].restores);
    println!("restored from memory {memory}, compressed memory {compressed}, the file {file}");
    Ok(())
}

#[test]
fn all_versions_come_back() {
    main().unwrap();
}

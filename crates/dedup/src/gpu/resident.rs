//! Restores from differences in device memory.

use std::sync::Arc;

use rayon::prelude::*;

use tierflow_device::{Event, Place, ReadLoan, Stream, WriteLoan};

use super::flight::{Flight, Pending};
use super::kernels::{KernelPass, Kernels, MoveList};
use super::plan::Plan;
use super::state::Arena;
use crate::chain::{Chain, Move};
use crate::container::{HEADER_BYTES, NO_PARENT, Stored};
use crate::error::{Error, Invalid, Result};
use crate::hash::{Hasher, Sum};
use crate::layout::Layout;
use crate::sample::Sample;

/// Bytes of a move on the device: the struct `Move` in kernels/dedup_restore.cu.
const MOVE_BYTES: usize = 16;

/// A chain in device memory, which restores any version at the speed of that memory.
///
/// The chain takes the stored bytes of all its differences, 16 bytes for each entry, and 8 bytes for each chunk of a
/// checkpoint.
#[derive(Debug)]
pub struct Resident {
    kernels: Kernels,
    layout: Layout,
    links: Vec<ResidentLink>,
    memory: Arc<ResidentMemory>,
    /// An event behind the newest restore's kernels.
    done: Option<Arc<Event>>,
    plan: Plan,
}

/// Returns the header of a stored difference, or fewer bytes if the difference is shorter. The header contains the sums
/// of its content and of its parent's, so two differences with equal headers are interchangeable.
pub fn head(difference: &[u8]) -> &[u8] {
    &difference[..difference.len().min(HEADER_BYTES)]
}

/// Memory that the kernels use besides the destination. Each restore in flight keeps it alive.
#[derive(Debug)]
struct ResidentMemory {
    /// Payloads of all links, oldest first.
    _payloads: ReadLoan,
    moves: ReadLoan,
    owners: WriteLoan,
    sums: Arena,
}

#[derive(Debug)]
struct ResidentLink {
    version: u64,
    content: Sum,
    /// The links that a restore goes through, newest first, or the reason why the version cannot be restored.
    path: Result<Vec<usize>>,
    /// Offset of the link's moves in bytes. `moves` is their number, and `chunks` the number of moved chunks.
    moves_at: usize,
    moves: u32,
    chunks: u32,
}

impl Resident {
    /// Copies a chain to the device on the caller's stream, and waits. Checks the chain's entries; payloads are checked when
    /// a version is restored.
    ///
    /// If difference `n` (0 is the oldest) is in device memory already, `on_device(n)` lends it, or at least its last bytes,
    /// which are its payload; otherwise `on_device(n)` returns `None`. The payload of a lent difference is not read from the
    /// chain, and may be anything there.
    ///
    /// # Errors
    ///
    /// [`Invalid::Empty`] for a chain without differences; [`Error::Corrupt`] or [`Error::Missing`] if an entry's
    /// source is not stored at its place; [`tierflow_device::Invalid::LengthMismatch`] if a loan is shorter than the
    /// payload; errors of allocating.
    pub fn load_beside<B: AsRef<[u8]> + Sync>(
        kernels: &Kernels,
        side: &Stream,
        chain: &Chain<B>,
        mut on_device: impl FnMut(usize) -> Option<ReadLoan>,
    ) -> Result<Self> {
        let device = kernels.device();
        let header = *chain.headers().next().ok_or(Invalid::Empty)?;
        let layout = header.layout;

        let mut payloads_at = Vec::new();
        let mut end = 0;
        for at in 0..chain.versions().len() {
            payloads_at.push(end);
            end += chain.payload(at).len().next_multiple_of(64);
        }
        let payloads = device.alloc(end.max(64))?;
        let base = payloads.lend(0..end)?.address();

        // The threads of the pool compute the moves while this thread copies the payloads.
        let mut found: Vec<Result<(Vec<u8>, u32)>> = Vec::new();
        let mut uploaded: Result<()> = Ok(());
        rayon::in_place_scope(|scope| {
            scope.spawn(|_| {
                let links = (0..payloads_at.len()).into_par_iter();
                let links = links.map(|at| {
                    let moves = chain.moves(at)?;
                    let chunks: u32 = moves.iter().map(|own| own.count).sum();
                    Ok((pack(&moves, layout, base, &payloads_at), chunks))
                });
                found = links.collect();
            });
            uploaded = payloads_at.iter().enumerate().try_for_each(|(at, &start)| {
                let payload = chain.payload(at);
                if payload.is_empty() {
                    return Ok(());
                }
                let mut part = payloads.lend_mut(start..start + payload.len())?;
                match on_device(at) {
                    Some(difference) => {
                        let metadata = difference.len().saturating_sub(payload.len());
                        side.copy_now(&difference.split_at(metadata).1, &mut part)?;
                    }
                    None => side.write(payload, &mut part)?,
                }
                Ok(())
            });
        });
        uploaded?;

        let mut links = Vec::new();
        let mut moves = Vec::new();
        let mut moves_end = 0;
        for (header, found) in chain.headers().zip(found) {
            let (packed, chunks) = found?;
            if header.parent == NO_PARENT && header.stored != Stored::Full && chunks != layout.count
            {
                return Err(Error::corrupt(
                    header.version,
                    "some of its chunks are stored in no difference",
                ));
            }
            links.push(ResidentLink {
                version: header.version,
                content: header.content,
                path: chain.path_of(header.version),
                moves_at: moves_end,
                moves: (packed.len() / MOVE_BYTES) as u32,
                chunks,
            });
            moves_end += packed.len();
            moves.push(packed);
        }
        let room = device.alloc(moves_end.max(64))?;
        for (link, packed) in links.iter().zip(&moves) {
            if !packed.is_empty() {
                let range = link.moves_at..link.moves_at + packed.len();
                side.write(packed, &mut room.lend_mut(range)?)?;
            }
        }

        let owners_bytes = 8 * layout.count as usize;
        let owners = device.alloc(owners_bytes)?;
        let plan = Plan::of_sums(layout);
        let sums = Arena::new(device, side, &plan, &Hasher::new(header.seed), None)?;
        Ok(Self {
            kernels: kernels.clone(),
            layout,
            links,
            memory: Arc::new(ResidentMemory {
                _payloads: payloads.lend(0..end)?,
                moves: room.lend(0..moves_end)?,
                owners: owners.lend_mut(0..owners_bytes)?,
                sums,
            }),
            done: None,
            plan,
        })
    }

    /// Returns the versions, oldest first.
    pub fn versions(&self) -> impl ExactSizeIterator<Item = u64> + '_ {
        self.links.iter().map(|link| link.version)
    }

    /// Restores a version into `out`, and computes its sum. `out` is device memory as long as the checkpoint, and starts at a
    /// multiple of 16 bytes. Starts after the stream's work so far, and after the restore before. Returns when the work is
    /// enqueued.
    ///
    /// The [`Restoring`] reports errors, together with the loan.
    pub fn restore(&mut self, stream: &Stream, version: u64, out: WriteLoan) -> Restoring {
        let enqueued = self.enqueue(stream, version, &out);
        Restoring(Pending::new(out, enqueued))
    }

    fn enqueue(
        &mut self,
        stream: &Stream,
        version: u64,
        out: &WriteLoan,
    ) -> Result<(Flight<ResidentMemory>, Expected)> {
        let link = self.links.iter().find(|link| link.version == version);
        let link = link.ok_or(Invalid::NoSuchVersion { version })?;
        let path = link.path.clone()?;
        let (len, expected) = (out.len() as u64, self.layout.len);
        if len != expected {
            return Err(Invalid::Length { len, expected }.into());
        }
        let device = self.kernels.device();
        let is_here = device.is_same(out.device()) && device.is_same(stream.device());
        let is_aligned = out.address().is_multiple_of(16);
        if !is_here || out.place() != Place::Device || !is_aligned {
            let what =
                "a restore needs memory of the kernels' device that starts at a multiple of 16";
            return Err(Invalid::Memory { what }.into());
        }
        let report = self.kernels.report()?;
        if let Some(done) = &self.done {
            stream.wait(done)?;
        }
        let pass = KernelPass {
            state: self.memory.sums.state(),
            data: out.address(),
            out: 0,
            report: report.address(),
            ordinal: 0,
            is_first: true,
            chunk: self.layout.chunk,
            chunks: self.layout.count,
            words: self.plan.words(),
            slots: 0,
            sample: Sample::new(self.layout.count, 0, 0),
            gather_blocks: 0,
        };
        let launched = self.launch(stream, &path, &pass);
        let enqueued = launched.and_then(|()| Ok(Arc::new(stream.record()?)));
        let done = enqueued.inspect_err(|_| {
            // Launched kernels use the loans until they end.
            let _ = stream.synchronize();
        })?;
        self.done = Some(Arc::clone(&done));
        let flight = Flight {
            done,
            report,
            _used: Arc::clone(&self.memory),
        };
        let content = link.content;
        Ok((flight, Expected { version, content }))
    }

    #[allow(
        unsafe_code,
        reason = "what the kernels reach is held here, for as long as they may reach it"
    )]
    fn launch(&self, stream: &Stream, path: &[usize], pass: &KernelPass) -> Result<()> {
        let ResidentMemory { moves, owners, .. } = self.memory.as_ref();
        let chunk = self.layout.chunk;
        for &at in path.iter().rev() {
            let link = &self.links[at];
            if link.moves > 0 {
                let list = MoveList {
                    address: moves.address() + link.moves_at as u64,
                    moves: link.moves,
                    chunks: link.chunks,
                };
                // SAFETY: `ResidentMemory` has the moves, the payloads, in which all sources lie, and the owners. If all
                // launches succeed, the `Restoring` keeps it until it has waited for the event behind the launches.
                // Otherwise `enqueue` keeps it until the stream is synchronised. A chain's moves are of its layout's chunks.
                unsafe { self.kernels.own(stream, list, chunk, owners.address()) }?;
            }
        }
        let (owners, len) = (owners.address(), self.layout.len);
        // SAFETY: as above, and the loan of `out` is kept like the memory; the oldest difference of a path gives every chunk
        // an owner.
        unsafe { self.kernels.scatter(stream, owners, pass.data, len, chunk) }?;
        // SAFETY: as above, and the arena of sums and the report are kept like the memory.
        unsafe { self.kernels.leaves(stream, pass) }?;
        // SAFETY: as above.
        unsafe { self.kernels.summed(stream, pass) }
    }
}

/// Returns the moves in the kernel's layout.
fn pack(moves: &[Move], layout: Layout, base: u64, payloads_at: &[usize]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(moves.len() * MOVE_BYTES);
    let mut before = 0_u32;
    for own in moves {
        let payload = base + payloads_at[own.link] as u64;
        let source = payload + u64::from(own.rank) * u64::from(layout.chunk);
        bytes.extend_from_slice(&before.to_le_bytes());
        bytes.extend_from_slice(&own.first.to_le_bytes());
        bytes.extend_from_slice(&(source | u64::from(own.repeats)).to_le_bytes());
        before += own.count;
    }
    bytes
}

/// A version that the GPU is restoring. The value owns the loan, so no other code can touch the bytes meanwhile.
/// Dropping it waits; forgetting it leaks the loan, which is safe.
#[must_use = "dropping a restoring waits for it"]
#[derive(Debug)]
pub struct Restoring(Pending<WriteLoan, ResidentMemory, Expected>);

/// The sum that the restored bytes must have.
#[derive(Debug)]
struct Expected {
    version: u64,
    content: Sum,
}

/// Result of a restore, with the loan.
#[derive(Debug)]
pub struct Restored {
    /// The loan of the destination. The bytes are the checkpoint's if the result is `Ok`, and unspecified otherwise.
    pub out: WriteLoan,
    /// `Ok` if the bytes are the checkpoint's.
    pub result: Result<()>,
}

impl Restoring {
    /// Waits for the kernels, compares the sum with the difference's, and returns the loan.
    pub fn wait(self) -> Restored {
        let (out, result) = self.0.wait(|expected, report, _| expected.compare(report));
        Restored { out, result }
    }
}

impl Expected {
    fn compare(&self, report: &[u8]) -> Result<()> {
        let words = report.as_chunks::<8>().0;
        let sum = Sum {
            low: u64::from_le_bytes(words[0]),
            high: u64::from_le_bytes(words[1]),
        };
        if sum != self.content {
            let what = "what was restored is not what was checkpointed";
            return Err(Error::corrupt(self.version, what));
        }
        Ok(())
    }
}

//! Containers that nvCOMP encodes in device memory, and containers of LZ4 that it decodes there.
#![allow(
    unsafe_code,
    reason = "what nvCOMP's kernels reach is held until they are through"
)]

mod library;

use std::sync::Arc;

use tierflow_device::{Device, Memory, Place, ReadLoan, Stream, WriteLoan};

use super::memory::{Origin, OutputBuffer, aligned};
use crate::container::places;
use crate::element::Element;
use crate::error::{Error, Invalid, Result};
use crate::header::{ALIGNMENT, HEADER_BYTES, Header, TAIL_AT};
use crate::nvcomp::{BLOCK_BYTES, NvcompCodec};
use library::{Batch, ChunkSizes, Library, SUCCESS, Status, undecoded};

/// Granularity of allocated memory, in bytes.
const UNIT: usize = 1 << 20;

/// Words of a list entry: a chunk's address and bytes, its target's address and bytes, the bytes written, and a status.
const WORDS: usize = 6;

/// The user's nvCOMP, loaded for a device. Clones share it.
#[derive(Clone, Debug)]
pub struct Nvcomp {
    device: Device,
    library: Arc<Library>,
}

/// A coder that encodes and decodes with nvCOMP, one input at a time. The coder keeps its working memory: for encoding,
/// nvCOMP's and about as much as the longest input has.
#[derive(Debug)]
pub struct NvcompCoder {
    nvcomp: Nvcomp,
    /// Memory of compressed chunks before they are assembled to a container.
    chunks: Option<Memory>,
    temporary: Option<Memory>,
    /// Pinned memory of the chunk lists, which the kernels read and write across the bus.
    lists: Option<Memory>,
}

/// A chunk to compress or decompress on its own, as addresses.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    from: u64,
    from_bytes: usize,
    to: u64,
    room: usize,
}

#[derive(Clone, Copy, Debug)]
enum Task {
    Compress(NvcompCodec, Element),
    Decompress,
}

impl Nvcomp {
    /// Loads the user's nvCOMP, 5 or 6, which the system's loader finds by its name.
    ///
    /// # Errors
    ///
    /// [`Error::NoNvcomp`] if the library cannot be loaded; [`Invalid::NotOnGpu`] if the device is no GPU.
    pub fn load(device: &Device) -> Result<Self> {
        device.as_cuda().ok_or(Invalid::NotOnGpu)?;
        Ok(Self {
            device: device.clone(),
            library: Arc::new(Library::load()?),
        })
    }
}

impl NvcompCoder {
    /// Makes a coder without working memory.
    pub fn new(nvcomp: &Nvcomp) -> Self {
        Self {
            nvcomp: nvcomp.clone(),
            chunks: None,
            temporary: None,
            lists: None,
        }
    }

    /// Encodes `data`, in device memory that starts at a multiple of 16 bytes, to `out`, in device memory, after the
    /// stream's work so far. Waits, and returns the container's header.
    ///
    /// # Errors
    ///
    /// [`Error::Full`] if the container does not fit, which cannot happen with [`NvcompCodec::max_encoded_len`] bytes;
    /// [`Error::Nvcomp`] if nvCOMP refuses; [`Invalid::Memory`] if the memory is not suitable;
    /// [`tierflow_device::Error`], also if working memory is not available. After an error `out` is unspecified.
    pub fn encode(
        &mut self,
        stream: &Stream,
        (codec, element): (NvcompCodec, Element),
        data: ReadLoan,
        out: OutputBuffer,
    ) -> Result<Header> {
        let out = out.0;
        self.check(stream, data.device(), data.place(), data.address())?;
        self.check(stream, out.device(), out.place(), out.address())?;
        let mut header = codec.header(data.len() as u64, element);
        let most = codec.max_encoded_len(header.raw_bytes, element)?;
        let full = Error::Full {
            given: out.len() as u64,
            most,
        };
        let values_bytes = data.len() - header.tail_bytes();
        let (mut values, last) = data.split_at(values_bytes);
        let mut tail = vec![0; last.len()];
        if !tail.is_empty() {
            stream.read(&last, &mut tail)?;
        }

        let lengths: Vec<usize> = block_lengths(values_bytes).collect();
        let library = &self.nvcomp.library;
        let room = library.max_chunk(codec, element, BLOCK_BYTES)?;
        let room = room.next_multiple_of(ALIGNMENT);
        let device = &self.nvcomp.device;
        let allocate = |bytes| device.alloc(bytes);
        let memory = at_least(&mut self.chunks, room * lengths.len(), allocate)?;
        let all = memory.lend_mut(0..room * lengths.len())?;
        let chunk = |(n, &from_bytes): (usize, &usize)| Chunk {
            from: values.address() + (n * BLOCK_BYTES) as u64,
            from_bytes,
            to: all.address() + (n * room) as u64,
            room,
        };
        let chunks: Vec<Chunk> = lengths.iter().enumerate().map(chunk).collect();
        // SAFETY: `values` and `all` are held. Each chunk has its own block of `values`, of whole values, and its own
        // range of `all`.
        let compressed = unsafe { self.run(stream, Task::Compress(codec, element), &chunks) }?;
        let what = "compress a block";
        let compressed = compressed.map_err(|status| Error::Nvcomp { what, status })?;
        drop(all);

        let mut front = vec![0; header.payload_at() as usize];
        let mut end = front.len();
        for (entry, (stored, raw)) in front[HEADER_BYTES..]
            .chunks_exact_mut(4)
            .zip(compressed.iter().zip(&lengths))
        {
            // A block that does not shrink is stored unencoded.
            let stored = stored.min(raw);
            entry.copy_from_slice(&(*stored as u32).to_le_bytes());
            end += stored.next_multiple_of(ALIGNMENT);
        }
        header.stored_bytes = end as u64;
        front[..HEADER_BYTES].copy_from_slice(&header.to_bytes(&tail));
        if end > out.len() {
            return Err(full);
        }
        let (mut container, _) = out.split_at(end);
        // The bytes between blocks are zero.
        stream.fill(&mut container, 0)?;
        let (mut start, mut rest) = container.split_at(front.len());
        stream.write(&front, &mut start)?;
        let mut copies = Vec::with_capacity(lengths.len());
        for (n, (&stored, &raw)) in compressed.iter().zip(&lengths).enumerate() {
            let (block, others) = values.split_at(raw);
            values = others;
            let from = match stored < raw {
                true => memory.lend(n * room..n * room + stored)?,
                false => block,
            };
            let bytes = from.len();
            let (to, others) = rest.split_at(bytes.next_multiple_of(ALIGNMENT));
            rest = others;
            copies.push((from, to.split_at(bytes).0));
        }
        stream.copy_all(copies)?;
        Ok(header)
    }

    /// Decodes the LZ4 container of `header`, in device memory, to `out`, after the stream's work so far. `out` is device
    /// memory as long as the container's input, which starts at a multiple of 16 bytes. Waits.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if the bytes are damaged; [`Error::Nvcomp`] if nvCOMP refuses, which says nothing about the bytes;
    /// [`Invalid::Length`] if `out` has another length; [`Invalid::Memory`] if the memory is not suitable;
    /// [`Invalid::OtherCodec`] if the device does not decode the container's codec; [`tierflow_device::Error`], also if
    /// working memory is not available. After an error `out` is unspecified.
    pub fn decode(
        &mut self,
        stream: &Stream,
        header: &Header,
        container: Origin,
        out: WriteLoan,
    ) -> Result<()> {
        header.check()?;
        let container = container.0;
        let address = container.address();
        self.check(stream, container.device(), container.place(), address)?;
        self.check(stream, out.device(), out.place(), out.address())?;
        if header.codec != NvcompCodec::Lz4.id() {
            return Err(Invalid::OtherCodec {
                written: header.codec.name(),
                asked: NvcompCodec::Lz4.id().name(),
            }
            .into());
        }
        if out.len() as u64 != header.raw_bytes {
            return Err(Invalid::Length {
                given: out.len() as u64,
                expected: header.raw_bytes,
            }
            .into());
        }
        if (container.len() as u64) < header.stored_bytes {
            return Err(Error::corrupt("it is shorter than its header says"));
        }
        let (start, mut rest) = container.split_at(header.payload_at() as usize);
        let mut front = vec![0; start.len()];
        stream.read(&start, &mut front)?;
        let places = places(header, &front)?;

        let (mut values, mut last) =
            out.split_at((header.raw_bytes as usize) - header.tail_bytes());
        if !last.is_empty() {
            stream.write(&front[TAIL_AT..TAIL_AT + last.len()], &mut last)?;
        }
        let (mut copies, mut encoded) = (Vec::new(), Vec::new());
        for (place, raw) in places.iter().zip(block_lengths(values.len())) {
            let (block, others) = rest.split_at(place.len().next_multiple_of(ALIGNMENT));
            rest = others;
            let block = block.split_at(place.len()).0;
            let (to, others) = values.split_at(raw);
            values = others;
            match block.len() == raw {
                true => copies.push((block, to)),
                false => encoded.push((block, to)),
            }
        }
        stream.copy_all(copies)?;
        let chunk = |(from, to): &(ReadLoan, WriteLoan)| Chunk {
            from: from.address(),
            from_bytes: from.len(),
            to: to.address(),
            room: to.len(),
        };
        let chunks: Vec<Chunk> = encoded.iter().map(chunk).collect();
        // SAFETY: `encoded` holds the loans of all chunks.
        let decoded = unsafe { self.run(stream, Task::Decompress, &chunks) }?;
        let decoded = decoded.map_err(undecoded)?;
        let whole = chunks.iter().map(|chunk| chunk.room);
        match whole.eq(decoded) {
            true => Ok(()),
            false => Err(Error::corrupt("its blocks are not what was written")),
        }
    }

    /// Checks that stream and memory are of this device, and that the kernels can use the memory.
    fn check(&self, stream: &Stream, device: &Device, place: Place, address: u64) -> Result<()> {
        let own = &self.nvcomp.device;
        if !own.is_same(stream.device()) || !own.is_same(device) || place != Place::Device {
            let what = "the input, the container and the stream must be on the device that nvCOMP was loaded for";
            return Err(Invalid::Memory { what }.into());
        }
        aligned(address)
    }

    /// Compresses or decompresses chunks, and waits. Returns the bytes of each result, or the status of a chunk that
    /// failed.
    ///
    /// # Safety
    /// For each chunk, the caller holds a loan for reading of its `from_bytes`, and one for writing of its `room`, on the
    /// device, aligned to 16. When compressing, the former is a block of whole values, and the latter has
    /// [`Library::max_chunk`] bytes.
    unsafe fn run(
        &mut self,
        stream: &Stream,
        task: Task,
        chunks: &[Chunk],
    ) -> Result<Result<Vec<usize>, Status>> {
        let cuda = self.nvcomp.device.as_cuda().ok_or(Invalid::NotOnGpu)?;
        let handle = stream.cuda_handle().ok_or(Invalid::NotOnGpu)?;
        if chunks.is_empty() {
            return Ok(Ok(Vec::new()));
        }
        let (device, library) = (&self.nvcomp.device, &self.nvcomp.library);
        let count = chunks.len();
        let pinned = |bytes| Ok(device.alloc_pinned(bytes)?.0);
        let lists_bytes = 8 * WORDS * count;
        let lists = at_least(&mut self.lists, lists_bytes, pinned)?;
        let mut lists = lists.lend_mut(0..lists_bytes)?;
        let (words, _) = lists.bytes_mut()?.as_chunks_mut::<8>();
        for (n, chunk) in chunks.iter().enumerate() {
            let row = [
                chunk.from,
                chunk.from_bytes as u64,
                chunk.to,
                chunk.room as u64,
                0,
                u64::MAX,
            ];
            for (column, word) in row.into_iter().enumerate() {
                words[column * count + n] = word.to_le_bytes();
            }
        }
        let entered = cuda.enter()?;
        let sizes = ChunkSizes {
            chunks: count,
            longest: BLOCK_BYTES,
        };
        let temporary_bytes = match task {
            Task::Compress(codec, element) => {
                library.temporary_to_compress(codec, element, sizes, handle)
            }
            Task::Decompress => library.temporary_to_decompress(sizes, handle),
        }?;
        let temporary = at_least(&mut self.temporary, temporary_bytes, |bytes| {
            device.alloc(bytes)
        })?;
        let temporary = temporary.lend_mut(0..temporary.len())?;
        let column = |n: usize| lists.address() + (8 * n * count) as u64;
        let batch = Batch {
            chunks: count,
            from: column(0),
            from_bytes: column(1),
            to: column(2),
            room: column(3),
            came_to: column(4),
            statuses: column(5),
            temporary: temporary.address(),
            temporary_bytes: temporary.len(),
            stream: handle,
        };
        let launched = match task {
            // SAFETY: this function holds the lists and the temporary memory until the stream is synchronised; the
            // caller holds the chunks, and promises their lengths. The context is entered.
            Task::Compress(codec, element) => unsafe {
                library.compress(codec, element, BLOCK_BYTES, &batch)
            },
            // SAFETY: as above.
            Task::Decompress => unsafe { library.decompress(&batch) },
        };
        // Waits also after a failure: some work may have been enqueued.
        let done = stream.synchronize();
        drop((entered, temporary));
        launched?;
        done?;
        let (words, _) = lists.bytes()?.as_chunks::<8>();
        let statuses = words[5 * count..].as_flattened();
        let (statuses, _) = statuses.as_chunks::<4>();
        let failed = statuses[..count]
            .iter()
            .map(|status| Status::from_le_bytes(*status))
            .find(|status| *status != SUCCESS);
        if let Some(status) = failed {
            return Ok(Err(status));
        }
        let came_to = words[4 * count..5 * count].iter().zip(chunks);
        let came_to = came_to.map(|(word, chunk)| {
            let bytes = usize::try_from(u64::from_le_bytes(*word)).unwrap_or(usize::MAX);
            bytes.min(chunk.room)
        });
        Ok(Ok(came_to.collect()))
    }
}

/// Returns the lengths of the blocks of `bytes` bytes of values.
fn block_lengths(bytes: usize) -> impl Iterator<Item = usize> {
    let starts = (0..bytes).step_by(BLOCK_BYTES);
    starts.map(move |start| BLOCK_BYTES.min(bytes - start))
}

/// Returns memory of at least `bytes` bytes. Replaces the old memory if it is shorter.
fn at_least(
    memory: &mut Option<Memory>,
    bytes: usize,
    allocate: impl FnOnce(usize) -> tierflow_device::Result<Memory>,
) -> Result<Memory> {
    if let Some(memory) = memory.as_ref().filter(|memory| memory.len() >= bytes) {
        return Ok(memory.clone());
    }
    *memory = None;
    let allocated = allocate(bytes.max(1).next_multiple_of(UNIT))?;
    Ok(memory.insert(allocated).clone())
}

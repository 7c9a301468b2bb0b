//! libnvcomp's functions, by name and layout, as the headers of nvCOMP 5 and 6 declare them. NVIDIA's library is loaded
//! at first use and never unloaded: the CUDA runtime within it ends with the process.
#![allow(unsafe_code, reason = "functions of a library that is loaded")]

use std::error::Error as _;
use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::ptr;

use crate::element::Element;
use crate::error::{Error, Result};
use crate::nvcomp::NvcompCodec;

/// Options of a codec, passed by value. The structures of all codecs have 64 bytes; unused fields are zeros.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Options {
    words: [u32; 16],
}

/// `cudaStream_t`, which is the driver's handle.
type RuntimeStream = *mut c_void;

/// `nvcompStatus_t`.
pub(super) type Status = i32;

/// `nvcompSuccess`.
pub(super) const SUCCESS: Status = 0;

type MaxChunk = unsafe extern "C" fn(usize, Options, *mut usize) -> Status;

/// A function that returns the bytes of working memory for a number of chunks. The arguments include the length of the
/// longest chunk and the total length.
#[derive(Debug)]
enum Temporary {
    /// The function of nvCOMP 5.
    Five(unsafe extern "C" fn(usize, usize, Options, *mut usize, usize) -> Status),
    /// The function of nvCOMP 6.
    Six(unsafe extern "C" fn(usize, usize, Options, *mut usize, usize, RuntimeStream) -> Status),
}

type Compress = unsafe extern "C" fn(
    *const u64,
    *const u64,
    usize,
    usize,
    *mut c_void,
    usize,
    *const u64,
    *mut u64,
    Options,
    *mut Status,
    RuntimeStream,
) -> Status;

type Decompress = unsafe extern "C" fn(
    *const u64,
    *const u64,
    *const u64,
    *mut u64,
    usize,
    *mut c_void,
    usize,
    *const u64,
    Options,
    *mut Status,
    RuntimeStream,
) -> Status;

#[derive(Debug)]
struct Compressor {
    max_chunk: MaxChunk,
    temporary: Temporary,
    compress: Compress,
}

#[derive(Debug)]
struct Decompressor {
    temporary: Temporary,
    decompress: Decompress,
}

/// Chunks of a batch: their number, and the bytes of the longest.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChunkSizes {
    pub(super) chunks: usize,
    pub(super) longest: usize,
}

/// The loaded library.
#[derive(Debug)]
pub(super) struct Library {
    lz4: Compressor,
    zstd: Compressor,
    /// The decoder of LZ4. The decoder of Zstandard does not withstand damaged bytes.
    decompressor: Decompressor,
    _loaded: ManuallyDrop<libloading::Library>,
}

/// Chunks to compress or decompress, as addresses that the device reaches. A call is sound if, until the stream is
/// synchronised, the caller holds
/// - lists of `chunks` addresses at `from` and `to`, lists of as many lengths at `from_bytes` and `room`, and memory
///   for as many lengths and statuses at `came_to` and `statuses`;
/// - for each address of `from`, a loan for reading of its `from_bytes`, and for each address of `to`, a loan for writing of
///   its `room`, on the device, aligned to 16; when compressing, `room` is [`Library::max_chunk`];
/// - a loan for writing of `temporary_bytes` bytes at `temporary`, on the device, aligned to 16.
#[derive(Clone, Copy, Debug)]
pub(super) struct Batch {
    pub(super) chunks: usize,
    pub(super) from: u64,
    pub(super) from_bytes: u64,
    pub(super) to: u64,
    pub(super) room: u64,
    pub(super) came_to: u64,
    pub(super) statuses: u64,
    pub(super) temporary: u64,
    pub(super) temporary_bytes: usize,
    pub(super) stream: u64,
}

impl Library {
    pub(super) fn load() -> Result<Self> {
        // The loader's words are the error's source.
        let missing = |error: libloading::Error| Error::NoNvcomp {
            reason: error
                .source()
                .map_or_else(|| error.to_string(), ToString::to_string),
        };
        let load = |name: &str| {
            // SAFETY: loading NVIDIA's library runs its initialisers, which are sound to run at any time.
            unsafe { libloading::Library::new(name) }
        };
        let loaded = load("libnvcomp.so.6")
            .or_else(|error| load("libnvcomp.so.5").map_err(|_| error))
            .map_err(missing)?;
        let loaded = ManuallyDrop::new(loaded);
        macro_rules! function {
            ($name:expr) => {
                // SAFETY: the field or variable to which the function is assigned has the function's type in the headers.
                unsafe { loaded.get(concat!("nvcompBatched", $name)) }.map(|function| *function)
            };
        }
        macro_rules! temporary {
            ($name:expr) => {
                function!(concat!($name, "GetTempSize"))
                    .map(Temporary::Six)
                    .or_else(|_| function!(concat!($name, "GetTempSizeAsync")).map(Temporary::Five))
            };
        }
        macro_rules! compressor {
            ($codec:literal) => {
                Compressor {
                    max_chunk: function!(concat!($codec, "CompressGetMaxOutputChunkSize"))
                        .map_err(missing)?,
                    temporary: temporary!(concat!($codec, "Compress")).map_err(missing)?,
                    compress: function!(concat!($codec, "CompressAsync")).map_err(missing)?,
                }
            };
        }
        Ok(Self {
            lz4: compressor!("LZ4"),
            zstd: compressor!("Zstd"),
            decompressor: Decompressor {
                temporary: temporary!("LZ4Decompress").map_err(missing)?,
                decompress: function!("LZ4DecompressAsync").map_err(missing)?,
            },
            _loaded: loaded,
        })
    }

    fn compressor(&self, codec: NvcompCodec) -> &Compressor {
        match codec {
            NvcompCodec::Lz4 => &self.lz4,
            NvcompCodec::Zstd => &self.zstd,
        }
    }

    /// Returns the bytes of the longest chunk to which `bytes` bytes are compressed.
    pub(super) fn max_chunk(
        &self,
        codec: NvcompCodec,
        element: Element,
        bytes: usize,
    ) -> Result<usize> {
        let compressor = self.compressor(codec);
        let mut most = 0;
        // SAFETY: `most` is a valid place for the answer.
        let status =
            unsafe { (compressor.max_chunk)(bytes, to_compress(codec, element), &raw mut most) };
        checked("say how long a chunk gets", status)?;
        Ok(most)
    }

    /// Returns the bytes of working memory for compressing chunks of `sizes`.
    pub(super) fn temporary_to_compress(
        &self,
        codec: NvcompCodec,
        element: Element,
        sizes: ChunkSizes,
        stream: u64,
    ) -> Result<usize> {
        let temporary = &self.compressor(codec).temporary;
        temporary.bytes(sizes, to_compress(codec, element), stream)
    }

    /// Returns the bytes of working memory for decompressing chunks of LZ4 to `sizes`.
    pub(super) fn temporary_to_decompress(&self, sizes: ChunkSizes, stream: u64) -> Result<usize> {
        let temporary = &self.decompressor.temporary;
        temporary.bytes(sizes, to_decompress(), stream)
    }

    /// Compresses chunks of up to `longest` bytes.
    ///
    /// # Safety
    /// The conditions of [`Batch`] hold, chunks consist of whole values, and the device's primary context is current.
    pub(super) unsafe fn compress(
        &self,
        codec: NvcompCodec,
        element: Element,
        longest: usize,
        batch: &Batch,
    ) -> Result<()> {
        let compress = self.compressor(codec).compress;
        // SAFETY: the caller's promise; nvCOMP writes at most `max_chunk` bytes to a chunk.
        let status = unsafe {
            compress(
                pointer(batch.from),
                pointer(batch.from_bytes),
                longest,
                batch.chunks,
                pointer(batch.temporary),
                batch.temporary_bytes,
                pointer(batch.to),
                pointer(batch.came_to),
                to_compress(codec, element),
                pointer(batch.statuses),
                pointer(batch.stream),
            )
        };
        checked("compress", status)
    }

    /// Decompresses chunks of LZ4, which may be damaged.
    ///
    /// # Safety
    /// The conditions of [`Batch`] hold, and the device's primary context is current.
    pub(super) unsafe fn decompress(&self, batch: &Batch) -> Result<()> {
        let decompress = self.decompressor.decompress;
        // SAFETY: the caller's promise; the kernels keep to the lengths in `from_bytes` and `room`, and report bytes
        // that are no LZ4.
        let status = unsafe {
            decompress(
                pointer(batch.from),
                pointer(batch.from_bytes),
                pointer(batch.room),
                pointer(batch.came_to),
                batch.chunks,
                pointer(batch.temporary),
                batch.temporary_bytes,
                pointer(batch.to),
                to_decompress(),
                pointer(batch.statuses),
                pointer(batch.stream),
            )
        };
        checked("decompress", status)
    }
}

impl Temporary {
    fn bytes(
        &self,
        ChunkSizes { chunks, longest }: ChunkSizes,
        options: Options,
        stream: u64,
    ) -> Result<usize> {
        let mut bytes = 0;
        let total = chunks.saturating_mul(longest);
        let answer = &raw mut bytes;
        let status = match self {
            // SAFETY: `answer` is a valid place for the answer; nothing is enqueued.
            Self::Five(ask) => unsafe { ask(chunks, longest, options, answer, total) },
            // SAFETY: as above; the stream is the caller's.
            Self::Six(ask) => unsafe {
                ask(chunks, longest, options, answer, total, pointer(stream))
            },
        };
        checked("say what memory it works in", status)?;
        Ok(bytes)
    }
}

/// Returns the options of compression. LZ4 looks for matches of whole values, whose type is an `nvcompType_t` of unsigned
/// integers of up to 4 bytes.
fn to_compress(codec: NvcompCodec, element: Element) -> Options {
    let mut options = Options::default();
    if codec == NvcompCodec::Lz4 {
        options.words[0] = match element.bytes() {
            1 => 1,
            2 => 3,
            _ => 5,
        };
    }
    options
}

/// Returns the options of decompression by kernels (`NVCOMP_DECOMPRESS_BACKEND_CUDA`). The hardware's decoder does not
/// withstand damaged bytes.
fn to_decompress() -> Options {
    let mut options = Options::default();
    options.words[0] = 2;
    options
}

fn pointer<T>(address: u64) -> *mut T {
    ptr::with_exposed_provenance_mut(address as usize)
}

fn checked(what: &'static str, status: Status) -> Result<()> {
    match status {
        SUCCESS => Ok(()),
        status => Err(Error::Nvcomp { what, status }),
    }
}

/// Sorts the status of a block that was not decompressed. The block is damaged if the status blames its bytes: `CannotDecompress`,
/// `BadChecksum`, `OutputBufferTooSmall`, `WrongHeaderLength`, `WrongInputLength`.
pub(super) fn undecoded(status: Status) -> Error {
    match status {
        12 | 13 | 15 | 16 | 20 => Error::corrupt("a block is no LZ4 of its length"),
        status => Error::Nvcomp {
            what: "decompress a block",
            status,
        },
    }
}

// The layout of 64-bit Linux.
const _: () = assert!(size_of::<Options>() == 64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_damaged_only_if_the_status_blames_its_bytes() {
        for status in [12, 13, 15, 16, 20] {
            assert!(
                matches!(undecoded(status), Error::Corrupt { .. }),
                "{status}"
            );
        }
        // With these statuses, the library lacks something, failed, or did not process the block.
        for status in [10, 11, 14, 17, 18, 21, 1000, 10000, -1] {
            assert!(
                matches!(undecoded(status), Error::Nvcomp { .. }),
                "{status}"
            );
        }
    }
}

//! Encoding on the GPU, and the state of a lineage between checkpoints.

use std::sync::Arc;

use tierflow_device::{Event, Place, ReadLoan, Stream};

use super::encode::{Encoding, HeaderParts};
use super::flight::Flight;
use super::kernels::{KernelPass, Kernels};
use super::output_buffer::OutputBuffer;
use super::past::History;
use super::plan::Plan;
use super::state::Arena;
use crate::chain::Chain;
use crate::config::{Config, Method};
use crate::encode::{CheckpointId, LastCheckpoint, Rebuilt, admit};
use crate::error::{Error, Invalid, Result};
use crate::hash::{Hasher, Sum};
use crate::layout::Layout;
use crate::sample::Sample;

/// Number of blocks that write across the bus: enough to fill the bus, few enough to leave the rest of the device to the
/// application.
const BLOCKS_ACROSS_THE_BUS: u32 = 64;

/// A lineage of checkpoints, encoded on the GPU one after the other.
///
/// For checkpoints of n bytes in chunks of c bytes, a lineage allocates about 60 n / c bytes of device memory when it
/// is made, and 2.5 n more with [`Config::verify`].
#[derive(Debug)]
pub struct GpuLineage {
    kernels: Kernels,
    config: Config,
    seed: u64,
    plan: Plan,
    arena: Arc<Arena>,
    /// The stream that writes the headers of differences to device memory.
    side: Arc<Stream>,
    last: Option<LastCheckpoint>,
    next_ordinal: u32,
    /// An event behind the newest checkpoint's kernels.
    done: Option<Arc<Event>>,
    /// True if a launch failed, so that the arena's content is undefined.
    is_broken: bool,
}

impl GpuLineage {
    /// Makes a lineage for checkpoints of `len` bytes.
    ///
    /// # Errors
    ///
    /// As for [`crate::Lineage::new`] and [`crate::Lineage::encode`]; [`tierflow_device::Error::OutOfMemory`] if the device has
    /// too little memory.
    pub fn new(kernels: &Kernels, config: Config, len: u64) -> Result<Self> {
        Self::with(kernels, config, len, None)
    }

    /// Makes a lineage that continues behind the newest difference of a chain of checkpoints of `len` bytes, as
    /// [`crate::Lineage::resume`] does. Hashes every stored byte once, on the CPU, and copies the record of hashes to the
    /// device.
    ///
    /// # Errors
    ///
    /// As for [`new`](Self::new) and [`crate::Lineage::resume`].
    pub fn resume<B: AsRef<[u8]> + Sync>(
        kernels: &Kernels,
        config: Config,
        len: u64,
        chain: &Chain<B>,
    ) -> Result<Self> {
        let past = Rebuilt::new(&config, chain)?;
        if let Some(expected) = chain.checkpoint_bytes().filter(|&bytes| bytes != len) {
            return Err(Invalid::Length { len, expected }.into());
        }
        let Some(rebuilt) = &past else {
            return Self::new(kernels, config, len);
        };
        let previous = if config.verify {
            chain.to_vec(rebuilt.last.version)?
        } else {
            Vec::new()
        };
        let past = History {
            rebuilt,
            previous: &previous,
            stored: &|place| chain.stored_chunk(place),
        };
        Self::with(kernels, config, len, Some(&past))
    }

    fn with(
        kernels: &Kernels,
        config: Config,
        len: u64,
        past: Option<&History<'_>>,
    ) -> Result<Self> {
        config.check()?;
        let seed = past.map_or_else(|| config.seed_or_random(), |past| past.rebuilt.seed);
        let config = config.seed(seed);
        let plan = Plan::new(&config, Layout::new(len, config.chunk)?);
        let device = kernels.device();
        let side = device.stream()?;
        let arena = Arena::new(device, &side, &plan, &Hasher::new(seed), past)?;
        Ok(Self {
            kernels: kernels.clone(),
            config,
            seed,
            plan,
            arena: Arc::new(arena),
            side: Arc::new(side),
            last: past.map(|past| past.rebuilt.last),
            next_ordinal: past.map_or(0, |past| past.rebuilt.last.ordinal + 1),
            done: None,
            is_broken: false,
        })
    }

    /// Returns the configuration, with the seed in use.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the bytes of an [`OutputBuffer`] for the longest difference.
    pub fn most_stored_bytes(&self) -> usize {
        crate::most_stored_bytes(self.plan.layout.len) as usize
    }

    /// Encodes the next checkpoint: `data`, in device memory that starts at a multiple of 16 bytes, to `out`, of at
    /// least [`most_stored_bytes`](Self::most_stored_bytes) bytes. Starts after the stream's work so far, and after the
    /// checkpoint before, even if that is on another stream. Returns when the work is enqueued.
    ///
    /// The [`Encoding`] reports errors, together with the loans.
    pub fn encode(
        &mut self,
        stream: &Stream,
        version: u64,
        data: ReadLoan,
        out: OutputBuffer,
    ) -> Encoding {
        let enqueued = self.enqueue(stream, version, &data, &out);
        Encoding::new(data, out, enqueued)
    }

    fn enqueue(
        &mut self,
        stream: &Stream,
        version: u64,
        data: &ReadLoan,
        out: &OutputBuffer,
    ) -> Result<(Flight<Arena>, HeaderParts)> {
        let layout = self.plan.layout;
        let ordinal = self.next_ordinal;
        admit(
            version,
            data.len() as u64,
            Some(layout.len),
            self.last,
            ordinal,
        )?;
        if self.is_broken {
            return Err(Error::Broken);
        }
        self.check_memory(stream, data, out)?;
        let report = self.kernels.report()?;
        if let Some(done) = &self.done {
            stream.wait(done)?;
        }
        let pass = KernelPass {
            state: self.arena.state(),
            data: data.address(),
            out: out.address(),
            report: report.address(),
            ordinal,
            is_first: self.last.is_none(),
            chunk: layout.chunk,
            chunks: layout.count,
            words: self.plan.words(),
            slots: self.plan.slots(),
            sample: Sample::new(layout.count, self.seed, ordinal),
            gather_blocks: if out.is_on_device() {
                u32::MAX
            } else {
                BLOCKS_ACROSS_THE_BUS
            },
        };
        let launched = self.launch(stream, &pass);
        let done = launched.and_then(|()| Ok(Arc::new(stream.record()?)));
        let done = match done {
            Ok(done) => done,
            Err(error) => {
                // Launched kernels use the loans until they end.
                let _ = stream.synchronize();
                self.is_broken = true;
                return Err(error);
            }
        };
        self.done = Some(Arc::clone(&done));
        let parent = self.last;
        // The host never knows the content: the kernels keep and report it.
        let content = Sum::default();
        self.last = Some(LastCheckpoint {
            version,
            ordinal,
            content,
        });
        self.next_ordinal = ordinal + 1;
        let flight = Flight {
            done,
            report,
            _used: Arc::clone(&self.arena),
        };
        let difference = HeaderParts {
            side: Arc::clone(&self.side),
            layout,
            id: CheckpointId { version, ordinal },
            seed: self.seed,
            parent,
        };
        Ok((flight, difference))
    }

    #[allow(
        unsafe_code,
        reason = "what the kernels reach is held here, for as long as they may reach it"
    )]
    fn launch(&self, stream: &Stream, pass: &KernelPass) -> Result<()> {
        type Wrapper = unsafe fn(&Kernels, &Stream, &KernelPass) -> Result<()>;
        let mut steps: Vec<Wrapper> = Vec::with_capacity(13);
        if self.config.method == Method::Auto && !pass.is_first {
            steps.push(Kernels::sample);
        }
        steps.push(Kernels::leaves);
        let looks_up = matches!(
            self.config.method,
            Method::List | Method::Tree | Method::Auto
        );
        let verifies = self.config.verify;
        if looks_up {
            steps.push(Kernels::find);
        }
        if verifies {
            steps.push(Kernels::verify);
        }
        if looks_up {
            steps.push(Kernels::forget);
            steps.push(Kernels::sweep);
            steps.push(Kernels::enter);
            if verifies {
                steps.push(Kernels::verify_own);
            }
        }
        if self.config.method != Method::Full {
            steps.push(Kernels::resolve);
            steps.push(Kernels::heads);
            steps.push(Kernels::emit);
        }
        steps.push(Kernels::gather);
        if verifies {
            steps.push(Kernels::keep);
        }
        for step in steps {
            // SAFETY: the arena is this lineage's, and `check_memory` checked the loans of `data` and `out`. If all launches
            // succeed, the `Encoding` holds these loans and the report's until it has waited for the event behind the
            // launches. Otherwise `enqueue` holds them until the stream is synchronised.
            unsafe { step(&self.kernels, stream, pass) }?;
        }
        Ok(())
    }

    fn check_memory(&self, stream: &Stream, data: &ReadLoan, out: &OutputBuffer) -> Result<()> {
        let device = self.kernels.device();
        let here = |other: &tierflow_device::Device| device.is_same(other);
        if !here(stream.device()) || !here(data.device()) || data.place() != Place::Device {
            let what = "the checkpoint and the stream must be on the device of the kernels";
            return Err(Invalid::Memory { what }.into());
        }
        if out.is_on_device() && !here(out.head.device()) {
            let what = "the memory for a difference is on another device";
            return Err(Invalid::Memory { what }.into());
        }
        if !data.address().is_multiple_of(16) {
            let what = "a checkpoint must start at a multiple of 16 bytes";
            return Err(Invalid::Memory { what }.into());
        }
        let (given, needed) = (out.range().len(), self.most_stored_bytes());
        if given < needed {
            let (given, needed) = (given as u64, needed as u64);
            return Err(Invalid::TooSmall { given, needed }.into());
        }
        Ok(())
    }
}

//! The table of options: the fields of [`Options`], the functions that set them, and their descriptions.

use std::any::Any;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tierflow_device::Choice;
use tierflow_engine::{AfterRestore, Compression, DirectIo, Flush, PartError};
use tierflow_redundancy::{Error, Redundancy};
use tierflow_tier_alloc::DeviceGrowth;

use super::peers::parse as gpus;
use super::value::{self, Value};
use super::{Growth, POLICIES, Pool, Ranks};

/// The kind of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bytes: a number, or a text such as `512MiB`.
    Bytes,
    /// A whole number.
    Number,
    /// Seconds.
    Seconds,
    /// `true` or `false`.
    Flag,
    /// A directory, or a program.
    Path,
    /// A directory, or several directories.
    Paths,
    /// A text: these names, or such as these.
    Name(&'static str),
}

/// An option.
#[derive(Clone, Copy, Debug)]
pub struct OptionInfo {
    /// The option's name at every door.
    pub key: &'static str,
    /// The kind of the option's value.
    pub kind: Kind,
    /// The description of the option.
    pub help: &'static str,
    /// The Rust functions that set the option.
    pub rust: &'static str,
    /// Other ways to set the option in Python and C, and in the doors above them.
    pub also: &'static str,
    /// The key of VELOC's configuration that sets the option. A text behind a dash says why there is none.
    pub veloc: &'static str,
    /// Sets the option to a value.
    pub(super) set: fn(&mut Options, &Value<'_>) -> Result<(), String>,
}

/// A row: the option's name; the type of the field of [`Options`], if a field has the same name; the code that sets the option; then the
/// other fields of [`OptionInfo`].
macro_rules! options {
    ($($key:ident $(($field:ty))? |$options:ident, $value:ident| $set:expr; $kind:expr, $help:literal, rust $rust:literal
        $(, also $also:literal)? $(, veloc $veloc:literal)?;)*) => {
        /// The options of an engine that is not built yet.
        #[derive(Clone, Debug, Default)]
        #[non_exhaustive]
        pub struct Options {
            $($(#[doc = $help] pub $key: $field,)?)*
            /// Host memory that the engine shares with others.
            pub host_pool: Option<Pool>,
            /// The ranks that checkpoint together.
            pub ranks: Ranks,
            /// A value that must outlive the engine.
            pub beside: Option<Arc<dyn Any + Send + Sync>>,
        }

        /// Every option. Python's keywords of `Engine` and the keys of `tf_options_set` are these.
        pub const OPTIONS: &[OptionInfo] = &[$(OptionInfo {
            key: stringify!($key),
            kind: $kind,
            help: $help,
            rust: $rust,
            also: concat!("" $(, $also)?),
            veloc: [$($veloc,)? stringify!($key)][0],
            set: |$options, $value| {
                $set;
                Ok(())
            },
        }),*];
    };
}

options! {
    device(Choice) |o, v| o.device = value::device(v.text()?)?;
        Kind::Name("auto, host, cuda, cuda:1"), "where the fastest memory is; `auto` is the first GPU if there is one",
        rust "Engine::builder", also "Python: a number is that of a GPU";
    device_cache(usize) |o, v| o.device_cache = v.size()?;
        Kind::Bytes, "GPU memory to keep checkpoints in", rust "EngineBuilder::device_cache Tier::device";
    device_growth(DeviceGrowth) |o, v| o.device_growth = v.one_of(&[
            ("incremental", DeviceGrowth::default()), ("direct", DeviceGrowth::DirectAlloc)
        ])?;
        Kind::Name("incremental, direct"), "whether GPU memory is mapped in the background or in one call at the start",
        rust "MemoryCache::growth";
    evict_while_growing(bool) |o, v| o.evict_while_growing = v.flag()?;
        Kind::Flag, "whether versions give way in a GPU cache that still grows", rust "MemoryCache::evict_while_growing";
    peers(Vec<(Choice, usize)>) |o, v| o.peers = gpus(v.text()?)?;
        Kind::Name("cuda:1=8GiB, cuda:2=8GiB"), "memory of other GPUs as a tier below the GPU cache", rust "Tier::peers";
    overflow(Vec<(Choice, usize)>) |o, v| o.overflow = gpus(v.text()?)?;
        Kind::Name("cuda:0=4GiB, cuda:3=2GiB"), "the bytes by which each GPU's part of a group checkpoint is larger than its GPU cache: \
        of the memory in `peers`, the engine then takes what min-time max-flow sends there, and the host cache has the rest; the same \
        at all engines of the group", rust "Tier::peers", also "Rust: `GroupOverflow` of `tierflow-peers`";
    machine(Option<PathBuf>) |o, v| o.machine = Some(v.path()?);
        Kind::Path, "the file of the links' rates for that schedule; they are measured where it is missing, which one engine is to do \
        before the others open", rust "Tier::peers", also "Rust: `Machine` of `tierflow-peers`";
    host_cache(usize) |o, v| o.host_cache = v.size()?;
        Kind::Bytes, "host memory to keep checkpoints in", rust "EngineBuilder::host_cache Tier::host";
    host_growth(Option<Growth>) |o, v| o.host_growth = v.one_of(&[("needed", None), ("full", Some(Growth::Full))])?;
        Kind::Name("needed, full"), "whether host memory is made ready ahead of its use or all of it at once", rust "MemoryCache::growth";
    host_lead |o, v| o.host_growth = Some(Growth::Ahead(v.size()?));
        Kind::Bytes, "how far ahead of its use host memory is pinned", rust "MemoryCache::growth";
    host_pool |o, v| o.pool_of_node().bytes = v.bytes()?;
        Kind::Bytes, "host memory that all engines of this user on this machine share which name the same; takes the place of \
        `host_cache`", rust "MemoryCache::pool", also "of one process: Python's `HostPool`, C's `tf_host_pool`";
    host_pool_slab |o, v| o.pool_of_node().slab = Some(v.bytes()?);
        Kind::Bytes, "what engines of the pool give each other at a time", rust "MemoryCache::pool";
    host_pool_directory |o, v| o.pool_of_node().directory = Some(v.path()?);
        Kind::Path, "where the pool of the machine lies", rust "MemoryCache::pool";
    scratch(Option<Vec<PathBuf>>) |o, v| o.scratch = Some(v.paths()?);
        Kind::Paths, "directory of a file that is deleted with the engine; of several, on file systems of their own, each write \
        goes to the one that is predicted to have it first",
        rust "EngineBuilder::scratch Tier::scratch Tier::scratch_over", also "Python: a list; C: colons between them",
        veloc "— its versions outlive the process: its `scratch` is `node_local`";
    storage_limit(Option<u64>) |o, v| o.storage_limit = Some(v.bytes()?);
        Kind::Bytes, "bytes of that file, or of all of them", rust "Tier::limit", veloc "— there is no such file";
    scratch_checksums(Option<bool>) |o, v| o.scratch_checksums = Some(v.flag()?);
        Kind::Flag, "whether what is read from that file is compared with checksums, which it is unless this is `false`",
        rust "Tier::checksums", veloc "— there is no such file";
    direct_io(Option<DirectIo>) |o, v| o.direct_io = Some(v.one_of(&[
            ("never", DirectIo::Never), ("measured", DirectIo::Measured), ("always", DirectIo::Always)
        ])?);
        Kind::Name("never, measured, always"), "whether GPU memory and that file are copied by cuFile", rust "EngineBuilder::direct_io";
    node_local(Option<PathBuf>) |o, v| o.node_local = Some(v.path()?);
        Kind::Path, "directory of this node in which versions outlive the process",
        rust "EngineBuilder::node_local Tier::node_local", veloc "scratch";
    node_local_limit(Option<u64>) |o, v| o.node_local_limit = Some(v.bytes()?);
        Kind::Bytes, "bytes of it; what also lies on external storage gives way", rust "Tier::limit", veloc "scratch_limit";
    external(Option<PathBuf>) |o, v| o.external = Some(v.path()?);
        Kind::Path, "directory, such as of a parallel file system, in which versions outlive the node; or an object store: \
        `s3://bucket/prefix`, `gs://…`, `az://…`, by the credentials and addresses of the environment",
        rust "EngineBuilder::external Tier::external", veloc "persistent";
    agent(Option<PathBuf>) |o, v| o.agent = Some(v.path()?);
        Kind::Path, "directory in which an agent runs, `tierflow-agent DIRECTORY`: it brings what lies in `node_local` to the \
        directory `external`, also after this process is gone; where none answers, this process does it", rust "Tier::vault";
    agent_program(Option<PathBuf>) |o, v| o.agent_program = Some(v.path()?);
        Kind::Path, "the program `tierflow-agent`, to be started where no agent answers", rust "Tier::vault";
    keep_newest(Option<usize>) |o, v| o.keep_newest = Some(v.number()?);
        Kind::Number, "versions to keep there",
        rust "EngineBuilder::retention", also "Python: `retention`, a number or a `Retention`", veloc "max_versions";
    keep_every(Option<u64>) |o, v| o.keep_every = Some(v.number()?);
        Kind::Number, "every so many-th version is kept, too", rust "EngineBuilder::retention", also "Python: `retention`",
        veloc "— a version of VELOC's is several of the engine's: the client counts them by name";
    keep_younger_than(Option<Duration>) |o, v| o.keep_younger_than = Some(v.duration()?);
        Kind::Seconds, "versions that young are kept, too",
        rust "EngineBuilder::retention", also "Python: `retention`", veloc "— as `keep_every`";
    after_restore(Option<AfterRestore>) |o, v| o.after_restore = Some(v.one_of(&[
            ("keep", AfterRestore::Keep), ("discard", AfterRestore::Discard)
        ])?);
        Kind::Name("keep, discard"), "what becomes of a version that was restored",
        rust "EngineBuilder::after_restore", veloc "— a version that was restored is kept";
    flush(Option<Flush>) |o, v| o.flush = Some(v.one_of(&[("eager", Flush::Eager), ("needed", Flush::Needed)])?);
        Kind::Name("needed, eager"), "whether versions go down when room is needed or at once", rust "EngineBuilder::flush";
    durable_in_order(Option<bool>) |o, v| o.durable_in_order = Some(v.flag()?);
        Kind::Flag, "whether versions become durable in the order of their numbers",
        rust "EngineBuilder::durable_in_order", veloc "— always: a head follows its parts";
    policy(Option<&'static str>) |o, v| o.policy = Some(v.one_of(&POLICIES.map(|name| (name, name)))?);
        Kind::Name("residency, score, lru, fifo"), "the order in which versions are taken to be used: what is used last gives way \
        first", rust "EngineBuilder::policy";
    dedup(Option<u32>) |o, v| o.dedup = Some(v.number()?);
        Kind::Number, "bytes of a chunk: what leaves the fastest tier is stored as differences", rust "EngineBuilder::dedup";
    dedup_reads(Option<u32>) |o, v| o.dedup_reads = Some(v.number()?);
        Kind::Number, "checkpoints whose bytes a restore reads of differences, at most: 2, or more to store less",
        rust "Differences::restore_reads";
    compress(Option<Compression>) |o, v| o.compress = Some(v.text()?.parse().map_err(|bad: PartError| bad.to_string())?);
        Kind::Name("f32"), "type of the values: what leaves the fastest tier is compressed, losslessly but for named regions that \
        follow with a share of their largest value: `f32, wave = 1e-3`. `f32, storage` compresses what goes to scratch and below, `f32, \
        external` what goes to node_local and external. With `nvcomp-lz4` or `nvcomp-zstd` the GPU does it by nvCOMP",
        rust "EngineBuilder::compress";
    timeline(usize) |o, v| o.timeline = v.number()?;
        Kind::Number, "entries of the time line", rust "EngineBuilder::timeline";
    statistics(Option<PathBuf>) |o, v| o.statistics = Some(v.path()?);
        Kind::Path, "file that has the statistics of the engine as JSON once it ends: `%r` in it stands for the rank, `%h` for the host, \
        `%p` for the process", rust "Metrics::json";
    rank |o, v| o.ranks.rank = v.number()?;
        Kind::Number, "whose pieces of versions these are",
        rust "EngineBuilder::group Group::new", also "given by a group", veloc "— of `VELOC_Init`";
    ranks |o, v| o.ranks.ranks = v.number()?;
        Kind::Number, "how many ranks checkpoint together", rust "Group::new", also "given by a group", veloc "— of `VELOC_Init`";
    run |o, v| o.ranks.run = v.number()?;
        Kind::Number, "the number of this run, another one after each restart",
        rust "Group::new", also "drawn by a group", veloc "— drawn by the ranks";
    group_patience(Option<Duration>) |o, v| o.group_patience = Some(v.duration()?);
        Kind::Seconds, "how long the ranks of a group wait for each other", rust "Group::patience", also "Python: given by a group";
    redundancy(Option<Redundancy>) |o, v| o.redundancy = match v.text()? {
            "none" => None, scheme => Some(scheme.parse().map_err(|bad: Error| bad.to_string())?), };
        Kind::Name("none, partner, xor:8, rs:8+2"), "what other ranks keep of node_local, so that it outlives nodes: copies in \
        pairs, one parity in sets of 8, 2 parities in sets of 10", rust "EngineBuilder::redundancy", also "Python: a `Redundancy`";
    refuse_losses(bool) |o, v| o.refuse_losses = v.flag()?;
        Kind::Flag, "whether no rank's engine is opened where more is lost than redundancy bears; else the newest version is \
        gone on from that is left", rust "Group::refuse_losses";
    failure_domain(Option<String>) |o, v| o.failure_domain = Some(v.text()?.to_owned());
        Kind::Name("rack-7"), "what this rank fails together with; the host",
        rust "NodeProtection::failure_domain", also "Python: of a `Redundancy`";
    exchange(Option<PathBuf>) |o, v| o.exchange = Some(v.path()?);
        Kind::Path, "directory that all nodes see, by which redundancy passes, if not by the group",
        rust "Redundancy::over", also "Python: of a `Redundancy`";
    closing_patience(Option<Duration>) |o, v| o.closing_patience = Some(v.duration()?);
        Kind::Seconds, "how long the end of the engine waits for storage once no bytes get there any more", rust "EngineBuilder::closing_patience";
}

//! The table of options.

/// The kind of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bytes: a number, or such as `512MiB`.
    Bytes,
    /// A whole number.
    Number,
    /// Seconds.
    Seconds,
    /// `true` or `false`.
    Flag,
    /// A directory, or a program.
    Path,
    /// A directory, or several.
    Paths,
    /// One of these names, or such as these.
    Name(&'static str),
}

/// An option.
#[derive(Clone, Copy, Debug)]
pub struct OptionInfo {
    /// Its name at every door.
    pub key: &'static str,
    /// The kind of its value.
    pub kind: Kind,
    /// The choice that it makes, in words.
    pub help: &'static str,
    /// The functions of Rust's that choose it.
    pub rust: &'static str,
    /// How Python, C and those above them take it, besides by its name.
    pub also: &'static str,
    /// The key of VELOC's configuration that chooses it. Behind a dash: why there is none.
    pub veloc: &'static str,
}

macro_rules! options {
    ($($key:ident: $kind:expr, $help:literal, rust $rust:literal
        $(, also $also:literal)? $(, veloc $veloc:literal)?;)*) => {
        /// Every option. Python's keywords of `Engine` and the keys of `tf_options_set` are these.
        pub const OPTIONS: &[OptionInfo] = &[$(OptionInfo {
            key: stringify!($key),
            kind: $kind,
            help: $help,
            rust: $rust,
            also: concat!("" $(, $also)?),
            veloc: veloc!($key $(, $veloc)?),
        }),*];
    };
}

macro_rules! veloc {
    ($key:ident) => {
        stringify!($key)
    };
    ($key:ident, $veloc:literal) => {
        $veloc
    };
}

options! {
    device: Kind::Name("auto, host, cuda, cuda:1"), "where the fastest memory is; `auto` is the first GPU if there is one",
        rust "Engine::builder", also "Python: a number is that of a GPU";
    device_cache: Kind::Bytes, "GPU memory to keep checkpoints in", rust "EngineBuilder::device_cache Tier::device";
    device_growth: Kind::Name("incremental, direct"), "whether GPU memory is mapped in the background or in one call at the start",
        rust "DeviceCache::growth";
    evict_while_growing: Kind::Flag, "whether versions give way in a GPU cache that still grows",
        rust "DeviceCache::evict_while_growing";
    peers: Kind::Name("cuda:1=8GiB, cuda:2=8GiB"), "memory of other GPUs as a tier below the GPU cache", rust "Tier::peers";
    host_cache: Kind::Bytes, "host memory to keep checkpoints in", rust "EngineBuilder::host_cache Tier::host";
    host_growth: Kind::Name("needed, full"), "whether host memory is made ready ahead of its use or all of it at once",
        rust "HostCache::growth";
    host_lead: Kind::Bytes, "how far ahead of its use host memory is pinned", rust "HostCache::growth";
    host_pool: Kind::Bytes, "host memory that all engines of this user on this machine share which name the same; takes the place of \
        `host_cache`",
        rust "HostCache::pool", also "of one process: Python's `HostPool`, C's `tf_host_pool`";
    host_pool_slab: Kind::Bytes, "what engines of the pool give each other at a time", rust "HostCache::pool";
    host_pool_directory: Kind::Path, "where the pool of the machine lies", rust "HostCache::pool";
    scratch: Kind::Paths, "directory of a file that is deleted with the engine; of several, on file systems of their own, each write \
        goes to the one that is predicted to have it first",
        rust "EngineBuilder::scratch Tier::scratch Tier::scratch_over", also "Python: a list; C: colons between them",
        veloc "— its versions outlive the process: its `scratch` is `node_local`";
    storage_limit: Kind::Bytes, "bytes of that file, or of all of them",
        rust "ScratchTier::limit", veloc "— there is no such file";
    scratch_checksums: Kind::Flag, "whether what is read from that file is compared with checksums, which it is unless this is `false`",
        rust "ScratchTier::checksums", veloc "— there is no such file";
    direct_io: Kind::Name("never, measured, always"), "whether GPU memory and that file are copied by cuFile",
        rust "EngineBuilder::direct_io";
    node_local: Kind::Path, "directory of this node in which versions outlive the process",
        rust "EngineBuilder::node_local Tier::node_local", veloc "scratch";
    node_local_limit: Kind::Bytes, "bytes of it; what also lies on external storage gives way",
        rust "NodeLocal::limit", veloc "scratch_limit";
    external: Kind::Path, "directory, such as of a parallel file system, in which versions outlive the node; or an object store: \
        `s3://bucket/prefix`, `gs://…`, `az://…`, by the credentials and addresses of the environment",
        rust "EngineBuilder::external Tier::external", veloc "persistent";
    agent: Kind::Path, "directory in which an agent runs, `tierflow-agent DIRECTORY`: it brings what lies in `node_local` to the \
        directory `external`, also after this process is gone; where none answers, this process does it",
        rust "Tier::vault";
    agent_program: Kind::Path, "the program `tierflow-agent`, to be started where no agent answers", rust "Tier::vault";
    keep_newest: Kind::Number, "versions to keep there",
        rust "EngineBuilder::retention", also "Python: `retention`, a number or a `Retention`", veloc "max_versions";
    keep_every: Kind::Number, "every so many-th version is kept, too",
        rust "EngineBuilder::retention", also "Python: `retention`",
        veloc "— a version of VELOC's is several of the engine's: the client counts them by name";
    keep_younger_than: Kind::Seconds, "versions that young are kept, too",
        rust "EngineBuilder::retention", also "Python: `retention`", veloc "— as `keep_every`";
    after_restore: Kind::Name("keep, discard"), "what becomes of a version that was restored",
        rust "EngineBuilder::after_restore", veloc "— a version that was restored is kept";
    flush: Kind::Name("needed, eager"), "whether versions go down when room is needed or at once", rust "EngineBuilder::flush";
    durable_in_order: Kind::Flag, "whether versions become durable in the order of their numbers",
        rust "EngineBuilder::durable_in_order", veloc "— always: a head follows its parts";
    policy: Kind::Name("residency, score, lru, fifo"), "the order in which versions are taken to be used: what is used last gives way \
        first",
        rust "EngineBuilder::policy";
    dedup: Kind::Number, "bytes of a chunk: what leaves the fastest tier is stored as differences", rust "EngineBuilder::dedup";
    dedup_reads: Kind::Number, "checkpoints whose bytes a restore reads of differences, at most: 2, or more to store less",
        rust "Differences::restore_reads";
    compress: Kind::Name("f32"), "type of the values: what leaves the fastest tier is compressed, losslessly but for named regions that \
        follow with a share of their largest value: `f32, wave = 1e-3`. `f32, storage` compresses what goes to scratch and below, `f32, \
        external` what goes to node_local and external. With `nvcomp-lz4` or `nvcomp-zstd` the GPU does it by nvCOMP",
        rust "EngineBuilder::compress";
    timeline: Kind::Number, "entries of the time line", rust "EngineBuilder::timeline";
    rank: Kind::Number, "whose pieces of versions these are",
        rust "EngineBuilder::group Group::new", also "given by a group", veloc "— of `VELOC_Init`";
    ranks: Kind::Number, "how many ranks checkpoint together",
        rust "Group::new", also "given by a group", veloc "— of `VELOC_Init`";
    run: Kind::Number, "the number of this run, another one after each restart",
        rust "Group::new", also "drawn by a group", veloc "— drawn by the ranks";
    group_patience: Kind::Seconds, "how long the ranks of a group wait for each other",
        rust "Group::patience", also "Python: given by a group";
    redundancy: Kind::Name("none, partner, xor:8, rs:8+2"), "what other ranks keep of node_local, so that it outlives nodes: copies in \
        pairs, one parity in sets of 8, 2 parities in sets of 10",
        rust "EngineBuilder::redundancy", also "Python: a `Redundancy`";
    refuse_losses: Kind::Flag, "whether no rank's engine is opened where more is lost than redundancy bears; else the newest version is \
        gone on from that is left",
        rust "Group::refuse_losses";
    failure_domain: Kind::Name("rack-7"), "what this rank fails together with; the host",
        rust "NodeProtection::failure_domain", also "Python: of a `Redundancy`";
    exchange: Kind::Path, "directory that all nodes see, by which redundancy passes, if not by the group",
        rust "Redundancy::over", also "Python: of a `Redundancy`";
    closing_patience: Kind::Seconds, "how long the end of the engine waits for storage", rust "EngineBuilder::closing_patience";
}

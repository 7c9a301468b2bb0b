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
    /// A directory.
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
    /// Where doors take it otherwise than by its name, and why.
    pub doors: Doors,
}

/// How the doors take an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doors {
    /// By its name.
    Alike,
    /// By its name, and in other ways.
    Also(&'static str),
}

const fn option(key: &'static str, kind: Kind, help: &'static str) -> OptionInfo {
    let doors = Doors::Alike;
    OptionInfo {
        key,
        kind,
        help,
        doors,
    }
}

impl OptionInfo {
    const fn also(self, how: &'static str) -> Self {
        Self {
            doors: Doors::Also(how),
            ..self
        }
    }
}

/// Every option. Python's keywords of `Engine` and the keys of `tf_options_set` are these.
pub const OPTIONS: &[OptionInfo] = &[
    option(
        "device",
        Kind::Name("auto, host, cuda, cuda:1"),
        "where the fastest memory is; `auto` is the first GPU if there is one",
    )
    .also("Python: a number is that of a GPU"),
    option("device_cache", Kind::Bytes, "GPU memory to keep checkpoints in"),
    option(
        "device_growth",
        Kind::Name("incremental, direct"),
        "whether GPU memory is mapped in the background or in one call at the start",
    ),
    option(
        "evict_while_growing",
        Kind::Flag,
        "whether versions give way in a GPU cache that still grows",
    ),
    option(
        "peers",
        Kind::Name("cuda:1=8GiB, cuda:2=8GiB"),
        "memory of other GPUs as a tier below the GPU cache",
    ),
    option("host_cache", Kind::Bytes, "host memory to keep checkpoints in"),
    option(
        "host_growth",
        Kind::Name("needed, full"),
        "whether host memory is made ready ahead of its use or all of it at once",
    ),
    option("host_lead", Kind::Bytes, "how far ahead of its use host memory is pinned"),
    option(
        "host_pool",
        Kind::Bytes,
        "host memory that all engines of this user on this machine share which name the same; takes the place of `host_cache`",
    )
    .also("Python: a `HostPool`, also of one process; C has no handle of one"),
    option("host_pool_slab", Kind::Bytes, "what engines of the pool give each other at a time"),
    option("host_pool_directory", Kind::Path, "where the pool of the machine lies"),
    option(
        "scratch",
        Kind::Paths,
        "directory of a file that is deleted with the engine; of several, on file systems of their own, each write goes to the one that \
         is predicted to have it first",
    )
    .also("Python: a list; C: colons between them"),
    option("storage_limit", Kind::Bytes, "bytes of that file, or of all of them"),
    option(
        "direct_io",
        Kind::Name("never, measured, always"),
        "whether GPU memory and that file are copied by cuFile",
    ),
    option("node_local", Kind::Path, "directory of this node in which versions outlive the process"),
    option(
        "node_local_limit",
        Kind::Bytes,
        "bytes of it; what also lies on external storage gives way",
    ),
    option(
        "external",
        Kind::Path,
        "directory, such as of a parallel file system, in which versions outlive the node; or an object store: `s3://bucket/prefix`, \
         `gs://…`, `az://…`, by the credentials and addresses of the environment",
    ),
    option("keep_newest", Kind::Number, "versions to keep there")
        .also("Python: `retention`, a number or a `Retention`"),
    option("keep_every", Kind::Number, "every so many-th version is kept, too")
        .also("Python: `retention`"),
    option("keep_younger_than", Kind::Seconds, "versions that young are kept, too")
        .also("Python: `retention`"),
    option(
        "after_restore",
        Kind::Name("keep, discard"),
        "what becomes of a version that was restored",
    ),
    option(
        "flush",
        Kind::Name("needed, eager"),
        "whether versions go down when room is needed or at once",
    ),
    option(
        "durable_in_order",
        Kind::Flag,
        "whether versions become durable in the order of their numbers",
    ),
    option(
        "policy",
        Kind::Name("residency, score, lru, fifo"),
        "the order in which versions are taken to be used: what is used last gives way first",
    ),
    option(
        "dedup",
        Kind::Number,
        "bytes of a chunk: what leaves the fastest tier is stored as differences",
    ),
    option(
        "dedup_reads",
        Kind::Number,
        "checkpoints whose bytes a restore reads of differences, at most: 2, or more to store less",
    ),
    option(
        "compress",
        Kind::Name("f32"),
        "type of the values: what leaves the fastest tier is compressed, losslessly but for named regions that follow with a share of their \
         largest value: `f32, wave = 1e-3`. `f32, storage` compresses what goes to scratch and below, `f32, external` what goes to \
         node_local and external. With `nvcomp-lz4` or `nvcomp-zstd` the GPU does it by nvCOMP",
    ),
    option("timeline", Kind::Number, "entries of the time line"),
    option("rank", Kind::Number, "whose pieces of versions these are").also("given by a group"),
    option("ranks", Kind::Number, "how many ranks checkpoint together").also("given by a group"),
    option("run", Kind::Number, "the number of this run, another one after each restart")
        .also("drawn by a group"),
    option("group_patience", Kind::Seconds, "how long the ranks of a group wait for each other")
        .also("Python: given by a group"),
    option(
        "redundancy",
        Kind::Name("none, partner, xor:8, rs:8+2"),
        "what other ranks keep of node_local, so that it outlives nodes: copies in pairs, one parity in sets of 8, 2 parities in sets of 10",
    )
    .also("Python: a `Redundancy`"),
    option(
        "refuse_losses",
        Kind::Flag,
        "whether no rank's engine is opened where more is lost than redundancy bears; else the newest version is gone on from that is left",
    ),
    option("failure_domain", Kind::Name("rack-7"), "what this rank fails together with; the host")
        .also("Python: of a `Redundancy`"),
    option(
        "exchange",
        Kind::Path,
        "directory that all nodes see, by which redundancy passes, if not by the group",
    )
    .also("Python: of a `Redundancy`"),
    option("closing_patience", Kind::Seconds, "how long the end of the engine waits for storage"),
];

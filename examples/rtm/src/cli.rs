//! The command line.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Parser, ValueEnum};
use tierflow_engine::NvcompCodec;

use crate::grid::Shape;
use crate::model_file;

/// Reverse time migration: images the subsurface by correlating the wavefield of a source, run
/// forward, with that of the receivers, run backward. The source's history is checkpointed through
/// Tierflow on the way forward and restored in reverse on the way back.
#[derive(Clone, Debug, Parser)]
#[command(name = "rtm")]
pub struct Args {
    /// Velocity model: raw little-endian float32 (km/s or m/s; x slowest, z fastest), or .npy.
    /// Without it, one with layers, a fault and a salt body is made.
    #[arg(long, value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// Cells of a raw model file, as NXxNZ or NXxNYxNZ.
    #[arg(long, value_name = "SHAPE", requires = "model", value_parser = parse_shape)]
    pub shape: Option<Shape>,
    /// Metres between the model's cells.
    #[arg(
        long,
        value_name = "METRES",
        default_value_t = 10.0,
        allow_negative_numbers = true
    )]
    pub spacing: f32,
    /// Use only every N-th cell of the model along each axis.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub decimate: usize,
    /// Make a 3-D model that fills a grid of this many cells, with the absorbing layer.
    #[arg(long = "3d", value_name = "NXxNYxNZ", conflicts_with_all = ["model", "decimate"], value_parser = parse_volume)]
    pub volume: Option<Shape>,

    /// Peak frequency of the source in Hz. By default, what the grid still carries cleanly.
    #[arg(long, value_name = "HZ")]
    pub frequency: Option<f32>,
    /// How much the model is smoothed before migration, in cells.
    #[arg(long, value_name = "CELLS", default_value_t = 10.0)]
    pub smooth: f32,
    /// Time steps of each pass. By default, enough to go down to the bottom and back.
    #[arg(long)]
    pub steps: Option<usize>,
    /// Time steps from one checkpoint to the next. By default, about 300 checkpoints a shot.
    #[arg(long, value_name = "K")]
    pub every: Option<usize>,
    /// Sources along the surface, whose images are stacked.
    #[arg(long, default_value_t = 8)]
    pub shots: usize,

    /// Device that computes: a GPU through CUDA, or this machine's processors and memory.
    #[arg(long, value_enum, default_value_t = DeviceChoice::Auto)]
    pub device: DeviceChoice,
    /// Checkpoint cache in device memory.
    #[arg(long, value_name = "BYTES", default_value = "16MiB", value_parser = parse_bytes)]
    pub device_cache: u64,
    /// Checkpoint cache in host memory.
    #[arg(long, value_name = "BYTES", default_value = "64MiB", value_parser = parse_bytes)]
    pub host_cache: u64,
    /// Existing directory on a local disk for checkpoints that the caches cannot hold. By default, a directory below
    /// --out.
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,
    /// At most so many bytes there; by default all that the file system has. Plans of --recompute need to know it.
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub scratch_limit: Option<u64>,

    /// Compress what leaves the fastest cache: `lossless`, losslessly by the installed nvCOMP as `nvcomp-lz4` or `nvcomp-zstd`, or
    /// to within so many times the largest value of each snapshot, as 1e-3.
    #[arg(long, value_name = "HOW")]
    pub compress: Option<Compress>,
    /// Compress so that the image and the illumination come within this share of those of exact snapshots, in the Euclidean norm.
    /// Each shot estimates its error by a sample of the cells, and is migrated once more if two standard deviations above the estimate are beyond.
    /// `--verify` prints the error in all cells.
    #[arg(long, value_name = "SHARE", conflicts_with_all = ["compress", "recompute"], value_parser = parse_share)]
    pub error_budget: Option<f64>,

    /// Invert: so many times, migrate all shots, then change the model along the image. Writes the misfits to misfit.json, as rows of
    /// a report, and the last model to model.png.
    #[arg(long, value_name = "ITERATIONS", conflicts_with_all = ["recompute", "verify"])]
    pub invert: Option<usize>,

    /// In which order the history is read back: `reverse` for the image; `sequential` or
    /// `random:SEED` compute the source illumination instead.
    #[arg(long, default_value = "reverse")]
    pub order: Order,
    /// Restores that the cache is told of ahead: all of a shot's, only the next one, or none.
    #[arg(long, value_enum, default_value_t = Hints::All)]
    pub hints: Hints,
    /// Wavefields of the source that are computed again instead of stored: those that a plan says (`auto`), none (`never`), or
    /// as many as device memory alone needs (`always`). The expected time of each shot, and the least possible one, are printed before it.
    #[arg(long, value_enum, value_name = "WHICH", conflicts_with_all = ["hints", "interval_ms"])]
    pub recompute: Option<Recompute>,
    /// At least this many milliseconds from one checkpoint to the next, and between restores.
    #[arg(long, value_name = "MS", default_value_t = 0)]
    pub interval_ms: u64,
    /// Keep every snapshot in memory too and prove that each one restored, and the image, are the
    /// same bit for bit.
    #[arg(long)]
    pub verify: bool,
    /// Time levels that a snapshot has: 2, from which a run could go on, or 1, which is all that the image needs.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=2))]
    pub levels: u8,
    /// Before that, migrate all shots with all snapshots in device memory as they are. Prints how many times as long the run took, and by
    /// how much its image differs.
    #[arg(long, conflicts_with_all = ["recompute", "invert"])]
    pub beside_memory: bool,
    /// Directory for the pictures.
    #[arg(long, value_name = "DIR", default_value = "target/rtm")]
    pub out: PathBuf,
}

impl Args {
    /// Names how snapshots are stored.
    pub fn named(&self) -> String {
        match (self.error_budget, self.compress) {
            (Some(share), _) => format!("budget {share:e}"),
            (None, Some(Compress::Within(share))) => format!("within {share:e}"),
            (None, Some(Compress::Lossless)) => "lossless".into(),
            (None, Some(Compress::Nvcomp(codec))) => codec.name().into(),
            (None, None) => "as it is".into(),
        }
    }
}

/// The device that computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DeviceChoice {
    /// A GPU where a driver and a GPU are found, else the host.
    Auto,
    /// A GPU, or an error.
    Cuda,
    /// The machine's processors and plain memory.
    Host,
}

/// The restores that the cache is told of ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Hints {
    /// All of a shot's, before its first checkpoint.
    All,
    /// During the backward pass, each time the next one.
    One,
    /// Nothing.
    None,
}

/// Wavefields of the source that are computed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Recompute {
    /// The wavefields of the plan that takes the least time.
    Auto,
    /// No wavefield: all are stored.
    Never,
    /// As many as it takes to store nothing below device memory: Revolve.
    Always,
}

impl Recompute {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Never => "never",
            Self::Always => "always",
        }
    }
}

/// How snapshots are compressed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Compress {
    /// Values come back unchanged.
    Lossless,
    /// So, too, by nvCOMP.
    Nvcomp(NvcompCodec),
    /// Each value comes back within so many times the largest one.
    Within(f64),
}

impl FromStr for Compress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut nvcomp = NvcompCodec::ALL.into_iter();
        if let Some(codec) = nvcomp.find(|codec| codec.name() == text) {
            return Ok(Self::Nvcomp(codec));
        }
        match text.parse::<f64>() {
            _ if text == "lossless" => Ok(Self::Lossless),
            Ok(bound) if bound > 0.0 && bound <= 1.0 => Ok(Self::Within(bound)),
            _ => Err(
                "give lossless, nvcomp-lz4, nvcomp-zstd, or a share of the largest value such as 1e-3"
                    .into(),
            ),
        }
    }
}

/// In which order the history is read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Last first: reverse time migration.
    Reverse,
    /// First first.
    Sequential,
    /// Shuffled, the same way for the same seed.
    Random(u64),
}

impl Order {
    /// The numbers 0 … `count` - 1 in this order.
    pub fn sequence(self, count: u64) -> Vec<u64> {
        let mut sequence: Vec<u64> = (0..count).collect();
        match self {
            Self::Sequential => {}
            Self::Reverse => sequence.reverse(),
            Self::Random(seed) => {
                // Fisher and Yates' shuffle, driven by SplitMix64.
                let mut state = seed;
                for i in (1..sequence.len()).rev() {
                    state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                    let mut z = state;
                    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                    z ^= z >> 31;
                    sequence.swap(i, (z % (i as u64 + 1)) as usize);
                }
            }
        }
        sequence
    }
}

impl FromStr for Order {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "reverse" => Ok(Self::Reverse),
            None if text == "sequential" => Ok(Self::Sequential),
            Some(("random", seed)) => seed
                .parse()
                .map(Self::Random)
                .map_err(|e| format!("the seed {seed:?}: {e}")),
            _ => Err("give reverse, sequential or random:SEED".into()),
        }
    }
}

fn parse_shape(text: &str) -> Result<Shape, String> {
    let axes: Vec<usize> = text
        .split(['x', 'X', '×'])
        .map(|axis| axis.trim().parse().map_err(|e| format!("{axis:?}: {e}")))
        .collect::<Result<_, _>>()?;
    model_file::from_axes(&axes).map_err(|e| e.to_string())
}

fn parse_share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if share > 0.0 && share <= 1.0 => Ok(share),
        _ => Err("give a share such as 1e-3".into()),
    }
}

fn parse_volume(text: &str) -> Result<Shape, String> {
    let shape = parse_shape(text)?;
    if shape[1] < 2 {
        Err("give three axes, as 256x256x256".into())
    } else {
        Ok(shape)
    }
}

/// "64MiB", "1.5 GB", "4096".
fn parse_bytes(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "kb" => 1e3,
        "mb" => 1e6,
        "gb" => 1e9,
        "tb" => 1e12,
        "k" | "kib" => 1024.0,
        "m" | "mib" => f64::from(1u32 << 20),
        "g" | "gib" => f64::from(1u32 << 30),
        "t" | "tib" => (1u64 << 40) as f64,
        other => {
            return Err(format!(
                "unknown unit {other:?}: give bytes, KiB, MiB, GiB or TiB"
            ));
        }
    };
    let bytes = number
        .parse::<f64>()
        .map_err(|e| format!("{number:?}: {e}"))?
        * unit;
    if bytes < (1u64 << 53) as f64 {
        Ok(bytes as u64)
    } else {
        Err("too many bytes".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Args::command().debug_assert();
    }

    #[test]
    fn sizes_of_all_units() {
        let cases = [
            ("64MiB", 64 << 20),
            ("1.5 GB", 1_500_000_000),
            ("4096", 4096),
            ("2g", 2 << 30),
        ];
        for (text, bytes) in cases {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for bad in ["", "x", "1 parsec", "-1", "1e99GB", "99999999999TiB"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn shapes_and_orders() {
        assert_eq!(parse_shape("1601x401"), Ok([1601, 1, 401]));
        assert_eq!(parse_volume("64x32x16"), Ok([64, 32, 16]));
        assert!(parse_shape("7").is_err() && parse_shape("ax2").is_err());
        assert!(parse_volume("64x32").is_err());
        assert_eq!("random:7".parse(), Ok(Order::Random(7)));
        assert!("random".parse::<Order>().is_err() && "random:x".parse::<Order>().is_err());
    }

    #[test]
    fn compression_is_lossless_or_within_a_share() {
        assert_eq!("lossless".parse(), Ok(Compress::Lossless));
        assert_eq!("1e-3".parse(), Ok(Compress::Within(1e-3)));
        let zstd = Compress::Nvcomp(NvcompCodec::Zstd);
        assert_eq!("nvcomp-zstd".parse(), Ok(zstd));
        for bad in ["", "loss", "0", "-1", "2", "nan"] {
            assert!(bad.parse::<Compress>().is_err(), "{bad}");
        }
    }

    #[test]
    fn every_order_reads_everything_once() {
        assert_eq!(Order::Reverse.sequence(3), [2, 1, 0]);
        let shuffled = Order::Random(1).sequence(100);
        assert_ne!(shuffled, Order::Random(2).sequence(100));
        assert_eq!(shuffled, Order::Random(1).sequence(100));
        let mut sorted = shuffled.clone();
        sorted.sort_unstable();
        assert!(sorted != shuffled && sorted == Order::Sequential.sequence(100));
        assert!(Order::Random(3).sequence(0).is_empty());
    }
}

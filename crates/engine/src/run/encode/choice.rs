//! The options of differences and of compression, and the choice of the tiers that hold compressed versions.

use crate::kind::Kind;
use crate::{BuildError, Error, PartError, Result, Version};
use std::collections::BTreeMap;
use std::str::FromStr;
use tierflow_codec::Bounded;
pub use tierflow_codec::{Bound, Element as Value, NvcompCodec};
use tierflow_dedup::{Config, Tree};
use tierflow_store::container::{Element, RegionInfo};

/// The options of differences for [`EngineBuilder::dedup`](crate::EngineBuilder::dedup), and the limit of their chains.
///
/// A version's difference builds upon earlier versions. A longer chain takes less room, but a restore reads more of it. A
/// [`Config`] or a [`Tree`] converts into the defaults.
///
/// ```
/// use tierflow_dedup::Tree;
/// use tierflow_engine::Differences;
/// let how = Differences::from(Tree { chunk: 128 }).restore_reads(4);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Differences {
    pub(crate) config: Config,
    pub(crate) restore_reads: u32,
}

impl Differences {
    /// Limits the bytes that a restore reads from a lower tier, in checkpoints. The default is 2. The least is 1: then every
    /// version is stored whole.
    ///
    /// If a restore would read more, the version is stored whole, or as a consolidated difference: with the places of all its
    /// chunks, and with the chunks of those differences that hold little else of the version. A version that changes much from its
    /// predecessor is stored whole in any case.
    ///
    /// Storage, GPUs and decompression read every byte of the differences that a version needs. If all lower tiers are host memory,
    /// a restore reads the bytes of one checkpoint from anywhere in the chain, and the differences' metadata.
    #[must_use]
    pub fn restore_reads(mut self, checkpoints: u32) -> Self {
        self.restore_reads = checkpoints.max(1);
        self
    }
}

impl From<Config> for Differences {
    fn from(config: Config) -> Self {
        Self {
            config,
            restore_reads: 2,
        }
    }
}

impl From<Tree> for Differences {
    fn from(tree: Tree) -> Self {
        Config::from(tree).into()
    }
}

/// The options of [`EngineBuilder::compress`](crate::EngineBuilder::compress).
///
/// Compression is lossless, except for the regions that [`within`](Self::within) names. Engines with
/// [`dedup`](crate::EngineBuilder::dedup) refuse such regions. Compression takes the bytes for values of one type: the type of the
/// region, if [`Region::array`](crate::Region::array) names one, else the type given here.
///
/// ```
/// # fn main() -> tierflow_engine::Result<()> {
/// use tierflow_engine::{Bound, Compression, Element, Engine, Region, RegionMut, Value};
/// let device = tierflow_device::open(tierflow_device::Choice::Host)?;
/// let engine = Engine::builder(&device)
///     .device_cache(1 << 20)
///     .host_cache(8 << 20)
///     // The wavefield may come back changed by a thousandth of its largest value; nothing else may.
///     .compress(Compression::lossless(Value::F32).within("wavefield", Bound::Relative(1e-3)))
///     .build()?;
/// let field: Vec<u8> = (0..65_536).flat_map(|n| (n as f32 / 30.0).sin().to_le_bytes()).collect();
/// let region = Region::from(field.as_slice()).array("wavefield", Element::F32, &[256, 256]);
/// engine.checkpoint(1, &[region])?;
/// # drop(engine); Ok(()) }
/// ```
///
/// Options can be written as text, for configurations: the type, the regions with bounds, `always`, `storage` or `external` for the
/// [tiers](CompressedTiers), and `nvcomp-lz4` or `nvcomp-zstd`.
///
/// ```
/// # use tierflow_engine::{CompressedTiers, Compression};
/// let how: Compression = "f32, wavefield = 1e-3, temperature = absolute 0.5".parse()?;
/// let external: Compression = "f32, external".parse()?;
/// assert_eq!(external, Compression::lossless(tierflow_engine::Value::F32).on(CompressedTiers::External));
/// # Ok::<(), tierflow_engine::PartError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Compression {
    value: Value,
    bounds: BTreeMap<String, Bound>,
    always: bool,
    tiers: CompressedTiers,
    nvcomp: Option<NvcompCodec>,
}

/// The tiers that hold compressed checkpoints. The fastest tier holds checkpoints as they are, and so do all tiers above the chosen
/// ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum CompressedTiers {
    /// All tiers below the fastest: for links from the device that are slower than compression, or to keep more versions in host
    /// memory.
    #[default]
    BelowFastest,
    /// Scratch storage and all tiers below it. Memory of the device, of peers and of the host holds checkpoints as they are, so
    /// that reading them needs no decompression.
    Storage,
    /// Only tiers that outlive the engine: node-local directories and external storage.
    External,
}

impl CompressedTiers {
    /// Returns how many of these tiers, the fastest first, hold versions as they are.
    pub(crate) fn whole_on(self, kinds: &[Kind]) -> usize {
        let is_whole = |kind: &&Kind| match self {
            Self::BelowFastest => false,
            Self::Storage => matches!(kind, Kind::Device | Kind::Peers | Kind::Host),
            Self::External => !kind.lasts(),
        };
        kinds.iter().take_while(is_whole).count().max(1)
    }
}

impl Compression {
    /// Compresses without loss. `value` is the type of bytes whose region names none. A wrong type costs bytes, never correctness.
    #[must_use]
    pub fn lossless(value: Value) -> Self {
        Self {
            value,
            bounds: BTreeMap::new(),
            always: false,
            tiers: CompressedTiers::default(),
            nvcomp: None,
        }
    }

    /// Allows the values of regions of this name, `f32` or `f64`, to come back changed, each by at most the bound. A relative bound
    /// is a share of the region's largest value, a pointwise bound a share of each value. Values that are not finite come back
    /// unchanged. [`Call::within_error`](crate::Call::within_error) sets another bound for one version.
    #[must_use]
    pub fn within(mut self, region: impl Into<String>, bound: Bound) -> Self {
        self.bounds.insert(region.into(), bound);
        self
    }

    /// Compresses even if that does not shorten the way down: for lower tiers that have to hold as much as they can. A version that
    /// does not become smaller is still stored as it is.
    #[must_use]
    pub fn always(mut self) -> Self {
        self.always = true;
        self
    }

    /// Chooses the tiers that hold compressed checkpoints. The default is all [below the fastest](CompressedTiers::BelowFastest).
    ///
    /// The device compresses checkpoints that go from its memory straight to such a tier. The host's cores compress the others: in
    /// place from host memory, and in parts from peers' memory and from storage. Building the engine fails with
    /// [`BuildError::NoDifferences`](crate::BuildError::NoDifferences) if the engine has no such tier. A choice other than the
    /// default fails together with [`dedup`](crate::EngineBuilder::dedup), which makes differences below the fastest tier.
    #[must_use]
    pub fn on(mut self, tiers: CompressedTiers) -> Self {
        self.tiers = tiers;
        self
    }

    /// Lets nvCOMP compress the contents of device memory in place of our kernels, except for regions with bounds. The user
    /// provides nvCOMP, version 5 or 6. The system's loader finds it by its name when the engine is built.
    ///
    /// The device decodes LZ4. The host's cores decode both codecs, so any machine can read such versions. Building the engine
    /// fails with [`BuildError::Reduction`](crate::BuildError::Reduction) without nvCOMP or without a GPU. Building fails with
    /// [`BuildError::NoDifferences`](crate::BuildError::NoDifferences) if the fastest tier is not device memory, or if tiers below
    /// it hold checkpoints as they are.
    #[must_use]
    pub fn nvcomp(mut self, codec: NvcompCodec) -> Self {
        self.nvcomp = Some(codec);
        self
    }

    /// Returns the chosen codec of nvCOMP, if any.
    pub(crate) fn nvcomp_codec(&self) -> Option<NvcompCodec> {
        self.nvcomp
    }

    pub(crate) fn tiers(&self) -> CompressedTiers {
        self.tiers
    }

    pub(crate) fn is_always(&self) -> bool {
        self.always
    }

    /// Returns true if some values may come back changed.
    pub(crate) fn has_bounds(&self) -> bool {
        !self.bounds.is_empty()
    }

    /// Checks that the bounds are valid.
    pub(crate) fn check(&self) -> Result<()> {
        for bound in self.bounds.values() {
            Bounded::new(*bound).map_err(BuildError::reduction)?;
        }
        Ok(())
    }

    /// Checks that the regions with bounds have values that can be rounded, and that `error`, which the call allows, is valid as a
    /// bound.
    pub(crate) fn check_regions(
        &self,
        version: Version,
        layout: &[RegionInfo],
        error: Option<f64>,
    ) -> Result<()> {
        let error = error.map(|error| Bounded::new(Bound::Absolute(error)));
        let is_wrong = error.is_some_and(|bounded| bounded.is_err());
        for region in layout {
            let why = match self.of(region).1 {
                _ if !self.bounds.contains_key(&region.name) => continue,
                None => {
                    "it is to be compressed within a bound, and that takes values that are known to be f32 or f64: give it no \
                     bound, or such values"
                }
                Some(_) if is_wrong => {
                    "the call allows its values an error that is no bound: give a finite number above 0"
                }
                Some(_) => continue,
            };
            return Err(Error::NamedRegion {
                version,
                name: region.name.clone(),
                why: why.to_owned(),
            });
        }
        Ok(())
    }

    /// Returns the type of bytes whose region names none.
    pub(crate) fn value(&self) -> Value {
        self.value
    }

    /// Returns the type of a region, and its bound.
    pub(crate) fn of(&self, region: &RegionInfo) -> (Value, Option<Bound>) {
        let value = value_of(region.element).unwrap_or(self.value);
        let bound = self.bounds.get(&region.name).copied();
        (
            value,
            bound.filter(|_| matches!(value, Value::F32 | Value::F64)),
        )
    }
}

/// The failure to parse a [`Compression`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
struct BadCompression(String);

impl FromStr for Compression {
    type Err = PartError;

    fn from_str(text: &str) -> std::result::Result<Self, PartError> {
        let mut parts = text.split(',').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let value = VALUES.iter().find(|(known, _)| *known == name);
        let Some((_, value)) = value else {
            let known: Vec<_> = VALUES.iter().map(|(known, _)| *known).collect();
            let known = known.join(", ");
            let why = format!("{name:?} is no type: write {known}");
            return Err(BadCompression(why).into());
        };
        let mut how = Self::lossless(*value);
        for part in parts {
            how = match part {
                "always" => how.always(),
                "storage" => how.on(CompressedTiers::Storage),
                "external" => how.on(CompressedTiers::External),
                name if name.starts_with("nvcomp-") => how.nvcomp_text(name)?,
                bound => how.within_text(bound)?,
            };
        }
        Ok(how)
    }
}

impl Compression {
    /// Parses one of nvCOMP's codecs.
    fn nvcomp_text(self, name: &str) -> std::result::Result<Self, PartError> {
        let known = NvcompCodec::ALL;
        let codec = known.into_iter().find(|codec| codec.name() == name);
        codec.map(|codec| self.nvcomp(codec)).ok_or_else(|| {
            let known = known.map(NvcompCodec::name).join(" or ");
            let why = format!("{name:?} is no codec of nvCOMP that is read here: write {known}");
            BadCompression(why).into()
        })
    }

    /// Parses a region and its bound.
    fn within_text(self, part: &str) -> std::result::Result<Self, PartError> {
        let bound = part.split_once('=').and_then(|(region, bound)| {
            let bound = bound.trim();
            let (kind, value): (fn(f64) -> Bound, _) = match bound.split_once(' ') {
                Some(("absolute", value)) => (Bound::Absolute, value),
                Some(("pointwise", value)) => (Bound::PointwiseRelative, value),
                _ => (Bound::Relative, bound),
            };
            let bound = kind(value.trim().parse().ok()?);
            Bounded::new(bound).ok()?;
            Some((region.trim(), bound))
        });
        let Some((region, bound)) = bound.filter(|(region, _)| !region.is_empty()) else {
            let why = format!(
                "{part:?} is no bound: write a region and a share of its largest value, as `wave = 1e-3`, or `wave = \
                     absolute 0.5`, or `wave = pointwise 1e-3` for a share of each value; or write `always`, `storage`, `external` or a codec of nvCOMP"
            );
            return Err(BadCompression(why).into());
        };
        Ok(self.within(region, bound))
    }
}

/// The types, by their names in text.
const VALUES: &[(&str, Value)] = &[
    ("i8", Value::I8),
    ("i16", Value::I16),
    ("i32", Value::I32),
    ("i64", Value::I64),
    ("f16", Value::F16),
    ("bf16", Value::Bf16),
    ("f32", Value::F32),
    ("f64", Value::F64),
];

fn value_of(element: Element) -> Option<Value> {
    Some(match element {
        Element::U8 | Element::I8 => Value::I8,
        Element::U16 | Element::I16 => Value::I16,
        Element::U32 | Element::I32 => Value::I32,
        Element::U64 | Element::I64 => Value::I64,
        Element::F16 => Value::F16,
        Element::Bf16 => Value::Bf16,
        Element::F32 | Element::C64 => Value::F32,
        Element::F64 | Element::C128 => Value::F64,
        // `Element::Bytes`, and element types of later versions.
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_text_says() {
        let how: Compression = "bf16".parse().unwrap();
        assert_eq!(how, Compression::lossless(Value::Bf16));
        let how: Compression = "f32, a b = 1e-3,c=absolute 0.5, d = pointwise 0.01"
            .parse()
            .unwrap();
        let expected = Compression::lossless(Value::F32)
            .within("a b", Bound::Relative(1e-3))
            .within("c", Bound::Absolute(0.5))
            .within("d", Bound::PointwiseRelative(0.01));
        assert_eq!(how, expected);
        let how: Compression = "i8,always".parse().unwrap();
        assert_eq!(how, Compression::lossless(Value::I8).always());
        let how: Compression = "i8, storage = 0.1, external".parse().unwrap();
        let expected = Compression::lossless(Value::I8).on(CompressedTiers::External);
        assert_eq!(how, expected.within("storage", Bound::Relative(0.1)));
        let how: Compression = "i8, storage".parse().unwrap();
        let expected = Compression::lossless(Value::I8).on(CompressedTiers::Storage);
        assert_eq!(how, expected);
        for (name, codec) in [
            ("nvcomp-lz4", NvcompCodec::Lz4),
            ("nvcomp-zstd", NvcompCodec::Zstd),
        ] {
            let how: Compression = format!("bf16, {name}").parse().unwrap();
            assert_eq!(how, Compression::lossless(Value::Bf16).nvcomp(codec));
        }
        for bad in [
            "f32, nvcomp-bitcomp",
            "",
            "f33",
            "f32,",
            "f32, a",
            "f32, =1",
            "f32, a = 0",
            "f32, a = 2",
            "f32, a = x",
        ] {
            let refused = bad.parse::<Compression>();
            assert!(refused.is_err(), "{bad}");
        }
    }
}

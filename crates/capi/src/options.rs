//! What may be chosen about an engine, by name: from `tf_options_set`, and from VELOC's configuration file.

use bytesize::ByteSize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tierflow_dedup::Tree;
use tierflow_device::{Choice, Device, open};
use tierflow_engine::{
    AfterRestore, BadCompression, Compression, Engine, EngineBuilder, Flush, Retention, Tier,
};
use tierflow_redundancy::{Directory, Error, NodeProtection, Redundancy, Transport};
use tierflow_store::Collective;
use tierflow_tier_alloc::{HostOptions, Pace};

use crate::failure::{Failure, Outcome};
use crate::group::Group;

/// How far host memory is pinned ahead of its use (touched four times as far): a fraction of the cache, and at most so many
/// bytes. So a cache of 4 GiB at most is ready soon after the engine is.
const LEAD: (usize, usize) = (4, 1 << 30);

/// An engine to be.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    device: Choice,
    pub(crate) device_cache: usize,
    pub(crate) host_cache: usize,
    scratch: Option<PathBuf>,
    storage_limit: Option<u64>,
    pub(crate) node_local: Option<PathBuf>,
    pub(crate) node_local_limit: Option<u64>,
    pub(crate) external: Option<PathBuf>,
    newest: Option<usize>,
    every: Option<u64>,
    after_restore: AfterRestore,
    flush: Option<Flush>,
    pub(crate) in_order: Option<bool>,
    dedup: Option<u32>,
    compress: Option<Compression>,
    pub(crate) timeline: usize,
    group_patience: Duration,
    pub(crate) redundancy: Option<Redundancy>,
    pub(crate) failure_domain: Option<String>,
    pub(crate) exchange: Option<PathBuf>,
    pub(crate) closing_patience: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            device: Choice::Auto,
            device_cache: 0,
            host_cache: 0,
            scratch: None,
            storage_limit: None,
            node_local: None,
            node_local_limit: None,
            external: None,
            newest: None,
            every: None,
            after_restore: AfterRestore::Keep,
            flush: None,
            in_order: None,
            dedup: None,
            compress: None,
            timeline: 0,
            group_patience: Duration::from_secs(300),
            redundancy: None,
            failure_domain: None,
            exchange: None,
            closing_patience: Duration::from_secs(60),
        }
    }
}

impl Options {
    /// Chooses something. `None` if nothing is called so.
    pub(crate) fn set(&mut self, key: &str, value: &str) -> Option<Outcome> {
        Some(
            self.chosen(key, value)
                .transpose()?
                .map_err(|why| Failure::argument(format!("{key} = {value}: {why}"))),
        )
    }

    fn chosen(&mut self, key: &str, value: &str) -> Result<Option<()>, String> {
        match key {
            "device" => self.device = device(value)?,
            "device_cache" => self.device_cache = size(value)?,
            "host_cache" => self.host_cache = size(value)?,
            "scratch" => self.scratch = Some(value.into()),
            "storage_limit" => self.storage_limit = Some(bytes(value)?),
            "node_local" => self.node_local = Some(value.into()),
            "node_local_limit" => self.node_local_limit = Some(bytes(value)?),
            "external" => self.external = Some(value.into()),
            "keep_newest" => self.newest = Some(number(value)?),
            "keep_every" => self.every = Some(number(value)?),
            "after_restore" => {
                let all = [
                    ("keep", AfterRestore::Keep),
                    ("discard", AfterRestore::Discard),
                ];
                self.after_restore = one_of(value, &all)?;
            }
            "flush" => {
                let all = [("eager", Flush::Eager), ("needed", Flush::Needed)];
                self.flush = Some(one_of(value, &all)?);
            }
            "durable_in_order" => self.in_order = Some(truth(value)?),
            "dedup" => self.dedup = Some(number(value)?),
            "compress" => {
                let how: Result<_, BadCompression> = value.parse();
                self.compress = Some(how.map_err(|bad| bad.to_string())?);
            }
            "timeline" => self.timeline = number(value)?,
            "redundancy" => {
                self.redundancy = match value {
                    "none" => None,
                    scheme => Some(scheme.parse().map_err(|error: Error| error.to_string())?),
                }
            }
            "failure_domain" => self.failure_domain = Some(value.to_owned()),
            "exchange" => self.exchange = Some(value.into()),
            "group_patience" => self.group_patience = seconds(value)?,
            "closing_patience" => self.closing_patience = seconds(value)?,
            _ => return Ok(None),
        }
        Ok(Some(()))
    }

    /// Builds the engine, with all ranks of its group if it is of one.
    pub(crate) fn build(&self, group: Option<(&Arc<Group>, u64)>) -> Outcome<(Device, Engine)> {
        let device = open(self.device)?;
        let (part, most) = LEAD;
        let lead = (self.host_cache / part).min(most);
        let growth = HostOptions::default().pace(Pace::AsNeeded { lead });
        let mut builder: EngineBuilder = Engine::builder(&device)
            .device_cache(self.device_cache)
            .tier(Tier::host(self.host_cache).growth(growth))
            .after_restore(self.after_restore)
            .timeline(self.timeline)
            .closing_patience(self.closing_patience);
        if let Some(directories) = &self.scratch {
            let limit = self.storage_limit.unwrap_or(u64::MAX);
            let mut directories: Vec<PathBuf> = std::env::split_paths(directories).collect();
            let tier = match directories.pop() {
                Some(one) if directories.is_empty() => Tier::scratch(one),
                last => Tier::scratch_over(directories.into_iter().chain(last)),
            };
            builder = builder.tier(tier.limit(limit));
        }
        if let Some(directory) = &self.node_local {
            let limit = self.node_local_limit.unwrap_or(u64::MAX);
            builder = builder.tier(Tier::node_local(directory).limit(limit));
        }
        if let Some(directory) = &self.external {
            builder = builder.external(directory);
        }
        if let Some(newest) = self.newest {
            let kept = Retention::newest(newest);
            builder = builder.retention(match self.every {
                Some(step) => kept.and_every(step),
                None => kept,
            });
        }
        if let Some(flush) = self.flush {
            builder = builder.flush(flush);
        }
        if let Some(in_order) = self.in_order {
            builder = builder.durable_in_order(in_order);
        }
        if let Some(chunk) = self.dedup {
            builder = builder.dedup(Tree { chunk });
        }
        if let Some(how) = &self.compress {
            builder = builder.compress(how.clone());
        }
        if let Some((group, run)) = group {
            let collective: Arc<dyn Collective> = Arc::clone(group) as _;
            builder = builder
                .group(group.rank, group.ranks, run)
                .group_patience(self.group_patience)
                .collective(collective);
        }
        if let Some(scheme) = self.redundancy {
            builder = builder.redundancy(self.protection(scheme, group)?);
        }
        Ok((device, builder.build()?))
    }

    /// What the ranks of the group keep of each other's versions, and how they send it.
    fn protection(
        &self,
        scheme: Redundancy,
        group: Option<(&Arc<Group>, u64)>,
    ) -> Outcome<NodeProtection> {
        let alone =
            || Failure::argument("redundancy is kept by other ranks: open the engine with a group");
        let (group, run) = group.ok_or_else(alone)?;
        let transport: Arc<dyn Transport> = match &self.exchange {
            Some(directory) => Arc::new(Directory::open(directory, run, group.rank)?),
            None => {
                group.can_send()?;
                Arc::clone(group) as _
            }
        };
        let nodes = scheme.over(transport);
        Ok(match &self.failure_domain {
            Some(name) => nodes.failure_domain(name),
            None => nodes,
        })
    }

    pub(crate) fn group_patience(&self) -> Duration {
        self.group_patience
    }
}

fn device(value: &str) -> Result<Choice, String> {
    let ordinal = |number: &str| {
        Some(Choice::Cuda {
            ordinal: number.parse().ok()?,
        })
    };
    let chosen = match value {
        "auto" => Some(Choice::Auto),
        "host" => Some(Choice::Host),
        "cuda" => Some(Choice::Cuda { ordinal: 0 }),
        other => other.strip_prefix("cuda:").and_then(ordinal),
    };
    chosen.ok_or_else(|| "write auto, host, cuda or cuda:1".to_owned())
}

fn bytes(value: &str) -> Result<u64, String> {
    let parsed = value.parse().ok().map(|ByteSize(bytes)| bytes);
    // More than there can be is read as the most.
    let parsed = parsed.filter(|bytes| *bytes < u64::MAX);
    parsed.ok_or_else(|| "write a number of bytes, such as 512MiB or 4GiB".to_owned())
}

fn size(value: &str) -> Result<usize, String> {
    usize::try_from(bytes(value)?).map_err(|error| error.to_string())
}

pub(crate) fn number<T: std::str::FromStr>(value: &str) -> Result<T, String> {
    value.parse().map_err(|_| "write a number".to_owned())
}

fn truth(value: &str) -> Result<bool, String> {
    one_of(
        &value.to_ascii_lowercase(),
        &[("true", true), ("false", false)],
    )
}

pub(crate) fn seconds(value: &str) -> Result<Duration, String> {
    let parsed = value.parse::<f64>().ok();
    let time = parsed.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.ok_or_else(|| "write a number of seconds".to_owned())
}

pub(crate) fn one_of<T: Copy>(value: &str, all: &[(&str, T)]) -> Result<T, String> {
    let found = all.iter().find(|(name, _)| *name == value);
    found.map(|(_, chosen)| *chosen).ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
        format!("write {}", names.join(" or "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_written_with_units() {
        assert_eq!(bytes("4GiB"), Ok(4 << 30));
        assert_eq!(bytes("512 MB"), Ok(512_000_000));
        assert_eq!(bytes("17"), Ok(17));
        for wrong in ["", "-1", "4 GiBs", "GiB", "99999999 TiB"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_not_known_and_what_is_wrong_are_told_apart() {
        let mut options = Options::default();
        assert!(
            options
                .set("host_cache", "1MiB")
                .is_some_and(|set| set.is_ok())
        );
        assert!(options.set("host_cash", "1MiB").is_none());
        let wrong = options.set("flush", "soon");
        let text = wrong.and_then(Result::err).map(|failure| failure.text);
        assert_eq!(text.as_deref(), Some("flush = soon: write eager or needed"));
    }
}

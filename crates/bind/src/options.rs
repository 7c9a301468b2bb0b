//! The options of an engine, by name, and the engine that is built of them.

mod peers;
mod site;
mod table;
mod value;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tierflow_agent::AgentConnection;
use tierflow_dedup::Tree;
use tierflow_device::{Device, open};
use tierflow_engine::plan::{Fifo, Lru, Residency, Score};
use tierflow_engine::{
    AfterRestore, Differences, DirectIo, Engine, EngineBuilder, Group, Retention, Tier,
};
use tierflow_redundancy::{Directory, NodeProtection, Redundancy, Transport};
use tierflow_store::{Collective, Place, Vault};
use tierflow_tier_alloc::{DeviceOptions, HostOptions, HostPool, Pace, PoolOptions};

use crate::failure::{Failure, Outcome, Status};

pub use table::{Kind, OPTIONS, OptionInfo, Options};
pub use value::Value;

/// Parsers of values.
pub mod parse {
    pub use super::site::lines;
    pub use super::value::{bytes, device, number, one_of, path, patience, seconds};
}

/// The host memory that is made ready before its use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// Memory that is this many bytes ahead of the use.
    Ahead(usize),
    /// All memory.
    Full,
}

/// Host memory that several engines share.
#[derive(Clone, Debug)]
pub enum Pool {
    /// A pool that the application made.
    Given(HostPool),
    /// The pool of the machine with these options.
    OfNode(PoolOfNode),
}

/// A pool of the machine.
#[derive(Clone, Debug, Default)]
pub struct PoolOfNode {
    /// Bytes to share.
    pub bytes: u64,
    /// Bytes that engines give each other at a time.
    pub slab: Option<u64>,
    /// The directory of the pool.
    pub directory: Option<PathBuf>,
}

/// The ranks that checkpoint together, and how they meet.
#[derive(Clone, Debug)]
pub struct Ranks {
    /// The number of this rank.
    pub rank: u32,
    /// The number of ranks.
    pub ranks: u32,
    /// The number of this run; 0 if the run has none.
    pub run: u64,
    /// The way in which the ranks agree.
    pub collective: Option<Arc<dyn Collective>>,
    /// The way in which the ranks send each other bytes, if they can.
    pub transport: Option<Arc<dyn Transport>>,
}

impl Default for Ranks {
    fn default() -> Self {
        Self {
            rank: 0,
            ranks: 1,
            run: 0,
            collective: None,
            transport: None,
        }
    }
}

impl Ranks {
    /// Sets the number of this run to a random number that rank 0 draws, unless a number was given or the ranks have no collective.
    ///
    /// # Errors
    /// The errors of [`Collective::all_gather`]; `Remote` if this machine has no random numbers.
    pub fn agree_on_run(&mut self, patience: Duration) -> tierflow_store::Result<()> {
        if let (0, Some(collective)) = (self.run, &self.collective) {
            let mut drawn = [0; 8];
            let source = std::fs::File::open("/dev/urandom");
            let read = source.and_then(|mut file| std::io::Read::read_exact(&mut file, &mut drawn));
            let failed = |error| tierflow_store::Error::Remote(format!("/dev/urandom: {error}"));
            read.map_err(failed)?;
            let all = collective.all_gather(&drawn, patience)?;
            let first = all.first().and_then(|first| first.first_chunk());
            self.run = first.map_or(1, |first| u64::from_le_bytes(*first).max(1));
        }
        Ok(())
    }
}

/// The names of the policies.
const POLICIES: [&str; 4] = ["residency", "score", "lru", "fifo"];

impl Options {
    /// Sets the option with the name `key`. Returns `None` if no option has that name.
    pub fn set<'a>(&mut self, key: &str, value: impl Into<Value<'a>>) -> Option<Outcome> {
        let option = OPTIONS.iter().find(|option| option.key == key)?;
        let value = value.into();
        let set = (option.set)(self, &value);
        Some(set.map_err(|why| Failure::argument(format!("{key} = {value}: {why}"))))
    }

    /// Returns the options of the machine's pool, which they make the engine's pool.
    fn pool_of_node(&mut self) -> &mut PoolOfNode {
        if !matches!(self.host_pool, Some(Pool::OfNode(_))) {
            self.host_pool = Some(Pool::OfNode(PoolOfNode::default()));
        }
        match &mut self.host_pool {
            Some(Pool::OfNode(pool)) => pool,
            _ => unreachable!("it was made above"),
        }
    }

    /// Returns the time that the ranks of a group wait for each other.
    #[must_use]
    pub fn group_patience(&self) -> Duration {
        self.group_patience.unwrap_or(Duration::from_secs(300))
    }

    /// Returns the time that the end of the engine waits for storage after the last bytes got there.
    #[must_use]
    pub fn closing_patience(&self) -> Duration {
        self.closing_patience.unwrap_or(Duration::from_secs(60))
    }

    /// Builds the engine, together with the other ranks if it belongs to a group.
    pub(crate) fn build(self) -> Outcome<(Device, Engine)> {
        if self.storage_limit.is_some() && self.scratch.is_none() {
            return Err(Failure::argument(
                "storage_limit is the limit of the file in scratch, and there is none: name a directory as scratch, or a limit of node_local as node_local_limit",
            ));
        }
        let device = open(self.device)?;
        let growth = DeviceOptions::from(self.device_growth);
        let device_tier = Tier::device(self.device_cache).growth(growth);
        let mut builder = Engine::builder(&device)
            .tier(device_tier.evict_while_growing(self.evict_while_growing))
            .tier(self.host_tier()?)
            .after_restore(self.after_restore.unwrap_or(AfterRestore::Keep))
            .timeline(self.timeline)
            .direct_io(self.direct_io.unwrap_or(DirectIo::Never))
            .closing_patience(self.closing_patience());
        if let Some(cache) = self.peer_cache(&device)? {
            builder = builder.tier(Tier::peers(cache));
        }
        if let Some(directories) = self.scratch.as_deref() {
            let tier = match directories {
                [one] => Tier::scratch(one),
                several => Tier::scratch_over(several),
            };
            let limit = self.storage_limit.unwrap_or(u64::MAX);
            builder = builder.tier(
                tier.limit(limit)
                    .checksums(self.scratch_checksums != Some(false)),
            );
        }
        if let Some(directory) = &self.node_local {
            builder = builder.tier(Tier::node_local(directory).limit(self.node_local_limit));
        }
        builder = match self.vault_of_agent()? {
            Some(vault) => builder.tier(Tier::vault(vault)),
            None => builder.with(self.external.as_ref(), EngineBuilder::external),
        };
        builder = builder
            .with(self.retention()?, EngineBuilder::retention)
            .with(self.flush, EngineBuilder::flush)
            .with(self.durable_in_order, EngineBuilder::durable_in_order)
            .with(self.differences()?, EngineBuilder::dedup)
            .with(self.compress.clone(), EngineBuilder::compress);
        builder = match self.policy {
            Some("score") => builder.policy(Score),
            Some("lru") => builder.policy(Lru),
            Some("fifo") => builder.policy(Fifo),
            _ => builder.policy(Residency),
        };
        let Ranks {
            rank, ranks, run, ..
        } = self.ranks;
        if (rank, ranks, run) != (0, 1, 0) || self.ranks.collective.is_some() {
            let mut group = Group::new(rank, ranks, run).refuse_losses(self.refuse_losses);
            if let Some(collective) = &self.ranks.collective {
                group = group
                    .patience(self.group_patience())
                    .collective(Arc::clone(collective));
            }
            builder = builder.group(group);
        }
        if let Some(scheme) = self.redundancy {
            builder = builder.redundancy(self.protection(scheme)?);
        }
        Ok((device, builder.build()?))
    }

    /// Opens external storage through the agent, which copies versions from the node to there. Returns `None` without the option `agent`.
    ///
    /// # Errors
    /// `Argument` if `node_local` or a directory `external` is missing; `Storage` for the errors of the agent, for example if its directory
    /// is open to other users.
    pub fn vault_of_agent(&self) -> Outcome<Option<Arc<dyn Vault>>> {
        let Some(agent) = &self.agent else {
            return Ok(None);
        };
        let external = self.external.as_ref().filter(|place| !Place::is_url(place));
        let (Some(local), Some(external)) = (&self.node_local, external) else {
            return Err(Failure::argument(
                "an agent brings versions from one directory to another: name them as `node_local` and `external`, or leave out `agent`",
            ));
        };
        let connection =
            AgentConnection::new(agent, local, external).rank(self.ranks.rank, self.ranks.ranks);
        let connection = match &self.agent_program {
            Some(program) => connection.starting(program),
            None => connection,
        };
        let failed =
            |error: tierflow_agent::Error| Failure::new(Status::Storage, format!("agent: {error}"));
        Ok(Some(connection.open().map_err(failed)?))
    }

    fn host_tier(&self) -> Outcome<tierflow_engine::MemoryCache<HostOptions>> {
        let mut tier = Tier::host(self.host_cache);
        if let Some(growth) = self.host_growth {
            let pace = match growth {
                Growth::Full => Pace::Full,
                Growth::Ahead(lead) => Pace::AsNeeded { lead },
            };
            tier = tier.growth(HostOptions::default().pace(pace));
        }
        Ok(match &self.host_pool {
            None => tier,
            Some(Pool::Given(pool)) => tier.pool(pool),
            Some(Pool::OfNode(node)) => {
                let options = PoolOptions::new(node.bytes);
                let options = node.slab.map_or(options, |slab| options.slab(slab));
                let pool = HostPool::of_node(node.directory.as_deref(), options);
                tier.pool(&pool.map_err(tierflow_engine::Error::from)?)
            }
        })
    }

    fn differences(&self) -> Outcome<Option<Differences>> {
        let differences = self.dedup.map(|chunk| Differences::from(Tree { chunk }));
        match (differences, self.dedup_reads) {
            (_, Some(0)) => Err(Failure::argument("`dedup_reads` has to be 1 or more")),
            (None, Some(_)) => Err(Failure::argument(
                "`dedup_reads` bounds restores of differences: set `dedup`, too, or leave it out",
            )),
            (Some(how), Some(checkpoints)) => Ok(Some(how.restore_reads(checkpoints))),
            (how, None) => Ok(how),
        }
    }

    fn retention(&self) -> Outcome<Option<Retention>> {
        if self.keep_newest.is_none()
            && self.keep_every.is_none()
            && self.keep_younger_than.is_none()
        {
            return Ok(None);
        }
        let mut kept = Retention::newest(self.keep_newest.unwrap_or(1));
        if let Some(step) = self.keep_every {
            kept = kept.and_every(step);
        }
        if let Some(age) = self.keep_younger_than {
            kept = kept.and_younger_than(age);
        }
        Ok(Some(kept))
    }

    /// Returns the protection by the other ranks of the group, with the transport to them.
    fn protection(&self, scheme: Redundancy) -> Outcome<NodeProtection> {
        let Ranks { rank, run, .. } = self.ranks;
        let transport: Arc<dyn Transport> = match (&self.exchange, &self.ranks.transport) {
            (Some(_), _) if run == 0 => {
                return Err(Failure::argument(
                    "redundancy by a directory needs the number of this run: give run, another one after each restart",
                ));
            }
            (Some(directory), _) => Arc::new(Directory::open(directory, run, rank)?),
            (None, Some(transport)) => Arc::clone(transport),
            (None, None) => {
                return Err(Failure::argument(
                    "redundancy passes between ranks: open the engine with a group that sends and receives, or name a directory that all \
                     nodes see as `exchange`",
                ));
            }
        };
        let nodes = scheme.over(transport);
        Ok(match &self.failure_domain {
            Some(name) => nodes.failure_domain(name),
            None => nodes,
        })
    }
}

/// Calls of a builder's setters for options that are set.
trait With: Sized {
    fn with<T>(self, given: Option<T>, set: impl FnOnce(Self, T) -> Self) -> Self {
        match given {
            Some(given) => set(self, given),
            None => self,
        }
    }
}

impl With for EngineBuilder {}

//! Carries out what the [`plan`](crate::plan) decides: threads, streams, files.
//!
//! | file | its question |
//! |---|---|
//! | `medium` | what is a tier made of, and how is a part of it lent? |
//! | `placed_piece` | which ends has a copy? |
//! | `context` | which copies make up a transfer, or a call? |
//! | `direct` | how are bytes copied between a device and the scratch file past the host's memory? |
//! | `at_once` | which calls are over before the plan's lock is free again? |
//! | `durable_tier` | how does a tier keep copies under their versions' numbers? |
//! | `durable_record` | how are versions copied to and from such a tier? |
//! | `stage` | how are checkpoints encoded for lower tiers, and decoded again? |
//! | `encode` | which stages does the engine have itself? |
//! | `regions` | which bytes of the application make up this part of a checkpoint? |
//! | `pending` | which work of the application's streams must be over first? |
//! | `capacity` | how large is a tier whose memory others want, too? |
//! | `plan_lock` | how do events come to the plan, and answers to callers? |
//! | `call_table` | who waits for what, and where do transfers go? |
//! | `core` | how do the plan's commands reach callers and workers? |
//! | `calls` | who waits for the plan's answer, and how long? |
//! | `damage` | which copy is read in place of a damaged one? |
//! | `recorder` | what happened when? |
//! | `waits` | which transfers ended the waits of callers? |
//! | `job` | what does a worker do next? |
//! | `small_transfers` | which small transfers are one request of a disk? |
//! | `commits`, `committer` | which small versions are kept together, and by whom? |
//! | `links` | over which links does a call copy at once? |
//! | `reports` | how do workers tell the plan that a transfer ended, and ask what they may still do? |
//! | `worker` | who carries the bytes between tiers? |
//! | `housekeeping` | who removes what is not to be kept any more? |
//! | `suspend` | which version can be durable in time, and when is it? |
//! | `resize` | how does a cache become smaller while it is used? |
//! | `detached` | who goes on with work whose caller stopped waiting? |
//! | `empty_checkpoints` | which checkpoints have no bytes? |
//! | `layouts` | what are the regions of checkpoints called? |
//! | `first_write` | what does a run note before it changes anything? |
//! | `publish_order` | what must be durable before this version is? |
//! | `mapped_tier` | how much of a tier that is still being mapped may be used? |
//!
//! The plan is locked for microseconds around each event, and across no copy of more than a page. Bytes are touched through loans only:
//! should the plan ever hand out bytes in use, the loan is refused, and the call or transfer fails, so no data is damaged.

mod at_once;
mod call_table;
mod calls;
mod capacity;
mod commits;
mod committer;
mod context;
mod core;
mod damage;
mod detached;
mod direct;
mod durable_record;
mod durable_tier;
mod empty_checkpoints;
#[cfg(feature = "stage")]
pub(crate) mod encode;
mod first_write;
mod housekeeping;
mod job;
mod layouts;
mod links;
mod mapped_tier;
mod medium;
mod pending;
mod placed_piece;
mod plan_lock;
mod publish_order;
mod recorder;
mod regions;
mod reports;
mod resize;
mod small_transfers;
mod stage;
mod suspend;
mod waits;
mod worker;

pub(crate) use self::core::{EngineCore, EngineParts};
pub(crate) use self::suspend::{SuspendChoice, SuspendTicket, hear_turns};
pub(crate) use at_once::{NewVersion, touch_to_write};
pub(crate) use call_table::{Answer, Grant, LinkQueues};
pub(crate) use capacity::{PeerMemory, Pool, start_peers, start_pool};
pub(crate) use commits::{COMMITTED, commit_queue};
pub(crate) use committer::start as start_committer;
pub(crate) use context::{Pieces, TierContext};
pub(crate) use detached::{look_until, work_until};
pub(crate) use direct::find as find_direct;
pub(crate) use durable_tier::{DurableTier, TierSettings};
pub(crate) use empty_checkpoints::EmptyCheckpoints;
pub(crate) use first_write::{Directories, FirstWrite};
pub(crate) use housekeeping::start as start_housekeeping;
pub(crate) use job::Direction;
pub(crate) use layouts::Layouts;
pub(crate) use mapped_tier::start as start_mapped_tier;
pub(crate) use medium::{Medium, TierState};
pub(crate) use plan_lock::PlanGuard;
pub(crate) use recorder::Recorder;
pub(crate) use regions::{At, SourceRegions, TargetRegions};
pub(crate) use small_transfers::AHEAD;
pub(crate) use stage::{Stage, StageOptions};
pub(crate) use worker::{LinkWorkers, start as start_workers};

//! Who pins next: the engines of a process, and the processes of a node, take turns.

mod local;
mod node;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::workers::Stop;

use local::{Line, Place};
use node::{NodeLine, Ticket};

/// Whether arenas that pin at the same time do so one after the other.
///
/// The kernel and the driver pin under locks of their own. Where those make all wait for all, turns are
/// faster (HiPC'22 §IV-A, "serialized registration": 6.4 times). Where they do not, turns waste what the
/// others could have done: on an 8-GPU H200 host with driver 580, eight processes that pin touched huge
/// pages at once get 97 GB/s between them, and 38 GB/s in turn. Measure before you choose:
/// `cargo xtask bench alloc-serial`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PinOrder {
    /// One at a time among all arenas of this user on this machine, in the order in which they
    /// asked. Nobody waits for a process that died, nor for longer than
    /// [`PinOrder::PATIENCE`] at a time.
    Serial,
    /// All at once.
    #[default]
    Parallel,
}

impl PinOrder {
    /// How long one waits for its turn before it pins all the same: a process that was stopped in
    /// the middle keeps its turn.
    pub const PATIENCE: Duration = Duration::from_secs(30);
}

/// Which order was obtained.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OrderObtained {
    /// Turns among all arenas of this user on this machine.
    Node,
    /// Turns among the arenas of this process alone.
    Process {
        /// Why not among all.
        why: String,
    },
    /// None, as asked.
    Parallel,
}

impl fmt::Display for OrderObtained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node => f.write_str("serial on this machine"),
            Self::Process { why } => write!(f, "serial in this process alone: {why}"),
            Self::Parallel => f.write_str("parallel"),
        }
    }
}

/// Turns of pinning for memory that no arena of this crate pins, in the same line as the arenas.
///
/// ```
/// use tierflow_tier_alloc::{PinOrder, PinTurns};
/// # let directory = std::env::temp_dir().join(format!("tierflow-doc-{}", std::process::id()));
/// let turns = PinTurns::new(PinOrder::Serial, Some(&directory)); // None: where arenas take theirs
/// let turn = turns.take();
/// // ... register memory ...
/// drop(turn);
/// # std::fs::remove_dir_all(directory).unwrap();
/// ```
#[derive(Debug)]
pub struct PinTurns {
    order: Order,
}

/// The right to pin until it is dropped.
#[derive(Debug)]
#[must_use = "the turn ends when it is dropped"]
pub struct PinTurn {
    _turn: Option<Turn>,
}

impl PinTurns {
    /// `directory` is where turns are taken; `None` for the user's runtime directory.
    pub fn new(order: PinOrder, directory: Option<&Path>) -> Self {
        Self {
            order: Order::new(order, directory),
        }
    }

    /// Waits for a turn, for [`PinOrder::PATIENCE`] at most.
    pub fn take(&self) -> PinTurn {
        PinTurn {
            _turn: self.order.turn(&Stop::default()),
        }
    }

    /// Among whom turns are taken.
    pub fn obtained(&self) -> OrderObtained {
        self.order.obtained()
    }
}

/// Where one arena waits for its turns.
#[derive(Debug)]
pub(crate) enum Order {
    Node(NodeLine),
    Process { line: &'static Line, why: String },
    Parallel,
}

/// The right to pin until it is dropped.
#[derive(Debug)]
#[must_use = "the turn ends when it is dropped"]
pub(crate) struct Turn {
    _held: Held,
    /// Whether it was really this arena's turn; if not, waiting took too long.
    pub(crate) in_order: bool,
}

/// Given back by being dropped.
#[derive(Debug)]
enum Held {
    Ticket { _ticket: Ticket },
    Place { _place: Place },
    Nothing,
}

impl Order {
    /// `directory` is where the node's queue lies; `None` for the user's own.
    pub(crate) fn new(order: PinOrder, directory: Option<&Path>) -> Self {
        if order == PinOrder::Parallel {
            return Self::Parallel;
        }
        let directory = directory.map_or_else(node::default_directory, Path::to_owned);
        Self::in_directory(directory)
    }

    fn in_directory(directory: PathBuf) -> Self {
        match NodeLine::open(directory) {
            Ok(line) => Self::Node(line),
            Err(why) => Self::Process {
                line: local::line(),
                why,
            },
        }
    }

    pub(crate) fn obtained(&self) -> OrderObtained {
        match self {
            Self::Node(_) => OrderObtained::Node,
            Self::Process { why, .. } => OrderObtained::Process { why: why.clone() },
            Self::Parallel => OrderObtained::Parallel,
        }
    }

    /// Waits for this arena's turn; `None` when it is to stop.
    pub(crate) fn turn(&self, stop: &Stop) -> Option<Turn> {
        let deadline = Instant::now() + PinOrder::PATIENCE;
        let (held, in_order) = match self {
            Self::Parallel => (Held::Nothing, true),
            Self::Process { line, .. } => {
                let place = line.join();
                let in_order = place.wait(deadline, stop);
                (Held::Place { _place: place }, in_order)
            }
            Self::Node(line) => match line.join(deadline, stop) {
                Ok(mut ticket) => {
                    let in_order = ticket.wait(deadline, stop);
                    (Held::Ticket { _ticket: ticket }, in_order)
                }
                // The directory went away, or the disk is full: out of order, but not never.
                Err(_) => (Held::Nothing, false),
            },
        };
        (!stop.is_set()).then_some(Turn {
            _held: held,
            in_order,
        })
    }
}

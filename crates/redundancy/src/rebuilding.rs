//! One pass over the rows of a version of which something is lost: every member reads what it has once, checks it on the way and
//! sends what is needed of it, while what is lost is made, checked and written.
//!
//! | thread | does |
//! |---|---|
//! | the caller's | sends, decodes for others; receives where the transport is not for several threads |
//! | several | decode what this member alone lacks, a row each in turn |
//! | several | read this member's part and parity, a row each in turn |
//! | one | computes the checksums of these |
//! | one for each member that sends something | receives |
//! | one for the part that is made, one for the parity | computes its checksum and writes |
//!
//! Each is a few rows ahead of the next at most.

use crate::exchange::{Exchange, Has, Step, read_shard};
use crate::fresh::Fresh;
use crate::manifest::Digesting;
use crate::{Code, Digest, Error, Layout, Part, Place, Result, Row};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, Scope, ScopedJoinHandle};

/// Rows that a thread is ahead of the next at most.
const AHEAD: usize = 4;

/// Threads that read what a member has.
const READERS: usize = 3;

/// Threads that decode.
const DECODERS: usize = 3;

/// Where what is made anew goes, from its start to its end.
pub(crate) trait Sink: Send {
    /// The next bytes.
    ///
    /// # Errors
    /// Why nothing more is taken.
    fn take(&mut self, bytes: Vec<u8>) -> Result<()>;

    /// It is all there, and right: it stays. Dropped instead, it goes.
    ///
    /// # Errors
    /// Why it does not stay.
    fn keep(self: Box<Self>) -> Result<()>;
}

impl Sink for Fresh {
    fn take(&mut self, bytes: Vec<u8>) -> Result<()> {
        self.append(&bytes)
    }

    fn keep(self: Box<Self>) -> Result<()> {
        self.publish()
    }
}

/// What a member has of a version, or what it is to have.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Both<T> {
    pub(crate) part: T,
    pub(crate) parity: T,
}

/// Who sends a row's shards, and who lacks theirs: shards and members, of which the first that lacks one decodes.
#[derive(Debug)]
struct Roles {
    given: Vec<(usize, usize)>,
    lost: Vec<(usize, usize)>,
}

impl Roles {
    fn of(layout: &Layout, row: u64, has: &[Has]) -> Self {
        let (there, lost): (Vec<_>, Vec<_>) = shards(layout, row, has)
            .into_iter()
            .enumerate()
            .map(|(shard, (member, has))| ((shard, member), has))
            .partition(|(_, has)| *has);
        let members = |shards: Vec<((usize, usize), bool)>| -> Vec<(usize, usize)> {
            shards.into_iter().map(|(shard, _)| shard).collect()
        };
        let mut given = members(there);
        given.truncate(layout.data());
        Self {
            given,
            lost: members(lost),
        }
    }

    /// Who decodes, if there is anything to decode.
    fn decoder(&self) -> Option<usize> {
        self.lost.first().map(|(_, member)| *member)
    }

    fn gives(&self, member: usize) -> bool {
        !self.lost.is_empty() && self.given.iter().any(|(_, giver)| *giver == member)
    }

    fn lacks(&self, member: usize) -> bool {
        self.lost.iter().any(|(_, other)| *other == member)
    }

    /// Whether one member sends another anything.
    fn sends(&self, from: usize, to: usize) -> bool {
        match self.decoder() == Some(to) {
            true => self.gives(from),
            false => self.decoder() == Some(from) && self.lacks(to),
        }
    }
}

/// The members that have a row's shards, data first, and whether they still do.
pub(crate) fn shards(layout: &Layout, row: u64, has: &[Has]) -> Vec<(usize, bool)> {
    let of = |member: usize| has.get(member);
    let data = (0..layout.data()).map(|shard| layout.data_member(row, shard));
    let data = data.map(|member| (member, of(member).is_some_and(|has| has.part)));
    let parity = (0..layout.parity()).map(|shard| layout.parity_member(row, shard));
    let parity = parity.map(|member| (member, of(member).is_some_and(|has| has.parity)));
    data.chain(parity).collect()
}

/// A pass of one member.
pub(crate) struct Pass<'p> {
    exchange: &'p Exchange<'p>,
    layout: &'p Layout,
    /// Of the rows' numbers modulo the members.
    roles: Vec<Roles>,
    /// What this member's are to be.
    wanted: Both<Digest>,
}

/// What is made, on its way to where it goes.
struct Output<'s, 'o> {
    chunks: SyncSender<Vec<u8>>,
    writer: ScopedJoinHandle<'s, Written<'o>>,
}

/// What was made: whether it is right, where it went, and whether that took it.
struct Written<'o> {
    digest: Digest,
    sink: Box<dyn Sink + 'o>,
    taken: Result<()>,
}

/// What a pass made: to be kept, or dropped.
pub(crate) type Made<'o> = Both<Option<(Box<dyn Sink + 'o>, Result<()>)>>;

/// What a row's shards are made anew of, and which are wanted.
type Given = (Vec<Option<Vec<u8>>>, Vec<usize>);
/// A thread that decodes, from the outside.
type Decoder = (SyncSender<Given>, Receiver<Result<Vec<(usize, Vec<u8>)>>>);
/// Shards as they are received.
type Chunks = Receiver<Result<Vec<u8>>>;
/// Shards as they are read, each with how many of its bytes are the member's own.
type Own = Receiver<(usize, Vec<u8>)>;

impl<'p> Pass<'p> {
    pub(crate) fn new(
        exchange: &'p Exchange<'p>,
        layout: &'p Layout,
        has: &[Has],
        wanted: Both<Digest>,
    ) -> Self {
        let numbers = 0..layout.members() as u64;
        Self {
            exchange,
            layout,
            roles: numbers.map(|row| Roles::of(layout, row, has)).collect(),
            wanted,
        }
    }

    fn roles(&self, row: &Row) -> Option<&Roles> {
        let count = self.layout.members() as u64;
        let at = usize::try_from(row.number % count).ok()?;
        self.roles.get(at)
    }

    /// The pass: whether what this member has, and what it made, is right; and what it made.
    pub(crate) fn run<'o>(
        &self,
        own: Both<Option<&dyn Part>>,
        lacking: Both<Option<Box<dyn Sink + 'o>>>,
    ) -> Result<(Has, Made<'o>)> {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (to_send, read) = sync_channel(AHEAD);
            let shards = self.readers(scope, own)?;
            let checker = start(scope, move || self.check(own, &shards, &to_send))?;
            let part = lacking.part.map(|sink| output(scope, sink)).transpose()?;
            let parity = lacking.parity.map(|sink| output(scope, sink)).transpose()?;
            let incoming = self.incoming(scope, &stop)?;
            let decoders = self.decoders(scope)?;
            let outputs = Both {
                part: part.as_ref().map(|output| &output.chunks),
                parity: parity.as_ref().map(|output| &output.chunks),
            };
            let passed = self.rows(&read, &incoming, &decoders, outputs);
            stop.store(true, Ordering::Relaxed);
            drop((read, incoming, decoders));
            let (part, parity) = (part.map(end).transpose()?, parity.map(end).transpose()?);
            let found = checker.join().map_err(panicked)?;
            passed?;
            let is_right = |found: bool, made: &Option<Written<'_>>, wanted: Digest| match made {
                Some(made) => made.digest == wanted,
                None => found,
            };
            let has = Has {
                part: is_right(found.part, &part, self.wanted.part),
                parity: is_right(found.parity, &parity, self.wanted.parity),
            };
            let made = |written: Written<'o>| (written.sink, written.taken);
            let (part, parity) = (part.map(made), parity.map(made));
            Ok((has, Both { part, parity }))
        })
    }

    /// The rows that a member has shards of, in their order.
    fn held<'r>(
        &'r self,
        own: Both<Option<&'r dyn Part>>,
    ) -> impl Iterator<Item = (Row, Place, &'r dyn Part)> + 'r {
        self.layout.rows().filter_map(move |row| {
            let place = row.place(self.exchange.me)?;
            let from = match place {
                Place::Data { .. } => own.part,
                Place::Parity { .. } => own.parity,
            };
            from.map(|from| (row, place, from))
        })
    }

    /// Threads that read what this member has, a row each in turn.
    fn readers<'s>(
        &'s self,
        scope: &'s Scope<'s, '_>,
        own: Both<Option<&'s dyn Part>>,
    ) -> Result<Vec<Own>> {
        let readers = (0..READERS).map(|reader| {
            let (read, shards) = sync_channel(AHEAD);
            start(scope, move || {
                for (row, place, from) in self.held(own).skip(reader).step_by(READERS) {
                    // The checksum will say what cannot be read; the others wait for something until then.
                    let lost = |_| (0, vec![0; row.bytes]);
                    let shard = read_shard(from, place, row.bytes).unwrap_or_else(lost);
                    if read.send(shard).is_err() {
                        return;
                    }
                }
            })?;
            Ok(shards)
        });
        readers.collect()
    }

    /// Takes what is read, all that this member has, and hands on what is sent. Whether it is right.
    fn check(
        &self,
        own: Both<Option<&dyn Part>>,
        read: &[Own],
        to_send: &SyncSender<Vec<u8>>,
    ) -> Has {
        let (mut part, mut parity) = (Digesting::default(), Digesting::default());
        let me = self.exchange.me;
        for ((row, place, _), shards) in self.held(own).zip(read.iter().cycle()) {
            let Ok((bytes, chunk)) = shards.recv() else {
                break;
            };
            let digest = match place {
                Place::Data { .. } => &mut part,
                Place::Parity { .. } => &mut parity,
            };
            digest.update(chunk.get(..bytes).unwrap_or_default());
            let is_sent = self.roles(&row).is_some_and(|roles| roles.gives(me));
            if is_sent && to_send.send(chunk).is_err() {
                break;
            }
        }
        Has {
            part: own.part.is_some() && part.end() == self.wanted.part,
            parity: own.parity.is_some() && parity.end() == self.wanted.parity,
        }
    }

    /// Threads that receive what each other member sends, where the transport is for several.
    fn incoming<'s>(
        &'s self,
        scope: &'s Scope<'s, '_>,
        stop: &'s AtomicBool,
    ) -> Result<Vec<Option<Chunks>>> {
        let me = self.exchange.me;
        let sends = |member: usize| self.roles.iter().any(|roles| roles.sends(member, me));
        let threads = (0..self.layout.members()).map(|member| {
            if !self.exchange.transport.is_parallel() || !sends(member) {
                return Ok(None);
            }
            let (received, chunks) = sync_channel(AHEAD);
            start(scope, move || {
                for row in self.layout.rows() {
                    if self
                        .roles(&row)
                        .is_some_and(|roles| roles.sends(member, me))
                    {
                        let chunk = self.exchange.receive_unless(stop, member, &row);
                        let has_failed = chunk.is_err();
                        if received.send(chunk).is_err() || has_failed {
                            return;
                        }
                    }
                }
            })?;
            Ok(Some(chunks))
        });
        threads.collect()
    }

    /// Threads that decode, where this member alone lacks anything: what is made for others is sent before anything else is, as
    /// they wait for it.
    fn decoders<'s>(&'s self, scope: &'s Scope<'s, '_>) -> Result<Vec<Decoder>> {
        let me = self.exchange.me;
        let lacks_alone = |roles: &Roles| roles.lost.iter().all(|(_, member)| *member == me);
        let lacks = self.roles.iter().any(|roles| roles.lacks(me));
        let count = match lacks && self.roles.iter().all(lacks_alone) {
            true => DECODERS,
            false => 0,
        };
        let decoders = (0..count).map(|_| {
            let (give, given) = sync_channel::<Given>(1);
            let (done, made) = sync_channel(AHEAD);
            let mut code = Code::new(self.layout.data(), self.layout.parity())?;
            start(scope, move || {
                for (there, wanted) in given {
                    if done.send(code.rebuild_of(there, &wanted)).is_err() {
                        return;
                    }
                }
            })?;
            Ok((give, made))
        });
        decoders.collect()
    }

    fn rows(
        &self,
        read: &Receiver<Vec<u8>>,
        incoming: &[Option<Chunks>],
        decoders: &[Decoder],
        outputs: Both<Option<&SyncSender<Vec<u8>>>>,
    ) -> Result<()> {
        let me = self.exchange.me;
        let mut code = Code::new(self.layout.data(), self.layout.parity())?;
        // Rows that are being decoded, each by the decoders in turn.
        let mut decoding = VecDeque::new();
        let mut turns = decoders.iter().cycle();
        let finish = |(place, made): (Option<Place>, &Receiver<Result<Vec<_>>>)| {
            let made = made.recv().map_err(|_| lost_thread())??;
            let mut chunks = made.into_iter().map(|(_, chunk)| chunk);
            match place {
                Some(place) => chunks.try_for_each(|chunk| put(place, chunk, outputs)),
                None => Ok(()),
            }
        };
        for row in self.layout.rows() {
            let roles = self.roles(&row);
            let Some((roles, decoder)) = roles.and_then(|roles| Some((roles, roles.decoder()?)))
            else {
                continue;
            };
            let receive = |member: usize| match incoming.get(member).and_then(Option::as_ref) {
                Some(chunks) => chunks.recv().map_err(|_| lost_thread())?,
                None => self.exchange.receive_row(member, &row),
            };
            let put = |chunk: Vec<u8>| match row.place(me) {
                Some(place) => put(place, chunk, outputs),
                None => Ok(()),
            };
            if me == decoder {
                let mut there: Vec<Option<Vec<u8>>> = vec![None; self.layout.members()];
                for &(shard, member) in &roles.given {
                    let chunk = receive(member)?;
                    if let Some(there) = there.get_mut(shard) {
                        *there = Some(chunk);
                    }
                }
                let wanted: Vec<usize> = roles.lost.iter().map(|(shard, _)| *shard).collect();
                if let Some((give, made)) = turns.next() {
                    if decoding.len() >= 2 * decoders.len() {
                        decoding.pop_front().map_or(Ok(()), finish)?;
                    }
                    give.send((there, wanted)).map_err(|_| lost_thread())?;
                    decoding.push_back((row.place(me), made));
                    continue;
                }
                let made = code.rebuild_of(there, &wanted)?;
                for ((_, member), (_, chunk)) in roles.lost.iter().zip(made) {
                    match *member == me {
                        true => put(chunk)?,
                        false => self
                            .exchange
                            .send(*member, Step::Shard, row.number, chunk)?,
                    }
                }
            } else if roles.lacks(me) {
                put(receive(decoder)?)?;
            } else if roles.gives(me) {
                let chunk = read.recv().map_err(|_| lost_thread())?;
                self.exchange
                    .send(decoder, Step::Shard, row.number, chunk)?;
            }
        }
        decoding.into_iter().try_for_each(finish)
    }
}

/// Hands what was made of a row on to where it goes.
fn put(
    place: Place,
    mut chunk: Vec<u8>,
    outputs: Both<Option<&SyncSender<Vec<u8>>>>,
) -> Result<()> {
    let output = match place {
        Place::Data { bytes, .. } => {
            // The rest of the shard is not of the part.
            chunk.truncate(bytes);
            outputs.part
        }
        Place::Parity { .. } => outputs.parity,
    };
    match output {
        Some(output) => output.send(chunk).map_err(|_| lost_thread()),
        None => Ok(()),
    }
}

fn output<'s, 'o: 's>(
    scope: &'s Scope<'s, '_>,
    mut sink: Box<dyn Sink + 'o>,
) -> Result<Output<'s, 'o>> {
    let (chunks, made) = sync_channel::<Vec<u8>>(AHEAD);
    let writer = start(scope, move || {
        let (mut digest, mut taken) = (Digesting::default(), Ok(()));
        for chunk in made {
            digest.update(&chunk);
            // What is not taken is told at the end: the others need not suffer from it.
            if taken.is_ok() {
                taken = sink.take(chunk);
            }
        }
        Written {
            digest: digest.end(),
            sink,
            taken,
        }
    })?;
    Ok(Output { chunks, writer })
}

fn end<'o>(output: Output<'_, 'o>) -> Result<Written<'o>> {
    drop(output.chunks);
    output.writer.join().map_err(panicked)
}

fn start<'s, T: Send + 's>(
    scope: &'s Scope<'s, '_>,
    work: impl FnOnce() -> T + Send + 's,
) -> Result<ScopedJoinHandle<'s, T>> {
    let builder = Builder::new().name("tierflow-rebuild".to_owned());
    let started = builder.spawn_scoped(scope, work);
    started.map_err(Error::io("a thread"))
}

fn lost_thread() -> Error {
    Error::io("a thread")(std::io::Error::other("it ended before its work was done"))
}

fn panicked(_panic: Box<dyn std::any::Any + Send>) -> Error {
    lost_thread()
}

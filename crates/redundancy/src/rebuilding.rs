//! Rebuilding in one pass over the rows of a version. Every member reads its part and parity once, computes their checksums, and sends
//! the shards from which others decode. Meanwhile, lost shards are decoded, summed and written.
//!
//! | threads | work |
//! |---|---|
//! | the caller's | sends, and decodes for others; receives if the transport is not [parallel](crate::Transport::is_parallel) |
//! | [`DECODERS`] | decode if only this member lost shards, a row each in turn |
//! | [`READERS`] | read this member's part and parity, a row each in turn |
//! | 1 | computes the checksums of the read part and parity |
//! | 1 for each member that sends shards | receives |
//! | 1 for the rebuilt part, 1 for the rebuilt parity | computes its checksum, and writes |
//!
//! A thread is at most [`AHEAD`] rows ahead of the next one.

use crate::atomic_file::AtomicFile;
use crate::exchange::{Exchange, Step, read_shard};
use crate::manifest::Digester;
use crate::part_and_parity::{Intact, PartAndParity};
use crate::{Code, Digest, Error, Layout, Part, Place, Result, Row};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, Scope, ScopedJoinHandle};

/// Largest number of rows in the channel from one thread to the next.
const AHEAD: usize = 4;

/// Number of threads that read a member's part and parity.
const READERS: usize = 3;

/// Number of threads that decode.
const DECODERS: usize = 3;

/// The target of a rebuilt part or parity, which is written from its start to its end. A sink that is dropped before it is committed
/// leaves no bytes.
pub(crate) trait Sink: Send {
    /// Appends the next bytes.
    ///
    /// # Errors
    /// The storage's error; no more is written then.
    fn write(&mut self, bytes: Vec<u8>) -> Result<()>;

    /// Publishes the whole part or parity. Called once the checksum is known to be right.
    ///
    /// # Errors
    /// The storage's error.
    fn commit(self: Box<Self>) -> Result<()>;
}

impl Sink for AtomicFile {
    fn write(&mut self, bytes: Vec<u8>) -> Result<()> {
        self.append(&bytes)
    }

    fn commit(self: Box<Self>) -> Result<()> {
        self.publish()
    }
}

/// The members' roles for a row. The first member whose shard is lost decodes all lost shards.
#[derive(Debug)]
struct Roles {
    /// `(shard, member)` of the shards from which the others are decoded, with the members that send them. As many as the row has data
    /// shards.
    sources: Vec<(usize, usize)>,
    /// `(shard, member)` of the lost shards.
    lost: Vec<(usize, usize)>,
}

impl Roles {
    fn of(layout: &Layout, row: u64, intact: &[Intact]) -> Self {
        let (there, lost): (Vec<_>, Vec<_>) = shards(layout, row, intact)
            .into_iter()
            .enumerate()
            .map(|(shard, (member, is_intact))| ((shard, member), is_intact))
            .partition(|(_, is_intact)| *is_intact);
        let members = |shards: Vec<((usize, usize), bool)>| -> Vec<(usize, usize)> {
            shards.into_iter().map(|(shard, _)| shard).collect()
        };
        let mut sources = members(there);
        sources.truncate(layout.data());
        Self {
            sources,
            lost: members(lost),
        }
    }

    /// Returns the member that decodes, if a shard is lost.
    fn decoder(&self) -> Option<usize> {
        self.lost.first().map(|(_, member)| *member)
    }

    fn is_source(&self, member: usize) -> bool {
        !self.lost.is_empty() && self.sources.iter().any(|(_, source)| *source == member)
    }

    fn has_lost(&self, member: usize) -> bool {
        self.lost.iter().any(|(_, other)| *other == member)
    }

    /// Returns true if one member sends another a shard.
    fn sends(&self, from: usize, to: usize) -> bool {
        match self.decoder() == Some(to) {
            true => self.is_source(from),
            false => self.decoder() == Some(from) && self.has_lost(to),
        }
    }
}

/// Returns the member of each shard of a row, data shards before parity shards, and true if the shard is intact.
pub(crate) fn shards(layout: &Layout, row: u64, intact: &[Intact]) -> Vec<(usize, bool)> {
    let of = |member: usize| intact.get(member);
    let data = (0..layout.data()).map(|shard| layout.data_member(row, shard));
    let data = data.map(|member| (member, of(member).is_some_and(|intact| intact.part)));
    let parity = (0..layout.parity()).map(|shard| layout.parity_member(row, shard));
    let parity = parity.map(|member| (member, of(member).is_some_and(|intact| intact.parity)));
    data.chain(parity).collect()
}

/// A member's side of the pass.
pub(crate) struct Pass<'p> {
    exchange: &'p Exchange<'p>,
    layout: &'p Layout,
    /// The roles, by the number of a row modulo the number of members.
    roles: Vec<Roles>,
    /// The digests of this member's part and parity when they were protected.
    wanted: PartAndParity<Digest>,
}

/// The thread that writes a rebuilt part or parity, and the channel to it.
struct Output<'s, 'o> {
    chunks: SyncSender<Vec<u8>>,
    writer: ScopedJoinHandle<'s, Written<'o>>,
}

/// The digest of the bytes that the thread wrote, the sink, and the first error of the sink.
struct Written<'o> {
    digest: Digest,
    sink: Box<dyn Sink + 'o>,
    written: Result<()>,
}

/// The sinks of the part and parity that a pass rebuilt, with the first error of each. The caller commits or drops them.
pub(crate) type RebuiltSinks<'o> = PartAndParity<Option<(Box<dyn Sink + 'o>, Result<()>)>>;

/// A row's shards, `None` for shards that are not sent, and the indexes of the shards to be decoded.
type DecoderInput = (Vec<Option<Vec<u8>>>, Vec<usize>);
/// The channels to and from a thread that decodes.
type Decoder = (
    SyncSender<DecoderInput>,
    Receiver<Result<Vec<(usize, Vec<u8>)>>>,
);
/// Shards that a member sent, row by row.
type Received = Receiver<Result<Vec<u8>>>;
/// Shards that a thread read, each with the number of its bytes that are the member's; its other bytes are zeros.
type Read = Receiver<(usize, Vec<u8>)>;

impl<'p> Pass<'p> {
    pub(crate) fn new(
        exchange: &'p Exchange<'p>,
        layout: &'p Layout,
        intact: &[Intact],
        wanted: PartAndParity<Digest>,
    ) -> Self {
        let numbers = 0..layout.members() as u64;
        Self {
            exchange,
            layout,
            roles: numbers.map(|row| Roles::of(layout, row, intact)).collect(),
            wanted,
        }
    }

    fn roles(&self, row: &Row) -> Option<&Roles> {
        let count = self.layout.members() as u64;
        let at = usize::try_from(row.number % count).ok()?;
        self.roles.get(at)
    }

    /// Reads `own`, this member's part and parity as far as it has them, and rebuilds lost ones into `sinks`. Returns the sinks, and flags
    /// that are true if part and parity, read or rebuilt, have the checksums in the manifest.
    pub(crate) fn run<'o>(
        &self,
        own: PartAndParity<Option<&dyn Part>>,
        sinks: PartAndParity<Option<Box<dyn Sink + 'o>>>,
    ) -> Result<(Intact, RebuiltSinks<'o>)> {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (to_send, read) = sync_channel(AHEAD);
            let shards = self.readers(scope, own)?;
            let checker = start(scope, move || self.check(own, &shards, &to_send))?;
            let outputs = sinks.try_map(|sink| sink.map(|sink| output(scope, sink)).transpose())?;
            let incoming = self.incoming(scope, &stop)?;
            let decoders = self.decoders(scope)?;
            let chunks = outputs.as_ref();
            let chunks = chunks.map(|output| output.as_ref().map(|output| &output.chunks));
            let passed = self.rows(&read, &incoming, &decoders, chunks);
            stop.store(true, Ordering::Relaxed);
            drop((read, incoming, decoders));
            let rebuilt = outputs.try_map(|output| output.map(end).transpose())?;
            let read = checker.join().map_err(panicked)?;
            passed?;
            let digests = read.zip(rebuilt.as_ref()).zip(self.wanted);
            let intact = digests.map(|((is_read_right, rebuilt), wanted)| match rebuilt {
                Some(rebuilt) => rebuilt.digest == wanted,
                None => is_read_right,
            });
            let sinks = rebuilt.map(|output| output.map(|output| (output.sink, output.written)));
            Ok((intact, sinks))
        })
    }

    /// Returns the rows of which this member has a shard, in their order, with the shard's place, and the part or parity from which the
    /// shard is read.
    fn held<'r>(
        &'r self,
        own: PartAndParity<Option<&'r dyn Part>>,
    ) -> impl Iterator<Item = (Row, Place, &'r dyn Part)> + 'r {
        self.layout.rows().filter_map(move |row| {
            let place = row.place(self.exchange.me)?;
            own.of(place).map(|from| (row, place, from))
        })
    }

    /// Starts threads that read this member's part and parity, a row each in turn.
    fn readers<'s>(
        &'s self,
        scope: &'s Scope<'s, '_>,
        own: PartAndParity<Option<&'s dyn Part>>,
    ) -> Result<Vec<Read>> {
        let readers = (0..READERS).map(|reader| {
            let (read, shards) = sync_channel(AHEAD);
            start(scope, move || {
                for (row, place, from) in self.held(own).skip(reader).step_by(READERS) {
                    // A shard that cannot be read is sent as zeros, as the other members wait for a shard. The checksum shows the
                    // error at the end.
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

    /// Computes the checksums of the read part and parity, and hands on the shards to be sent. Returns flags that are true if part and
    /// parity are intact.
    fn check(
        &self,
        own: PartAndParity<Option<&dyn Part>>,
        read: &[Read],
        to_send: &SyncSender<Vec<u8>>,
    ) -> Intact {
        let mut digests = PartAndParity::<Digester>::default();
        let me = self.exchange.me;
        for ((row, place, _), shards) in self.held(own).zip(read.iter().cycle()) {
            let Ok((bytes, chunk)) = shards.recv() else {
                break;
            };
            let digest = digests.as_mut().of(place);
            digest.update(chunk.get(..bytes).unwrap_or_default());
            let is_sent = self.roles(&row).is_some_and(|roles| roles.is_source(me));
            if is_sent && to_send.send(chunk).is_err() {
                break;
            }
        }
        let digests = own.zip(digests).zip(self.wanted);
        digests.map(|((own, digest), wanted)| own.is_some() && digest.finish() == wanted)
    }

    /// Starts a thread for each member that sends shards to this one, if the transport is parallel. The thread receives these shards.
    fn incoming<'s>(
        &'s self,
        scope: &'s Scope<'s, '_>,
        stop: &'s AtomicBool,
    ) -> Result<Vec<Option<Received>>> {
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

    /// Starts threads that decode, if only this member lost shards. If other members wait for shards, the caller's thread decodes them and
    /// sends them at once.
    fn decoders<'s>(&'s self, scope: &'s Scope<'s, '_>) -> Result<Vec<Decoder>> {
        let me = self.exchange.me;
        let lost_alone = |roles: &Roles| roles.lost.iter().all(|(_, member)| *member == me);
        let has_lost = self.roles.iter().any(|roles| roles.has_lost(me));
        let count = match has_lost && self.roles.iter().all(lost_alone) {
            true => DECODERS,
            false => 0,
        };
        let decoders = (0..count).map(|_| {
            let (give, given) = sync_channel::<DecoderInput>(1);
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
        incoming: &[Option<Received>],
        decoders: &[Decoder],
        outputs: PartAndParity<Option<&SyncSender<Vec<u8>>>>,
    ) -> Result<()> {
        let me = self.exchange.me;
        let mut code = Code::new(self.layout.data(), self.layout.parity())?;
        // Rows that are being decoded, by the decoders in turn.
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
                for &(shard, member) in &roles.sources {
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
            } else if roles.has_lost(me) {
                put(receive(decoder)?)?;
            } else if roles.is_source(me) {
                let chunk = read.recv().map_err(|_| lost_thread())?;
                self.exchange
                    .send(decoder, Step::Shard, row.number, chunk)?;
            }
        }
        decoding.into_iter().try_for_each(finish)
    }
}

/// Hands a rebuilt shard to the thread that writes it.
fn put(
    place: Place,
    mut chunk: Vec<u8>,
    outputs: PartAndParity<Option<&SyncSender<Vec<u8>>>>,
) -> Result<()> {
    if let Place::Data { bytes, .. } = place {
        // The zeros behind the part's bytes are not of the part.
        chunk.truncate(bytes);
    }
    match outputs.of(place) {
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
        let (mut digest, mut written) = (Digester::default(), Ok(()));
        for chunk in made {
            digest.update(&chunk);
            // An error is reported at the end, as the pass goes on for the other members.
            if written.is_ok() {
                written = sink.write(chunk);
            }
        }
        Written {
            digest: digest.finish(),
            sink,
            written,
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

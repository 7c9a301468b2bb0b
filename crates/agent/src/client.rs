//! The application's side: finds or starts the agent, and uses external storage through it.

mod opened;
#[cfg(test)]
mod tests;
mod word;

use crate::ends::{Ends, PieceKey, Unnoted};
use crate::home::Home;
use crate::protocol::{Failure, PROTOCOL, Reply, Request, Route, Status, receive, send};
use crate::{Error, Result};
use opened::OpenSlot;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tierflow_store::{
    Collective, Damage, Identity, Mark, Options, Piece, PieceInfo, Ready, Repository, Snapshot,
    Vault, VersionInfo, create_dir_durably,
};
use word::Word;

/// Time without a whole message after which a connection counts as broken. An agent that works sends a message at least once a second.
const SILENCE: Duration = Duration::from_secs(10);
/// The longest time that a started agent may take until it answers.
const STARTING: Duration = Duration::from_secs(10);
/// The most versions in one request.
const VERSIONS_AT_ONCE: usize = 10_000;

/// A connection to an agent.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    /// The longest wait for a whole message.
    silence: Duration,
}

impl Client {
    /// Connects to the agent of the scratch directory.
    ///
    /// # Errors
    /// [`Error::Absent`] if this user has no agent there; [`Error::Refused`] if its directory or socket is open to others or not this user's;
    /// [`Error::Protocol`] if the agent speaks another version of the protocol; [`Error::Connection`] if it does not answer.
    pub fn connect(scratch: &Path) -> Result<Self> {
        let stream = Home::open(scratch, false)?.connect()?;
        let mut client = Self {
            stream,
            silence: SILENCE,
        };
        match client.ask(&Request::Hello { protocol: PROTOCOL })? {
            Reply::Hello { protocol: PROTOCOL } => Ok(client),
            _ => Err(Error::Protocol("it answers with another version")),
        }
    }

    /// Connects to the agent of the scratch directory. If none answers, first starts `program`: usually `tierflow-agent`, found by `PATH` if it
    /// has no slash. The agent outlives this process, and ends after a minute without work.
    ///
    /// # Errors
    /// As [`connect`](Self::connect); [`Error::File`] if the program cannot be started.
    pub fn connect_or_start(scratch: &Path, program: &Path) -> Result<Self> {
        let absent = match Self::connect(scratch) {
            Err(error @ Error::Absent { .. }) => error,
            connected => return connected,
        };
        // The agent inherits no descriptor: a reader that waits for the end of this process's output does not wait for the agent.
        let child = Command::new(program)
            .arg(scratch)
            .args(["--exit-when-idle", "60"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let mut child = child.map_err(|source| Error::File {
            doing: "starting",
            path: program.to_path_buf(),
            source,
        })?;
        let begun = Instant::now();
        let mut connected = Err(absent);
        while begun.elapsed() < STARTING {
            connected = Self::connect(scratch);
            if !matches!(connected, Err(Error::Absent { .. })) {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        // If the agent ends before this process, the thread reaps it.
        let _waiter = std::thread::Builder::new()
            .name("tierflow-agent-end".to_owned())
            .spawn(move || child.wait());
        connected
    }

    /// Returns the state of the agent and of its routes.
    ///
    /// # Errors
    /// [`Error::Connection`] if the connection broke; [`Error::Protocol`] if the answer is no status.
    pub fn status(&mut self) -> Result<Status> {
        match self.ask(&Request::Status)? {
            Reply::Status(status) => Ok(status),
            _ => Err(Error::Protocol("an unexpected answer")),
        }
    }

    /// Tells the agent to bring the pieces that are on the node, and to end.
    ///
    /// # Errors
    /// [`Error::Connection`] if the connection broke; [`Error::Protocol`] if the answer is unexpected.
    pub fn stop(&mut self) -> Result<()> {
        self.done(&Request::Stop)
    }

    /// Puts the connection on a route. Later requests are about this route.
    ///
    /// # Errors
    /// [`Error::Failed`] if the agent cannot do it; [`Error::Store`] with [`Full`](tierflow_store::Error::Full) if a storage is full;
    /// [`Error::Connection`] if the connection broke; [`Error::Protocol`] if the answer is unexpected.
    pub fn take(&mut self, route: &Route) -> Result<()> {
        let route = route.clone();
        self.done(&Request::Take { route })
    }

    /// Waits until a version of the route is published.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn publish(&mut self, version: u64) -> Result<()> {
        self.done(&Request::Publish { version })
    }

    fn done(&mut self, request: &Request) -> Result<()> {
        match self.ask(request)? {
            Reply::Done => Ok(()),
            Reply::Failed(Failure {
                message,
                full: None,
            }) => Err(Error::Failed(message)),
            Reply::Failed(failure) => Err(Error::Store(failure.into())),
            _ => Err(Error::Protocol("an unexpected answer")),
        }
    }

    fn ask(&mut self, request: &Request) -> Result<Reply> {
        let word = |stream| Word::new(stream, self.silence);
        send(&mut word(&self.stream), request)?;
        loop {
            match receive(&mut word(&self.stream))? {
                Some(Reply::Working) => {}
                Some(reply) => return Ok(reply),
                None => return Err(Error::Connection(std::io::ErrorKind::UnexpectedEof.into())),
            }
        }
    }
}

/// External storage to which an agent brings pieces from a node-local directory. If no agent answers, this process copies them itself.
#[derive(Debug)]
pub struct AgentVault {
    scratch: PathBuf,
    program: Option<PathBuf>,
    route: Route,
    options: Options,
    /// Idle connections on the route.
    clients: Mutex<Vec<Client>>,
    /// External storage, opened for reading.
    reader: OpenSlot<Repository>,
    /// Both ends of the route, once this process writes without an agent.
    writer: OpenSlot<Ends>,
}

/// Options of an [`AgentVault`]: the directories, and the rank that uses them.
#[derive(Debug, Clone)]
pub struct AgentConnection {
    scratch: PathBuf,
    program: Option<PathBuf>,
    local: PathBuf,
    external: PathBuf,
    rank: u32,
    ranks: u32,
}

impl AgentConnection {
    /// Makes options for the agent of `scratch`, which copies from the node-local directory `local` to the directory `external`.
    #[must_use]
    pub fn new(
        scratch: impl Into<PathBuf>,
        local: impl Into<PathBuf>,
        external: impl Into<PathBuf>,
    ) -> Self {
        Self {
            scratch: scratch.into(),
            program: None,
            local: local.into(),
            external: external.into(),
            rank: 0,
            ranks: 1,
        }
    }

    /// Lets the vault start this program if no agent answers.
    #[must_use]
    pub fn starting(self, program: impl Into<PathBuf>) -> Self {
        let program = Some(program.into());
        Self { program, ..self }
    }

    /// Chooses the rank of a group whose pieces are copied. Without this call, rank 0 of 1.
    #[must_use]
    pub fn rank(self, rank: u32, ranks: u32) -> Self {
        Self {
            rank,
            ranks,
            ..self
        }
    }

    /// Opens external storage. The vault works without an agent, too.
    ///
    /// # Errors
    /// [`Error::Refused`] if the agent's directory is open to others; [`Error::File`] if a path cannot be made
    /// absolute, or is not UTF-8; [`Error::Protocol`] if another version of the agent answers.
    pub fn open(self) -> Result<Arc<AgentVault>> {
        let route = Route {
            local: absolute(&self.local)?,
            external: absolute(&self.external)?,
            rank: self.rank,
            ranks: self.ranks,
        };
        let vault = AgentVault {
            scratch: self.scratch,
            program: self.program,
            route,
            options: Options::default().rank(self.rank, self.ranks),
            clients: Mutex::default(),
            reader: OpenSlot::default(),
            writer: OpenSlot::default(),
        };
        match vault.client() {
            Ok(client) => vault.clients.lock().push(client),
            // The vault works without the agent.
            Err(Error::Absent { .. } | Error::Connection(_) | Error::Failed(_)) => {}
            Err(Error::File { .. }) if vault.program.is_some() => {}
            Err(error) => return Err(error),
        }
        Ok(Arc::new(vault))
    }
}

fn absolute(path: &Path) -> Result<String> {
    let failed = |source| Error::File {
        doing: "finding",
        path: path.to_path_buf(),
        source,
    };
    let absolute = std::path::absolute(path).map_err(failed)?;
    let text = absolute.into_os_string().into_string();
    text.map_err(|_| {
        failed(std::io::Error::other(
            "it is not UTF-8: choose another path",
        ))
    })
}

impl AgentVault {
    /// Returns true if an agent answers.
    #[must_use]
    pub fn has_agent(&self) -> bool {
        let client = self.client();
        let has = client.is_ok();
        self.clients.lock().extend(client);
        has
    }

    /// Returns a connection that is on the route: an idle one, or a new one.
    fn client(&self) -> Result<Client> {
        if let Some(client) = self.clients.lock().pop() {
            return Ok(client);
        }
        let mut client = match &self.program {
            Some(program) => Client::connect_or_start(&self.scratch, program)?,
            None => Client::connect(&self.scratch)?,
        };
        client.take(&self.route)?;
        Ok(client)
    }

    /// Asks the agent. Tries twice, as the agent may have ended since the last request. Returns `None` if there is no agent, or if this process
    /// writes itself already.
    fn ask(&self, request: &Request) -> Option<Reply> {
        if self.writer.wait().is_some() {
            return None;
        }
        for _ in 0..2 {
            let Ok(mut client) = self.client() else {
                continue;
            };
            match client.ask(request) {
                Ok(reply) => {
                    self.clients.lock().push(client);
                    return Some(reply);
                }
                // The idle connections lead to the same agent, and are broken, too.
                Err(_) => self.clients.lock().clear(),
            }
        }
        None
    }

    /// Asks the agent to do something. If there is no agent, opens both ends of the route and runs `myself`.
    fn done(
        &self,
        request: &Request,
        myself: impl FnOnce(&Ends) -> tierflow_store::Result<()>,
    ) -> tierflow_store::Result<()> {
        match self.ask(request) {
            Some(Reply::Done) => Ok(()),
            Some(Reply::Failed(failure)) => Err(failure.into()),
            Some(_) => Err(tierflow_store::Error::Remote(
                "the agent gave an answer that does not fit".to_owned(),
            )),
            None => {
                let open = || Ends::open(&self.route, self.options.clone(), Unnoted::default());
                myself(&*self.writer.get_or_open(open)?)
            }
        }
    }

    /// Returns both ends of the route, once this process writes itself.
    fn writer(&self) -> Option<Arc<Ends>> {
        self.writer.get()
    }

    /// Returns external storage for reading; `None` if its directory does not exist, as nothing was brought yet.
    fn existing(&self) -> tierflow_store::Result<Option<Arc<Repository>>> {
        match self.reader() {
            Err(tierflow_store::Error::Open { .. })
                if !Path::new(&self.route.external).exists() =>
            {
                Ok(None)
            }
            reader => reader.map(Some),
        }
    }

    fn reader(&self) -> tierflow_store::Result<Arc<Repository>> {
        if let Some(writer) = self.writer() {
            return Ok(Arc::clone(&writer.external));
        }
        let external = Path::new(&self.route.external);
        let open = || Repository::read_only(external, self.options.clone());
        self.reader.get_or_open(open)
    }
}

impl Vault for AgentVault {
    fn versions(&self) -> tierflow_store::Result<Vec<VersionInfo>> {
        match self.existing()? {
            Some(reader) => reader.versions(),
            None => Ok(Vec::new()),
        }
    }

    fn piece(&self, version: u64) -> tierflow_store::Result<Piece> {
        self.reader()?.own_piece(version)
    }

    fn pieces(&self) -> tierflow_store::Result<Vec<PieceInfo>> {
        match self.existing()? {
            Some(reader) => reader.own_pieces(),
            None => Ok(Vec::new()),
        }
    }

    fn last_run(&self) -> tierflow_store::Result<Mark> {
        match self.existing()? {
            Some(reader) => reader.last_run(),
            None => Ok(Mark::default()),
        }
    }

    fn damage(&self) -> Vec<Damage> {
        let reader = self.existing().ok().flatten();
        reader.map_or_else(Vec::new, |reader| reader.damage())
    }

    /// Saves only after this process began to write itself: an agent copies pieces of the node-local directory, and nothing else.
    fn save(&self, snapshot: &Snapshot<'_>, ready: &Ready<'_>) -> tierflow_store::Result<()> {
        match self.writer() {
            Some(writer) => Vault::save(&*writer.external, snapshot, ready),
            None => Err(tierflow_store::Error::Remote(
                "the agent takes only what lies in the node-local directory: see why that takes no more".to_owned(),
            )),
        }
    }

    fn copy(&self, piece: &Piece, ready: &Ready<'_>) -> tierflow_store::Result<()> {
        ready()?;
        let version = piece.version();
        let copied = self.done(&Request::Publish { version }, |ends| {
            ends.may_bring(&PieceKey::from(&piece.info()), || true)?;
            // As the agent does: the mark tells the run on another node which copies count.
            ends.external.mark(ends.node()?.last_run()?)?;
            ends.external.copy(piece)
        });
        // If the piece itself cannot be read, the error says so.
        match copied {
            Err(tierflow_store::Error::Remote(message)) => {
                piece.verify(&|_| {})?;
                Err(tierflow_store::Error::Remote(message))
            }
            copied => copied,
        }
    }

    fn takes_copies_alone(&self) -> bool {
        true
    }

    fn collective(&self) -> Option<&dyn Collective> {
        Some(self)
    }

    fn refuses(&self, version: u64, identity: &Identity) -> tierflow_store::Result<bool> {
        let reader = self.existing()?;
        reader.map_or(Ok(false), |reader| reader.refuses(version, identity))
    }

    fn renumber(&self, run: u64) {
        if let Some(writer) = self.writer() {
            writer.external.renumber(run);
        }
    }

    fn remove(&self, versions: &BTreeSet<u64>) -> tierflow_store::Result<()> {
        let all: Vec<u64> = versions.iter().copied().collect();
        all.chunks(VERSIONS_AT_ONCE).try_for_each(|some| {
            let request = Request::Remove {
                versions: some.to_vec(),
            };
            self.done(&request, |ends| {
                Ok(ends.remove(&some.iter().copied().collect())?)
            })
        })
    }
}

/// The directory on external storage in which the ranks meet if agents write their pieces.
const MEETING: &str = "meeting";

impl Collective for AgentVault {
    fn all_gather(&self, mine: &[u8], patience: Duration) -> tierflow_store::Result<Vec<Vec<u8>>> {
        let external = Path::new(&self.route.external);
        // If the directory cannot be made, opening the repository fails with the reason.
        let _failure_said_next = create_dir_durably(external);
        Repository::open(external.join(MEETING), self.options.clone())?.all_gather(mine, patience)
    }
}

//! Messages between client and agent: frames of JSON. Each has its length before it, in four bytes (little-endian).

use crate::{Error, Result};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::io::{ErrorKind, Read, Write};
use std::path::Path;

/// The version of the protocol. Both sides send their version first; the versions must be the same.
pub const PROTOCOL: u32 = 2;

/// The most bytes of a frame.
pub const FRAME_LIMIT: usize = 1 << 20;

/// The rank whose pieces are brought, and the two directories between which they are copied.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// The directory of the node, an absolute path.
    pub local: String,
    /// The directory on external storage, an absolute path.
    pub external: String,
    /// The rank whose pieces are brought.
    pub rank: u32,
    /// The number of ranks.
    pub ranks: u32,
}

/// A client's request. The agent sends one reply to each, perhaps after several [`Reply::Working`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// The first request: names the protocol that the client speaks.
    Hello {
        /// The version of the protocol.
        protocol: u32,
    },
    /// Bring all pieces that are saved to the route's local directory, now and later, to its external directory, until the connection ends and
    /// all pieces are there. The requests that follow are about this route.
    Take {
        /// The route.
        route: Route,
    },
    /// Reply when this rank's piece of a version is published on external storage.
    Publish {
        /// The version.
        version: u64,
    },
    /// Remove these versions from external storage, and do not bring them there again.
    Remove {
        /// The versions.
        versions: Vec<u64>,
    },
    /// Send the state of the agent and its routes.
    Status,
    /// Accept no more routes, bring the pieces that are on the node, and end.
    Stop,
}

/// The agent's answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case", deny_unknown_fields)]
pub enum Reply {
    /// The protocol that the agent speaks.
    Hello {
        /// The version of the protocol.
        protocol: u32,
    },
    /// The request is done.
    Done,
    /// The work goes on; another reply follows. Sent at least once a second.
    Working,
    /// The request could not be done.
    Failed(Failure),
    /// The state of the agent and its routes.
    Status(Status),
}

/// The reason for which a request could not be done. All versions of the protocol can read it, so that each understands the refusal of
/// another version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The reason as text.
    pub message: String,
    /// The storage, if the reason is that it is full: make room, then ask again.
    #[serde(default)]
    pub full: Option<Full>,
}

/// A storage that is full: the fields of [`tierflow_store::Error::Full`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Full {
    /// The directory, if there is one.
    pub place: Option<String>,
    /// The offset in bytes.
    pub offset: u64,
    /// The bytes that were to be written.
    pub bytes: usize,
}

impl Full {
    /// Makes the description for a file that could not be written, if the storage is full.
    fn of(path: &Path, source: &std::io::Error) -> Option<Self> {
        let is_full = matches!(
            source.kind(),
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge
        );
        is_full.then(|| Self {
            place: path.parent().map(|place| place.display().to_string()),
            offset: 0,
            bytes: 0,
        })
    }
}

impl From<String> for Failure {
    fn from(message: String) -> Self {
        let full = None;
        Self { message, full }
    }
}

impl From<&tierflow_store::Error> for Failure {
    fn from(error: &tierflow_store::Error) -> Self {
        let message = error.to_string();
        let full = match error {
            tierflow_store::Error::Full {
                place,
                offset,
                bytes,
            } => Some(Full {
                place: place.as_ref().map(|place| place.display().to_string()),
                offset: *offset,
                bytes: *bytes,
            }),
            _ => None,
        };
        Self { message, full }
    }
}

impl From<&Error> for Failure {
    fn from(error: &Error) -> Self {
        let full = match error {
            Error::Store(error) => return error.into(),
            Error::File { path, source, .. } => Full::of(path, source),
            _ => None,
        };
        let message = error.to_string();
        Self { message, full }
    }
}

impl From<Failure> for tierflow_store::Error {
    fn from(Failure { message, full }: Failure) -> Self {
        match full {
            Some(full) => Self::Full {
                place: full.place.map(Into::into),
                offset: full.offset,
                bytes: full.bytes,
            },
            None => Self::Remote(message),
        }
    }
}

/// The state of an agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Status {
    /// The agent's process.
    pub process: u32,
    /// Threads that bring pieces at the moment.
    pub threads: usize,
    /// The routes that the agent serves.
    pub routes: Vec<RouteStatus>,
}

/// The state of one route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteStatus {
    /// The route.
    pub route: Route,
    /// Number of clients on the route.
    pub clients: usize,
    /// Versions that are copied, wait for it, or cannot be read on the node.
    pub pending: Vec<u64>,
    /// Number of further such versions, which `pending` does not list, as a reply has room for some thousands. Not sent if it is 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unlisted: usize,
    /// Number of pieces that were brought since the agent started, or were on external storage already when a client asked for them.
    pub brought: u64,
    /// The error of the last try, if it failed, or of a piece on the node that cannot be read.
    pub trouble: Option<String>,
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// Writes one frame.
///
/// # Errors
/// [`Error::Connection`] if the connection broke; [`Error::Protocol`] if the frame is too long.
pub fn send(to: &mut impl Write, message: &impl Serialize) -> Result<()> {
    let mut frame = vec![0; 4];
    serde_json::to_writer(&mut frame, message)
        .map_err(|_| Error::Protocol("a message cannot be written"))?;
    let length = frame.len() - 4;
    if length > FRAME_LIMIT {
        return Err(Error::Protocol(
            "a message is too long: name fewer versions",
        ));
    }
    frame[..4].copy_from_slice(&(length as u32).to_le_bytes());
    to.write_all(&frame).map_err(Error::Connection)
}

/// Reads one frame; `None` if the other side has ended the connection. Allocates memory only for bytes that arrive.
///
/// # Errors
/// [`Error::Connection`] if the connection broke; [`Error::Protocol`] if the frame is too long, cut off, or no known message.
pub fn receive<T: DeserializeOwned>(from: &mut impl Read) -> Result<Option<T>> {
    let mut length = [0; 4];
    // A signal ends the wait for a socket that has a time limit, whatever its handler asks for.
    let first = loop {
        match from.read(&mut length) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            first => break first.map_err(Error::Connection)?,
        }
    };
    if first == 0 {
        return Ok(None);
    }
    from.read_exact(&mut length[first..])
        .map_err(Error::Connection)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > FRAME_LIMIT {
        return Err(Error::Protocol("a frame is too long"));
    }
    let mut frame = Vec::new();
    let read = from.take(length as u64).read_to_end(&mut frame);
    if read.map_err(Error::Connection)? < length {
        return Err(Error::Protocol("a frame is cut off"));
    }
    serde_json::from_slice(&frame)
        .map(Some)
        .map_err(|_| Error::Protocol("a message that is not known"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    #[test]
    fn a_refusal_of_the_first_version_is_read() {
        let sent = r#"{"say":"failed","source":"agent","message":"it speaks another version"}"#;
        let Reply::Failed(failure) = serde_json::from_str(sent).unwrap() else {
            panic!("it is a refusal");
        };
        assert_eq!(failure.message, "it speaks another version");
        assert_eq!(failure.full, None);
    }

    #[test]
    fn what_is_sent_is_received() {
        let route = Route {
            local: "/a".to_owned(),
            external: "/b\n\"ü".to_owned(),
            rank: 1,
            ranks: 3,
        };
        let requests = [
            Request::Hello { protocol: PROTOCOL },
            Request::Take { route },
            Request::Publish { version: u64::MAX },
            Request::Remove {
                versions: vec![0, u64::MAX],
            },
            Request::Status,
            Request::Stop,
        ];
        let mut wire = Vec::new();
        for request in &requests {
            send(&mut wire, request).unwrap();
        }
        let mut wire = wire.as_slice();
        for request in requests {
            assert_eq!(receive(&mut wire).unwrap(), Some(request));
        }
        assert_eq!(receive::<Request>(&mut wire).unwrap(), None);
    }

    #[test]
    fn a_full_storage_is_one_to_the_client() {
        let full = tierflow_store::Error::Full {
            place: Some("/far".into()),
            offset: 4096,
            bytes: 8192,
        };
        let mut wire = Vec::new();
        send(&mut wire, &Reply::Failed(Failure::from(&full))).unwrap();
        let Some(Reply::Failed(failure)) = receive(&mut wire.as_slice()).unwrap() else {
            panic!("another reply");
        };
        let again = tierflow_store::Error::from(failure);
        assert_eq!(format!("{again:?}"), format!("{full:?}"));
    }

    #[test]
    fn a_note_without_room_is_a_full_storage_to_the_client() {
        let failed = |source: Errno| Error::File {
            doing: "writing",
            path: "/near/note".into(),
            source: source.into(),
        };
        for source in [Errno::NOSPC, Errno::DQUOT] {
            let told = tierflow_store::Error::from(Failure::from(&failed(source)));
            let tierflow_store::Error::Full { place, .. } = told else {
                panic!("{told}");
            };
            assert_eq!(place.as_deref(), Some(Path::new("/near")));
        }
        let told = tierflow_store::Error::from(failed(Errno::IO));
        assert!(matches!(told, tierflow_store::Error::Remote(_)), "{told}");
    }

    /// A reader that a signal interrupts before each byte.
    struct Interrupted<'a>(&'a [u8], bool);

    impl Read for Interrupted<'_> {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            self.1 = !self.1;
            match self.1 {
                true => Err(ErrorKind::Interrupted.into()),
                false => self.0.read(into.get_mut(..1).unwrap_or_default()),
            }
        }
    }

    #[test]
    fn a_signal_breaks_no_connection() {
        let mut wire = Vec::new();
        send(&mut wire, &Request::Status).unwrap();
        let mut wire = Interrupted(&wire, false);
        assert_eq!(receive(&mut wire).unwrap(), Some(Request::Status));
        assert_eq!(receive::<Request>(&mut wire).unwrap(), None);
    }

    #[test]
    fn what_is_no_message_is_refused() {
        let wrong: [&[u8]; 6] = [
            &[1, 0],
            &[9, 0, 0, 0, b'{'],
            &[255, 255, 255, 255],
            &[2, 0, 0, 0, b'{', b'}'],
            b"\x10\0\0\0{\"ask\":\"nothing\"}",
            b"\x20\0\0\0{\"ask\":\"status\",\"more\":123456789}",
        ];
        for bytes in wrong {
            assert!(receive::<Request>(&mut &*bytes).is_err(), "{bytes:?}");
        }
    }
}

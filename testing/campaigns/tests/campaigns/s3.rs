//! The S3 server of the campaigns: `children/s3.py`, which keeps acknowledged objects through `kill -9`.

use super::doors::{interpreter, script};
use super::draws::variable;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

/// A server, which ends when this is dropped, or when this process ends.
pub(crate) struct Server {
    child: Child,
    port: u16,
    root: PathBuf,
}

impl Server {
    /// Starts a server with its objects below `root`, at this port, or at any port if it is 0. Returns `None` if there is no Python.
    pub(crate) fn start(root: &Path, port: u16) -> Option<Self> {
        let mut command = Command::new(interpreter());
        command.arg(script("s3.py")).arg(port.to_string()).arg(root);
        // The server ends when its input ends.
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().ok()?;
        let mut line = String::new();
        let output = child.stdout.take()?;
        BufReader::new(output).read_line(&mut line).ok()?;
        Some(Self {
            child,
            port: line.trim().parse().ok()?,
            root: root.to_owned(),
        })
    }

    /// Returns the environment variables with which programs find the server.
    pub(crate) fn environment(&self) -> [(&'static str, String); 5] {
        [
            (
                "AWS_ENDPOINT_URL",
                format!("http://127.0.0.1:{}", self.port),
            ),
            ("AWS_ALLOW_HTTP", "true".to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
            ("AWS_ACCESS_KEY_ID", "key".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "secret".to_owned()),
        ]
    }

    /// Kills the server as `kill -9` does. Returns true if it ran until then.
    pub(crate) fn kill(&mut self) -> bool {
        let ran = matches!(self.child.try_wait(), Ok(None));
        let _ended_already = self.child.kill();
        let _ended_already = self.child.wait();
        ran
    }

    /// Starts the server again, at the same port and with its objects.
    pub(crate) fn restart(&mut self) {
        self.kill();
        *self = Self::start(&self.root, self.port).unwrap_or_else(|| panic!("no S3 server"));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns the server of all histories that kill no server.
pub(crate) fn shared() -> Option<&'static Server> {
    static SERVER: OnceLock<Option<(Server, tempfile::TempDir)>> = OnceLock::new();
    let server = SERVER.get_or_init(|| {
        let root = tempfile::tempdir().unwrap();
        let server = Server::start(root.path(), 0);
        if server.is_none() {
            eprintln!(
                "NOT RUN: slow storage and an object store; there is no Python for an S3 server"
            );
        }
        Some((server?, root))
    });
    server.as_ref().map(|(server, _)| server)
}

/// Returns the bucket of another server from `TIERFLOW_S3`. Other variables have its endpoint and credentials.
pub(crate) fn bucket() -> Option<String> {
    let bucket: String = variable("TIERFLOW_S3", String::new());
    (!bucket.is_empty()).then_some(bucket)
}

//! One client of the agent: what it asks for, and what it hears.

use super::{BEAT, Server};
use crate::flow::Flow;
use crate::home::check_peer;
use crate::protocol::{PROTOCOL, Reply, Request, Route, Status, receive, send};
use crate::{Error, Result};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often one who waits hears that the agent is still there.
const WORKING_EVERY: Duration = Duration::from_millis(500);

/// Serves a client until it goes.
pub(super) fn attend(server: &Arc<Server>, stream: UnixStream) {
    let mut connection = Connection {
        server: Arc::clone(server),
        stream,
        flow: None,
    };
    if let Err(error) = connection.serve() {
        let failed = Reply::Failed {
            source: false,
            message: error.to_string(),
        };
        // It may be the connection that broke.
        let _unheard = send(&mut connection.stream, &failed);
    }
    connection.leave();
}

/// One client.
struct Connection {
    server: Arc<Server>,
    stream: UnixStream,
    flow: Option<Arc<Flow>>,
}

impl Connection {
    fn serve(&mut self) -> Result<()> {
        check_peer(&self.stream, Path::new("a connection"))?;
        match receive(&mut self.stream)? {
            Some(Request::Hello { protocol: PROTOCOL }) => {}
            Some(_) => return Err(Error::Protocol("another version, or no greeting")),
            None => return Ok(()),
        }
        send(&mut self.stream, &Reply::Hello { protocol: PROTOCOL })?;
        while let Some(request) = receive(&mut self.stream)? {
            let reply = match request {
                Request::Hello { .. } => return Err(Error::Protocol("a second greeting")),
                Request::Take { route } => self.take(route).map(|()| Reply::Done),
                Request::Publish { version } => self.publish(version),
                Request::Remove { versions } => self.on_route().and_then(|flow| {
                    flow.remove(versions.into_iter().collect())?;
                    Ok(Reply::Done)
                }),
                Request::Status => Ok(Reply::Status(self.status())),
                Request::Stop => {
                    // Before the agent may be gone.
                    send(&mut self.stream, &Reply::Done)?;
                    self.server.stop();
                    continue;
                }
            };
            let reply = reply.unwrap_or_else(|error| Reply::Failed {
                source: false,
                message: error.to_string(),
            });
            send(&mut self.stream, &reply)?;
        }
        Ok(())
    }

    fn take(&mut self, route: Route) -> Result<()> {
        let absolute = |path: &str| Path::new(path).is_absolute() && path.len() < 4096;
        if !absolute(&route.local) || !absolute(&route.external) || route.rank >= route.ranks {
            return Err(Error::Protocol(
                "a route needs two absolute paths and a rank of the group",
            ));
        }
        self.leave();
        let mut shared = self.server.shared.lock();
        if shared.stopping {
            return Err(Error::Failed("the agent is about to end".to_owned()));
        }
        let known = shared.flows.get(&route).cloned();
        let flow = match &known {
            Some(flow) => Arc::clone(flow),
            None => {
                let flow = Arc::new(Flow::new(route.clone()));
                shared.flows.insert(route.clone(), Arc::clone(&flow));
                if let Err(error) = self.server.note(&shared) {
                    shared.flows.remove(&route);
                    return Err(error);
                }
                flow
            }
        };
        {
            let mut state = flow.state.lock();
            state.clients += 1;
            state.looked_after_clients = false;
        }
        self.flow = Some(flow);
        Ok(())
    }

    fn on_route(&self) -> Result<&Arc<Flow>> {
        self.flow
            .as_ref()
            .ok_or(Error::Protocol("no route was named before"))
    }

    /// Waits until a version is published, and lets the client know meanwhile that somebody is there.
    fn publish(&mut self, version: u64) -> Result<Reply> {
        let flow = Arc::clone(self.on_route()?);
        flow.state.lock().watch(version);
        self.server.notify();
        let mut said = Instant::now();
        loop {
            let mut shared = self.server.shared.lock();
            if let Some(outcome) = flow.state.lock().outcome(version) {
                return Ok(match outcome {
                    Ok(()) => Reply::Done,
                    Err(failure) => Reply::Failed {
                        source: failure.source,
                        message: failure.message,
                    },
                });
            }
            if said.elapsed() >= WORKING_EVERY {
                drop(shared);
                said = Instant::now();
                if let Err(gone) = send(&mut self.stream, &Reply::Working) {
                    flow.state.lock().unwatch(version);
                    return Err(gone);
                }
                continue;
            }
            self.server.changed.wait_for(&mut shared, BEAT);
        }
    }

    fn status(&self) -> Status {
        let shared = self.server.shared.lock();
        Status {
            process: std::process::id(),
            threads: shared.threads,
            routes: shared.flows.values().map(|flow| flow.status()).collect(),
        }
    }

    /// The client is off its route. What it left on the node is looked for at once.
    fn leave(&mut self) {
        if let Some(flow) = self.flow.take() {
            let mut state = flow.state.lock();
            state.clients -= 1;
            state.look_at = Instant::now();
            state.looked_after_clients = false;
        }
    }
}

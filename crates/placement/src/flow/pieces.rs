use super::{EdgeKind, Network};
use crate::{Destination, GpuId, LinkId, Problem, Route, SwitchId, Transfer};

/// Turns the flow on edges into transfers from GPU to GPU or host.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    /// Sender, receiver, route and grains of all pieces, except those over the links that are stored row by row.
    pieces: Vec<(GpuId, Destination, Route, u64)>,
    /// Receiver, route and grains of one GPU's pieces.
    own: Vec<(Destination, Route, u64)>,
    /// Grains that GPUs send to switches.
    senders: Vec<(SwitchId, GpuId, u64)>,
    /// Grains that peers receive from switches.
    receivers: Vec<(SwitchId, GpuId, u64)>,
}

impl Pieces {
    /// Returns the transfers of a flow that places every remainder. `flow` returns the grains of an edge; links come after the
    /// other edges.
    pub(crate) fn transfers(
        &mut self,
        problem: &Problem<'_>,
        network: &Network,
        flow: impl Fn(usize) -> u64,
    ) -> Vec<Transfer> {
        self.pieces.clear();
        self.senders.clear();
        self.receivers.clear();
        for (at, edge) in network.edges.iter().enumerate() {
            match flow(at) {
                0 => {}
                grains => self.add(problem, edge.kind, grains),
            }
        }
        self.match_ports();
        self.pieces
            .sort_unstable_by_key(|&(from, to, via, _)| (from, to, via));

        let links = &network.links;
        let through = |at: usize| flow(network.edges.len() + at);
        let used = (0..links.len()).filter(|at| through(*at) > 0).count();
        let mut transfers = Vec::with_capacity(self.pieces.len() + used);
        let mut pieces = self.pieces.iter().peekable();
        for (from, remainder) in problem.remainders() {
            self.own.clear();
            for at in links.row(network.node(from)) {
                let grains = through(at);
                if grains > 0 {
                    let link = LinkId(links.link[at] as usize);
                    let to = Destination::Peer(network.gpu(links.to[at]));
                    self.own.push((to, Route::Link(link), grains));
                }
            }
            while let Some(&&(_, to, via, grains)) = pieces.peek().filter(|piece| piece.0 == from) {
                pieces.next();
                self.own.push((to, via, grains));
            }
            let place = |&(to, via, _): &(Destination, Route, u64)| (to, via);
            if !self.own.is_sorted_by_key(place) {
                self.own.sort_unstable_by_key(place);
            }
            let mut offset = 0;
            for &(to, via, grains) in &self.own {
                // The last grain of a remainder may have fewer bytes.
                let bytes = (grains * network.grain).min(remainder - offset);
                transfers.push(Transfer {
                    from,
                    to,
                    via,
                    offset,
                    bytes,
                });
                offset += bytes;
            }
        }
        transfers
    }

    fn add(&mut self, problem: &Problem<'_>, kind: EdgeKind, grains: u64) {
        let topology = problem.topology;
        match kind {
            EdgeKind::Link(at) => {
                let link = &topology.links[at];
                let (to, via) = (Destination::Peer(link.to), Route::Link(LinkId(at)));
                self.pieces.push((link.from, to, via, grains));
            }
            EdgeKind::HostPort(at) => {
                let port = &topology.host_ports[at];
                let to = Destination::Host(topology.host_links[port.link.0].host);
                let via = Route::Host(port.link);
                self.pieces.push((port.gpu, to, via, grains));
            }
            EdgeKind::Send(at) => {
                let port = &topology.switch_ports[at];
                self.senders.push((port.switch, port.gpu, grains));
            }
            EdgeKind::Receive(at) => {
                let port = &topology.switch_ports[at];
                self.receivers.push((port.switch, port.gpu, grains));
            }
            EdgeKind::Remainder(_)
            | EdgeKind::Spare(_)
            | EdgeKind::Backplane(_)
            | EdgeKind::HostLink(_)
            | EdgeKind::Host(_) => {}
        }
    }

    /// Pairs senders with receivers of the same switch, which connects any port with any other. Both lists are read in order,
    /// which makes fewer pairs than there are ports.
    fn match_ports(&mut self) {
        self.senders.sort_unstable();
        self.receivers.sort_unstable();
        let (mut sent, mut received) = (0, 0);
        while let (Some(sender), Some(receiver)) =
            (self.senders.get_mut(sent), self.receivers.get_mut(received))
        {
            let grains = sender.2.min(receiver.2);
            sender.2 -= grains;
            receiver.2 -= grains;
            let (to, via) = (Destination::Peer(receiver.1), Route::Switch(sender.0));
            self.pieces.push((sender.1, to, via, grains));
            sent += usize::from(sender.2 == 0);
            received += usize::from(receiver.2 == 0);
        }
    }
}

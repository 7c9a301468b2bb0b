use super::{Edge, EdgeKind, UNLIMITED};

/// Links between GPUs, row by row: the links of one sender are a row.
#[derive(Debug, Default)]
pub(crate) struct Links {
    /// Index of each node's row, and the end of the last row.
    first: Vec<u32>,
    /// The node of each link's peer.
    pub(crate) to: Vec<u32>,
    /// Bytes per second of each link: whole numbers below 2^53.
    pub(crate) bandwidth: Vec<f64>,
    /// Number of each link in the topology.
    pub(crate) link: Vec<u32>,
    /// True if the peers rise in every row.
    rises: bool,
}

impl Links {
    pub(super) fn clear(&mut self) {
        self.first.clear();
        self.to.clear();
        self.bandwidth.clear();
        self.link.clear();
        self.rises = true;
    }

    /// Starts the row of a node, to which the following links are added. Nodes of rows must rise.
    pub(super) fn start_row(&mut self, node: u32) {
        self.first.resize(node as usize + 1, self.to.len() as u32);
    }

    pub(super) fn push(&mut self, link: usize, to: u32, bandwidth: u64) {
        let row = self.first.last().map_or(0, |first| *first as usize);
        self.rises &= self.to[row..].last().is_none_or(|last| *last < to);
        self.to.push(to);
        self.bandwidth.push(bandwidth as f64);
        self.link.push(link as u32);
    }

    pub(in crate::flow) fn finish(&mut self, nodes: usize) {
        self.first.resize(nodes + 1, self.to.len() as u32);
    }

    pub(crate) fn len(&self) -> usize {
        self.to.len()
    }

    /// Returns the indices of a node's links.
    pub(crate) fn row(&self, node: u32) -> std::ops::Range<usize> {
        self.first[node as usize] as usize..self.first[node as usize + 1] as usize
    }

    /// Returns the nodes of a row's peers as a range, if they are consecutive.
    pub(crate) fn side_by_side(&self, row: &[u32]) -> Option<std::ops::Range<usize>> {
        let (first, last) = (*row.first()? as usize, *row.last()? as usize);
        (self.rises && last - first + 1 == row.len()).then_some(first..last + 1)
    }

    /// Returns the nodes that have links, each with the indices of its links.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (u32, std::ops::Range<usize>)> {
        let rows = self.first.windows(2).enumerate();
        let rows = rows.map(|(node, ends)| (node as u32, ends[0] as usize..ends[1] as usize));
        rows.filter(|(_, row)| !row.is_empty())
    }

    /// Returns a link that leaves `from`, as an edge.
    pub(crate) fn edge(&self, from: u32, at: usize) -> Edge {
        Edge {
            kind: EdgeKind::Link(self.link[at] as usize),
            from,
            to: self.to[at],
            volume: UNLIMITED,
            bandwidth: self.bandwidth[at] as u64,
        }
    }

    pub(super) fn edges(&self) -> impl Iterator<Item = Edge> {
        let rows = self.rows();
        rows.flat_map(move |(from, row)| row.map(move |at| self.edge(from, at)))
    }
}

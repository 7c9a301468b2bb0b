//! Compares `Tree` with Algorithm 1 of ICPP'23, which is written here as in the paper, with its tree of hashes (a Merkle tree). `Tree` has
//! regions in place of that tree: every difference stores the same bytes, and `Tree` never has more entries.

use crate::common::{encode, histories};
use proptest::prelude::*;
use std::collections::HashMap;
use tierflow_dedup::{Config, Method, Stored, most_stored_bytes};

/// The kind of a node of the tree. The root of a region that was saved, or has one in it, is `Saved`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Label {
    Fixed,
    First,
    Shifted,
    Saved,
}

/// The content that a digest stands for. Equal numbers are equal contents.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Content {
    Chunk(Vec<u8>),
    Node(usize, usize),
}

/// Entries and payload of a checkpoint's difference.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    first: u32,
    shifted: u32,
    payload: u64,
}

/// A lineage of the paper.
#[derive(Default)]
struct Paper {
    digests: HashMap<Content, usize>,
    /// Digests in the record, which are those of regions that occurred for the first time.
    map: std::collections::HashSet<usize>,
    /// The digest of each chunk of the checkpoint before.
    before: Vec<usize>,
}

impl Paper {
    fn digest(&mut self, content: Content) -> usize {
        let next = self.digests.len();
        *self.digests.entry(content).or_insert(next)
    }

    fn difference(&mut self, data: &[u8], chunk: usize) -> Found {
        let mut found = Found::default();
        let mut tree = Vec::new();
        let mut labels = Vec::new();
        // Lines 1 to 23. Chunks are visited in order, so the entry of a content is always its first occurrence.
        for (leaf, bytes) in data.chunks(chunk).enumerate() {
            let digest = self.digest(Content::Chunk(bytes.to_vec()));
            labels.push(match self.before.get(leaf) == Some(&digest) {
                true => Label::Fixed,
                false if self.map.insert(digest) => {
                    found.payload += bytes.len() as u64;
                    Label::First
                }
                false => Label::Shifted,
            });
            tree.push(digest);
        }
        self.before = tree.clone();
        // Lines 24 to 32, level by level. The last node of a level may have no sibling.
        let mut levels = vec![(tree, labels)];
        while levels.last().unwrap().0.len() > 1 {
            let (tree, labels) = levels.last().unwrap().clone();
            let pairs = tree.chunks_exact(2).zip(labels.chunks_exact(2));
            let nodes = pairs.map(|(digests, labels)| {
                let digest = self.digest(Content::Node(digests[0], digests[1]));
                let is_first = labels == [Label::First; 2];
                if is_first {
                    self.map.insert(digest);
                }
                (digest, if is_first { Label::First } else { Label::Saved })
            });
            levels.push(nodes.unzip());
        }
        // Lines 32 to 46.
        for level in 1..levels.len() {
            for node in 0..levels[level].0.len() {
                let (left, right) = (
                    levels[level - 1].1[2 * node],
                    levels[level - 1].1[2 * node + 1],
                );
                let is_known = self.map.contains(&levels[level].0[node]);
                let label = &mut levels[level].1[node];
                match (left, right) {
                    (Label::Fixed, Label::Fixed) => *label = Label::Fixed,
                    (Label::First, Label::First) => {}
                    (Label::Shifted, Label::Shifted) if is_known => *label = Label::Shifted,
                    (left, right) => {
                        found.save(left);
                        found.save(right);
                    }
                }
            }
        }
        // The root, and the nodes without a sibling.
        for (nodes, labels) in &levels {
            if nodes.len() % 2 == 1 {
                found.save(labels[nodes.len() - 1]);
            }
        }
        found
    }
}

impl Found {
    fn save(&mut self, root: Label) {
        match root {
            Label::First => self.first += 1,
            Label::Shifted => self.shifted += 1,
            Label::Fixed | Label::Saved => {}
        }
    }

    fn entries(&self) -> u32 {
        self.first + self.shifted
    }
}

/// Compares the differences of a history. Returns their number, and the number of those that have fewer entries in `Tree`.
fn compare(history: &[Vec<u8>], chunk: usize, name: &str) -> (u32, u32) {
    let all = Config::new(Method::Tree)
        .chunk(chunk as u32)
        .record_capacity(1 << 20);
    let chain = encode(all, history);
    let mut paper = Paper::default();
    let (mut compared, mut fewer) = (0, 0);
    for (data, version) in history.iter().zip(1..) {
        let theirs = paper.difference(data, chunk);
        let ours = chain.get(10 * version).unwrap();
        if ours.stored() == Stored::Full {
            // The paper has no such form.
            let (first, shifted) = (u64::from(theirs.first), u64::from(theirs.shifted));
            let bytes = (192 + 4 * first + 12 * shifted).next_multiple_of(64) + theirs.payload;
            assert!(
                bytes >= most_stored_bytes(data.len() as u64),
                "{name}, {version}"
            );
            continue;
        }
        let (first, shifted) = ours.entries();
        assert_eq!(ours.payload_bytes(), theirs.payload, "{name}, {version}");
        assert_eq!(first, theirs.first, "{name}, {version}");
        assert!(
            first + shifted <= theirs.entries(),
            "{name}, {version}: {theirs:?}"
        );
        compared += 1;
        fewer += u32::from(first + shifted < theirs.entries());
    }
    (compared, fewer)
}

#[test]
fn regions_store_what_the_tree_of_hashes_does_with_no_more_entries() {
    let (mut compared, mut fewer) = (0, 0);
    for (len, chunk) in [(40_000, 32), (65_536, 64), (100_003, 64), (300_001, 1024)] {
        for (name, history) in histories(len, chunk) {
            let (all, less) = compare(&history, chunk, name);
            compared += all;
            fewer += less;
        }
    }
    assert!(
        compared > 50 && fewer > 0,
        "{fewer} of {compared} have fewer"
    );
}

#[test]
fn figure_2_of_the_paper() {
    // Chunks A to H; then four new ones, a fixed duplicate, the first chunk, and the first two of the new ones.
    let state =
        |letters: &str| -> Vec<u8> { letters.bytes().flat_map(|letter| [letter; 32]).collect() };
    let mut paper = Paper::default();
    let one = paper.difference(&state("ABCDEFGH"), 32);
    assert_eq!((one.first, one.shifted, one.payload), (1, 0, 256));
    let two = paper.difference(&state("IJKLEAIJ"), 32);
    assert_eq!((two.first, two.shifted, two.payload), (1, 2, 128));
}

proptest! {
    #[test]
    fn any_history_of_few_letters_has_no_more_entries(
        letters in proptest::collection::vec(proptest::collection::vec(0_u8..5, 48), 1..9),
        tail in 0_usize..32,
        chunks in 1_usize..48,
    ) {
        let history: Vec<Vec<u8>> = letters
            .iter()
            .map(|letters| {
                let mut data: Vec<u8> = letters[..chunks].iter().flat_map(|&letter| vec![letter; 32]).collect();
                data.truncate(data.len() - tail);
                data
            })
            .collect();
        compare(&history, 32, "letters");
    }
}

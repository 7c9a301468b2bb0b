//! The findings of a campaign, counted.

use super::draws::variable;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// The kinds of failures.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Kind {
    /// A version that was said to be durable did not come back.
    Lost,
    /// Another run's bytes came back.
    Stale,
    /// A version was taken in, is not there, and nothing said so.
    Silent,
    /// A start removed or changed what it did not write.
    Deleted,
    /// A program did not end.
    Hung,
    /// A program ended by a signal that nobody sent.
    Crashed,
    /// The child of a fork was not told so.
    Forked,
    /// Memory, descriptors or threads grow.
    Grown,
}

/// Known failures, until they are mended: the place (as `Tally::count` says it, or its beginning), the kind, and the item of the issue.
pub(crate) type Known = &'static [(&'static str, Kind, &'static str)];

#[derive(Debug, Default)]
struct Counts {
    starts: u64,
    took: u64,
    durable: u64,
    found: BTreeMap<Kind, u64>,
}

/// Counts, by where they were made: a door with a kind of end, for one.
#[derive(Debug, Default)]
pub(crate) struct Tally(Mutex<BTreeMap<String, Counts>>, Mutex<Vec<Finding>>);

#[derive(Debug)]
struct Finding {
    place: String,
    kind: Kind,
    seed: u64,
    text: String,
}

impl Tally {
    pub(crate) fn count(&self, place: &str, took: usize, durable: usize) {
        let mut all = self.0.lock().unwrap();
        let counts = all.entry(place.to_owned()).or_default();
        counts.starts += 1;
        counts.took += took as u64;
        counts.durable += durable as u64;
    }

    pub(crate) fn found(&self, place: &str, kind: Kind, seed: u64, text: impl Into<String>) {
        let mut all = self.0.lock().unwrap();
        *all.entry(place.to_owned())
            .or_default()
            .found
            .entry(kind)
            .or_default() += 1;
        let finding = Finding {
            place: place.to_owned(),
            kind,
            seed,
            text: text.into(),
        };
        if variable("TIERFLOW_TELL", 0) == 1 {
            println!("{finding:?}");
        }
        self.1.lock().unwrap().push(finding);
    }

    /// Prints all of it. Panics if anything was found that is not known.
    pub(crate) fn end(&self, known: Known) {
        let is_off = variable("TIERFLOW_KNOWN", String::new()) == "none";
        let item = |finding: &Finding| {
            let mut known = known.iter().filter(|_| !is_off);
            let is_it = |(place, kind, _): &&(&str, Kind, &str)| {
                finding.place.starts_with(place) && finding.kind == *kind
            };
            known.find(is_it).map(|(_, _, item)| *item)
        };
        for (place, counts) in &*self.0.lock().unwrap() {
            let Counts {
                starts,
                took,
                durable,
                found,
            } = counts;
            println!("{place}: {starts} starts, {took} taken in, {durable} durable; {found:?}");
        }
        let findings = self.1.lock().unwrap();
        let mut groups: BTreeMap<_, Vec<&Finding>> = BTreeMap::new();
        for finding in &*findings {
            let group = (item(finding).unwrap_or("NEW"), &finding.place, finding.kind);
            groups.entry(group).or_default().push(finding);
        }
        for ((item, place, kind), findings) in &groups {
            let mut seeds: Vec<u64> = findings.iter().map(|finding| finding.seed).collect();
            seeds.dedup();
            seeds.truncate(8);
            let text = findings
                .iter()
                .map(|finding| &finding.text)
                .min_by_key(|text| text.len());
            println!(
                "{item}: {place} {kind:?}, seeds {seeds:?}: {}",
                text.unwrap()
            );
        }
        let new = groups.keys().filter(|(item, _, _)| *item == "NEW").count();
        assert_eq!(new, 0, "see what is NEW above, or with --nocapture");
    }
}

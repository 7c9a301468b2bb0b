//! Counts the findings of a campaign.

use super::draws::variable;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The kinds of failures.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Kind {
    /// A version that was reported durable did not come back.
    Lost,
    /// Another run's bytes came back.
    Stale,
    /// A version that was taken in is not there, and no message names it.
    Silent,
    /// A start removed or changed files that it did not write.
    Deleted,
    /// A program did not end.
    Hung,
    /// A program ended by a signal that nobody sent.
    Crashed,
    /// A call in a forked child did not fail.
    Forked,
    /// Memory, descriptors or threads grow.
    Grown,
}

/// Known failures until they are fixed: the place (as in `Tally::count`, or its beginning), the kind, and the item of the issue.
pub(crate) type Known = &'static [(&'static str, Kind, &'static str)];

#[derive(Debug, Default)]
struct Counts {
    starts: u64,
    took: u64,
    durable: u64,
    found: BTreeMap<Kind, u64>,
}

/// Counts by their place, for example a door with a kind of end.
#[derive(Debug)]
pub(crate) struct Tally {
    campaign: &'static str,
    histories: AtomicU64,
    kills: AtomicU64,
    counts: Mutex<BTreeMap<String, Counts>>,
    findings: Mutex<Vec<Finding>>,
}

#[derive(Debug)]
struct Finding {
    place: String,
    kind: Kind,
    seed: u64,
    text: String,
}

impl Tally {
    /// Returns an empty tally.
    pub(crate) fn of(campaign: &'static str) -> Self {
        Self {
            campaign,
            histories: AtomicU64::new(0),
            kills: AtomicU64::new(0),
            counts: Mutex::default(),
            findings: Mutex::default(),
        }
    }

    /// Counts a history that reached its end.
    pub(crate) fn count_history(&self) {
        self.histories.fetch_add(1, Relaxed);
    }

    /// Counts a kill of all ranks of a group at once, or of a program that kills itself.
    pub(crate) fn count_kill(&self) {
        self.kills.fetch_add(1, Relaxed);
    }

    pub(crate) fn count(&self, place: &str, took: usize, durable: usize) {
        let mut all = self.counts.lock().unwrap();
        let counts = all.entry(place.to_owned()).or_default();
        counts.starts += 1;
        counts.took += took as u64;
        counts.durable += durable as u64;
    }

    pub(crate) fn found(&self, place: &str, kind: Kind, seed: u64, text: impl Into<String>) {
        let mut all = self.counts.lock().unwrap();
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
        self.findings.lock().unwrap().push(finding);
    }

    /// Prints the sums of all places in a line.
    fn sum_up(&self, counts: &BTreeMap<String, Counts>) {
        let sum = |part: fn(&Counts) -> u64| counts.values().map(part).sum::<u64>();
        let mut found: BTreeMap<Kind, u64> = [Kind::Lost, Kind::Stale, Kind::Silent]
            .map(|kind| (kind, 0))
            .into();
        for (kind, count) in counts.values().flat_map(|counts| &counts.found) {
            *found.entry(*kind).or_default() += count;
        }
        let found = found.iter().map(|(kind, count)| {
            let kind = format!("{kind:?}").to_lowercase();
            format!(", {count} {kind}")
        });
        println!(
            "campaign {}: {} histories, {} starts, {} kills, {} versions reported durable{}",
            self.campaign,
            self.histories.load(Relaxed),
            sum(|counts| counts.starts),
            self.kills.load(Relaxed),
            sum(|counts| counts.durable),
            found.collect::<String>(),
        );
    }

    /// Prints all counts, and the sums in a line. Panics if there is a finding that is not known.
    pub(crate) fn end(&self, known: Known) {
        let is_off = variable("TIERFLOW_KNOWN", String::new()) == "none";
        let item = |finding: &Finding| {
            let mut known = known.iter().filter(|_| !is_off);
            let is_it = |(place, kind, _): &&(&str, Kind, &str)| {
                finding.place.starts_with(place) && finding.kind == *kind
            };
            known.find(is_it).map(|(_, _, item)| *item)
        };
        let counts = self.counts.lock().unwrap();
        for (place, counts) in &*counts {
            let Counts {
                starts,
                took,
                durable,
                found,
            } = counts;
            println!("{place}: {starts} starts, {took} taken in, {durable} durable; {found:?}");
        }
        let findings = self.findings.lock().unwrap();
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
        self.sum_up(&counts);
        let new = groups.keys().filter(|(item, _, _)| *item == "NEW").count();
        assert_eq!(new, 0, "see what is NEW above, or with --nocapture");
    }
}

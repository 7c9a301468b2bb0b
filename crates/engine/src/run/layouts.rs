//! The names and types of the regions of checkpoints. Most versions of an application have the same.

use crate::Version;
use hashbrown::HashMap;
use std::sync::Arc;
use tierflow_store::container::RegionInfo;
use tierflow_sync::model::Mutex;

/// The regions of a checkpoint, with their offsets in it.
pub(crate) type Layout = Arc<[RegionInfo]>;

/// Least number of layouts at which versions that are gone are looked for. The next search begins with twice as many layouts as the last
/// one left.
const LEAST: usize = 1024;

/// Versions that one call looks at.
const AT_ONCE: usize = 64;

/// The layouts of versions whose regions have names.
#[derive(Debug, Default)]
pub(crate) struct Layouts(Mutex<Known>);

/// The layout of a version.
#[derive(Debug, Clone)]
struct Noted {
    /// `None` for a version without named regions that has the number of an earlier engine's version.
    layout: Option<Layout>,
    /// The error that its call allows.
    error: Option<f64>,
}

#[derive(Debug, Default)]
struct Known {
    versions: HashMap<Version, Noted>,
    /// The layout that was noted last. The next version mostly has the same.
    last: Option<Layout>,
    /// Number of layouts at which the next search for versions that are gone begins.
    full: usize,
    /// Versions that later calls will look at, `AT_ONCE` in each.
    unseen: Vec<Version>,
    /// The highest number found on the tiers that outlive the engine when it was built.
    adopted: Option<Version>,
}

impl Layouts {
    /// Notes the layout of a new version, or that it has none. Returns versions of which those that are gone should be
    /// [forgotten](Self::retain): no more than [`AT_ONCE`], so that no call pays for all of a long history.
    pub(crate) fn note(
        &self,
        version: Version,
        layout: Option<Vec<RegionInfo>>,
        error: Option<f64>,
    ) -> Vec<Version> {
        let mut known = self.0.lock();
        let Some(layout) = layout else {
            known.versions.remove(&version);
            if Some(version) <= known.adopted {
                let layout = None;
                known.versions.insert(version, Noted { layout, error });
            }
            return Vec::new();
        };
        let layout = match &known.last {
            Some(last) if **last == *layout => Arc::clone(last),
            _ => Arc::from(layout),
        };
        known.last = Some(Arc::clone(&layout));
        let layout = Some(layout);
        known.versions.insert(version, Noted { layout, error });
        known.some()
    }

    /// Forgets the layouts of the versions in `some` that are not held any more.
    pub(crate) fn retain(&self, some: &[Version], is_held: impl Fn(Version) -> bool) {
        let mut known = self.0.lock();
        for version in some {
            // An entry without a layout stays, as a slot may be lent for its version. Such entries are few.
            let is_named = |noted: &Noted| noted.layout.is_some();
            if known.versions.get(version).is_some_and(is_named) && !is_held(*version) {
                known.versions.remove(version);
            }
        }
    }

    pub(crate) fn get(&self, version: Version) -> Option<Layout> {
        let known = self.0.lock();
        known.versions.get(&version)?.layout.clone()
    }

    /// Returns the error that the checkpoint call of a version allowed, if the call named one.
    pub(crate) fn error(&self, version: Version) -> Option<f64> {
        self.0.lock().versions.get(&version)?.error
    }

    /// Notes that a version of an earlier engine was found.
    pub(crate) fn adopt(&self, version: Version) {
        let mut known = self.0.lock();
        known.adopted = known.adopted.max(Some(version));
    }

    /// Returns true if an earlier engine may have written the version, and this one did not. If so, the layout lies with the copy.
    pub(crate) fn may_be_adopted(&self, version: Version) -> bool {
        let known = self.0.lock();
        Some(version) <= known.adopted && !known.versions.contains_key(&version)
    }
}

impl Known {
    /// Returns some of the versions that may be gone, if so many are known that a search is worth while.
    fn some(&mut self) -> Vec<Version> {
        if self.unseen.is_empty() && self.versions.len() >= self.full.max(LEAST) {
            self.unseen = self.versions.keys().copied().collect();
        }
        let some = self.unseen.len().saturating_sub(AT_ONCE);
        let some = self.unseen.split_off(some);
        if self.unseen.is_empty() && !some.is_empty() {
            self.full = 2 * self.versions.len();
        }
        some
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierflow_store::container::Element;

    fn layout(name: &str) -> Vec<RegionInfo> {
        vec![RegionInfo {
            name: name.to_owned(),
            offset: 0,
            length: 8,
            element: Element::F64,
            shape: vec![1],
        }]
    }

    #[test]
    fn equal_ones_are_one_and_those_gone_are_forgotten() {
        let layouts = Layouts::default();
        for version in 0..LEAST as u64 - 1 {
            assert!(layouts.note(version, Some(layout("a")), None).is_empty());
        }
        let (first, second) = (layouts.get(0).unwrap(), layouts.get(1).unwrap());
        assert!(Arc::ptr_eq(&first, &second));
        layouts.note(1, Some(layout("b")), None);
        assert_eq!(layouts.get(1).unwrap()[0].name, "b");
        layouts.note(1, None, None);
        assert_eq!(layouts.get(1), None);
        // From now on, each call looks at some versions, until all are looked at.
        let is_held = |version: Version| version >= 600;
        let mut looks = Vec::new();
        for version in LEAST as u64..4 * LEAST as u64 {
            let some = layouts.note(version, Some(layout("a")), None);
            layouts.retain(&some, is_held);
            looks.push(some.len());
        }
        assert!(looks.iter().all(|look| *look <= AT_ONCE));
        assert_eq!((layouts.get(599), layouts.get(600)), (None, Some(first)));
        // The next search begins no sooner than with twice as many.
        let first = looks.iter().position(|look| *look > 0).unwrap();
        let rests = looks[first..].iter().position(|look| *look == 0).unwrap();
        assert_eq!(rests, LEAST.div_ceil(AT_ONCE));
        let rest = &looks[first + rests..];
        assert!(rest.iter().position(|look| *look > 0).unwrap() > LEAST / 4);
    }
}

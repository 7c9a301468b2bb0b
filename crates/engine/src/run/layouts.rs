//! What the regions of checkpoints are called, and what they are. Most versions of an application have the same.

use super::sync::Mutex;
use crate::Version;
use hashbrown::HashMap;
use std::sync::Arc;
use tierflow_store::container::RegionInfo;

/// The regions of a checkpoint, with their offsets in it.
pub(crate) type Layout = Arc<[RegionInfo]>;

/// Versions that are gone are looked for once there are twice as many as when they were last, and so many at least.
const LEAST: usize = 1024;

/// The layouts of versions whose regions have names.
#[derive(Debug, Default)]
pub(crate) struct Layouts(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    versions: HashMap<Version, Layout>,
    /// The one noted last: the next one mostly is the same.
    last: Option<Layout>,
    /// With so many, those that are gone are looked for.
    full: usize,
    /// The highest number found on the tiers that outlive the engine when it was built.
    adopted: Option<Version>,
}

impl Layouts {
    /// A version is there anew. Returns whether versions that are gone should be [forgotten](Self::retain).
    pub(crate) fn note(&self, version: Version, layout: Option<Vec<RegionInfo>>) -> bool {
        let mut known = self.0.lock();
        let Some(layout) = layout else {
            known.versions.remove(&version);
            return false;
        };
        let layout = match &known.last {
            Some(last) if **last == *layout => Arc::clone(last),
            _ => Arc::from(layout),
        };
        known.last = Some(Arc::clone(&layout));
        known.versions.insert(version, layout);
        known.versions.len() >= known.full.max(LEAST)
    }

    /// Forgets those that are not held any more.
    pub(crate) fn retain(&self, is_held: impl Fn(Version) -> bool) {
        let mut known = self.0.lock();
        known.versions.retain(|version, _| is_held(*version));
        known.full = 2 * known.versions.len();
    }

    pub(crate) fn get(&self, version: Version) -> Option<Layout> {
        self.0.lock().versions.get(&version).cloned()
    }

    /// A version of an earlier engine is there.
    pub(crate) fn adopt(&self, version: Version) {
        let mut known = self.0.lock();
        known.adopted = known.adopted.max(Some(version));
    }

    /// Whether a version may be one of an earlier engine's: its layout lies with it then.
    pub(crate) fn may_be_adopted(&self, version: Version) -> bool {
        Some(version) <= self.0.lock().adopted
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
        let is_full: Vec<bool> = (0..LEAST as u64)
            .map(|version| layouts.note(version, Some(layout("a"))))
            .collect();
        assert_eq!(is_full.iter().position(|full| *full), Some(LEAST - 1));
        let (first, second) = (layouts.get(0).unwrap(), layouts.get(1).unwrap());
        assert!(Arc::ptr_eq(&first, &second));
        layouts.note(1, Some(layout("b")));
        assert_eq!(layouts.get(1).unwrap()[0].name, "b");
        layouts.note(1, None);
        assert_eq!(layouts.get(1), None);
        layouts.retain(|version| version >= 600);
        assert_eq!((layouts.get(599), layouts.get(600)), (None, Some(first)));
        // Looked for no sooner than they are twice as many.
        let more = 2000..2000 + LEAST as u64;
        let is_full: Vec<bool> = more
            .map(|version| layouts.note(version, Some(layout("a"))))
            .collect();
        assert_eq!(is_full.iter().position(|full| *full), Some(LEAST - 425));
    }
}

//! Storage that outlives the node, given by its name or as a vault.

use super::Group;
use crate::Result;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tierflow_store::{Guarded, Place, Vault};

/// Storage that outlives the node.
#[derive(Debug, Clone)]
pub(crate) enum External {
    /// A directory, or the URL of an object store.
    Named(PathBuf),
    /// A vault of the application.
    Vault(Arc<dyn Vault>),
}

/// The directory or vault that a name or vault leads to.
pub(super) enum Location {
    Directory(PathBuf),
    Vault(Arc<dyn Vault>),
}

impl External {
    /// Returns the reason if no version there can be a difference.
    pub(super) fn holds_whole_ones(&self) -> Option<&'static str> {
        match self {
            Self::Vault(_) => Some("a vault of the application's holds checkpoints whole"),
            Self::Named(name) if Place::is_url(name) => {
                Some("an object store holds checkpoints whole")
            }
            Self::Named(_) => None,
        }
    }

    /// Returns the name; empty for a vault.
    pub(super) fn path(&self) -> &Path {
        match self {
            Self::Named(name) => name,
            Self::Vault(_) => Path::new(""),
        }
    }

    pub(super) fn find(&self, group: &Group) -> Result<Location> {
        let vault: Arc<dyn Vault> = match self {
            Self::Vault(vault) => Arc::clone(vault),
            Self::Named(name) => match Place::of(name)? {
                Place::Directory(path) => return Ok(Location::Directory(path)),
                Place::Url(url) => store(&url, group)?,
            },
        };
        Ok(Location::Vault(Arc::new(Guarded::new(vault))))
    }
}

/// Opens the object store of a URL for a group's rank.
type OpenStore = fn(&str, &Group) -> Result<Arc<dyn Vault>>;

/// The object stores of this build; empty without the feature `objects`.
const STORES: &[OpenStore] = &[
    #[cfg(feature = "objects")]
    |url, group| {
        let settings = tierflow_objects::Settings::default();
        let settings = settings.group(group.rank, group.ranks, group.run);
        Ok(Arc::new(tierflow_objects::open(url, &settings)?))
    },
];

fn store(url: &str, group: &Group) -> Result<Arc<dyn Vault>> {
    if let Some(open) = STORES.first() {
        return open(url, group);
    }
    let scheme = url.split("://").next().unwrap_or_default();
    let why = format!(
        "{scheme}:// URLs need object stores, with which this program was not built: add the feature `objects` of tierflow-engine"
    );
    Err(tierflow_store::Error::Argument(why).into())
}

//! Checkpoints of groups with another number of ranks. The client does not restart from them, and tells the user so.

use std::path::{Path, PathBuf};

use tierflow_objects::History;

use super::head::is_head;
use super::restart::head_in;
use crate::failure::Outcome;

/// The prefix of the name of a group's directory. The number of ranks follows.
pub(super) const GROUP: &str = "ranks-";

/// The newest checkpoint in a place.
struct Newest {
    created: u64,
    text: String,
}

/// Returns the directories of groups directly below a place.
pub(super) fn groups_below(home: &Path) -> Outcome<Vec<PathBuf>> {
    let mut groups = History::places_below(home)?;
    groups.retain(|path| ranks_of(path).is_some());
    Ok(groups)
}

fn ranks_of(place: &Path) -> Option<u32> {
    let name = place.file_name()?.to_str()?;
    name.strip_prefix(GROUP)?.parse().ok()
}

/// Returns a line about the newest checkpoint of a group of another size, in a directory beside `own`, if it is newer than the checkpoints in
/// `own`. Uses and removes nothing there.
pub(super) fn unused(own: &Path) -> Option<String> {
    let others = groups_below(own.parent()?).unwrap_or_default();
    let others = others.iter().filter(|place| place.as_path() != own);
    // A place that cannot be read is skipped, as no run can continue from it.
    let found = others.filter_map(|place| Some((place, newest(place).ok().flatten()?)));
    let (place, other) = found.max_by_key(|(_, newest)| newest.created)?;
    let older = newest(own).ok().flatten();
    if older.is_some_and(|older| older.created >= other.created) {
        return None;
    }
    Some(format!(
        "{} is of {} ranks and not used, as this group has another number of them; it lies in {}: start as many ranks to go on from \
         it, or read it by VELOC_Restart_begin_rank",
        other.text,
        ranks_of(place)?,
        place.display()
    ))
}

fn newest(place: &Path) -> Outcome<Option<Newest>> {
    let history = History::open(place)?;
    let heads = history.versions()?;
    let newest = heads.iter().rev().find(|info| is_head(info.version));
    let Some(info) = newest else {
        return Ok(None);
    };
    let head = head_in(&history, info.version, 0)?;
    Ok(head.map(|head| Newest {
        created: info.created,
        text: format!("version {} of {:?}", head.version, head.name),
    }))
}

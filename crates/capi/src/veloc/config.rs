//! VELOC's configuration file, and the variables of the environment that replace its values.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tierflow_bind::parse::{lines, number, one_of, seconds};
use tierflow_bind::{OPTIONS, Options};
use tierflow_device::{Choice, open};
use tierflow_redundancy::Redundancy;
use tierflow_store::Place;

use crate::failure::{Failure, Outcome};
use crate::group::Group;

/// The order in which a name's versions will be restored, by the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hints {
    None,
    /// The newest first, as adjoint codes do.
    Reverse,
    Forward,
}

/// The settings of a configuration file.
#[derive(Debug)]
pub(super) struct Config {
    pub(super) options: Options,
    pub(super) is_sync: bool,
    /// Versions of a name to keep; 0 for all.
    pub(super) max_versions: usize,
    /// The longest wait for storage in calls other than `VELOC_Finalize`; without a limit if there is none.
    pub(super) wait_patience: Option<Duration>,
    /// The longest wait for the other ranks in a call; `Duration::MAX` if the configuration has no `group_patience`.
    pub(super) meeting_patience: Duration,
    pub(super) hints: Hints,
    /// The directory of routed files.
    pub(super) scratch: PathBuf,
    pub(super) persistent: Option<PathBuf>,
    /// True if the configuration, or the site's options, choose the size of the host cache.
    pub(super) has_host_cache: bool,
    /// The file to which the client writes the time line when it closes.
    pub(super) timeline_file: Option<PathBuf>,
    /// True if only `ec_interval` asks for redundancy.
    is_redundancy_velocs: bool,
    /// Warnings for the user.
    pub(super) warnings: Vec<String>,
}

/// The redundancy that `ec_interval` asks for: a single parity, as in VELOC. VELOC's sets have all ranks; sets of 8 are rebuilt sooner.
const VELOCS: Redundancy = Redundancy::Xor { set: 8 };

/// Keys of VELOC that have no effect here, and why.
const IGNORED_KEYS: &[(&str, &str)] = &[
    ("chksum", ""),
    ("meta", ""),
    ("log_prefix", ""),
    ("threaded", ""),
    ("aggregated", ""),
    ("watchdog_interval", "no process is watched"),
    ("axl_type", "files are copied by tierflow itself"),
    (
        "daos_pool",
        "DAOS is not supported: give a directory as `persistent`",
    ),
    (
        "daos_cont",
        "DAOS is not supported: give a directory as `persistent`",
    ),
    (
        "scratch_versions",
        "the scratch directory is limited in bytes: see `scratch_limit`",
    ),
];

/// Keys of the client that are no options of the engine.
const CLIENT_KEYS: &[&str] = &[
    "scratch",
    "persistent",
    "mode",
    "max_versions",
    "persistent_interval",
    "ec_interval",
    "wait_patience",
    "scratch_limit",
    "hints",
    "timeline_file",
];

impl Config {
    /// Reads the configuration from a file, if `file` is not empty, and from variables such as `VELOC_SCRATCH`, which replace its values.
    /// `home` is the directory of this group or process within the configured directories.
    pub(super) fn read(file: &str, home: &str) -> Outcome<Self> {
        let mut given = match file {
            "" => BTreeMap::new(),
            path => {
                let read = std::fs::read_to_string(path);
                let text = read.map_err(|error| Failure::file(path.as_ref(), &error))?;
                let wrong = |why| Failure::argument(format!("{path}: {why}"));
                lines(&text).map_err(wrong)?
            }
        };
        let variables = std::env::vars_os();
        given.extend(variables.filter_map(|(name, value)| from_variable(&name, &value)));
        Self::of(given, home)
    }

    fn of(mut given: BTreeMap<String, String>, home: &str) -> Outcome<Self> {
        let mut warnings = Vec::new();
        let mut options = Options::of_site(|key| why_chosen_here(key).is_none())?;
        for (key, why) in IGNORED_KEYS {
            let value = given.remove(*key).map(|value| value.to_ascii_lowercase());
            // -1 turns a feature off in VELOC.
            let is_none = |value: &String| ["false", "0", "-1"].contains(&value.as_str());
            let matters = value.is_some_and(|value| !is_none(&value));
            if matters && !why.is_empty() {
                warnings.push(format!("`{key}` has no effect: {why}"));
            }
        }
        let mut take = |key: &str| given.remove(key).filter(|value| !value.is_empty());
        let modes = [("sync", true), ("async", false)];
        let is_sync = parsed(&mut take, "mode", |value| one_of(value, &modes))?;
        let max_versions = parsed(&mut take, "max_versions", number)?.unwrap_or(0);
        let wait_patience = parsed(&mut take, "wait_patience", seconds)?;
        let orders = [
            ("none", Hints::None),
            ("reverse", Hints::Reverse),
            ("forward", Hints::Forward),
        ];
        let hints = parsed(&mut take, "hints", |value| one_of(value, &orders))?;
        let missing = || {
            Failure::argument("the configuration has no `scratch`: name a directory of the node")
        };
        let scratch = parsed(&mut take, "scratch", path)?.ok_or_else(missing)?;
        let persistent = parsed(&mut take, "persistent", path)?;
        let persistent = match parsed(&mut take, "persistent_interval", number::<i64>)? {
            Some(interval) if interval < 0 => None,
            Some(interval) if interval > 0 => {
                let text = "`persistent_interval` has no effect: every version is made persistent";
                warnings.push(text.to_owned());
                persistent
            }
            _ => persistent,
        };
        let coded = parsed(&mut take, "ec_interval", number::<i64>)?;
        let coded = coded.filter(|interval| *interval >= 0);
        if coded.is_some_and(|interval| interval > 0) {
            let text = "`ec_interval` is as if it were 0: redundancy is made of every version";
            warnings.push(text.to_owned());
        }
        // Works for directories and URLs.
        let within = |place: &Path| place.join("tierflow").join(home);
        let directory = persistent.as_ref().filter(|place| !Place::is_url(place));
        for directory in [Some(&scratch), directory].into_iter().flatten() {
            let made = std::fs::create_dir_all(within(directory));
            made.map_err(|error| Failure::file(directory, &error))?;
        }
        options.node_local = Some(within(&scratch));
        options.external = persistent.as_deref().map(within);
        options.durable_in_order = Some(true);
        if let Some(value) = take("scratch_limit") {
            options.set("node_local_limit", &value).transpose()?;
        }
        let timeline_file = parsed(&mut take, "timeline_file", path)?;
        if timeline_file.is_some() {
            options.timeline = 1 << 20;
        }
        let has_host_cache = given.contains_key("host_cache") || options.host_cache > 0;
        let names_device = |key: &str| given.contains_key(key);
        let site_names_device = options.device_cache > 0 || options.device != Choice::default();
        let uses_device =
            names_device("device_cache") || names_device("device") || site_names_device;
        if !uses_device {
            // Opening a GPU takes time and memory of the GPU, and a program that runs on the processor does not need it.
            options.set("device", "host").transpose()?;
        }
        let bounds_meetings = given.contains_key("group_patience");
        for (key, value) in std::mem::take(&mut given) {
            if !is_option(&key) {
                given.insert(key, value);
            } else if !value.is_empty() {
                options.set(&key, &value).transpose()?;
            }
        }
        let meeting_patience = match bounds_meetings {
            true => options.group_patience(),
            false => Duration::MAX,
        };
        let is_redundancy_velocs = options.redundancy.is_none() && coded.is_some();
        if is_redundancy_velocs {
            options.redundancy = Some(VELOCS);
        }
        warnings.extend(given.keys().map(|key| match why_chosen_here(key) {
            Some(why) => format!("`{key}` has no effect: {why}"),
            None => format!("`{key}` is not known: is it a typing error?"),
        }));
        Ok(Self {
            options,
            is_sync: is_sync.unwrap_or(false),
            max_versions,
            wait_patience,
            meeting_patience,
            hints: hints.unwrap_or(Hints::None),
            scratch,
            persistent,
            has_host_cache,
            timeline_file,
            is_redundancy_velocs,
            warnings,
        })
    }

    /// Returns the place where the versions of all ranks lie.
    pub(super) fn place(&self) -> Option<&Path> {
        let external = self.options.external.as_deref();
        external.or(self.options.node_local.as_deref())
    }

    /// Turns off the redundancy that only `ec_interval` asks for if there is no other rank, as VELOC does, or if the ranks cannot send messages.
    pub(super) fn settle_redundancy(&mut self, group: Option<&Group>) {
        if !self.is_redundancy_velocs {
            return;
        }
        let others = group.filter(|group| group.ranks > 1);
        let how = others.map(|group| self.options.exchange.is_some() || group.can_send().is_ok());
        if how != Some(true) {
            self.options.redundancy = None;
        }
        if how == Some(false) {
            let text = "`ec_interval` has no effect: the group has no `send` and `receive`, and there is no `exchange`";
            self.warnings.push(text.to_owned());
        }
    }
}

/// Takes and parses the value of a key, if there is one.
fn parsed<T>(
    take: &mut impl FnMut(&str) -> Option<String>,
    key: &str,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Outcome<Option<T>> {
    let value = take(key).map(|value| {
        parse(&value).map_err(|why| Failure::argument(format!("{key} = {value}: {why}")))
    });
    value.transpose()
}

/// Parses a path. Replaces `$NAME` and `${NAME}` by the values of variables.
fn path(text: &str) -> Result<PathBuf, String> {
    tierflow_bind::parse::path(text.as_ref())
}

/// Returns true for an option of the engine that the configuration may choose.
fn is_option(key: &str) -> bool {
    OPTIONS
        .iter()
        .any(|option| option.key == key && option.veloc == key)
}

/// Returns why this client chooses an option of the engine itself, if it does.
fn why_chosen_here(key: &str) -> Option<&'static str> {
    let option = OPTIONS.iter().find(|option| option.key == key)?;
    option.veloc.strip_prefix("— ")
}

/// Returns the key and the value of a variable of the environment, whose name is `VELOC_` and a key in capitals. Keys that this client
/// chooses itself are returned, too, so that a warning names them. `None` for other names: they belong to the program.
fn from_variable(name: &OsStr, value: &OsStr) -> Option<(String, String)> {
    let key = name.to_str()?.strip_prefix("VELOC_")?.to_ascii_lowercase();
    let value = value.to_str().filter(|value| !value.is_empty())?;
    let is_one = is_known(&key) || why_chosen_here(&key).is_some();
    is_one.then(|| (key, value.to_owned()))
}

fn is_known(key: &str) -> bool {
    let ignored = IGNORED_KEYS.iter().any(|(ignored, _)| *ignored == key);
    ignored || CLIENT_KEYS.contains(&key) || is_option(key)
}

/// Returns the bytes of the host cache for a configuration without a size: an eighth of the available memory, shared by the ranks here.
pub(super) fn usual_host_cache(ranks_here: usize) -> usize {
    let available = open(Choice::Host).map_or(0, |host| host.info().free_bytes as usize);
    let share = available / 8 / ranks_here.max(1);
    // Rounds down to whole MiB.
    share >> 20 << 20
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Outcome<Config> {
        let given = lines(text).map_err(Failure::argument)?;
        Config::of(given, "here")
    }

    #[test]
    fn a_configuration_of_veloc_is_understood() {
        let directory = tempfile::tempdir().unwrap();
        let scratch = directory.path().join("scratch");
        let text = format!(
            "# ours\n[section]\nscratch = {0}\npersistent={0}/p ; there\nmode = sync\nmax_versions = 2\nchksum = true\nhost_cache = 1MiB",
            scratch.display()
        );
        let config = config(&text).unwrap();
        assert!(config.is_sync && config.has_host_cache);
        assert_eq!(
            (config.max_versions, config.options.host_cache),
            (2, 1 << 20)
        );
        assert_eq!(
            config.options.external,
            Some(scratch.join("p/tierflow/here"))
        );
        assert_eq!(config.warnings, [""; 0]);
    }

    #[test]
    fn every_option_of_the_engine_is_a_key_but_those_that_are_chosen_here() {
        let directory = tempfile::tempdir().unwrap();
        let scratch = directory.path().display();
        let text = format!(
            "scratch = {scratch}\ncompress = f32\nflush = needed\nexternal = {scratch}/e\nkeep_newest = 3\nkeep_younger_than = 60\nrank = 1\n\
             dedup = 128\ndedup_reads = 3"
        );
        let error = config(&text.replace("needed", "soon")).unwrap_err();
        assert!(error.text.contains("flush = soon"), "{}", error.text);
        let config = config(&text).unwrap();
        assert_eq!(config.options.external, None);
        assert_eq!(config.options.dedup_reads, Some(3));
        assert_eq!(config.options.keep_younger_than, None);
        assert_eq!(config.options.ranks.rank, 0);
        assert_eq!(config.warnings.len(), 4, "{:?}", config.warnings);
        assert!(is_known("compress") && is_known("dedup") && is_known("max_versions"));
        assert!(!is_known("external") && !is_known("nonsense"));
        let said = "`rank` has no effect: of `VELOC_Init`";
        assert!(config.warnings.iter().any(|warning| warning == said));
        assert!(why_chosen_here("keep_every").is_some() && why_chosen_here("host_cache").is_none());
    }

    #[test]
    fn a_variable_names_a_key_also_if_that_is_chosen_here() {
        let given = |name: &str, value: &str| from_variable(name.as_ref(), value.as_ref());
        let pair = |key: &str, value: &str| Some((key.to_owned(), value.to_owned()));
        assert_eq!(given("VELOC_SCRATCH", "/local"), pair("scratch", "/local"));
        assert_eq!(given("VELOC_KEEP_EVERY", "3"), pair("keep_every", "3"));
        assert_eq!(given("VELOC_ROOT", "/opt/veloc"), None);
        assert_eq!(given("VELOC_SCRATCH", ""), None);
        assert_eq!(given("SCRATCH", "/local"), None);
    }

    #[test]
    fn what_is_not_known_or_has_no_effect_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let scratch = directory.path().display();
        let text =
            format!("scratch = {scratch}\nmax_version = 2\naxl_type = 5\nwatchdog_interval = 0");
        let warnings = config(&text).unwrap().warnings;
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        assert!(warnings[0].contains("`axl_type` has no effect"));
        assert!(warnings[1].contains("`max_version` is not known"));
    }

    #[test]
    fn redundancy_is_what_the_file_asks_for_where_there_are_others() {
        let directory = tempfile::tempdir().unwrap();
        let of = |more: &str| {
            let scratch = directory.path().display();
            config(&format!("scratch = {scratch}\n{more}")).unwrap()
        };
        let scheme = |more: &str| of(more).options.redundancy;
        assert_eq!(scheme(""), None);
        assert_eq!(scheme("ec_interval = -1"), None);
        assert_eq!(scheme("ec_interval = 0"), Some(VELOCS));
        let partner = "ec_interval = 0\nredundancy = partner\nfailure_domain = rack7";
        assert_eq!(scheme(partner), Some(Redundancy::Partner));
        // Without another rank, redundancy that `ec_interval` asks for is turned off; redundancy that is named stays, and is an error later.
        for (more, is_left) in [("ec_interval = 5", false), (partner, true)] {
            let mut config = of(more);
            config.settle_redundancy(None);
            assert_eq!(config.options.redundancy.is_some(), is_left);
        }
        assert_eq!(of("ec_interval = 5").warnings.len(), 1);
    }

    #[test]
    fn what_velocs_files_turn_off_is_off() {
        let directory = tempfile::tempdir().unwrap();
        let scratch = directory.path().display();
        let text = format!("scratch = {scratch}\npersistent = {scratch}/p\nec_interval = -1");
        let all = config(&text).unwrap();
        assert!(all.persistent.is_some() && all.warnings.is_empty());
        let none = config(&format!("{text}\npersistent_interval = -1")).unwrap();
        assert!(none.persistent.is_none() && none.options.external.is_none());
        let some = config(&format!("{text}\npersistent_interval = 60")).unwrap();
        assert!(some.persistent.is_some() && some.warnings.len() == 1);
        let bounded = config(&format!("{text}\nwait_patience = 2.5")).unwrap();
        assert_eq!(bounded.wait_patience, Some(Duration::from_millis(2500)));
        let url = format!("scratch = {scratch}\npersistent = s3://bucket/runs");
        let stored = config(&url).unwrap().options.external;
        assert_eq!(stored, Some("s3://bucket/runs/tierflow/here".into()));
    }

    #[test]
    fn what_cannot_be_is_refused_by_its_name() {
        for (text, named) in [
            ("mode = soon", "mode = soon"),
            ("mode = sync", "`scratch`"),
            ("scratch = /tmp\nmax_versions = -1", "max_versions = -1"),
            ("nonsense", "line 1"),
            (
                "scratch = /tmp/$TIERFLOW_NOT_SET",
                "scratch = /tmp/$TIERFLOW_NOT_SET: the variable",
            ),
        ] {
            let failure = config(text).unwrap_err();
            assert!(failure.text.contains(named), "{}", failure.text);
        }
    }
}

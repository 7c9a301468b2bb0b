//! The memory and swap that this process may use.

use std::path::{Path, PathBuf};

/// Returns the bytes of memory and swap that this process may use: those of the machine, or the limit of its control group if that
/// is lower.
pub(super) fn usable_memory() -> u64 {
    let system = rustix::system::sysinfo();
    let unit = u64::from(system.mem_unit);
    // The fields have the machine's word size.
    let memory = (system.totalram as u64).saturating_mul(unit);
    let swap = (system.totalswap as u64).saturating_mul(unit);
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limit = group_limit(&groups, Path::new("/sys/fs/cgroup"), swap);
    limit.unwrap_or(u64::MAX).min(memory.saturating_add(swap))
}

/// Returns the lowest limit of memory and swap of the control groups that `/proc/self/cgroup` names and of their parents. `root` is
/// the mount point of the groups. Version 1 limits memory and swap together, version 2 each separately.
fn group_limit(groups: &str, root: &Path, swap: u64) -> Option<u64> {
    let number = |path: PathBuf| {
        std::fs::read_to_string(path)
            .ok()?
            .trim()
            .parse::<u64>()
            .ok()
    };
    let limits = groups.lines().flat_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next().unwrap_or_default(), fields.next());
        let is_first = controllers.split(',').any(|name| name == "memory");
        let mount = match is_first {
            true => root.join("memory"),
            false => root.to_owned(),
        };
        let path = path.filter(|_| is_first || controllers.is_empty());
        let path = path.unwrap_or_default().trim_start_matches('/');
        let limit_of = move |group: &Path| {
            let group = mount.join(group);
            match is_first {
                true => {
                    let both = number(group.join("memory.memsw.limit_in_bytes"));
                    both.or_else(|| {
                        Some(number(group.join("memory.limit_in_bytes"))?.saturating_add(swap))
                    })
                }
                false => {
                    let memory = number(group.join("memory.max"))?;
                    let swap =
                        number(group.join("memory.swap.max")).map_or(swap, |most| most.min(swap));
                    Some(memory.saturating_add(swap))
                }
            }
        };
        let limits: Vec<u64> = Path::new(path).ancestors().filter_map(limit_of).collect();
        limits
    });
    limits.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_limit_of_a_group_and_those_above_counts() {
        let home = tempfile::tempdir().unwrap();
        let root = home.path();
        let put = |path: &str, text: &str| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let limit = |groups: &str| group_limit(groups, root, 50);
        assert_eq!(limit("0::/job/step\n"), None);
        put("job/step/memory.max", "max\n");
        assert_eq!(limit("0::/job/step\n"), None);
        put("job/memory.max", "1000\n");
        assert_eq!(limit("0::/job/step\n"), Some(1050));
        put("job/memory.swap.max", "0\n");
        assert_eq!(limit("0::/job/step\n"), Some(1000));
        put("job/step/memory.max", "900\n");
        put("job/step/memory.swap.max", "max\n");
        assert_eq!(limit("0::/job/step\n"), Some(950));
        assert_eq!(limit("0::/other\n"), None);
        put("memory/slurm/memory.limit_in_bytes", "700\n");
        assert_eq!(limit("3:cpuset:/\n4:memory:/slurm/job\n0::/\n"), Some(750));
        put("memory/slurm/memory.memsw.limit_in_bytes", "710\n");
        assert_eq!(limit("4:cpu,memory:/slurm/job\n"), Some(710));
    }
}

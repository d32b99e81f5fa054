//! How much memory a process can still have.

use std::path::Path;

/// Bytes that are available: what the system can give without swapping, or less where the process runs in a control group
/// with a limit. `None` where the system does not say it in files.
pub(super) fn available_memory() -> Option<u64> {
    let system = meminfo(&std::fs::read_to_string("/proc/meminfo").ok()?)?;
    let group = std::fs::read_to_string("/proc/self/cgroup").ok();
    let group = group.and_then(|text| group_memory(&text, Path::new("/sys/fs/cgroup")));
    Some(system.min(group.unwrap_or(u64::MAX)))
}

fn meminfo(text: &str) -> Option<u64> {
    let mut lines = text.lines();
    let line = lines.find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// What the tightest group around the process leaves. Files that a process maps count as used, but can be let go.
fn group_memory(groups: &str, root: &Path) -> Option<u64> {
    let path = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let folder = root.join(path);
    let around = folder.ancestors().take_while(|at| at.starts_with(root));
    around.filter_map(left).min()
}

fn left(group: &Path) -> Option<u64> {
    let read = |name: &str| std::fs::read_to_string(group.join(name)).ok();
    let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
    let (most, used) = (number("memory.max")?, number("memory.current")?);
    let cached = read("memory.stat").and_then(|text| {
        let mut lines = text.lines();
        let line = lines.find_map(|line| line.strip_prefix("inactive_file "))?;
        line.trim().parse().ok()
    });
    Some(most.saturating_sub(used.saturating_sub(cached.unwrap_or(0))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_says_how_much_is_available() {
        let text = "MemTotal: 9 kB\nMemAvailable:    3 kB\n";
        assert_eq!(meminfo(text), Some(3 * 1024));
        assert_eq!(meminfo("MemTotal: 9 kB"), None);
    }

    #[test]
    fn the_tightest_group_decides() {
        let root = tempfile::tempdir().unwrap();
        let write = |group: &str, max: &str, current: &str| {
            let folder = root.path().join(group);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("memory.max"), max).unwrap();
            std::fs::write(folder.join("memory.current"), current).unwrap();
        };
        write("a/b", "max\n", "70\n");
        assert_eq!(group_memory("0::/a/b\n", root.path()), None);
        write("a", "1000\n", "900\n");
        assert_eq!(group_memory("1:x:/\n0::/a/b\n", root.path()), Some(100));
        std::fs::write(
            root.path().join("a/memory.stat"),
            "anon 5\ninactive_file 30\n",
        )
        .unwrap();
        assert_eq!(group_memory("0::/a/b\n", root.path()), Some(130));
        write("a/b", "50\n", "60\n");
        assert_eq!(group_memory("0::/a/b\n", root.path()), Some(0));
    }
}

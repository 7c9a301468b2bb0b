//! The machine that a measurement was taken on.

use std::path::Path;
use std::process::Command;

use anyhow::Result;
use tierflow_device::{Choice, Device, Error, Unavailable, open};

/// Returns the facts that describe the machine: processor, cores, memory, GPUs. Each fact is a line; an unknown fact is left out.
pub fn facts() -> Vec<String> {
    let field = |path: &str, key: &str| {
        let text = std::fs::read_to_string(path).ok()?;
        let line = text.lines().find(|line| line.starts_with(key))?;
        line.split_once(':')
            .map(|(_, value)| value.trim().to_owned())
    };
    let mut facts = Vec::new();
    facts.extend(field("/proc/cpuinfo", "model name"));
    facts.extend(
        std::thread::available_parallelism()
            .ok()
            .map(|cores| format!("{cores} cores")),
    );
    let kib = field("/proc/meminfo", "MemTotal").and_then(|text| {
        text.split_whitespace()
            .next()
            .and_then(|kib| kib.parse::<f64>().ok())
    });
    facts.extend(kib.map(|kib| format!("{:.1} GiB of memory", kib / f64::from(1 << 20))));
    let gpus = gpus();
    if gpus.is_empty() {
        facts.push("no GPU: plain memory stands for a device".to_owned());
    }
    facts.extend(gpus);
    facts
}

/// Returns true if an NVIDIA driver shows a GPU.
pub fn has_gpu() -> bool {
    Path::new("/dev/nvidiactl").exists()
}

/// Returns the GPUs, one line each.
pub fn gpus() -> Vec<String> {
    let query = [
        "--query-gpu=name,memory.total,driver_version",
        "--format=csv,noheader",
    ];
    let Ok(output) = Command::new("nvidia-smi").args(query).output() else {
        return Vec::new();
    };
    if !output.status.success() {
        return Vec::new();
    }
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(str::to_owned)
        .collect()
}

/// Returns the device of process or thread number `index`: GPU `index`, counted round if there are fewer GPUs; plain memory without a
/// GPU.
pub(crate) fn device_of(index: usize) -> Result<Device> {
    let opened = match open(Choice::Cuda { ordinal: index }) {
        Err(Error::Unavailable(Unavailable::NoSuchGpu { count, .. })) if count > 0 => {
            let ordinal = index % count;
            open(Choice::Cuda { ordinal })
        }
        Err(Error::Unavailable(_)) => open(Choice::Auto),
        opened => opened,
    };
    Ok(opened?)
}

#[cfg(test)]
mod tests {
    #[test]
    fn cores_are_among_the_facts() {
        assert!(super::facts().iter().any(|fact| fact.ends_with(" cores")));
    }
}

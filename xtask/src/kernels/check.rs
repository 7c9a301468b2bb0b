//! `--check`: the differences between the list, the sources, the PTX and the lock.

use std::path::Path;

use anyhow::Result;

use super::lock::{self, Lock};
use super::manifest::Manifest;

pub(crate) fn complaints(root: &Path, manifest: &Manifest, lock: &Lock) -> Result<Vec<String>> {
    let mut complaints = Vec::new();
    for source in lock::sources(root, "cu")? {
        if !manifest.kernel.iter().any(|kernel| kernel.source == source) {
            complaints.push(format!("{source} is not listed in kernels/kernels.toml"));
        }
    }
    for locked in &lock.kernel {
        if !manifest
            .kernel
            .iter()
            .any(|kernel| kernel.source == locked.source)
        {
            complaints.push(format!(
                "{} is locked, but not listed any more",
                locked.source
            ));
        }
    }
    let release = &manifest.toolchain.release;
    if !lock.kernel.is_empty() && !lock.nvcc.starts_with(&format!("{release}.")) {
        complaints.push(format!(
            "locked with nvcc {}, but the list asks for {release}",
            lock.nvcc
        ));
    }
    for kernel in &manifest.kernel {
        let Some(locked) = lock
            .kernel
            .iter()
            .find(|locked| locked.source == kernel.source)
        else {
            complaints.push(format!(
                "{} is listed, but was never compiled",
                kernel.source
            ));
            continue;
        };
        if !root.join(&kernel.source).is_file() {
            complaints.push(format!("{} is listed, but missing", kernel.source));
        } else if lock::inputs(root, manifest, kernel, &lock.nvcc)? != locked.inputs {
            complaints.push(format!(
                "{}, a header or its flags changed since it was compiled",
                kernel.source
            ));
        }
        let Ok(ptx) = std::fs::read_to_string(root.join(&kernel.output)) else {
            complaints.push(format!("{} is missing", kernel.output));
            continue;
        };
        if lock::hash(&[ptx.as_bytes()]) != locked.output {
            complaints.push(format!("{} is not what was compiled", kernel.output));
        }
        for (directive, wanted) in [
            (".version", &manifest.ptx.version),
            (".target", &manifest.target()),
        ] {
            let found = value(&ptx, directive);
            if found != Some(wanted) {
                complaints.push(format!(
                    "{}: {directive} is {found:?}, not {wanted}",
                    kernel.output
                ));
            }
        }
    }
    Ok(complaints)
}

/// Returns the text after `directive` in the first line that starts with it.
fn value<'a>(ptx: &'a str, directive: &str) -> Option<&'a str> {
    ptx.lines()
        .find_map(|line| line.strip_prefix(directive))
        .map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::super::lock::LockedKernel;
    use super::*;

    const MANIFEST: &str = r#"
        toolchain = { release = "13.0", packages = [] }
        ptx = { arch = "compute_80", version = "9.0", flags = ["-O3"] }
        kernel = [{ source = "kernels/a.cu", output = "out/a.ptx" }]
    "#;
    const PTX: &str = ".version 9.0\n.target sm_80\n";

    /// Returns a workspace without differences, with its list and its lock.
    fn compiled() -> (tempfile::TempDir, Manifest, Lock) {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for name in ["kernels", "out"] {
            std::fs::create_dir(root.join(name)).unwrap();
        }
        std::fs::write(root.join("kernels/a.cu"), "__global__ void a() {}\n").unwrap();
        std::fs::write(root.join("kernels/a.cuh"), "#define N 1\n").unwrap();
        std::fs::write(root.join("out/a.ptx"), PTX).unwrap();
        let manifest: Manifest = toml::from_str(MANIFEST).unwrap();
        let nvcc = "13.0.88".to_owned();
        let inputs = lock::inputs(root, &manifest, &manifest.kernel[0], &nvcc).unwrap();
        let output = lock::hash(&[PTX.as_bytes()]);
        let locked = LockedKernel {
            source: "kernels/a.cu".into(),
            inputs,
            output,
        };
        Lock {
            nvcc,
            kernel: vec![locked],
        }
        .write(root)
        .unwrap();
        let lock = Lock::read(root).unwrap();
        (folder, manifest, lock)
    }

    fn only_complaint(root: &Path, manifest: &Manifest, lock: &Lock) -> String {
        let complaints = complaints(root, manifest, lock).unwrap();
        assert_eq!(complaints.len(), 1, "{complaints:?}");
        complaints.concat()
    }

    #[test]
    fn a_workspace_in_step_has_no_complaint() {
        let (folder, manifest, lock) = compiled();
        assert_eq!(
            complaints(folder.path(), &manifest, &lock).unwrap(),
            [""; 0]
        );
    }

    #[test]
    fn an_edited_source_header_or_flag_is_seen() {
        for edited in ["kernels/a.cu", "kernels/a.cuh"] {
            let (folder, manifest, lock) = compiled();
            std::fs::write(folder.path().join(edited), "#define N 2\n").unwrap();
            assert!(
                only_complaint(folder.path(), &manifest, &lock).contains("changed"),
                "{edited}"
            );
        }
        let (folder, mut manifest, lock) = compiled();
        manifest.kernel[0].flags.push("-DN=3".into());
        assert!(only_complaint(folder.path(), &manifest, &lock).contains("flags changed"));
    }

    #[test]
    fn edited_ptx_is_seen_and_so_is_a_wrong_target() {
        let (folder, manifest, lock) = compiled();
        std::fs::write(
            folder.path().join("out/a.ptx"),
            PTX.replace("sm_80", "sm_90a"),
        )
        .unwrap();
        let complaints = complaints(folder.path(), &manifest, &lock).unwrap();
        assert!(
            complaints[0].contains("not what was compiled"),
            "{complaints:?}"
        );
        assert!(complaints[1].contains("sm_90a"), "{complaints:?}");
    }

    #[test]
    fn missing_and_unlisted_files_are_seen() {
        let (folder, manifest, lock) = compiled();
        std::fs::remove_file(folder.path().join("out/a.ptx")).unwrap();
        assert!(only_complaint(folder.path(), &manifest, &lock).contains("is missing"));

        let (folder, manifest, lock) = compiled();
        std::fs::write(folder.path().join("kernels/b.cu"), "").unwrap();
        assert!(only_complaint(folder.path(), &manifest, &lock).contains("b.cu is not listed"));

        let (folder, mut manifest, lock) = compiled();
        manifest.toolchain.release = "13.1".into();
        assert!(only_complaint(folder.path(), &manifest, &lock).contains("asks for 13.1"));
    }

    #[test]
    fn no_kernel_and_no_lock_is_in_step() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("kernels")).unwrap();
        let mut manifest: Manifest = toml::from_str(MANIFEST).unwrap();
        manifest.kernel.clear();
        let lock = Lock::read(folder.path()).unwrap();
        assert_eq!(
            complaints(folder.path(), &manifest, &lock).unwrap(),
            [""; 0]
        );
    }
}

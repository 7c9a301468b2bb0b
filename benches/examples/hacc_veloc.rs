//! A rank of the experiment `hacc` (benches) that writes its particles by VELOC's interface: the calls of `veloc.h`, linked from `libtierflow`.
//!
//! ```sh
//! cargo build --release -p tierflow-benches --example hacc_veloc
//! ```

use std::ffi::{CStr, CString, c_char, c_int, c_void};

use anyhow::{Context, Result, ensure};
use tierflow as _;
use tierflow_benches::experiments::hacc::{Checkpoints, Particles, Rank};

/// The name of all checkpoints.
const NAME: &CStr = c"hacc";

unsafe extern "C" {
    fn VELOC_Init_single(id: u32, file: *const c_char) -> c_int;
    fn VELOC_Finalize(drain: c_int) -> c_int;
    fn VELOC_Mem_protect(id: c_int, ptr: *mut c_void, count: usize, base_size: usize) -> c_int;
    fn VELOC_Checkpoint(name: *const c_char, version: c_int) -> c_int;
    fn VELOC_Checkpoint_wait() -> c_int;
    fn VELOC_Restart(name: *const c_char, version: c_int) -> c_int;
}

fn main() -> Result<()> {
    let rank = std::env::args()
        .nth(3)
        .context("usage: hacc_veloc child hacc RANK")?;
    let rank: Rank = serde_json::from_str(&rank)?;
    rank.serve_by(|rank| Ok(Box::new(Veloc::open(rank)?)))
}

/// The client, which ends with this value.
struct Veloc;

fn succeeded(code: c_int, call: &str) -> Result<()> {
    // The reason is on the standard error already.
    ensure!(code == 0, "{call} failed");
    Ok(())
}

impl Veloc {
    fn open(rank: &Rank) -> Result<Self> {
        let home = rank.directory.join(format!("veloc-{}", rank.rank));
        std::fs::create_dir_all(&home)?;
        let file = home.join("veloc.cfg");
        let (scratch, persistent) = (home.join("scratch"), home.join("persistent"));
        let text = format!(
            "scratch = {}\npersistent = {}\nmode = async\nhost_cache = {}\nmax_versions = 0\n",
            scratch.display(),
            persistent.display(),
            2 * rank.bytes()
        );
        std::fs::write(&file, text)?;
        let file = CString::new(file.into_os_string().into_encoded_bytes())?;
        // SAFETY: the text ends with a zero, and lives until the call returns.
        let code = unsafe { VELOC_Init_single(u32::try_from(rank.rank)?, file.as_ptr()) };
        succeeded(code, "VELOC_Init_single")?;
        Ok(Self)
    }

    fn protect(id: usize, array: *mut u8, bytes: usize) -> Result<()> {
        // SAFETY: the memory is named for the next call alone, within which its owner lends it: each call protects all ids anew.
        let code = unsafe { VELOC_Mem_protect(c_int::try_from(id)?, array.cast(), bytes, 1) };
        succeeded(code, "VELOC_Mem_protect")
    }
}

/// VELOC's versions are numbered from 1: 0 stands for the newest.
fn version(step: u64) -> Result<c_int> {
    Ok(c_int::try_from(step)? + 1)
}

impl Checkpoints for Veloc {
    fn checkpoint(&mut self, step: u64, particles: &Particles) -> Result<()> {
        for (id, array) in particles.arrays().into_iter().enumerate() {
            Self::protect(id, array.as_ptr().cast_mut(), array.len())?;
        }
        // SAFETY: the name ends with a zero. A checkpoint reads what is protected, and has its copy when it returns.
        let code = unsafe { VELOC_Checkpoint(NAME.as_ptr(), version(step)?) };
        succeeded(code, "VELOC_Checkpoint")
    }

    fn settle(&mut self) -> Result<()> {
        // SAFETY: it has no arguments.
        succeeded(unsafe { VELOC_Checkpoint_wait() }, "VELOC_Checkpoint_wait")
    }

    fn read(&mut self, step: u64, particles: &mut Particles) -> Result<()> {
        for (id, array) in particles.arrays_mut().into_iter().enumerate() {
            Self::protect(id, array.as_mut_ptr(), array.len())?;
        }
        // SAFETY: the name ends with a zero; what is protected is lent to be written.
        let code = unsafe { VELOC_Restart(NAME.as_ptr(), version(step)?) };
        succeeded(code, "VELOC_Restart")
    }
}

impl Drop for Veloc {
    fn drop(&mut self) {
        // SAFETY: it has a plain argument.
        if unsafe { VELOC_Finalize(1) } != 0 {
            eprintln!("VELOC_Finalize failed");
        }
    }
}

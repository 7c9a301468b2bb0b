//! Files that the application writes and reads itself.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use tierflow_engine::{Engine, Error};

use crate::failure::{Failure, Outcome};

/// Bytes of a file that are copied at a time.
const BLOCK: u64 = 8 << 20;

/// Takes a file in as version `number` of the engine, and returns its bytes. An empty file becomes a version only if `empties` is true.
pub(super) fn take_in(engine: &Engine, path: &Path, number: u64, empties: bool) -> Outcome<u64> {
    let failed = |error: io::Error| Failure::file(path, &error);
    let mut file = File::open(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    if length == 0 {
        if empties {
            engine.checkpoint(number, &[])?;
        }
        return Ok(0);
    }
    let bytes = usize::try_from(length).unwrap_or(usize::MAX);
    match engine.call().produce(number, bytes) {
        Ok(mut slot) if slot.host_accessible() => {
            file.read_exact(slot.bytes_mut()?).map_err(failed)?;
            slot.commit();
            return Ok(length);
        }
        // A slot that is not written gives the number up here, before the checkpoint takes it.
        Ok(_) | Err(Error::TooLarge { .. } | Error::NoRoom { .. } | Error::NoMemoryTier) => {}
        Err(error) => return Err(error.into()),
    }
    let mut copy = vec![0; bytes];
    file.read_exact(&mut copy).map_err(failed)?;
    engine.checkpoint(number, &[copy.as_slice().into()])?;
    Ok(length)
}

/// Writes a version of the engine to a file.
pub(super) fn give_out(engine: &Engine, number: u64, length: u64, path: &Path) -> Outcome {
    let failed = |error: io::Error| Failure::file(path, &error);
    let mut file = File::create(path).map_err(failed)?;
    if length == 0 {
        return Ok(());
    }
    match engine.call().consume(number) {
        Ok(slot) if slot.host_accessible() => {
            return file.write_all(slot.bytes()?).map_err(failed);
        }
        Ok(slot) => slot.give_back(),
        Err(Error::NoMemoryTier) => {}
        Err(error) => return Err(error.into()),
    }
    let mut copy = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
    engine.restore(number, &mut [copy.as_mut_slice().into()])?;
    file.write_all(&copy).map_err(failed)
}

/// Copies a routed file to the path that the application gave. The file there is whole or absent. Adds each copied block to `copied`.
pub(super) fn publish(routed: &Path, original: &Path, copied: &AtomicU64) -> Outcome {
    let failed = |error: io::Error| Failure::file(original, &error);
    let mut part = original.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    let mut from = File::open(routed).map_err(|error| Failure::file(routed, &error))?;
    let mut file = File::create(&part).map_err(failed)?;
    while io::copy(&mut (&mut from).take(BLOCK), &mut file).map_err(failed)? > 0 {
        copied.fetch_add(1, Ordering::Relaxed);
    }
    file.sync_data().map_err(failed)?;
    fs::rename(&part, original).map_err(failed)?;
    let directory = original.parent().unwrap_or(original);
    let directory = File::open(directory).and_then(|directory| directory.sync_all());
    directory.map_err(failed)
}

/// Removes a file, if it is there.
pub(super) fn remove(path: &Path) -> Outcome {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Failure::file(path, &error)),
        _ => Ok(()),
    }
}

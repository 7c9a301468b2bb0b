//! Tests of copies between files and device memory, on a machine with a GPU and cuFile:
//! `cargo test -p tierflow-device --test cufile -- --ignored`, with the directory of `libcufile.so.0`
//! in `LD_LIBRARY_PATH`. `TMPDIR` names a directory on a disk that udev knows, or `/dev/shm`.
#![cfg(feature = "cuda")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use tierflow_device::cuda::{DirectError, DirectFile, DirectFiles};
use tierflow_device::{Choice, Device, Memory, Stream, open};

const BLOCK: usize = 4096;
const SIZE: usize = 12 << 20;

struct Bench {
    device: Device,
    stream: Stream,
    files: DirectFiles,
    directory: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let device = open(Choice::Cuda { ordinal: 0 }).unwrap();
        let files = DirectFiles::open(&device).unwrap();
        println!("{}, version {:?}", files.mode(), files.version());
        Self {
            stream: device.stream().unwrap(),
            files,
            device,
            directory: tempfile::tempdir().unwrap(),
        }
    }

    /// Returns a file, opened past the page cache if possible, and its registration with cuFile.
    fn file(&self) -> (File, DirectFile) {
        let path = self.directory.path().join("bytes");
        let file = opened(&path, 0o40000).or_else(|_| opened(&path, 0));
        let file = file.unwrap();
        let direct = self.files.file(file.as_fd()).unwrap();
        (file, direct)
    }

    /// Returns device memory with these bytes.
    fn memory(&self, bytes: &[u8]) -> Memory {
        let memory = self.device.alloc(bytes.len()).unwrap();
        self.put(bytes, &memory);
        memory
    }

    fn put(&self, bytes: &[u8], memory: &Memory) {
        let mut lent = memory.lend_mut(0..bytes.len()).unwrap();
        self.stream.write(bytes, &mut lent).unwrap();
    }

    fn bytes(&self, memory: &Memory) -> Vec<u8> {
        let mut bytes = vec![0; memory.len()];
        let lent = memory.lend(0..bytes.len()).unwrap();
        self.stream.read(&lent, &mut bytes).unwrap();
        bytes
    }
}

fn opened(path: &Path, flags: i32) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create(true).truncate(false);
    options.custom_flags(flags).open(path)
}

fn pattern(length: usize, seed: usize) -> Vec<u8> {
    (0..length)
        .map(|at| ((at ^ seed).wrapping_mul(0x9E37_79B9) >> 16) as u8)
        .collect()
}

#[test]
#[ignore = "needs an NVIDIA GPU and cuFile"]
fn bytes_written_from_a_device_are_read_into_it() {
    let bench = Bench::new();
    let (_file, direct) = bench.file();
    let content = pattern(SIZE, 1);
    let source = bench.memory(&content);
    direct.write(0, &source.lend(0..SIZE).unwrap()).unwrap();
    let written = std::fs::read(bench.directory.path().join("bytes")).unwrap();
    assert!(written == content);
    let target = bench.memory(&pattern(SIZE, 2));
    let mut lent = target.lend_mut(0..SIZE).unwrap();
    direct.read(0, &mut lent).unwrap();
    drop(lent);
    assert!(bench.bytes(&target) == content);
}

#[test]
#[ignore = "needs an NVIDIA GPU and cuFile"]
fn offsets_and_lengths_need_not_be_whole_blocks() {
    let bench = Bench::new();
    let (_file, direct) = bench.file();
    let mut expected = pattern(SIZE, 3);
    let source = bench.memory(&expected);
    direct.write(0, &source.lend(0..SIZE).unwrap()).unwrap();
    for (at, from, length) in [(1, 3, 5), (12_345, 7, 100_001), (BLOCK, 0, BLOCK - 1)] {
        let content = pattern(SIZE, at);
        bench.put(&content, &source);
        let lent = source.lend(from..from + length).unwrap();
        direct.write(at as u64, &lent).unwrap();
        expected[at..at + length].copy_from_slice(&content[from..from + length]);
    }
    let target = bench.memory(&vec![0; SIZE]);
    let mut lent = target.lend_mut(0..SIZE).unwrap();
    direct.read(0, &mut lent).unwrap();
    drop(lent);
    assert!(bench.bytes(&target) == expected);
    // Offsets in memory need not be whole blocks either, and bytes beside the range stay as they are.
    let target = bench.memory(&vec![0; 3 * BLOCK]);
    let mut lent = target.lend_mut(11..11 + BLOCK).unwrap();
    direct.read(12_347, &mut lent).unwrap();
    drop(lent);
    let read = bench.bytes(&target);
    assert!(read[11..11 + BLOCK] == expected[12_347..12_347 + BLOCK]);
    assert!(
        read[..11]
            .iter()
            .chain(&read[11 + BLOCK..])
            .all(|&byte| byte == 0)
    );
}

#[test]
#[ignore = "needs an NVIDIA GPU and cuFile"]
fn mapped_chunks_are_memory_like_any_other() {
    let bench = Bench::new();
    let (_file, direct) = bench.file();
    let reservation = bench.device.reserve(4 << 20).unwrap();
    let length = reservation.memory().len();
    reservation.map(0..length / 2).unwrap();
    reservation.map(length / 2..length).unwrap();
    let memory = reservation.memory();
    let content = pattern(length, 4);
    bench.put(&content, memory);
    direct.write(0, &memory.lend(0..length).unwrap()).unwrap();
    bench.put(&vec![0; length], memory);
    let mut lent = memory.lend_mut(0..length).unwrap();
    direct.read(0, &mut lent).unwrap();
    drop(lent);
    assert!(bench.bytes(memory) == content);
}

#[test]
#[ignore = "needs an NVIDIA GPU and cuFile"]
fn a_file_stays_when_its_name_its_descriptor_and_its_driver_go() {
    let bench = Bench::new();
    let (file, direct) = bench.file();
    drop(file);
    let Bench {
        files,
        directory,
        device,
        stream,
    } = bench;
    drop((files, directory));
    let memory = device.alloc(SIZE).unwrap();
    stream
        .fill(&mut memory.lend_mut(0..SIZE).unwrap(), 7)
        .unwrap();
    direct
        .write(BLOCK as u64, &memory.lend(0..SIZE).unwrap())
        .unwrap();
    stream
        .fill(&mut memory.lend_mut(0..SIZE).unwrap(), 0)
        .unwrap();
    direct
        .read(BLOCK as u64, &mut memory.lend_mut(0..SIZE).unwrap())
        .unwrap();
    let mut bytes = vec![0; SIZE];
    stream
        .read(&memory.lend(0..SIZE).unwrap(), &mut bytes)
        .unwrap();
    assert!(bytes == vec![7; SIZE]);
}

#[test]
#[ignore = "needs an NVIDIA GPU and cuFile"]
fn threads_share_a_file() {
    let bench = Bench::new();
    let (_file, direct) = bench.file();
    let part = 1 << 20;
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (bench, direct) = (&bench, &direct);
            scope.spawn(move || {
                let content = pattern(part, thread);
                let memory = bench.device.alloc(part).unwrap();
                let stream = bench.device.stream().unwrap();
                let at = (thread * part) as u64;
                for _ in 0..4 {
                    stream
                        .write(&content, &mut memory.lend_mut(0..part).unwrap())
                        .unwrap();
                    direct.write(at, &memory.lend(0..part).unwrap()).unwrap();
                    stream
                        .fill(&mut memory.lend_mut(0..part).unwrap(), 0)
                        .unwrap();
                    direct
                        .read(at, &mut memory.lend_mut(0..part).unwrap())
                        .unwrap();
                    let mut back = vec![0; part];
                    stream
                        .read(&memory.lend(0..part).unwrap(), &mut back)
                        .unwrap();
                    assert!(back == content);
                }
            });
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU and cuFile"]
fn what_cannot_be_is_refused() {
    let bench = Bench::new();
    let (_file, direct) = bench.file();
    let memory = bench.memory(&[1; 2 * BLOCK]);
    direct.write(0, &memory.lend(0..BLOCK).unwrap()).unwrap();
    // The file has one block.
    let mut lent = memory.lend_mut(0..2 * BLOCK).unwrap();
    let error = direct.read(0, &mut lent).unwrap_err();
    assert!(
        matches!(error, DirectError::Short { done: BLOCK, .. }),
        "{error}"
    );
    let error = direct.read(u64::MAX - 5, &mut lent).unwrap_err();
    assert!(matches!(error, DirectError::Offset { .. }), "{error}");
    drop(lent);
    // An empty loan can be read at any offset.
    direct
        .read(1 << 40, &mut memory.lend_mut(5..5).unwrap())
        .unwrap();

    let (pinned, _) = bench.device.alloc_pinned(BLOCK).unwrap();
    let error = direct
        .write(0, &pinned.lend(0..BLOCK).unwrap())
        .unwrap_err();
    assert_eq!(error, DirectError::Memory);
    let other = open(Choice::Host).unwrap().alloc(BLOCK).unwrap();
    let error = direct.write(0, &other.lend(0..BLOCK).unwrap()).unwrap_err();
    assert_eq!(error, DirectError::Memory);

    let directory = File::open(bench.directory.path()).unwrap();
    let error = bench.files.file(directory.as_fd()).unwrap_err();
    assert!(matches!(error, DirectError::File(_)), "{error}");
}

#[test]
#[ignore = "needs an NVIDIA GPU and cuFile"]
fn a_file_that_may_not_be_written_says_so() {
    let bench = Bench::new();
    let path = bench.directory.path().join("read only");
    std::fs::write(&path, [1; BLOCK]).unwrap();
    let Ok(direct) = bench.files.file(File::open(&path).unwrap().as_fd()) else {
        return;
    };
    let memory = bench.memory(&[2; BLOCK]);
    let error = direct
        .write(0, &memory.lend(0..BLOCK).unwrap())
        .unwrap_err();
    assert!(
        matches!(error, DirectError::Io { .. } | DirectError::Failed { .. }),
        "{error}"
    );
    assert_eq!(std::fs::read(&path).unwrap(), [1; BLOCK]);
}

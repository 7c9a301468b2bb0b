//! Tests of the host arena on the host back end.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use tierflow_device::{Choice, HostReservation, open};
use tierflow_tier_alloc::{Baseline, Error, HostArena, HostGrowth, HostOptions, Pace, PinTurns};

const MIB: usize = 1 << 20;

fn pieces(piece: usize, touchers: usize) -> HostGrowth {
    HostGrowth::Pieces {
        piece,
        pause: Duration::from_micros(20),
        touchers,
    }
}

#[test]
fn an_arena_grows_to_its_end_and_reports_how() {
    let device = open(Choice::Host).unwrap();
    let asked = 33 * MIB + 5;
    let arena = HostArena::start(&device, asked, pieces(2 * MIB, 3)).unwrap();
    arena.wait_grown();
    let report = arena.report();
    assert_eq!(report.asked, asked);
    assert!(
        (asked..asked + (64 << 10)).contains(&report.capacity),
        "{}",
        report.capacity
    );
    assert_eq!(report.capacity, arena.capacity());
    assert_eq!(report.failed, None);
    assert!(report.finished && arena.is_grown());
    assert_eq!(
        (report.touched, arena.touched()),
        (report.capacity, report.capacity)
    );
    assert_eq!(report.pinned, arena.pinned());
    // Either all memory is pinned, or the report gives a reason.
    assert_eq!(
        report.pinned == report.capacity,
        report.why_unpinned.is_none()
    );
    assert!(report.huge_pages.is_none_or(|huge| huge <= report.capacity));

    let last = report.timeline.last().unwrap();
    assert_eq!((last.touched, last.pinned), (report.touched, report.pinned));
    for pair in report.timeline.windows(2) {
        let ([before, after], _) = pair.split_first_chunk::<2>().unwrap();
        assert!(before.at <= after.at);
        assert!(before.touched <= after.touched && before.pinned <= after.pinned);
    }
    assert!(
        report
            .timeline
            .iter()
            .all(|sample| sample.pinned <= sample.touched)
    );
}

#[test]
fn an_arena_never_locks_more_than_the_limit() {
    let status = std::fs::read_to_string("/proc/self/limits").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("Max locked memory"))
        .unwrap();
    let soft = line.split_whitespace().nth(3).unwrap();
    let device = open(Choice::Host).unwrap();
    let arena = HostArena::start(&device, 64 * MIB, pieces(2 * MIB, 1)).unwrap();
    arena.wait_grown();
    let report = arena.report();
    if let Ok(limit) = soft.parse::<usize>()
        && limit < 64 * MIB
    {
        assert!(report.pinned <= limit);
        let why = report.why_unpinned.expect("a reason").to_string();
        assert!(why.contains("limit"), "{why}");
    }
    assert_eq!(report.touched, 64 * MIB, "touched all the same");
}

#[test]
fn bytes_written_while_it_grows_stay() {
    let device = open(Choice::Host).unwrap();
    let stream = device.stream().unwrap();
    let arena = HostArena::start(&device, 64 * MIB, pieces(2 * MIB, 4)).unwrap();
    thread::scope(|scope| {
        for writer in 0..4_usize {
            let (arena, stream) = (&arena, &stream);
            scope.spawn(move || {
                // Each writer fills a quarter from its end to its start, against the direction of the growth.
                for i in (writer * 16..(writer + 1) * 16).rev() {
                    let _pass = arena.gate().enter();
                    let mut slot = arena.lend_mut(i * MIB..(i + 1) * MIB).unwrap();
                    stream.write(&vec![i as u8 + 1; MIB], &mut slot).unwrap();
                }
            });
        }
    });
    arena.wait_grown();
    let all = arena.lend(0..64 * MIB).unwrap();
    for (i, part) in all.bytes().unwrap().chunks_exact(MIB).enumerate() {
        assert!(
            part.iter().all(|&byte| usize::from(byte) == i + 1),
            "MiB {i}"
        );
    }
}

#[test]
fn a_gate_that_is_never_empty_does_not_starve_it() {
    let device = open(Choice::Host).unwrap();
    let arena = HostArena::start(&device, 8 * MIB, pieces(2 * MIB, 1)).unwrap();
    let pass = arena.gate().enter();
    // The call returns although the pass is held. Otherwise the test would hang.
    arena.wait_grown();
    drop(pass);
    assert_eq!(arena.touched(), 8 * MIB);
}

/// The arena pauses between two pieces, here for ever. An arena does not pause after the last piece, nor once it is dropped.
#[test]
fn a_long_pause_holds_up_neither_the_end_nor_the_drop() {
    let device = open(Choice::Host).unwrap();
    let growth = HostGrowth::Pieces {
        piece: MIB,
        pause: Duration::MAX,
        touchers: 1,
    };
    let one = HostArena::start(&device, MIB, growth).unwrap();
    one.wait_grown();
    drop(one);
    let two = HostArena::start(&device, 2 * HostReservation::GRANULARITY, growth).unwrap();
    // The loop ends when the arena pauses, or has found that it cannot pin at all.
    while two.pinned() == 0 && two.report().why_unpinned.is_none() {
        thread::sleep(Duration::from_millis(1));
    }
    let begun = Instant::now();
    drop(two);
    assert!(begun.elapsed() < Duration::from_secs(20));
}

#[test]
fn wrong_settings_are_errors() {
    let device = open(Choice::Host).unwrap();
    for growth in [pieces(0, 1), pieces(MIB, 0)] {
        assert!(matches!(
            HostArena::start(&device, MIB, growth),
            Err(Error::Zero { .. })
        ));
    }
    let empty = HostArena::start(&device, 0, HostGrowth::default());
    assert!(matches!(empty, Err(Error::Device(_))));
    assert!(HostArena::start(&device, usize::MAX, HostGrowth::default()).is_err());
    // There are more touchers than pieces, pieces are larger than the arena, and no size is a multiple of a page.
    let odd = HostArena::start(&device, 4097, pieces(usize::MAX, 64)).unwrap();
    odd.wait_grown();
    assert_eq!(odd.touched(), odd.capacity());
}

#[test]
fn dropping_it_early_gives_all_back() {
    let device = open(Choice::Host).unwrap();
    for _ in 0..20 {
        // No machine can touch 1 TiB within the time of this test.
        let arena = HostArena::start(&device, 1 << 40, pieces(2 * MIB, 2)).unwrap();
        let mut kept = arena.lend_mut(0..MIB).unwrap();
        drop(arena);
        kept.bytes_mut().unwrap().fill(7);
        let stays = kept.bytes().unwrap().iter().all(|&byte| byte == 7);
        assert!(stays, "what is lent stays");
    }
}

/// Waits until the arena is touched up to `end`, and asserts that it then stops there.
fn touched_to(arena: &HostArena, end: usize) {
    let begun = Instant::now();
    while arena.touched() < end {
        let touched = arena.touched();
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "touched {touched} only"
        );
        thread::sleep(Duration::from_millis(1));
    }
    thread::sleep(Duration::from_millis(50));
    assert!(
        arena.touched() <= end,
        "touched {} unasked",
        arena.touched()
    );
}

#[test]
fn as_needed_it_grows_ahead_of_what_is_used_and_no_farther() {
    let device = open(Choice::Host).unwrap();
    let options = HostOptions::from(pieces(2 * MIB, 2)).pace(Pace::AsNeeded { lead: 2 * MIB });
    let arena = HostArena::start(&device, 64 * MIB, options).unwrap();
    touched_to(&arena, 8 * MIB);
    let source = device.alloc(MIB).unwrap();
    let (stream, loan) = (device.stream().unwrap(), source.lend(0..MIB).unwrap());
    let begun = arena.begin_copy_in(&stream, loan, 31 * MIB).unwrap();
    begun.map_or(Ok(()), |copy| copy.wait().result).unwrap();
    touched_to(&arena, 40 * MIB);
    // The arena counts lent bytes as used, as their borrower copies them.
    drop(arena.lend_mut(50 * MIB..52 * MIB).unwrap());
    touched_to(&arena, 60 * MIB);
    // A range beyond the capacity is an error, and lets nothing grow.
    for end in [65 * MIB, usize::MAX] {
        assert!(arena.lend(0..end).is_err() && arena.lend_mut(0..end).is_err());
    }
    touched_to(&arena, 60 * MIB);
}

#[test]
fn doubling_it_grows_as_far_again_as_it_is_used() {
    let device = open(Choice::Host).unwrap();
    let options = HostOptions::from(pieces(8 * MIB, 2)).pace(Pace::Doubling { most: 16 * MIB });
    let arena = HostArena::start(&device, 64 * MIB, options).unwrap();
    touched_to(&arena, 0);
    for (used, touched) in [(2, 4), (6, 12), (16, 32), (20, 36), (5, 36), (64, 64)] {
        drop(arena.lend_mut(0..used * MIB).unwrap());
        touched_to(&arena, touched * MIB);
    }
    assert_eq!((arena.pinned(), arena.report().finished), (0, true));
    for limit in [8, 64] {
        assert_eq!(arena.resize(limit * MIB).unwrap(), limit * MIB);
        drop(arena.lend_mut(0..8 * MIB).unwrap());
        touched_to(&arena, limit.min(16) * MIB);
    }
}

#[test]
fn it_shrinks_and_grows_again_and_keeps_what_it_keeps() {
    let device = open(Choice::Host).unwrap();
    let arena = HostArena::start(&device, 40 * MIB, pieces(4 * MIB, 2)).unwrap();
    let mut all = arena.lend_mut(0..40 * MIB).unwrap();
    all.bytes_mut().unwrap().fill(7);
    let busy = arena.resize(8 * MIB);
    assert!(matches!(busy, Err(Error::Device(_))), "all of it is lent");
    drop(all);
    let mut before = (40 * MIB, 7);
    for (asked, kept) in [(24, 24), (4000, 40), (0, 0), (9, 10), (40, 40), (12, 12)] {
        let limit = arena.resize(asked * MIB).unwrap();
        // Pinned pieces have 2 MiB or 4 MiB, depending on the application's copies.
        assert!(limit == kept * MIB || limit == (kept + 2) * MIB, "{limit}");
        arena.wait_grown();
        assert_eq!(arena.touched(), limit);
        assert!(arena.pinned() <= limit);
        let mut all = arena.lend_mut(0..limit).unwrap();
        let bytes = all.bytes_mut().unwrap();
        let (old, new) = bytes.split_at_mut(before.0.min(limit));
        assert!(old.iter().all(|&byte| byte == before.1));
        assert!(new.iter().all(|&byte| byte == 0));
        bytes.fill(kept as u8);
        before = (limit, kept as u8);
    }
    let direct = HostArena::start(&device, 2 * MIB, Baseline::DirectPin).unwrap();
    assert!(matches!(direct.resize(0), Err(Error::Fixed { .. })));
    let part = HostOptions::from(Baseline::DirectPin).begin_with(MIB);
    let refused = HostArena::start(&device, 2 * MIB, part);
    assert!(matches!(refused, Err(Error::Fixed { .. })));
    let part = HostOptions::from(pieces(4 * MIB, 2)).begin_with(6 * MIB);
    let arena = HostArena::start(&device, 40 * MIB, part).unwrap();
    arena.wait_grown();
    assert_eq!(arena.touched(), 6 * MIB);
    arena.resize(9 * MIB).unwrap();
    arena.wait_grown();
    assert_eq!(arena.touched(), 10 * MIB);
}

#[test]
fn nothing_is_pinned_in_the_turn_of_another_process() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("turns");
    // A second handle of the file stands for another process.
    let other = PinTurns::open(&path).unwrap();
    let options = HostOptions::from(pieces(2 * MIB, 2)).pin_in_turn(PinTurns::open(&path).unwrap());
    let device = open(Choice::Host).unwrap();
    let arena = other.take(|| {
        let arena = HostArena::start(&device, 8 * MIB, options).unwrap();
        while arena.touched() < arena.capacity() {
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(Duration::from_millis(20));
        assert_eq!(arena.pinned(), 0);
        assert!(!arena.is_grown());
        arena
    });
    arena.wait_grown();
    let report = arena.report();
    let is_pinned = report.pinned == report.capacity || report.why_unpinned.is_some();
    assert!(is_pinned, "{report:?}");
    let missing = folder.path().join("no folder").join("turns");
    assert!(matches!(PinTurns::open(&missing), Err(Error::Turns { .. })));
}

#[test]
fn an_arena_ends_in_the_turn_of_another_process() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("turns");
    let other = PinTurns::open(&path).unwrap();
    let own = PinTurns::open(&path).unwrap();
    let device = open(Choice::Host).unwrap();
    let ended = other.take(|| {
        // Threads of one process take turns, too, so one of these arenas waits for the other and not for the file.
        let arenas = [(); 2].map(|()| {
            let options = HostOptions::from(pieces(2 * MIB, 2)).pin_in_turn(own.clone());
            HostArena::start(&device, 8 * MIB, options).unwrap()
        });
        for arena in &arenas {
            while arena.touched() < arena.capacity() {
                thread::sleep(Duration::from_millis(1));
            }
        }
        thread::sleep(Duration::from_millis(20));
        arenas.map(|arena| {
            let (sender, ended) = mpsc::channel();
            thread::spawn(move || {
                drop(arena);
                let _ = sender.send(());
            });
            ended.recv_timeout(Duration::from_secs(5))
        })
    });
    assert_eq!(ended, [Ok(()); 2]);
}

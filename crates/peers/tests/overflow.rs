//! Tests of calibration, its file, and copies of remainders to peers and back.

#![allow(clippy::unwrap_used, reason = "a test panics where it fails")]

mod common;

use common::hosts;
use common::skewed::{MIB, PATIENCE, all_strategies, quick};
use tierflow_peers::{Error, Machine, Overflow, Remainder, calibrate};
use tierflow_placement::{MinTimeMaxFlow, Problem, Share, Strategy, Topology};
use tierflow_testing::assert_matches;

#[test]
fn a_skewed_checkpoint_comes_back_from_peers() {
    let devices = hosts(4, 256 << 20);
    all_strategies(&devices, 8 * MIB);
    // The devices have all their memory back.
    for device in &devices {
        assert_eq!(device.free_bytes().unwrap(), 256 << 20);
    }
}

#[test]
fn a_machine_survives_its_file() {
    let devices = hosts(3, 64 << 20);
    let machine = calibrate(&devices, quick()).unwrap();
    assert_eq!(machine.gpus().len(), 3);
    assert_eq!(machine.links().len(), 6);
    let on_links: usize = machine
        .host_links()
        .iter()
        .map(|link| link.gpus.len())
        .sum();
    assert_eq!(on_links, 3);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("machine.toml");
    machine.save(&path).unwrap();
    let loaded = Machine::load(&path).unwrap();
    assert_eq!(loaded, machine);
    loaded.fits(&devices).unwrap();
    assert_eq!(loaded.topology().unwrap(), machine.topology().unwrap());

    let fewer = loaded.fits(&devices[..2]).unwrap_err();
    assert!(
        fewer
            .to_string()
            .contains("GPU 2 is host memory there, and missing here"),
        "{fewer}"
    );
    let more = loaded.fits(&hosts(4, 1 << 20)).unwrap_err();
    assert!(
        more.to_string().contains("GPU 3 is missing there"),
        "{more}"
    );

    let text = std::fs::read_to_string(&path).unwrap();
    let mend = |from: &str, to: &str| {
        assert!(text.contains(from), "{text}");
        std::fs::write(&path, text.replacen(from, to, 1)).unwrap();
        Machine::load(&path)
    };
    let renamed = mend("host memory", "another GPU").unwrap();
    let other = renamed.fits(&devices).unwrap_err();
    assert!(matches!(other, Error::OtherMachine { .. }), "{other}");
    assert!(
        other.to_string().contains("GPU 0 is another GPU there"),
        "{other}"
    );
    let newer = mend("format = 1", "format = 2").unwrap_err();
    assert!(newer.to_string().contains("its format is 2"), "{newer}");
    let far = mend("from = 0", "from = 7").unwrap_err();
    assert!(
        far.to_string().contains("the link from GPU 7 to GPU 1"),
        "{far}"
    );
    let nowhere = mend("gpus = [", "gpus = [9, ").unwrap_err();
    assert!(
        nowhere.to_string().contains("GPU 9 is not described"),
        "{nowhere}"
    );
    assert_matches!(
        mend("bandwidth = ", "bandwidth = -").unwrap().topology(),
        Err(Error::Topology(_))
    );
    let unknown = mend("format = 1", "format = 1\nspeed = 3").unwrap_err();
    assert!(matches!(unknown, Error::Format { .. }), "{unknown}");
    std::fs::write(&path, "no TOML").unwrap();
    assert!(matches!(Machine::load(&path), Err(Error::Format { .. })));
    let missing = Machine::load(&folder.path().join("none")).unwrap_err();
    assert!(matches!(missing, Error::File { .. }), "{missing}");
}

/// The file of a machine on which GPUs 0 and 1 share a link to the host.
const FOUR: &str = r#"
format = 1
to_host = 100e9
gpu = [
    { name = "a", to_host = 50e9, to_peers = 400e9, from_peers = 400e9, to_all = 450e9 },
    { name = "a", to_host = 50e9, to_peers = 400e9, from_peers = 400e9, to_all = 450e9 },
    { name = "a", to_host = 50e9, to_peers = 400e9, from_peers = 400e9, to_all = 445e9 },
]
host_link = [{ gpus = [0, 1], bandwidth = 50e9 }, { gpus = [2], bandwidth = 50e9 }]
link = [
    { from = 0, to = 1, bandwidth = 400e9, performance_rank = 0, native_atomics = true },
    { from = 0, to = 2, bandwidth = 400e9, performance_rank = 0, native_atomics = true },
    { from = 1, to = 0, bandwidth = 400e9, performance_rank = 0, native_atomics = true },
    { from = 1, to = 2, bandwidth = 400e9, performance_rank = 0, native_atomics = true },
    { from = 2, to = 0, bandwidth = 400e9, performance_rank = 0, native_atomics = true },
    { from = 2, to = 1, bandwidth = 400e9, performance_rank = 0, native_atomics = true },
]
"#;

fn described(text: &str) -> Topology {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("machine.toml");
    std::fs::write(&path, text).unwrap();
    Machine::load(&path).unwrap().topology().unwrap()
}

fn time(topology: &Topology, shares: &[Share]) -> f64 {
    let problem = Problem::new(topology, shares).unwrap();
    let schedule = MinTimeMaxFlow::default().schedule(&problem).unwrap();
    schedule.makespan().as_secs_f64()
}

#[test]
fn equal_links_become_a_switch_and_shared_ones_stay_shared() {
    use Share::{Remainder, Spare};
    let near =
        |found: f64, wanted: f64| assert!((found / wanted - 1.0).abs() < 1e-6, "{found} {wanted}");
    let switch = described(FOUR);
    let mut wanted = Topology::new();
    let gpus = [wanted.gpu(), wanted.gpu(), wanted.gpu()];
    let nvswitch = wanted.switch();
    for gpu in gpus {
        wanted.port(nvswitch, gpu, 400e9).unwrap();
    }
    wanted.egress(gpus[2], 445e9).unwrap();
    let host = wanted.host();
    for on in [&gpus[..2], &gpus[2..]] {
        let link = wanted.host_link(host, 50e9).unwrap();
        for &gpu in on {
            wanted.host_port(link, gpu, 50e9).unwrap();
        }
    }
    assert_eq!(switch, wanted);
    let all = 450_000_000_000;
    near(
        time(&switch, &[Remainder(all), Spare(all), Spare(all)]),
        1.0,
    );
    let half = 25_000_000_000;
    near(
        time(&switch, &[Remainder(half), Remainder(half), Spare(0)]),
        1.0,
    );

    // A GPU sends twice as much to two peers as to one, so it has its own link to each.
    let links = FOUR.replace("to_peers = 400e9", "to_peers = 790e9");
    let links = described(&links.replace("to_all = 450e9", "to_all = 800e9"));
    near(
        time(
            &links,
            &[Remainder(800_000_000_000), Spare(all), Spare(all)],
        ),
        1.0,
    );
    // A link is slower than the others: the topology keeps its bandwidth.
    let slow = described(&FOUR.replacen("bandwidth = 400e9", "bandwidth = 100e9", 1));
    near(
        time(&slow, &[Remainder(150_000_000_000), Spare(all), Spare(0)]),
        1.0,
    );
}

#[test]
fn impossible_calibrations_and_moves_are_named() {
    assert!(matches!(calibrate(&[], quick()), Err(Error::NoDevices)));
    let devices = hosts(2, 64 << 20);
    let twice = [devices[0].clone(), devices[1].clone(), devices[0].clone()];
    let twice = calibrate(&twice, quick()).unwrap_err();
    assert!(
        twice.to_string().contains("GPU 0 and GPU 2 are the same"),
        "{twice}"
    );
    let full = calibrate(&hosts(2, 3 << 20), quick()).unwrap_err();
    assert!(matches!(full, Error::Device { .. }), "{full}");

    let topology = Topology::hgx_h200();
    let mut shares = [Share::Spare(8 << 20); 8];
    shares[0] = Share::Remainder(8 << 20);
    let problem = Problem::new(&topology, &shares).unwrap();
    let schedule = MinTimeMaxFlow::default().schedule(&problem).unwrap();
    let fewer = Overflow::new(&devices[..1], &schedule).unwrap_err();
    assert!(matches!(fewer, Error::Mismatch { .. }), "{fewer}");
    let devices = hosts(8, 64 << 20);
    let overflow = Overflow::new(&devices, &schedule).unwrap();
    let none = overflow.store(&vec![None; 8], PATIENCE).unwrap_err();
    assert!(none.to_string().contains("it has no remainder"), "{none}");
    let memory = devices[0].alloc(4096).unwrap();
    let mut short = vec![None; 8];
    short[0] = Some(Remainder { memory, start: 0 });
    let short = overflow.store(&short, PATIENCE).unwrap_err();
    assert!(
        short.to_string().contains("its remainder is shorter"),
        "{short}"
    );
}

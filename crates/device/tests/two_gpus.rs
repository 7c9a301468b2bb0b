//! Tests of two GPUs that can access each other's memory:
//! `cargo test -p tierflow-device --test two_gpus -- --ignored`.

use std::time::Instant;

use tierflow_device::{Choice, Device, Memory, Place, conformance, open};

fn gpus() -> tierflow_device::Result<(Device, Device)> {
    let gpu = |ordinal| open(Choice::Cuda { ordinal });
    Ok((gpu(0)?, gpu(1)?))
}

#[test]
#[ignore = "needs two NVIDIA GPUs"]
fn conform_as_peers() {
    let (one, other) = gpus().unwrap();
    for device in [&one, &other] {
        println!("{:?} at {:?}", device.info(), device.bus_id());
    }
    println!("link: {:?}", one.link_to(&other).unwrap());
    // All cases run, so that one failure does not hide the next.
    let mut failed = Vec::new();
    for case in conformance::PEER_CASES {
        for (device, peer) in [(&one, &other), (&other, &one)] {
            let start = Instant::now();
            let ended = case.run(device, peer);
            println!("{:8.1?}  {}: {ended:?}", start.elapsed(), case.name);
            failed.extend(ended.err());
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
#[ignore = "needs two NVIDIA GPUs"]
fn a_peer_reaches_what_was_shared_with_it() {
    let (device, peer) = gpus().unwrap();
    let shared = device
        .reserve_shared(4 << 20, std::slice::from_ref(&peer))
        .unwrap();
    shared.map(0..4 << 20).unwrap();
    let mut loan = shared.memory().lend_mut(0..4 << 20).unwrap();
    device.stream().unwrap().fill(&mut loan, 7).unwrap();
    let address = loan.address();
    let keep = std::sync::Arc::new(loan);
    // SAFETY: mapped memory that the peer was given access to; the loan is kept with it, and
    // nothing else reads or writes it.
    let seen = unsafe { Memory::from_raw(&peer, address, 4 << 20, Place::Device, keep) }.unwrap();
    let own = peer.alloc(4 << 20).unwrap();
    let stream = peer.stream().unwrap();
    let pair = (
        seen.lend(0..4 << 20).unwrap(),
        own.lend_mut(0..4 << 20).unwrap(),
    );
    stream.copy_all([pair]).unwrap();
    let mut bytes = vec![0; 4 << 20];
    stream
        .read(&own.lend(0..4 << 20).unwrap(), &mut bytes)
        .unwrap();
    assert!(bytes.iter().all(|&byte| byte == 7));
}

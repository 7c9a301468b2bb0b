//! Tests of two GPUs that can access each other's memory:
//! `cargo test -p tierflow-peers --test two_gpus -- --ignored`.

mod common;

use common::skewed::{MIB, PATIENCE, all_strategies};
use common::{gpus, read, write};
use tierflow_peers::{Lender, Loan};
use tierflow_testing::noise;

#[test]
#[ignore = "needs two NVIDIA GPUs"]
fn a_skewed_checkpoint_comes_back_from_a_peer_gpu() {
    all_strategies(&gpus(2), 64 * MIB);
}

#[test]
#[ignore = "needs two NVIDIA GPUs"]
fn a_gpu_borrows_from_another_through_a_socket() {
    let mut devices = gpus(2);
    let (peer, device) = (devices.remove(1), devices.remove(0));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lender");
    let lender = Lender::bind(&peer, &path, 64 << 20).unwrap();
    let (loan, lent) = std::thread::scope(|scope| {
        let lending = scope.spawn(|| lender.lend(PATIENCE).unwrap());
        let loan = Loan::ask(&device, &path, 32 << 20, PATIENCE).unwrap();
        (loan, lending.join().unwrap())
    });
    let bytes = noise(3, 32 << 20);
    write(&device, loan.memory(), &bytes);
    let own = peer.reserve_for_exported(32 << 20).unwrap();
    own.map_exported(0, lent.chunk()).unwrap();
    assert!(read(&peer, own.memory(), 32 << 20) == bytes);
    lent.recall().unwrap();
    assert!(loan.is_recalled().unwrap());
    loan.give_back().unwrap();
    lent.wait_returned(PATIENCE).unwrap();
    drop((own, lent));
    assert_eq!(lender.spare(), 64 << 20);
}

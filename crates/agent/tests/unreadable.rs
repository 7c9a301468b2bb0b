//! Pieces on the node that are damaged, cut, or cannot be read for a time.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod homes;

use homes::{Home, bytes_of, length_of};
use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;
use tierflow_agent::Client;
use tierflow_store::{Error as StoreError, Options, Repository, Vault};
use tierflow_testing::assert_matches;

#[test]
fn a_damaged_piece_is_named_and_stays_where_it_is() {
    let home = Home::new();
    let mut agent = home.agent(&[]);
    let local = home.local();
    [0, 3]
        .into_iter()
        .for_each(|version| homes::save(&local, version));
    let path = home.near.join("rank-0/v00000000000000000003.tfc");
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let vault = home.vault(None);
    assert_matches!(
        vault.copy(&local.own_piece(3).unwrap(), &|| Ok(())),
        Err(StoreError::Damaged { path: named, older: Some(0), .. })
            if *named == path
    );
    vault
        .copy(&local.own_piece(0).unwrap(), &|| Ok(()))
        .unwrap();
    assert_eq!(home.external(), [0]);
    drop(vault);
    home.stop(&mut agent);
}

#[test]
fn a_piece_that_cannot_be_read_is_tried_again_though_no_client_is_left() {
    let home = Home::new();
    let local = home.local();
    [0, 3, 4]
        .into_iter()
        .for_each(|version| homes::save(&local, version));
    drop(local);
    let path = home.near.join("rank-0/v00000000000000000003.tfc");
    let whole = std::fs::read(&path).unwrap();
    let mut bytes = whole.clone();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let mut agent = home.agent(&[]);
    drop(home.vault(None));
    // The agent brings the other pieces, and the route's status says what is wrong with this one.
    let route = || {
        let status = Client::connect(&home.scratch).unwrap().status().unwrap();
        status.routes.into_iter().next()
    };
    home.until(|| route().is_none_or(|route| route.brought == 2 && route.trouble.is_some()));
    let trouble = route().and_then(|route| route.trouble).unwrap();
    assert!(trouble.contains("v00000000000000000003"), "{trouble}");
    std::fs::write(&path, whole).unwrap();
    home.until(|| home.external() == [0, 3, 4]);
    home.until(|| route().is_none());
    home.stop(&mut agent);
    home.check();
}

/// A piece cannot be read, and another one was saved since the agent's last scan: the agent brings the second one before it ends.
#[test]
fn an_agent_that_is_stopped_brings_what_can_be_read() {
    let home = Home::new();
    let local = home.local();
    homes::save(&local, 3);
    let path = home.near.join("rank-0/v00000000000000000003.tfc");
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let mut agent = home.agent(&[]);
    drop(home.vault(None));
    let has_trouble = || {
        let status = Client::connect(&home.scratch).unwrap().status().unwrap();
        status.routes.iter().any(|route| route.trouble.is_some())
    };
    home.until(has_trouble);
    homes::save(&local, 4);
    home.stop(&mut agent);
    assert_eq!(home.external(), [4]);
}

/// A piece on the node is cut at any length: the agent brings it as it was, or says that it cannot. Once the piece is whole again, the
/// agent brings it.
#[test]
fn a_piece_cut_anywhere_is_said_and_never_brought_wrong() {
    let home = Home::new();
    let mut agent = home.agent(&[]);
    let local = home.local();
    homes::save(&local, 1);
    let path = home.near.join("rank-0/s00000000000000000001.open");
    let whole = std::fs::read(&path).unwrap();
    let end = whole.iter().rposition(|byte| *byte != 0).unwrap();
    let vault = home.vault(None);
    let expected = bytes_of(1, length_of(1));
    let brought = || {
        let far = Repository::read_only(&home.far, Options::default()).unwrap();
        far.piece(1).and_then(|piece| piece.read("state"))
    };
    let (mut said, mut came) = (0, 0);
    for cut in (0..end).step_by(173).chain([1, 255, 256, 257, 4095, 4096]) {
        let piece = local.own_piece(1).unwrap();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_len(cut as u64).unwrap();
        match vault.copy(&piece, &|| Ok(())) {
            Ok(()) => {
                came += 1;
                assert!(brought().unwrap() == expected, "cut at {cut}");
            }
            Err(error) => {
                said += 1;
                let is_said = matches!(
                    &error,
                    StoreError::Damaged { .. }
                        | StoreError::Read { .. }
                        | StoreError::NoVersion { .. }
                );
                assert!(is_said, "cut at {cut}: {error:?}");
                assert!(home.external().is_empty(), "cut at {cut}");
            }
        }
        file.write_all_at(&whole, 0).unwrap();
        vault
            .copy(&local.own_piece(1).unwrap(), &|| Ok(()))
            .unwrap();
        assert!(brought().unwrap() == expected, "cut at {cut}, and mended");
        vault.remove(&BTreeSet::from([1])).unwrap();
    }
    println!("{said} said, {came} came");
    assert!(said > 10);
    drop(vault);
    home.stop(&mut agent);
}

//! Receives messages of the agent's socket: any bytes, and frames of any text. A received message must be the same after it was sent again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde::{Serialize, de::DeserializeOwned};
use std::fmt::Debug;
use tierflow_agent::protocol::{FRAME_LIMIT, Reply, Request, receive, send};

fn listen<T: DeserializeOwned + Serialize + PartialEq + Debug>(mut wire: &[u8]) {
    // Bytes that are no message end the connection.
    while let Ok(Some(message)) = receive::<T>(&mut wire) {
        let mut again = Vec::new();
        send(&mut again, &message).expect("what was received can be sent");
        assert!(again.len() <= 4 + FRAME_LIMIT);
        let back = receive::<T>(&mut again.as_slice()).expect("what was sent can be received");
        assert_eq!(back, Some(message));
    }
}

fuzz_target!(|bytes: &[u8]| {
    listen::<Request>(bytes);
    listen::<Reply>(bytes);
    // The same bytes, as the text of one frame.
    let mut frame = (bytes.len() as u32).to_le_bytes().to_vec();
    frame.extend_from_slice(bytes);
    listen::<Request>(&frame);
    listen::<Reply>(&frame);
});

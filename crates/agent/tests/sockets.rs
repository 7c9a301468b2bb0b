//! Tests of the agent's socket with clients of other versions, invalid requests, and many idle connections.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod homes;

use homes::Home;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Instant;
use tierflow_agent::protocol::{PROTOCOL, Reply, Request, receive, send};
use tierflow_agent::{Client, Error};
use tierflow_testing::assert_matches;

/// Connects to the socket of an agent without a `Client`.
fn connected(home: &Home) -> UnixStream {
    let own = std::fs::File::open(home.scratch.join(".tierflow-agent")).unwrap();
    UnixStream::connect(format!("/proc/self/fd/{}/socket", own.as_raw_fd())).unwrap()
}

#[test]
fn another_version_of_the_protocol_is_refused_by_both_sides() {
    let home = Home::new();
    let mut agent = home.agent(&[]);
    for protocol in [PROTOCOL - 1, PROTOCOL + 1] {
        let mut stream = connected(&home);
        send(&mut stream, &Request::Hello { protocol }).unwrap();
        let Some(Reply::Failed(refusal)) = receive(&mut stream).unwrap() else {
            panic!("it is not refused");
        };
        assert!(refusal.message.contains("to the same version"));
        let nothing = receive::<Reply>(&mut stream).unwrap();
        assert_eq!(nothing, None, "it hangs up");
    }
    home.stop(&mut agent);
    // The answers of an agent of the first version, and of a later one.
    let first = r#"{"say":"failed","source":"agent","message":"it speaks another version"}"#;
    let later = format!(r#"{{"say":"hello","protocol":{}}}"#, PROTOCOL + 1);
    for reply in [first, &later] {
        let own = home.scratch.join(".tierflow-agent");
        std::fs::remove_file(own.join("socket")).unwrap();
        let opened = std::fs::File::open(&own).unwrap();
        let socket = format!("/proc/self/fd/{}/socket", opened.as_raw_fd());
        let listener = UnixListener::bind(socket).unwrap();
        let connection = std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                assert!(receive::<Request>(&mut stream).unwrap().is_some());
                let length = u32::try_from(reply.len()).unwrap().to_le_bytes();
                stream.write_all(&length).unwrap();
                stream.write_all(reply.as_bytes()).unwrap();
            });
            Client::connect(&home.scratch)
        });
        assert_matches!(connection, Err(Error::Protocol(_)));
    }
}

#[test]
fn invalid_requests_harm_no_other_client() {
    let home = Home::new();
    let mut agent = home.agent(&[]);
    let hello = b"\x1e\0\0\0{\"ask\":\"hello\",\"protocol\":2}  ";
    let nonsense: [&[u8]; 6] = [
        b"",
        b"GET / HTTP/1.1\r\n\r\n",
        &[255; 4096],
        &[0; 4096],
        b"\x1e\0\0\0{\"ask\":\"hello\",\"protocol\":1}  ",
        &[
            &hello[..],
            b"\x22\0\0\0{\"ask\":\"publish\",\"version\":1}     ",
        ]
        .concat(),
    ];
    for bytes in nonsense {
        let mut stream = connected(&home);
        // The agent may have closed the connection by then.
        let _unread = stream.write_all(bytes);
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        let _hung_up = stream.read_to_end(&mut answer);
        assert!(!String::from_utf8_lossy(&answer).contains("done"));
    }
    let mut client = Client::connect(&home.scratch).unwrap();
    for (local, external, rank, ranks) in [("a", "/b", 0, 1), ("/a", "b", 0, 1), ("/a", "/b", 1, 1)]
    {
        let route = tierflow_agent::protocol::Route {
            local: local.to_owned(),
            external: external.to_owned(),
            rank,
            ranks,
        };
        assert!(matches!(client.take(&route), Err(Error::Failed(_))));
    }
    assert_eq!(client.status().unwrap().routes, []);
    drop(client);
    home.stop(&mut agent);
}

#[test]
fn idle_connections_cost_no_threads_and_delay_no_client() {
    let home = Home::new();
    let mut agent = home.agent(&[]);
    let own = std::fs::File::open(home.scratch.join(".tierflow-agent")).unwrap();
    let socket = format!("/proc/self/fd/{}/socket", own.as_raw_fd());
    let threads = || {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", agent.id())).unwrap();
        tasks.count()
    };
    let mut greeted = Client::connect(&home.scratch).unwrap();
    // More connections than the agent accepts at a time, or as many as this process has descriptors for.
    let idle: Vec<_> = (0..1_500)
        .map_while(|_| UnixStream::connect(&socket).ok())
        .collect();
    assert!(idle.len() > 600);
    let begun = Instant::now();
    let mut client = Client::connect(&home.scratch).unwrap();
    client.status().unwrap();
    greeted.status().unwrap();
    let waited = begun.elapsed();
    println!(
        "{} idle: {} threads, a client waits {waited:?}",
        idle.len(),
        threads()
    );
    assert!(waited.as_secs() < 5, "{waited:?}");
    assert!(threads() < 20, "{} threads", threads());
    drop(idle);
    home.stop(&mut agent);
}

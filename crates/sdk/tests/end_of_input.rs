//! End of a connection: after the end of input, all accepted requests get a response; after the end of output, none.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use std::io::{self, Cursor, Write};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use linchpin::{Context, Error, NoArgs, Revision, Server, args};
use serde_json::{Value, json};
use spec_check::Conversation;
use support::{Clock, Peer, fault, runtime, stateless};
use tokio::sync::Semaphore;

const TEST_TIMEOUT: Duration = Duration::from_secs(20);

#[args]
struct Echo {
    message: String,
}

fn server() -> Server {
    Server::new("test", "1").tool("echo", "", |Echo { message }| async move { message }).tool(
        "slow",
        "",
        |Echo { message }| async move {
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            message
        },
    )
}

fn texts(answers: &[Value]) -> Vec<String> {
    let mut texts: Vec<_> = answers.iter().map(|answer| support::text(&answer["result"])).collect();
    texts.sort();
    texts
}

#[test]
fn every_request_is_answered_before_the_end() {
    for revision in Revision::ALL {
        let mut peer = Peer::open(revision, server());
        let mut expected = Vec::new();
        for (number, tool) in ["echo", "slow"].into_iter().cycle().take(50).enumerate() {
            expected.push(format!("{number:02}"));
            peer.send("tools/call", json!({"name": tool, "arguments": {"message": expected[number]}}));
        }
        let (rest, ended) = peer.end();
        ended.unwrap();
        assert_eq!(texts(&rest), expected, "{revision}");
    }
}

#[test]
fn a_handler_may_take_its_time_after_the_end() {
    for revision in Revision::ALL {
        let gate = Arc::new(Semaphore::new(0));
        let (said, heard) = sync_channel(1);
        let waiting = gate.clone();
        let server = server().tool("gate", "", move |_: NoArgs, cx: Context| {
            let (gate, said) = (waiting.clone(), said.clone());
            async move {
                said.send(()).unwrap();
                gate.acquire().await?.forget();
                cx.progress(1.0);
                Ok::<_, Error>("through")
            }
        });
        let mut peer = Peer::open(revision, server);
        peer.send("tools/call", json!({"name": "gate", "_meta": {"progressToken": "t"}}));
        heard.recv_timeout(TEST_TIMEOUT).unwrap();
        let ending = std::thread::spawn(move || peer.end());
        gate.add_permits(1);
        let (rest, ended) = ending.join().unwrap();
        ended.unwrap();
        assert_eq!(rest[0]["method"], "notifications/progress");
        assert_eq!(texts(&rest[1..]), ["through"], "{revision}");
    }
}

#[test]
fn who_takes_too_long_is_answered_with_an_error() {
    for revision in Revision::ALL {
        let (said, heard) = sync_channel(1);
        let server = server()
            .shutdown_timeout(Duration::from_hours(1))
            .tool("never", "", |_: NoArgs| std::future::pending::<()>())
            .tool("watching", "", move |_: NoArgs, cx: Context| {
                let said = said.clone();
                async move {
                    cx.cancelled().await;
                    said.send(()).unwrap();
                    std::future::pending::<()>().await;
                }
            });
        let mut peer = Peer::open_paused(revision, server);
        let given_up = peer.send("tools/call", json!({"name": "watching"}));
        peer.notify("notifications/cancelled", json!({"requestId": given_up}));
        heard.recv_timeout(TEST_TIMEOUT).unwrap();
        let never = [(); 2].map(|()| peer.send("tools/call", json!({"name": "never"})));
        let (mut rest, ended) = peer.end();
        ended.unwrap();
        rest.sort_by_key(|answer| answer["id"].as_i64());
        let ids: Vec<_> = rest.iter().map(|answer| answer["id"].clone()).collect();
        assert_eq!(
            ids, never,
            "a cancelled request gets no response, not even at the end of input ({revision})"
        );
        for answer in rest {
            assert_eq!(fault(&answer), (-32603, "the server is shutting down".into()));
        }
    }
}

/// Writer that fails with the error `broken`, if set.
#[derive(Clone, Default)]
struct Output {
    written: Arc<Mutex<Vec<u8>>>,
    broken: Option<io::ErrorKind>,
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.broken {
            Some(kind) => Err(kind.into()),
            None => self.written.lock().unwrap().write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn call(id: i64, tool: &str) -> String {
    let params = stateless(json!({"name": tool, "arguments": {"message": "m"}}));
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string()
}

#[test]
fn the_last_line_needs_no_newline() {
    let output = Output::default();
    let input = format!("{}\n{}", call(1, "echo"), call(2, "slow"));
    let mut conversation = Conversation::new();
    conversation.record_sent(&input);
    runtime(Clock::Real)
        .block_on(server().build().unwrap().run_on(Cursor::new(input), output.clone()))
        .unwrap();
    let written = String::from_utf8(output.written.lock().unwrap().clone()).unwrap();
    assert!(written.ends_with('\n'));
    for line in written.lines() {
        assert_eq!(conversation.check_received(line), Ok(()));
    }
    let mut answers: Vec<Value> = written.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    answers.sort_by_key(|answer| answer["id"].as_i64());
    assert_eq!(answers.iter().map(|answer| answer["id"].clone()).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(texts(&answers), ["m", "m"]);
}

#[test]
fn input_that_ends_at_once_is_no_fault() {
    let output = Output::default();
    runtime(Clock::Real).block_on(server().build().unwrap().run_on(io::empty(), output.clone())).unwrap();
    assert!(output.written.lock().unwrap().is_empty());
}

#[test]
fn broken_streams_end_the_server_in_words() {
    struct Broken;
    impl io::Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("the cable is cut"))
        }
    }
    let service = server().build().unwrap();
    let runtime = runtime(Clock::Real);
    let ended = runtime.block_on(service.clone().run_on(Broken, Output::default()));
    assert_eq!(ended.unwrap_err().to_string(), "standard input and output failed: the cable is cut");
    let broken = |kind| Output { broken: Some(kind), ..Output::default() };
    let gone = runtime.block_on(
        service.clone().run_on(Cursor::new(call(1, "echo") + "\n"), broken(io::ErrorKind::BrokenPipe)),
    );
    gone.unwrap();
    let full = runtime
        .block_on(service.run_on(Cursor::new(call(1, "echo") + "\n"), broken(io::ErrorKind::StorageFull)));
    assert_eq!(full.unwrap_err().to_string(), "standard input and output failed: no storage space");
}

/// Timeout, so that a failing test does not hang.
fn in_time<T>(work: impl Future<Output = T>) -> T {
    runtime(Clock::Real)
        .block_on(async { tokio::time::timeout(TEST_TIMEOUT, work).await.expect("it finishes in time") })
}

#[test]
fn a_client_that_stops_reading_ends_the_server() {
    for tool in ["echo", "slow"] {
        let (input, mut client) = io::pipe().unwrap();
        writeln!(client, "{}", call(1, tool)).unwrap();
        let output = Output { broken: Some(io::ErrorKind::BrokenPipe), ..Output::default() };
        in_time(server().build().unwrap().run_on(input, output)).unwrap();
        drop(client); // the input was open until now: the closed output ended the server
    }
}

#[test]
fn work_for_a_client_that_is_gone_is_given_up() {
    struct Guard(SyncSender<()>);
    impl Drop for Guard {
        fn drop(&mut self) {
            let _ = self.0.send(());
        }
    }
    let (said, heard) = sync_channel(1);
    let server = server().tool("never", "", move |_: NoArgs| {
        let guard = Guard(said.clone());
        async move {
            std::future::pending::<()>().await;
            drop(guard);
        }
    });
    let broken = Output { broken: Some(io::ErrorKind::BrokenPipe), ..Output::default() };
    let input = Cursor::new(format!("{}\n{}\n", call(1, "never"), call(2, "echo")));
    in_time(async {
        server.build().unwrap().run_on(input, broken).await.unwrap();
        while heard.try_recv().is_err() {
            tokio::task::yield_now().await;
        }
    });
}

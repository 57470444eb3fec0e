//! The test kit itself: its output, and that it names the failed case.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use linchpin::client::RevisionCache;
use linchpin::testing::{
    Direction, FaultRates, Faults, InputMode, RawClient, Transcript, TransportKind, in_memory, matrix, piped,
};
use linchpin::{Client, ClientError, Context, NoArgs, Revision, Server, Service, args};
use serde_json::{Value, json};

#[args]
struct Echo {
    message: String,
}

fn service() -> Service {
    Server::new("kit", "1")
        .tool("echo", "", |Echo { message }| async move { message })
        .tool("later", "", |_: NoArgs, cx: Context| async move {
            cx.progress(1.0);
            tokio::task::yield_now().await;
            "later"
        })
        .build()
        .unwrap()
}

const WAYS: &[TransportKind] = &[
    TransportKind::Memory,
    TransportKind::Stdio,
    #[cfg(all(feature = "http-client", feature = "http-server"))]
    TransportKind::Http,
];

#[test]
fn the_matrix_has_every_combination_once() {
    let seen = Mutex::new(Vec::new());
    matrix(&service(), |case| {
        let seen = &seen;
        async move {
            let client = case.client().connect().await?;
            assert_eq!(client.revision(), case.revision());
            client.call("echo", json!({ "message": "hello" })).await?;
            client.call("later", ()).progress(|_| ()).await?;
            client.close().await;
            assert!(client.call("later", ()).await.is_err());
            seen.lock().unwrap().push((case.revision(), case.transport(), case.rounds()));
            Ok::<_, ClientError>(())
        }
    });
    let seen = seen.into_inner().unwrap();
    assert_eq!(seen.len(), 6 * WAYS.len());
    for revision in Revision::ALL {
        for way in WAYS.iter().copied() {
            assert!(seen.contains(&(revision, way, InputMode::Park)), "{revision} {way:?}");
            let replayed = seen.contains(&(revision, way, InputMode::Replay));
            assert_eq!(replayed, revision == Revision::LATEST, "{revision} {way:?}");
        }
    }
}

#[test]
fn the_matrix_names_every_case_that_failed() {
    let failed = catch_unwind(AssertUnwindSafe(|| {
        matrix(&service(), |case| async move {
            assert_ne!(case.revision(), Revision::V2024_11_05, "too old");
            match (case.revision(), case.transport()) {
                (Revision::V2025_03_26, TransportKind::Stdio) => Err("this one not"),
                _ => Ok(()),
            }
        });
    }));
    let text = *failed.unwrap_err().downcast::<String>().unwrap();
    let (failed, all) = (WAYS.len() + 1, 6 * WAYS.len());
    assert!(text.starts_with(&format!("{failed} of {all} cases failed:")), "{text}");
    for line in [
        "2024-11-05 in memory: panicked: assertion",
        "2024-11-05 over stdio: panicked: assertion",
        "2025-03-26 over stdio: this one not",
    ] {
        assert!(text.contains(line), "{text}");
    }
}

#[test]
fn a_server_of_one_revision_is_tested_in_that_one() {
    let service = Server::new("kit", "1").protocol_version("2025-06-18").build().unwrap();
    matrix(&service, |case| async move { assert_eq!(case.revision(), Revision::V2025_06_18) });
}

#[tokio::test]
async fn a_transcript_shows_both_directions_and_fits_the_schemas() {
    for revision in Revision::ALL {
        let texts = [in_memory_text(revision).await, in_memory_text(revision).await];
        assert_eq!(texts[0], texts[1], "the same conversation has the same text");
        assert!(texts[0].lines().all(|line| line.starts_with("→ {") || line.starts_with("← {")));
        assert!(texts[0].lines().last().unwrap().contains("hello"));
    }
}

async fn in_memory_text(revision: Revision) -> String {
    let transcript = Transcript::new(in_memory(&service()));
    let client = Client::over(transcript.clone())
        .revisions([revision])
        .revision_cache(RevisionCache::new())
        .connect()
        .await
        .unwrap();
    client.tools().all().await.unwrap();
    client.call("echo", json!({ "message": "hello" })).await.unwrap();
    let mut conversation = spec_check::Conversation::new();
    for (direction, line) in transcript.lines() {
        match direction {
            Direction::Sent => conversation.record_sent(line),
            Direction::Received => conversation.check_received(&line).unwrap(),
        }
    }
    transcript.to_string()
}

#[tokio::test]
async fn transports_can_be_wrapped_twice() {
    let faults = Faults::new(piped(&service()), 1).rates(FaultRates { noise: 1_000, ..FaultRates::NONE });
    let transcript = Transcript::new(faults.clone());
    let client =
        Client::over(transcript.clone()).revision_cache(RevisionCache::new()).connect().await.unwrap();
    client.call("later", ()).await.unwrap();
    client.close().await;
    assert!(transcript.lines().len() > 4);
    assert!(faults.log().iter().all(|event| event.to_string().contains("noise")));
    assert!(client.ping().await.unwrap_err().to_string().contains("closed"));
}

#[tokio::test(start_paused = true)]
async fn a_raw_client_says_what_it_is_told() {
    for revision in Revision::ALL {
        let mut client = RawClient::open(&service(), revision).await;
        let later = json!({ "name": "later", "_meta": { "progressToken": "t" } });
        let answer = client.request("tools/call", later.clone()).await;
        assert_eq!(answer["result"]["content"][0]["text"], "later", "{revision}");
        let progress = client.next().await.unwrap();
        assert_eq!(progress["method"], "notifications/progress");
        client.send("{");
        assert_eq!(client.next().await.unwrap()["error"]["code"], -32700);
        client.send(json!({ "jsonrpc": "2.0", "id": 9, "method": "x/unknown" }));
        assert_eq!(client.close().await[0]["id"], 9);
    }
    let mut silent = RawClient::new(&service());
    silent.send(json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" }));
    assert_ne!(silent.next().await, Some(Value::Null));
}

//! Cost of HTTP sessions: opening and closing, and memory of idle sessions.

use std::{
    cell::Cell,
    rc::Rc,
    time::{Duration, Instant},
};

use anyhow::Result;
use bench_common::process;
use serde_json::{Value, json};

use crate::{
    http::HttpConnection,
    options::Options,
    report::{Meter, Tally},
};

/// Number of keep-alive connections over which idle sessions are opened.
const POOL: usize = 4;

/// Opens and closes `count` sessions.
pub async fn open_and_close(options: &Options, count: usize, pid: u32, until: Instant) -> Result<Value> {
    let tally = Rc::new(Tally::default());
    let taken = Rc::new(Cell::new(0));
    let meter = Meter::start(&[pid]);
    let running: Vec<_> = (0..options.connections)
        .map(|_| {
            let (options, tally, taken) = (options.clone(), tally.clone(), taken.clone());
            tokio::task::spawn_local(async move {
                let mut connection = HttpConnection::open(&options).await?;
                let mut done = 0;
                while taken.get() < count && Instant::now() < until {
                    taken.set(taken.get() + 1);
                    connection.session = None;
                    let asked = Instant::now();
                    if let Err(error) = connection.initialize(&options).await {
                        tally.error(&error.to_string(), b"");
                        connection = HttpConnection::open(&options).await?;
                        continue;
                    }
                    let head = connection.exchange(&options, "DELETE", None, b"").await?;
                    if !(200..300).contains(&head.status) {
                        tally.error(&format!("DELETE: HTTP {}", head.status), &connection.body);
                    }
                    tally.record_response(asked);
                    done += 1;
                }
                anyhow::Ok(done)
            })
        })
        .collect();
    let mut done = 0;
    for task in running {
        done += task.await??;
    }
    Ok(meter.stop(options, "session", done, &tally))
}

/// Opens `count` sessions and measures the growth of the server. With `streams`, each also opens its standalone GET
/// stream on its own connection.
pub async fn idle(options: &Options, streams: bool, count: usize, pid: u32, until: Instant) -> Result<Value> {
    let resident = || process::status(pid, "VmRSS").unwrap_or(0);
    let mut pool = vec![];
    for _ in 0..POOL {
        let mut connection = HttpConnection::open(options).await?;
        connection.initialize(options).await?;
        pool.push(connection);
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    let before = resident();
    let tally = Tally::default();
    let meter = Meter::start(&[pid]);
    let (mut open_streams, mut sessions) = (vec![], vec![]);
    while sessions.len() < count && Instant::now() < until {
        let connection = &mut pool[sessions.len() % POOL];
        connection.session = None;
        if let Err(error) = connection.initialize(options).await {
            tally.error(&error.to_string(), b"");
            break;
        }
        if streams {
            open_streams.push(open_stream(options, connection.session.clone(), &tally).await?);
        }
        sessions.push(connection.session.clone());
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let after = resident();
    let name = if streams { "idle-get" } else { "idle" };
    let made = sessions.len();
    let mut report = meter.stop(options, name, made, &tally);
    report["rss_before_kb"] = json!(before);
    report["rss_after_kb"] = json!(after);
    report["bytes_per_session"] = json!((after.saturating_sub(before) * 1024) as f64 / made.max(1) as f64);
    drop(open_streams);
    for (i, session) in sessions.into_iter().enumerate() {
        let connection = &mut pool[i % POOL];
        connection.session = session;
        if connection.exchange(options, "DELETE", None, b"").await.is_err() {
            break;
        }
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    report["rss_after_close_kb"] = json!(resident());
    Ok(report)
}

async fn open_stream(options: &Options, session: Option<String>, tally: &Tally) -> Result<HttpConnection> {
    let mut stream = HttpConnection::open(options).await?;
    stream.session = session;
    stream.request(options, "GET", None, b"").await?;
    match tokio::time::timeout(Duration::from_secs(10), stream.head()).await {
        Ok(Ok(head)) if head.status == 200 => {}
        Ok(Ok(head)) => tally.error(&format!("GET: HTTP {}", head.status), b""),
        Ok(Err(error)) => tally.error(&error.to_string(), b""),
        Err(_) => tally.error("GET: no head", b""),
    }
    Ok(stream)
}

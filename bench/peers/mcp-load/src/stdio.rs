//! Server as a child process on pipes, with up to `--depth` requests in flight.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::{Child, ChildStdin, ChildStdout},
    sync::Semaphore,
    task::JoinHandle,
};

use crate::{
    child,
    options::{Options, Protocol},
    report::{Meter, Tally},
    workload::{INITIALIZE, INITIALIZED, ResponseCheck, Workload},
};

/// Maximum bytes per write; further requests wait for the next write.
const WRITE_SIZE: usize = 60_000;
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

pub struct StdioConnection {
    child: Child,
    pub pid: u32,
    stdout: ChildStdout,
    stdin: Option<ChildStdin>,
    buffer: Vec<u8>,
}

/// Shared state of the writer task and the reader loop.
struct InFlight {
    work: Workload,
    protocol: Protocol,
    first_id: u64,
    count: usize,
    until: Instant,
    room: Semaphore,
    /// Send time of each request; taken by its response, so that a duplicate response is detected.
    asked: RefCell<Vec<Option<Instant>>>,
    sent: Cell<usize>,
    tally: Rc<Tally>,
}

impl StdioConnection {
    /// Starts the server and sends `initialize` if the revision has it.
    pub async fn open(options: &Options) -> Result<Self> {
        let (mut child, pid) = child::spawn(&options.command, true)?;
        let stdout = child.stdout.take().context("no stdout")?;
        let stdin = child.stdin.take();
        let mut connection = Self { child, pid, stdout, stdin, buffer: Vec::with_capacity(1 << 16) };
        if options.protocol != Protocol::V2026 {
            connection.send(INITIALIZE).await?;
            let line = tokio::time::timeout(Duration::from_secs(60), connection.line()).await??;
            if memchr::memmem::find(&line, b"\"result\"").is_none() {
                bail!("initialize failed: {}", String::from_utf8_lossy(&line));
            }
            connection.send(INITIALIZED).await?;
        }
        Ok(connection)
    }

    async fn send(&mut self, message: &str) -> Result<()> {
        let stdin = self.stdin.as_mut().context("stdin is closed")?;
        stdin.write_all(format!("{message}\n").as_bytes()).await?;
        Ok(stdin.flush().await?)
    }

    async fn line(&mut self) -> Result<Vec<u8>> {
        let mut searched = 0;
        loop {
            if let Some(length) = memchr::memchr(b'\n', &self.buffer[searched..]) {
                return Ok(self.buffer.drain(..=searched + length).collect());
            }
            searched = self.buffer.len();
            if self.stdout.read_buf(&mut self.buffer).await? == 0 {
                bail!("the server closed its stdout");
            }
        }
    }

    /// Sends `count` requests with ids from `first_id` and returns the number of responses. A separate task writes, so
    /// that full pipes cannot deadlock.
    async fn drive(
        &mut self,
        work: &Workload,
        options: &Options,
        count: usize,
        first_id: u64,
        tally: &Rc<Tally>,
        until: Instant,
    ) -> Result<usize> {
        let flight = Rc::new(InFlight {
            work: work.clone(),
            protocol: options.protocol,
            first_id,
            count,
            until,
            room: Semaphore::new(options.depth),
            asked: RefCell::new(Vec::with_capacity(count)),
            sent: Cell::new(0),
            tally: tally.clone(),
        });
        let stdin = self.stdin.take().context("stdin is closed")?;
        let writer = tokio::task::spawn_local(write(flight.clone(), stdin));
        let answered = self.read(&flight, &writer, options).await?;
        self.stdin = Some(writer.await?);
        Ok(answered)
    }

    async fn read(
        &mut self,
        flight: &InFlight,
        writer: &JoinHandle<ChildStdin>,
        options: &Options,
    ) -> Result<usize> {
        let mut answered = 0;
        let mut searched = 0;
        loop {
            let mut start = 0;
            while let Some(length) = memchr::memchr(b'\n', &self.buffer[searched..]) {
                let end = searched + length;
                if flight.answer(&self.buffer[start..end], options) {
                    answered += 1;
                }
                start = end + 1;
                searched = start;
            }
            self.buffer.drain(..start);
            searched = self.buffer.len();
            if answered >= flight.count || (writer.is_finished() && answered >= flight.sent.get()) {
                return Ok(answered);
            }
            match tokio::time::timeout(RESPONSE_TIMEOUT, self.stdout.read_buf(&mut self.buffer)).await {
                Ok(Ok(0)) => bail!("the server closed its stdout after {answered} responses"),
                Ok(read) => read?,
                Err(_) => bail!("no response for 30 s ({answered} of {} received)", flight.sent.get()),
            };
        }
    }

    pub async fn close(mut self) {
        self.stdin = None;
        drop(self.stdout);
        child::end(self.child, self.pid, false).await;
    }
}

impl InFlight {
    /// Handles one line. Returns `true` if it is the response to a request, correct or not.
    fn answer(&self, line: &[u8], options: &Options) -> bool {
        // Responses may arrive in any order: match them by id.
        #[derive(Deserialize)]
        struct Envelope {
            id: Option<u64>,
        }
        let Some(id) = serde_json::from_slice::<Envelope>(line).ok().and_then(|envelope| envelope.id) else {
            return false;
        };
        let at = id.checked_sub(self.first_id).and_then(|at| usize::try_from(at).ok());
        let Some(asked) = at.and_then(|at| self.asked.borrow_mut().get_mut(at)?.take()) else {
            self.tally.error("response without a matching request", line);
            return false;
        };
        let check = self.work.check(line, id, options);
        self.tally.record_response(asked);
        if check != ResponseCheck::Good {
            self.tally.error(&format!("{check:?}"), line);
        }
        self.tally.received(line.len());
        self.room.add_permits(1);
        true
    }
}

/// Sends requests as slots become free, as many as fit in one write. Returns stdin.
async fn write(flight: Rc<InFlight>, mut stdin: ChildStdin) -> ChildStdin {
    let mut out = Vec::with_capacity(1 << 16);
    let mut next = 0;
    while next < flight.count && Instant::now() < flight.until {
        out.clear();
        let Ok(permit) = flight.room.acquire().await else { break };
        permit.forget();
        loop {
            flight.work.write(flight.first_id + next as u64, flight.protocol, &mut out);
            out.push(b'\n');
            flight.asked.borrow_mut().push(Some(Instant::now()));
            next += 1;
            if next >= flight.count || out.len() > WRITE_SIZE {
                break;
            }
            match flight.room.try_acquire() {
                Ok(permit) => permit.forget(),
                Err(_) => break,
            }
        }
        flight.sent.set(next);
        flight.tally.sent(out.len());
        if stdin.write_all(&out).await.is_err() {
            break;
        }
    }
    stdin
}

/// Runs one measurement: new servers, a warm-up, then `count` requests distributed over all servers.
pub async fn measure(
    options: &Options,
    name: &str,
    work: &Workload,
    count: usize,
    next_id: &mut u64,
    until: Instant,
) -> Result<Value> {
    let mut connections = vec![];
    for _ in 0..options.connections {
        connections.push(StdioConnection::open(options).await?);
    }
    let warmup = options.warmup.unwrap_or((count / 10).max(1)) / options.connections + 1;
    let unmeasured = Rc::new(Tally::default());
    for connection in &mut connections {
        connection.drive(work, options, warmup, *next_id, &unmeasured, until).await?;
    }
    let first_id = *next_id + warmup as u64;
    *next_id = first_id + count as u64;

    let tally = Rc::new(Tally::default());
    tally.add_errors(&unmeasured);
    let pids: Vec<u32> = connections.iter().map(|connection| connection.pid).collect();
    let share = count / options.connections;
    let meter = Meter::start(&pids);
    let running: Vec<_> = connections
        .into_iter()
        .map(|mut connection| {
            let (work, options, tally) = (work.clone(), options.clone(), tally.clone());
            tokio::task::spawn_local(async move {
                let answered = connection.drive(&work, &options, share, first_id, &tally, until).await;
                (connection, answered)
            })
        })
        .collect();
    let (mut done, mut connections) = (0, vec![]);
    for task in running {
        let (connection, answered) = task.await?;
        match answered {
            Ok(answered) => done += answered,
            Err(error) => tally.error(&error.to_string(), b""),
        }
        connections.push(connection);
    }
    let report = meter.stop(options, name, done, &tally);
    for connection in connections {
        connection.close().await;
    }
    Ok(report)
}

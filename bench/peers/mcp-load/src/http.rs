//! Keep-alive HTTP/1.1 connection, hand-written so that the client uses little of the two cores, and the measurement
//! that drives many of them.

use std::{
    cell::Cell,
    io::Write,
    rc::Rc,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{
    options::{Options, Protocol},
    report::{Meter, Tally},
    workload::{INITIALIZE, INITIALIZED, ResponseCheck, Workload},
};

pub struct HttpConnection {
    stream: TcpStream,
    buffer: Vec<u8>,
    out: Vec<u8>,
    pub body: Vec<u8>,
    pub session: Option<String>,
}

/// Head of a response.
pub struct Head {
    pub status: u16,
    sse: bool,
    session: Option<String>,
    length: usize,
    chunked: bool,
}

/// JSON-RPC method and, for a tool call, the tool: the 2026-07-28 revision repeats both in headers.
type Method<'a> = (&'a str, Option<&'a str>);

impl HttpConnection {
    pub async fn open(options: &Options) -> Result<Self> {
        let stream = TcpStream::connect(&options.host).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: vec![], out: vec![], body: vec![], session: None })
    }

    /// Sends a request and reads its response; the body is stored in `self.body`.
    pub async fn exchange(
        &mut self,
        options: &Options,
        verb: &str,
        method: Option<Method<'_>>,
        body: &[u8],
    ) -> Result<Head> {
        self.request(options, verb, method, body).await?;
        self.response().await
    }

    pub async fn request(
        &mut self,
        options: &Options,
        verb: &str,
        method: Option<Method<'_>>,
        body: &[u8],
    ) -> Result<()> {
        let out = &mut self.out;
        out.clear();
        let accept = if verb == "GET" { "text/event-stream" } else { "application/json, text/event-stream" };
        write!(out, "{verb} {} HTTP/1.1\r\nhost: {}\r\naccept: {accept}\r\n", options.path, options.host)?;
        if verb == "POST" {
            write!(out, "content-type: application/json\r\ncontent-length: {}\r\n", body.len())?;
        }
        if method.is_none_or(|(name, _)| name != "initialize") {
            write!(out, "mcp-protocol-version: {}\r\n", options.protocol.version())?;
        }
        if let Some(session) = &self.session {
            write!(out, "mcp-session-id: {session}\r\n")?;
        }
        if options.protocol == Protocol::V2026
            && let Some((name, tool)) = method
        {
            write!(out, "mcp-method: {name}\r\n")?;
            if let Some(tool) = tool {
                write!(out, "mcp-name: {tool}\r\n")?;
            }
        }
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(body);
        Ok(self.stream.write_all(&self.out).await?)
    }

    async fn fill(&mut self) -> Result<()> {
        if self.stream.read_buf(&mut self.buffer).await? == 0 {
            bail!("connection closed");
        }
        Ok(())
    }

    pub async fn head(&mut self) -> Result<Head> {
        loop {
            if !self.buffer.is_empty()
                && let Some((head, length)) = parse_head(&self.buffer)?
            {
                self.buffer.drain(..length);
                return Ok(head);
            }
            self.fill().await?;
        }
    }

    async fn response(&mut self) -> Result<Head> {
        let head = self.head().await?;
        self.body.clear();
        if head.chunked {
            self.chunks().await?;
        } else {
            while self.buffer.len() < head.length {
                self.fill().await?;
            }
            self.body.extend_from_slice(&self.buffer[..head.length]);
            self.buffer.drain(..head.length);
        }
        Ok(head)
    }

    async fn chunks(&mut self) -> Result<()> {
        let mut at = 0;
        loop {
            let (skip, size) = loop {
                match httparse::parse_chunk_size(&self.buffer[at..]) {
                    Ok(httparse::Status::Complete((skip, size))) => break (skip, size as usize),
                    Ok(httparse::Status::Partial) => self.fill().await?,
                    Err(_) => bail!("bad chunk"),
                }
            };
            at += skip;
            while self.buffer.len() < at + size + 2 {
                self.fill().await?;
            }
            self.body.extend_from_slice(&self.buffer[at..at + size]);
            at += size + 2;
            if size == 0 {
                break;
            }
        }
        self.buffer.drain(..at);
        Ok(())
    }

    /// Returns the JSON-RPC messages of the last body. All measured SDKs write the data of an event on one line.
    fn messages(&self, sse: bool) -> impl Iterator<Item = &[u8]> {
        let whole = (!sse).then_some(&self.body[..]);
        let lines = if sse { &self.body[..] } else { &[] };
        let events = lines.split(|&byte| byte == b'\n').filter_map(|line| line.strip_prefix(b"data:"));
        whole.into_iter().chain(events.map(<[u8]>::trim_ascii).filter(|data| !data.is_empty()))
    }

    pub async fn initialize(&mut self, options: &Options) -> Result<()> {
        let head = self.exchange(options, "POST", Some(("initialize", None)), INITIALIZE.as_bytes()).await?;
        let is_result = |message: &[u8]| memchr::memmem::find(message, b"\"result\"").is_some();
        if head.status != 200 || !self.messages(head.sse).any(is_result) {
            bail!("initialize: HTTP {} {}", head.status, String::from_utf8_lossy(&self.body));
        }
        self.session = head.session;
        let method = Some(("notifications/initialized", None));
        let head = self.exchange(options, "POST", method, INITIALIZED.as_bytes()).await?;
        if !matches!(head.status, 200 | 202 | 204) {
            bail!("initialized: HTTP {}", head.status);
        }
        Ok(())
    }

    async fn call(&mut self, work: &Workload, options: &Options, id: u64, tally: &Tally) -> Result<()> {
        let mut body = Vec::with_capacity(256);
        work.write(id, options.protocol, &mut body);
        let asked = Instant::now();
        let head = self.exchange(options, "POST", Some(work.method()), &body).await?;
        tally.record_response(asked);
        tally.sent(self.out.len());
        tally.received(self.body.len());
        if head.status != 200 {
            tally.error(&format!("HTTP {}", head.status), &self.body);
            return Ok(());
        }
        let mut checks = self.messages(head.sse).map(|message| work.check(message, id, options));
        let check = checks.find(|check| *check != ResponseCheck::NotMine);
        if check != Some(ResponseCheck::Good) {
            tally.error(&format!("{check:?}"), &self.body);
        }
        Ok(())
    }
}

fn parse_head(bytes: &[u8]) -> Result<Option<(Head, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; 48];
    let mut response = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(length) = response.parse(bytes)? else { return Ok(None) };
    let mut head =
        Head { status: response.code.unwrap_or(0), sse: false, session: None, length: 0, chunked: false };
    for header in response.headers.iter() {
        let value = std::str::from_utf8(header.value).unwrap_or("");
        match header.name.to_ascii_lowercase().as_str() {
            "content-length" => head.length = value.parse()?,
            "transfer-encoding" => head.chunked = value.contains("chunked"),
            "content-type" => head.sse = value.starts_with("text/event-stream"),
            "mcp-session-id" => head.session = Some(value.to_string()),
            _ => {}
        }
    }
    Ok(Some((head, length)))
}

/// Runs one measurement: new connections, a warm-up, then `count` requests distributed over all connections.
pub async fn measure(
    options: &Options,
    name: &str,
    work: &Workload,
    count: usize,
    next_id: &mut u64,
    (pid, until): (u32, Instant),
) -> Result<Value> {
    let mut connections = vec![];
    for _ in 0..options.connections {
        let mut connection = HttpConnection::open(options).await?;
        if options.protocol == Protocol::Session {
            connection.initialize(options).await?;
        }
        connections.push(connection);
    }
    let warmup = options.warmup.unwrap_or((count / 10).max(1));
    let unmeasured = Rc::default();
    let (connections, _) = drive(connections, options, work, warmup, *next_id, &unmeasured, until).await?;
    let first_id = *next_id + warmup as u64;
    *next_id = first_id + count as u64;

    let tally = Rc::new(Tally::default());
    tally.add_errors(&unmeasured);
    let meter = Meter::start(&[pid]);
    let (connections, done) = drive(connections, options, work, count, first_id, &tally, until).await?;
    let report = meter.stop(options, name, done, &tally);
    for mut connection in connections {
        if options.protocol == Protocol::Session && connection.session.is_some() {
            let _ = connection.exchange(options, "DELETE", None, b"").await;
        }
    }
    Ok(report)
}

async fn drive(
    connections: Vec<HttpConnection>,
    options: &Options,
    work: &Workload,
    count: usize,
    first_id: u64,
    tally: &Rc<Tally>,
    until: Instant,
) -> Result<(Vec<HttpConnection>, usize)> {
    let taken = Rc::new(Cell::new(0));
    let running: Vec<_> = connections
        .into_iter()
        .map(|mut connection| {
            let (work, options, tally, taken) = (work.clone(), options.clone(), tally.clone(), taken.clone());
            tokio::task::spawn_local(async move {
                let mut done = 0;
                while taken.get() < count && Instant::now() < until {
                    let id = first_id + taken.replace(taken.get() + 1) as u64;
                    let call = connection.call(&work, &options, id, &tally);
                    match tokio::time::timeout(Duration::from_secs(30), call).await {
                        Ok(Ok(())) => done += 1,
                        Ok(Err(error)) => {
                            tally.error(&error.to_string(), b"");
                            let Ok(fresh) = HttpConnection::open(&options).await else { break };
                            let session = connection.session.take();
                            connection = HttpConnection { session, ..fresh };
                        }
                        Err(_) => {
                            tally.error("timeout", b"");
                            break;
                        }
                    }
                }
                (connection, done)
            })
        })
        .collect();
    let (mut connections, mut done) = (vec![], 0);
    for task in running {
        let (connection, answered) = task.await?;
        connections.push(connection);
        done += answered;
    }
    Ok((connections, done))
}

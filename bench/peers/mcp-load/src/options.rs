//! Command-line options. The module doc of `main.rs` describes them.

use anyhow::{Context, Result, anyhow, bail};

/// Protocol revision and, over HTTP, whether a session is used.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Protocol {
    Session,
    Stateless,
    V2026,
}

impl Protocol {
    pub fn version(self) -> &'static str {
        if self == Self::V2026 { "2026-07-28" } else { "2025-11-25" }
    }
}

#[derive(Clone)]
pub struct Options {
    pub stdio: bool,
    pub host: String,
    pub path: String,
    pub pid: Option<u32>,
    pub command: Vec<String>,
    pub protocol: Protocol,
    pub connections: usize,
    pub depth: usize,
    pub count: usize,
    pub warmup: Option<usize>,
    pub max_secs: u64,
    pub full: bool,
    pub tools: usize,
    pub label: String,
    pub workloads: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            stdio: false,
            host: String::new(),
            path: "/mcp".into(),
            pid: None,
            command: vec![],
            protocol: Protocol::Session,
            connections: 1,
            depth: 1,
            count: 2000,
            warmup: None,
            max_secs: 60,
            full: true,
            tools: 2 + bench_common::DUMMIES,
            label: "server".into(),
            workloads: vec!["echo:64".into()],
        }
    }
}

impl Options {
    pub fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self> {
        let mut options = Self::default();
        while let Some(key) = arguments.next() {
            match key.as_str() {
                "--" => {
                    options.command = arguments.by_ref().collect();
                    break;
                }
                "--stdio" => options.stdio = true,
                _ => {
                    let value = arguments.next().ok_or_else(|| anyhow!("{key} needs a value"))?;
                    options.set(&key, value).with_context(|| key.clone())?;
                }
            }
        }
        if !options.stdio && options.host.is_empty() {
            bail!("--stdio or --url is required");
        }
        if options.stdio && options.command.is_empty() {
            bail!("--stdio needs a command after --");
        }
        if options.connections == 0 || options.depth == 0 {
            bail!("--conns and --depth must be at least 1");
        }
        Ok(options)
    }

    fn set(&mut self, key: &str, value: String) -> Result<()> {
        match key {
            "--url" => {
                let address = value.strip_prefix("http://").context("only http:// is supported")?;
                let (host, path) = address.split_once('/').unwrap_or((address, "mcp"));
                self.host = host.into();
                self.path = format!("/{path}");
            }
            "--pid" => self.pid = Some(value.parse()?),
            "--proto" => {
                self.protocol = match value.as_str() {
                    "session" => Protocol::Session,
                    "stateless" => Protocol::Stateless,
                    "2026" => Protocol::V2026,
                    _ => bail!("{value} is not session, stateless or 2026"),
                }
            }
            "--conns" => self.connections = value.parse()?,
            "--depth" => self.depth = value.parse()?,
            "--n" => self.count = value.parse()?,
            "--warmup" => self.warmup = Some(value.parse()?),
            "--max-secs" => self.max_secs = value.parse()?,
            "--validate" => self.full = value == "full",
            "--tools" => self.tools = value.parse()?,
            "--label" => self.label = value,
            "--workload" => self.workloads = value.split(',').map(str::to_string).collect(),
            _ => bail!("unknown option"),
        }
        Ok(())
    }

    pub fn transport(&self) -> &'static str {
        if self.stdio { "stdio" } else { "http" }
    }
}

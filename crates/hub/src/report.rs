//! What a look at a server finds: who it is, what it offers, and one call.

use std::fmt;

use anyhow::Context;
use linchpin::model::{Implementation, ServerCapabilities, Tool};
use linchpin::{Revision, Server};
use serde_json::{Value, json};

use crate::cli::from_linchpin;

/// What was found.
pub(crate) struct Report {
    server: Implementation,
    revision: Revision,
    capabilities: ServerCapabilities,
    tools: Vec<Tool>,
    call: Call,
}

struct Call {
    tool: &'static str,
    arguments: Value,
    answer: String,
}

/// Connects to a server in memory and looks around.
pub(crate) async fn collect(server: Server) -> anyhow::Result<Report> {
    let client = server.connect_in_memory().await.map_err(from_linchpin)?;
    let tools = client.tools().all().await.context("the tools could not be listed")?;
    let (tool, arguments) = ("add", json!({ "a": 2, "b": 40 }));
    let result =
        client.call(tool, arguments.clone()).await.with_context(|| format!("calling {tool} failed"))?;
    Ok(Report {
        server: client.server().cloned().unwrap_or_default(),
        revision: client.revision(),
        capabilities: client.capabilities().clone(),
        tools,
        call: Call { tool, arguments, answer: result.to_text() },
    })
}

impl Report {
    fn offers(&self) -> Vec<&'static str> {
        let capabilities = &self.capabilities;
        let offers = [
            ("tools", capabilities.tools.is_some()),
            ("resources", capabilities.resources.is_some()),
            ("prompts", capabilities.prompts.is_some()),
            ("completions", capabilities.completions.is_some()),
            ("logging", capabilities.logging.is_some()),
        ];
        offers.into_iter().filter_map(|(name, offered)| offered.then_some(name)).collect()
    }

    /// The same for programs.
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "server": { "name": self.server.name, "version": self.server.version },
            "revision": self.revision.as_str(),
            "offers": self.offers(),
            "tools": self.tools.iter().map(|tool| json!({
                "name": tool.name,
                "description": tool.description,
                "inputSchema": tool.input_schema,
            })).collect::<Vec<_>>(),
            "call": { "tool": self.call.tool, "arguments": self.call.arguments, "answer": self.call.answer },
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Linchpin {}", env!("CARGO_PKG_VERSION"))?;
        writeln!(f, "\nThe built-in demo server, reached in memory:\n")?;
        writeln!(f, "  server     {} {}", self.server.name, self.server.version)?;
        writeln!(f, "  revision   {}", self.revision)?;
        writeln!(f, "  offers     {}", self.offers().join(", "))?;
        writeln!(f, "\n  tools")?;
        let width = self.tools.iter().map(|tool| tool.name.len()).max().unwrap_or(0);
        for tool in &self.tools {
            writeln!(f, "    {:width$}  {}", tool.name, tool.description.as_deref().unwrap_or(""))?;
        }
        writeln!(f, "\n  call")?;
        writeln!(f, "    {} {} → {}", self.call.tool, self.call.arguments, self.call.answer)?;
        writeln!(f, "\nTry next:\n")?;
        let try_next = [
            ("linchpin inspect linchpin demo", "the same server as a process: all that it offers"),
            ("linchpin call order -- linchpin demo", "a tool of it that asks you something"),
            ("linchpin demo", "the server on standard input and output, for any MCP client"),
            ("linchpin --json", "this report for programs"),
            ("linchpin --help", "all commands"),
        ];
        for (command, what) in try_next {
            writeln!(f, "  {command:36}  {what}")?;
        }
        writeln!(f, "\nFrom a checkout: cargo run --release -- demo")
    }
}

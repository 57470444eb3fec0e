//! What a look at a server finds: who it is, what it offers, and one call.

use std::fmt;

use anyhow::Context;
use linchpin::Server;
use linchpin::model::{InitializeResult, Tool};
use serde_json::{Value, json};

use crate::cli::from_linchpin;

/// What was found.
pub(crate) struct Report {
    server: InitializeResult,
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
    let tools = client.list_tools().await.context("the tools could not be listed")?;
    let (tool, arguments) = ("add", json!({ "a": 2, "b": 40 }));
    let result =
        client.call(tool, arguments.clone()).await.with_context(|| format!("calling {tool} failed"))?;
    let answer = result.content.iter().filter_map(|content| content.as_text()).collect::<Vec<_>>().join("\n");
    Ok(Report { server: client.server().clone(), tools, call: Call { tool, arguments, answer } })
}

impl Report {
    fn offers(&self) -> Vec<&'static str> {
        let capabilities = &self.server.capabilities;
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
            "server": { "name": self.server.server_info.name, "version": self.server.server_info.version },
            "revision": self.server.protocol_version,
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
        let info = &self.server.server_info;
        writeln!(f, "Linchpin {}", env!("CARGO_PKG_VERSION"))?;
        writeln!(f, "\nThe built-in demo server, reached in memory:\n")?;
        writeln!(f, "  server     {} {}", info.name, info.version)?;
        writeln!(f, "  revision   {}", self.server.protocol_version)?;
        writeln!(f, "  offers     {}", self.offers().join(", "))?;
        writeln!(f, "\n  tools")?;
        let width = self.tools.iter().map(|tool| tool.name.len()).max().unwrap_or(0);
        for tool in &self.tools {
            writeln!(f, "    {:width$}  {}", tool.name, tool.description.as_deref().unwrap_or(""))?;
        }
        writeln!(f, "\n  call")?;
        writeln!(f, "    {} {} → {}", self.call.tool, self.call.arguments, self.call.answer)?;
        writeln!(f, "\nTry next:\n")?;
        writeln!(f, "  linchpin demo      the same server on standard input and output, for any MCP client")?;
        writeln!(f, "  linchpin --json    this report for programs")?;
        writeln!(f, "  linchpin --help    all commands")?;
        writeln!(f, "\nFrom a checkout: cargo run --release -- demo")
    }
}

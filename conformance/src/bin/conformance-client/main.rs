//! The client that the official conformance suite tests: it does what each scenario is about, with the public API.
//!
//! `conformance-client <url>`, where the suite has put the scenario's name, the revision and what else it takes into the
//! environment. It ends with an error when something did not go as the protocol has it.

mod auth;
mod scenarios;

use anyhow::{Context, bail};
use linchpin::Revision;
use serde_json::Value;

/// What the suite says of a run.
struct Run {
    url: String,
    scenario: String,
    revision: Revision,
    /// What the scenario gives to its client.
    context: Value,
}

#[expect(clippy::disallowed_methods, reason = "this is where the binary reads its configuration, once")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn run() -> anyhow::Result<Run> {
    let mut arguments = std::env::args().skip(1);
    let (Some(url), None) = (arguments.next(), arguments.next()) else {
        bail!("usage: conformance-client <url>")
    };
    let scenario =
        variable("MCP_CONFORMANCE_SCENARIO").context("MCP_CONFORMANCE_SCENARIO does not name a scenario")?;
    let revision = variable("MCP_CONFORMANCE_PROTOCOL_VERSION")
        .map_or(Ok(Revision::LATEST), |version| version.parse())?;
    let context =
        variable("MCP_CONFORMANCE_CONTEXT").map_or(Ok(Value::Null), |context| serde_json::from_str(&context));
    Ok(Run { url, scenario, revision, context: context.context("MCP_CONFORMANCE_CONTEXT is not JSON")? })
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let run = run()?;
    scenarios::play(&run).await.with_context(|| format!("in the scenario {}", run.scenario))
}

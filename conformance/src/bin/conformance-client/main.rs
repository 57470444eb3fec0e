//! Client under test of the official conformance suite. It performs each scenario with the public API.
//!
//! `conformance-client <url>`: the suite passes the name of the scenario, the revision and other input in environment
//! variables. It exits with an error if the server violates the protocol.

mod auth;
mod scenarios;

use anyhow::{Context, bail};
use linchpin::Revision;
use serde_json::Value;

/// Input of a run.
struct Run {
    url: String,
    scenario: String,
    revision: Revision,
    /// Context that the scenario passes to its client.
    context: Value,
}

#[expect(clippy::disallowed_methods, reason = "the binary reads its configuration here, once")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn run() -> anyhow::Result<Run> {
    let mut arguments = std::env::args().skip(1);
    let (Some(url), None) = (arguments.next(), arguments.next()) else {
        bail!("usage: conformance-client <url>")
    };
    let scenario = variable("MCP_CONFORMANCE_SCENARIO").context("MCP_CONFORMANCE_SCENARIO is not set")?;
    let revision = variable("MCP_CONFORMANCE_PROTOCOL_VERSION")
        .map_or(Ok(Revision::LATEST), |version| version.parse())?;
    let context =
        variable("MCP_CONFORMANCE_CONTEXT").map_or(Ok(Value::Null), |context| serde_json::from_str(&context));
    Ok(Run { url, scenario, revision, context: context.context("MCP_CONFORMANCE_CONTEXT is not JSON")? })
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let run = run()?;
    scenarios::run_scenario(&run).await.with_context(|| format!("in the scenario {}", run.scenario))
}

//! Actions of the client in each scenario.

use anyhow::{Context, bail, ensure};
use linchpin::model::{CreateMessageResult, ElicitParams, ElicitResult, Root};
use linchpin::{
    Client, ClientBuilder, ClientError, Result, client::RevisionCache, transport::http::HttpTransport,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::Run;

pub(crate) async fn run_scenario(run: &Run) -> anyhow::Result<()> {
    match &*run.scenario {
        "initialize" | "json-schema-ref-no-deref" | "request-metadata" => list(run).await,
        "tools_call" => add_numbers(run).await,
        "elicitation-sep1034-client-defaults" => call(run, &["test_client_elicitation_defaults"]).await,
        "sse-retry" => call(run, &["test_reconnection"]).await,
        "http-standard-headers" => everything(run).await,
        "http-custom-headers" => calls_of_context(run).await,
        "http-invalid-tool-headers" => all_tools(run).await,
        "sep-2322-client-request-state" => rounds(run).await,
        "json-schema-2020-12-preservation" => echo_schema(run).await,
        "sep-2640-client-no-prefetch" => list_skills(run).await,
        "sep-2640-client-verify-digest"
        | "sep-2640-client-verify-size"
        | "sep-2640-client-verify-frontmatter" => load_skill(run).await,
        auth if auth.starts_with("auth/") => crate::auth::run_scenario(run).await,
        unknown => {
            bail!("unknown scenario {unknown}: use the version of the suite in conformance/package.json")
        }
    }
}

/// Accepts an elicitation with the defaults of the form and `true` for the other booleans.
async fn accept_form(form: ElicitParams) -> Result<ElicitResult> {
    let mut filled = form.defaults();
    for (name, field) in form.requested_schema.iter().flat_map(|schema| &schema.properties) {
        if field["type"] == "boolean" && !filled.contains_key(name) {
            filled.insert(name.clone(), true.into());
        }
    }
    Ok(ElicitResult::accept(Value::Object(filled)))
}

pub(crate) fn client(run: &Run) -> ClientBuilder<HttpTransport> {
    Client::http(&*run.url)
        .revisions([run.revision])
        .revision_cache(RevisionCache::new())
        .on_elicit(accept_form)
        .on_sample(|_| async { Ok(CreateMessageResult::text("conformance-model", "Hello")) })
        .roots([Root { uri: "file:///conformance".into(), name: None, meta: None }])
}

async fn connect(run: &Run) -> Result<Client, ClientError> {
    client(run).connect().await
}

async fn list(run: &Run) -> anyhow::Result<()> {
    let client = connect(run).await?;
    client.tools().all().await?;
    client.close().await;
    Ok(())
}

async fn add_numbers(run: &Run) -> anyhow::Result<()> {
    let client = connect(run).await?;
    ensure!(
        client.tools().all().await?.iter().any(|tool| tool.name == "add_numbers"),
        "the tool add_numbers is missing"
    );
    let sum = client.call("add_numbers", json!({ "a": 2, "b": 3 })).await?;
    ensure!(sum.to_text().contains('5'), "2 and 3 make {}", sum.to_text());
    client.close().await;
    Ok(())
}

async fn call(run: &Run, tools: &[&str]) -> anyhow::Result<()> {
    let client = connect(run).await?;
    client.tools().all().await?;
    for tool in tools {
        let result = client.call(*tool, ()).await?;
        ensure!(result.is_error != Some(true), "{tool} failed: {}", result.to_text());
    }
    client.close().await;
    Ok(())
}

/// Uses the first tool, resource and prompt.
async fn everything(run: &Run) -> anyhow::Result<()> {
    let client = connect(run).await?;
    let tool = client.tools().all().await?.into_iter().next().context("the server has no tools")?;
    client.call(tool.name, ()).await?;
    let resource =
        client.resources().all().await?.into_iter().next().context("the server has no resources")?;
    client.read(resource.uri).await?;
    let prompt = client.prompts().all().await?.into_iter().next().context("the server has no prompts")?;
    client.prompt(prompt.name, [("", ""); 0]).await?;
    client.close().await;
    Ok(())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Calls {
    tool_calls: Vec<ToolCall>,
}

#[derive(Deserialize)]
struct ToolCall {
    name: String,
    arguments: Map<String, Value>,
}

async fn calls_of_context(run: &Run) -> anyhow::Result<()> {
    let calls: Calls = serde_json::from_value(run.context.clone()).context("the context has no toolCalls")?;
    let client = connect(run).await?;
    client.tools().all().await?;
    for ToolCall { name, arguments } in calls.tool_calls {
        client.call(name, arguments).await?;
    }
    client.close().await;
    Ok(())
}

/// Calls every listed tool; the client omits tools with invalid header parameters from the list.
async fn all_tools(run: &Run) -> anyhow::Result<()> {
    let client = connect(run).await?;
    for tool in client.tools().all().await? {
        let arguments: Map<String, Value> = properties(&tool.input_schema)
            .map(|(name, property)| (name.clone(), example(property)))
            .collect();
        client.call(tool.name, arguments).await?;
    }
    client.close().await;
    Ok(())
}

fn properties(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema.get("properties").and_then(Value::as_object).into_iter().flatten()
}

/// Returns an example value for a schema.
fn example(schema: &Value) -> Value {
    match schema["type"].as_str() {
        Some("integer" | "number") => json!(1),
        Some("boolean") => json!(true),
        Some("array") => json!([]),
        Some("object") => json!({}),
        _ => json!("text"),
    }
}

async fn rounds(run: &Run) -> anyhow::Result<()> {
    let client = connect(run).await?;
    client.tools().all().await?;
    // Concurrently, so that a mix-up of the two calls would show.
    let (echoed, unrelated) =
        tokio::join!(client.call("test_mrtr_echo_state", ()), client.call("test_mrtr_unrelated", ()));
    echoed?;
    unrelated?;
    client.call("test_mrtr_no_state", ()).await?;
    client.call("test_mrtr_no_result_type", ()).await?;
    client.close().await;
    Ok(())
}

async fn echo_schema(run: &Run) -> anyhow::Result<()> {
    let client = connect(run).await?;
    let tools = client.tools().all().await?;
    let tool = tools
        .into_iter()
        .find(|tool| tool.name == "json_schema_2020_12_tool")
        .context("the tool is missing")?;
    client.call("json_schema_echo", json!({ "schema": tool.input_schema })).await?;
    client.close().await;
    Ok(())
}

async fn list_skills(run: &Run) -> anyhow::Result<()> {
    let client = connect(run).await?;
    let skills = client.skills().all().await?;
    ensure!(!skills.is_empty(), "the server has no skills");
    client.close().await;
    Ok(())
}

/// Loads a skill that differs from its entry, and expects an error.
async fn load_skill(run: &Run) -> anyhow::Result<()> {
    let client = connect(run).await?;
    for skill in client.skills().all().await? {
        match client.load(&skill).await {
            Err(ClientError::BadSkill { .. }) => {}
            Err(error) => return Err(error.into()),
            Ok(loaded) => {
                loaded.read("references/FORMS.md").await?;
                bail!("{} matches its entry, but should not", skill.uri);
            }
        }
    }
    client.close().await;
    Ok(())
}

//! Features of the matrix: what a client does with an upstream server through the gateway.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use linchpin::model::{CallToolResult, CompletionReference};
use linchpin::{ClientError, Revision};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::client::ConnectedClient;
use crate::site::Upstream;
use crate::upstream::{NOTES_TEMPLATE, STATUS_URI};

/// Interval at which a request is repeated whose effect is awaited.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);
/// Lifetime of a task.
const TASK_TTL: Duration = Duration::from_mins(1);

/// Third revision: structured content and elicitation.
const THIRD: Revision = Revision::ALL[2];
/// Fourth revision: URL elicitation, sampling with tools, tasks.
const FOURTH: Revision = Revision::ALL[3];

/// Feature of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Feature {
    Call,
    Structured,
    Progress,
    Log,
    Cancel,
    ElicitForm,
    ElicitUrl,
    Sample,
    SampleWithTools,
    Roots,
    Subscribe,
    ListChanged,
    Completion,
    Task,
}

impl Feature {
    pub(crate) const ALL: [Feature; 14] = [
        Feature::Call,
        Feature::Structured,
        Feature::Progress,
        Feature::Log,
        Feature::Cancel,
        Feature::ElicitForm,
        Feature::ElicitUrl,
        Feature::Sample,
        Feature::SampleWithTools,
        Feature::Roots,
        Feature::Subscribe,
        Feature::ListChanged,
        Feature::Completion,
        Feature::Task,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Feature::Call => "call",
            Feature::Structured => "structured",
            Feature::Progress => "progress",
            Feature::Log => "log",
            Feature::Cancel => "cancel",
            Feature::ElicitForm => "elicit form",
            Feature::ElicitUrl => "elicit URL",
            Feature::Sample => "sample",
            Feature::SampleWithTools => "sample+tools",
            Feature::Roots => "roots",
            Feature::Subscribe => "subscribe",
            Feature::ListChanged => "list changed",
            Feature::Completion => "completion",
            Feature::Task => "task",
        }
    }

    /// Returns why the feature cannot work between two revisions, if it cannot.
    pub(crate) fn impossible(self, client: Revision, upstream: Revision) -> Option<&'static str> {
        let (needed, reason) = match self {
            Feature::Structured => (THIRD, "a revision before 2025-06-18 has no structured content"),
            Feature::ElicitForm => (THIRD, "a revision before 2025-06-18 has no elicitation"),
            Feature::ElicitUrl => (FOURTH, "a revision before 2025-11-25 has no elicitation by URL"),
            Feature::SampleWithTools => (FOURTH, "a revision before 2025-11-25 has no tools in sampling"),
            Feature::Task if client < FOURTH && upstream < FOURTH => {
                return Some("neither revision has tasks: both are before 2025-11-25");
            }
            _ => return None,
        };
        (client < needed || upstream < needed).then_some(reason)
    }
}

/// Connection of a client with one upstream server.
pub(crate) struct Pair<'a> {
    pub(crate) front: &'a ConnectedClient,
    pub(crate) upstream: Upstream,
    pub(crate) client_revision: Revision,
}

type Outcome = Result<(), String>;

impl Pair<'_> {
    fn tool(&self, name: &str) -> String {
        format!("mcp_{}__{name}", self.upstream.slug())
    }

    async fn call(&self, name: &str, arguments: Value) -> Result<CallToolResult, String> {
        self.front.client.call(self.tool(name), arguments).await.map_err(describe)
    }

    /// Calls a tool and compares the text of its result.
    async fn expect_text(&self, name: &str, expected: &str) -> Outcome {
        let result = self.call(name, json!({})).await?;
        expect(result.is_error != Some(true) && result.to_text() == expected, &result)
    }

    pub(crate) async fn check(&self, feature: Feature) -> Outcome {
        match feature {
            Feature::Call => {
                let result = self.call("add", json!({ "a": 40, "b": 2 })).await?;
                expect(result.to_text().contains("42"), &result)
            }
            Feature::Structured => {
                let result = self.call("add", json!({ "a": 40, "b": 2 })).await?;
                let sum = result.structured_content.as_ref().map(|content| content.json.get().to_owned());
                expect(sum.as_deref() == Some(r#"{"sum":42}"#), &result)
            }
            Feature::Progress => self.progress().await,
            Feature::Log => self.log().await,
            Feature::Cancel => self.cancel().await,
            Feature::ElicitForm => self.expect_text("greet", "Hello, Ada!").await,
            Feature::ElicitUrl => self.elicit_url().await,
            Feature::Sample => self.expect_text("think", "42").await,
            Feature::SampleWithTools => self.expect_text("use_tool", "42").await,
            Feature::Roots => self.expect_text("folders", "file:///tmp/a").await,
            Feature::Subscribe => self.subscribe().await,
            Feature::ListChanged => self.list_changed().await,
            Feature::Completion => self.completion().await,
            Feature::Task => self.task().await,
        }
    }

    /// Checks that a feature that is impossible ends in an error that says why, or is left out.
    pub(crate) async fn check_impossible(&self, feature: Feature) -> Outcome {
        match feature {
            Feature::Structured => {
                let result = self.call("add", json!({ "a": 40, "b": 2 })).await?;
                expect(result.structured_content.is_none() && result.to_text().contains("42"), &result)
            }
            Feature::ElicitForm | Feature::ElicitUrl | Feature::SampleWithTools => {
                let tool = match feature {
                    Feature::ElicitForm => "greet",
                    Feature::ElicitUrl => "visit",
                    _ => "use_tool",
                };
                let result = self.call(tool, json!({})).await?;
                expect(result.is_error == Some(true) && !result.to_text().is_empty(), &result)
            }
            _ => self.expect_text("report", "reported").await,
        }
    }

    async fn progress(&self) -> Outcome {
        let steps = Arc::new(Mutex::new(Vec::new()));
        let seen = steps.clone();
        let call = self.front.client.call(self.tool("steps"), json!({}));
        let call = call.progress(move |progress| seen.lock().unwrap().push(progress.done()));
        call.await.map_err(describe)?;
        let steps = steps.lock().unwrap().clone();
        expect(steps == [1.0, 2.0, 3.0], &steps)
    }

    async fn log(&self) -> Outcome {
        self.front.notifications.clear();
        self.call("steps", json!({})).await?;
        for step in 1..=3 {
            self.front.notifications.wait_for(&format!("step {step}")).await;
        }
        Ok(())
    }

    async fn cancel(&self) -> Outcome {
        let before = self.call("cancelled", json!({})).await?.to_text();
        let started = Arc::new(Notify::new());
        let seen = started.clone();
        let call = self.front.client.call(self.tool("wait"), json!({})).progress(move |_| seen.notify_one());
        tokio::select! {
            ended = call.into_future() => return Err(format!("the call ended: {ended:?}")),
            () = started.notified() => {}
        }
        loop {
            let count = self.call("cancelled", json!({})).await?.to_text();
            if count != before {
                return Ok(());
            }
        }
    }

    async fn elicit_url(&self) -> Outcome {
        self.front.notifications.clear();
        self.expect_text("visit", "visited").await?;
        // Only this revision reports the end of the visit.
        if self.client_revision == FOURTH && self.upstream.revision == FOURTH {
            self.front.notifications.wait_for("notifications/elicitation/complete").await;
        }
        Ok(())
    }

    /// Returns the URI under which the client finds the resource of the upstream server.
    async fn status_uri(&self) -> Result<String, String> {
        let suffix = format!("{}:{STATUS_URI}", self.upstream.slug());
        let resources = self.front.client.resources().all().await.map_err(describe)?;
        let own = resources.iter().find(|resource| resource.uri.ends_with(&suffix));
        // The first server has the URI without a prefix.
        Ok(own.map_or_else(|| STATUS_URI.to_owned(), |resource| resource.uri.clone()))
    }

    async fn subscribe(&self) -> Outcome {
        let uri = self.status_uri().await?;
        self.front.notifications.clear();
        let subscription = self.front.client.subscribe(uri.as_str()).await.map_err(describe)?;
        loop {
            self.call("touch", json!({})).await?;
            if timeout(RETRY_INTERVAL, self.front.notifications.wait_for(&uri)).await.is_ok() {
                break;
            }
        }
        drop(subscription);
        let read = self.front.client.read(uri.as_str()).await.map_err(describe)?;
        expect(read.contents[0].text.as_deref() == Some("ok") && read.contents[0].uri == uri, &read)
    }

    async fn list_changed(&self) -> Outcome {
        self.front.notifications.clear();
        self.call("grow", json!({})).await?;
        self.front.notifications.wait_for("tools changed").await;
        Ok(())
    }

    async fn completion(&self) -> Outcome {
        let client = &self.front.client;
        let prompt = CompletionReference::Prompt { name: self.tool("hello"), title: None };
        let completing = client.complete(prompt, "greeting", "Hi ").context([("name", "Ada")]);
        let values = completing.await.map_err(describe)?.completion.values;
        let has_context = self.client_revision >= THIRD && self.upstream.revision >= THIRD;
        expect(values == [if has_context { "Hi Ada" } else { "Hi " }], &values)?;
        let template = if self.status_uri().await? == STATUS_URI {
            NOTES_TEMPLATE.to_owned()
        } else {
            format!("mcp+{}:{NOTES_TEMPLATE}", self.upstream.slug())
        };
        let note = CompletionReference::Resource { uri: template };
        let values = client.complete(note, "name", "a").await.map_err(describe)?.completion.values;
        expect(values == ["a!"], &values)?;
        let rendered = client.prompt(self.tool("hello"), [("name", "Ada")]).await.map_err(describe)?;
        expect(rendered.messages[0].content.as_text() == Some("Say hello to Ada"), &rendered)
    }

    async fn task(&self) -> Outcome {
        // A client without tasks calls a tool that requires one.
        self.expect_text("report", "reported").await?;
        if self.client_revision < FOURTH {
            return Ok(());
        }
        // A client with tasks calls a tool of a server that may have none.
        let call = self.front.client.call(self.tool("add"), json!({ "a": 40, "b": 2 })).as_task(TASK_TTL);
        let result = call.await.map_err(describe)?;
        expect(result.to_text().contains("42"), &result)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "used with map_err")]
fn describe(error: ClientError) -> String {
    error.to_string()
}

fn expect(is_expected: bool, found: &impl std::fmt::Debug) -> Outcome {
    if is_expected { Ok(()) } else { Err(format!("unexpected: {found:?}")) }
}

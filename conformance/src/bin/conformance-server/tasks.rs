//! Tools that run as tasks.

use std::time::Duration;

use linchpin::model::TaskSupport;
use linchpin::{Context, Error, NoArgs, Result, Server, Tool, args, code};

use crate::session::format_elicit_result;

/// Duration of short jobs.
const SHORT_JOB_DURATION: Duration = Duration::from_millis(300);

#[args]
struct Greet {
    /// Name of the user to greet
    name: String,
}

#[args]
struct Compute {
    /// Duration in seconds
    seconds: f64,
    /// Label of the job
    label: Option<String>,
}

#[args]
struct Delete {
    /// File to delete
    filename: Option<String>,
}

#[args]
struct Name {
    name: String,
}

async fn compute(Compute { seconds, label }: Compute) -> Result<String> {
    let time = Duration::try_from_secs_f64(seconds)
        .map_err(|_| Error::tool("`seconds` must be a valid duration"))?;
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
    Ok(format!("computed {} in {seconds} s", label.as_deref().unwrap_or("it")))
}

async fn fail() -> Result<String> {
    tokio::time::sleep(SHORT_JOB_DURATION).await;
    Err(Error::tool("This job always fails"))
}

async fn protocol_error() -> Result<String> {
    tokio::time::sleep(SHORT_JOB_DURATION).await;
    Err(Error::rpc(code::INTERNAL_ERROR, "This job breaks down"))
}

fn confirmation(message: &str) -> Result<linchpin::model::ElicitParams> {
    let fields =
        serde_json::json!({ "confirm": { "type": "boolean", "description": "Whether to continue" } });
    crate::session::form(message, &fields, &["confirm"])
}

async fn delete(Delete { filename }: Delete, cx: Context) -> Result<String> {
    let name = filename.as_deref().unwrap_or("everything");
    Ok(format_elicit_result(cx.elicit_with(confirmation(&format!("Delete {name}?"))?).await?))
}

async fn two_elicitations(_: NoArgs, cx: Context) -> Result<String> {
    let (one, other) = tokio::join!(
        cx.elicit_with(confirmation("The first?")?),
        cx.elicit_with(confirmation("And the second?")?)
    );
    Ok(format!("{}, {}", format_elicit_result(one?), format_elicit_result(other?)))
}

async fn greet_slowly(_: NoArgs, cx: Context) -> Result<String> {
    let user = cx.named("user_name").elicit::<Name>("What is your name?").await?;
    tokio::time::sleep(SHORT_JOB_DURATION).await;
    Ok(format!("Hello, {}!", user.name))
}

fn job(name: &str, description: &str, support: TaskSupport) -> Tool {
    Tool::new(name).description(description).task(support)
}

pub(crate) fn add(server: Server) -> Server {
    server
        .tool("greet", "Greets immediately", |Greet { name }| async move { format!("Hello, {name}!") })
        .add(job("slow_compute", "Takes the given time", TaskSupport::Optional).handler(compute))
        .add(job("failing_job", "Always fails", TaskSupport::Required).handler(fail))
        .add(
            job("protocol_error_job", "Always fails with a protocol error", TaskSupport::Required)
                .handler(protocol_error),
        )
        .add(job("confirm_delete", "Elicits a confirmation first", TaskSupport::Optional).handler(delete))
        .add(
            job("multi_input", "Sends two elicitations at once", TaskSupport::Optional)
                .handler(two_elicitations),
        )
        .add(
            job("test_tool_with_task", "Elicits input, then works", TaskSupport::Required)
                .requests_input_first()
                .handler(greet_slowly),
        )
}

//! Multi round-trip requests. The names of the input requests are those that the suite expects.

use linchpin::model::{CreateMessageParams, SamplingMessage};
use linchpin::{Content, Context, Error, NoArgs, Prompt, Result, Server, Tool, args};

#[args]
struct Name {
    name: String,
}

#[args]
struct Color {
    color: String,
}

#[args]
struct Confirm {
    ok: bool,
}

#[args]
struct About {
    context: String,
}

fn question(text: &str, most: i64) -> CreateMessageParams {
    CreateMessageParams::new([SamplingMessage::user(Content::text(text))], most)
}

async fn elicitation(_: NoArgs, cx: Context) -> Result<String> {
    let user = cx.named("user_name").elicit::<Name>("What is your name?").await?;
    Ok(format!("Hello, {}!", user.name))
}

async fn sampling(_: NoArgs, cx: Context) -> Result<String> {
    let answer = cx.named("capital_question").sample(question("What is the capital of France?", 100)).await?;
    Ok(format!("The model says: {}", answer.to_text()))
}

async fn roots(_: NoArgs, cx: Context) -> Result<String> {
    let roots = cx.named("client_roots").roots().await?;
    Ok(roots.into_iter().map(|root| root.uri).collect::<Vec<_>>().join(", "))
}

async fn confirmed(_: NoArgs, cx: Context) -> Result<&'static str> {
    let confirm = cx.named("confirm").elicit::<Confirm>("Please confirm").await?;
    if confirm.ok { Ok("state-ok") } else { Err(Error::tool("not confirmed")) }
}

async fn multiple_inputs(_: NoArgs, cx: Context) -> Result<String> {
    let (user, greeting, roots) = tokio::join!(
        cx.named("user_name").elicit::<Name>("What is your name?"),
        cx.named("greeting").sample(question("Generate a greeting", 50)),
        cx.named("client_roots").roots(),
    );
    Ok(format!("{} {} ({} roots)", greeting?.to_text(), user?.name, roots?.len()))
}

async fn sequential_inputs(_: NoArgs, cx: Context) -> Result<String> {
    let user = cx.named("step1").elicit::<Name>("Step 1: What is your name?").await?;
    let favorite = cx.named("step2").elicit::<Color>("Step 2: What is your favorite color?").await?;
    Ok(format!("{} likes {}", user.name, favorite.color))
}

async fn supported_inputs(_: NoArgs, cx: Context) -> Result<String> {
    let mut told = Vec::new();
    if cx.capabilities().elicitation.is_some() {
        told.push(cx.named("user_name").elicit::<Name>("What is your name?").await?.name);
    }
    if cx.capabilities().sampling.is_some() {
        told.push(cx.named("greeting").sample(question("Generate a greeting", 50)).await?.to_text());
    }
    Ok(told.join(" "))
}

async fn prompt(_: NoArgs, cx: Context) -> Result<String> {
    let about = cx.named("user_context").elicit::<About>("What context should the prompt use?").await?;
    Ok(format!("Use this context: {}", about.context))
}

/// Creates a tool without side effects: any instance may replay its calls.
fn tool(name: &str, description: &str) -> Tool {
    Tool::new(format!("test_input_required_result_{name}")).description(description).read_only()
}

pub(crate) fn add(server: Server) -> Server {
    server
        .add(tool("elicitation", "Elicits input from the user").handler(elicitation))
        .add(tool("sampling", "Samples the client's model").handler(sampling))
        .add(tool("list_roots", "Lists the client's roots").handler(roots))
        .add(tool("request_state", "Elicits a confirmation and checks the request state").handler(confirmed))
        .add(tool("multiple_inputs", "Sends three input requests at once").handler(multiple_inputs))
        .add(tool("multi_round", "Elicits input twice").handler(sequential_inputs))
        .add(
            tool("tampered_state", "Elicits a confirmation and rejects changed request state")
                .handler(confirmed),
        )
        .add(
            tool("capabilities", "Sends the input requests that the client supports")
                .handler(supported_inputs),
        )
        .add(
            Prompt::new("test_input_required_result_prompt")
                .description("Elicits the context of the prompt")
                .handler(prompt),
        )
}

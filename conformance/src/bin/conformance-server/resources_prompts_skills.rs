//! Resources, prompts and skills.

use linchpin::{
    Content, Json, Prompt, PromptMessage, Resource, ResourceContents, ResourceTemplate, Server, Skill, args,
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::content::PNG;

#[args]
struct Id {
    id: String,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct FilledTemplate {
    id: String,
    template_test: bool,
    data: String,
}

async fn data(Id { id }: Id) -> Json<FilledTemplate> {
    let data = format!("Data for ID: {id}");
    Json(FilledTemplate { id, template_test: true, data })
}

pub(crate) fn resources(server: Server) -> Server {
    let text =
        |uri, name, description| Resource::new(uri, name).description(description).mime_type("text/plain");
    server
        .add(
            text("test://static-text", "static-text", "A text resource")
                .handler(|| async { "This is the content of the static text resource." }),
        )
        .add(
            Resource::new("test://static-binary", "static-binary")
                .description("An image")
                .mime_type("image/png")
                .handler(|| async { PNG.to_vec() }),
        )
        .add(
            text("test://watched-resource", "watched-resource", "A text resource with subscriptions")
                .handler(|| async { "Watched resource content" }),
        )
        .add(
            ResourceTemplate::new("test://template/{id}/data", "template")
                .description("Data for any id")
                .mime_type("application/json")
                .handler(data),
        )
}

#[args]
struct TwoArguments {
    /// First test argument
    arg1: String,
    /// Second test argument
    arg2: String,
}

#[args]
struct Embedded {
    /// URI of the resource to embed
    #[serde(rename = "resourceUri")]
    resource_uri: String,
}

fn with_resource(uri: &str) -> Vec<PromptMessage> {
    let resource = ResourceContents::text(uri, "text/plain", "Embedded resource content for testing.");
    vec![
        PromptMessage::user(Content::resource(resource)),
        PromptMessage::user(Content::text("Please process the embedded resource above.")),
    ]
}

fn with_image() -> Vec<PromptMessage> {
    vec![
        PromptMessage::user(Content::image(PNG, "image/png")),
        PromptMessage::user(Content::text("Please analyze the image above.")),
    ]
}

pub(crate) fn prompts(server: Server) -> Server {
    server
        .prompt("test_simple_prompt", "A prompt without arguments", || async {
            "This is a simple prompt for testing."
        })
        .add(
            Prompt::new("test_prompt_with_arguments")
                .description("A prompt with two arguments")
                .complete("arg1", |typed: String| async move {
                    let known = ["paris", "park", "party"];
                    known.into_iter().filter(|word| word.starts_with(&typed)).collect::<Vec<_>>()
                })
                .handler(|TwoArguments { arg1, arg2 }| async move {
                    format!("Prompt with arguments: arg1='{arg1}', arg2='{arg2}'")
                }),
        )
        .prompt(
            "test_prompt_with_embedded_resource",
            "A prompt with a resource",
            |Embedded { resource_uri }| async move { with_resource(&resource_uri) },
        )
        .prompt("test_prompt_with_image", "A prompt with an image", || async { with_image() })
}

pub(crate) fn skills(server: Server) -> Server {
    server
        .add(
            Skill::new(
                "pdf-processing",
                "Extract, fill and assemble PDF documents; use it for anything with PDF files",
            )
            .field("license", "MIT")
            .instructions("Read [the guide to forms](references/FORMS.md) before you fill one in.\n")
            .file("references/FORMS.md", "# Forms\n\nEvery field has a name.\n")
            .file("scripts/extract.py", "print('extracted')\n")
            .file("templates/regional/eu-invoice.md", "# Invoice\n"),
        )
        .add(
            Skill::new("refunds", "Process refunds according to the company policy")
                .under("acme/billing")
                .instructions("Be kind, and be quick.\n"),
        )
        .add(Skill::new("secret-handshake", "An unlisted skill").instructions("You found it.\n").unlisted())
}

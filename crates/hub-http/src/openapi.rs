//! Generator of the `OpenAPI` document from the routes.

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::problem::ProblemDocument;
use crate::route::{API, Access, ResponseSpec, Route};

/// Descriptions of the path parameters in the `OpenAPI` document, by name.
const PATH_PARAMETERS: [(&str, &str); 14] = [
    ("server", "Server id or slug"),
    ("tool", "Qualified name of a tool, such as mcp_demo__echo"),
    ("prompt", "Prompt name"),
    ("call", "Call id"),
    ("approval", "Approval id"),
    ("rule", "Id of an approval rule"),
    ("server_request", "Id of an open server request"),
    ("agent", "Agent id"),
    ("token", "Token id"),
    ("user", "User id"),
    ("sign_in", "Sign-in id"),
    ("variable", "Name of the environment variable"),
    ("client", "MCP client: claude-desktop, claude-code, cursor or vscode"),
    ("format", "Tool format: openai, anthropic or gemini"),
];

/// Generates the `OpenAPI` document of these routes.
pub(crate) fn document(routes: &[Route]) -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut schemas = settings.into_generator();
    let mut paths = Map::new();
    for route in routes.iter().filter(|route| route.path.starts_with(API)) {
        let path = paths.entry(&route.path).or_insert_with(|| json!({}));
        path[route.method.as_str().to_ascii_lowercase()] = operation(route, &mut schemas);
    }
    let problem = schemas.subschema_for::<ProblemDocument<'_>>();
    let mut components = schemas.take_definitions(true);
    components.sort_keys();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Linchpin hub",
            "version": "1",
            "description": "Manages MCP servers and their tools, and approves and records tool calls.",
        },
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}, {"cookie": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "responses": {"Problem": {
                "description": "Problem document (RFC 9457)",
                "content": {"application/problem+json": {"schema": problem}},
            }},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "API token of a user or an agent"},
                "cookie": {
                    "type": "apiKey", "in": "cookie", "name": "linchpin",
                    "description": "Browser session; requests that change data also require the header x-csrf-token",
                },
            },
        },
    })
}

fn operation(route: &Route, schemas: &mut SchemaGenerator) -> Value {
    let path = route.path.trim_start_matches(API).trim_matches('/');
    let noun = path.split('/').next().unwrap_or_default();
    let words = path.replace(['{', '}'], "").replace(['/', '-', '.'], "_");
    let mut operation = json!({
        "operationId": format!("{}_{words}", route.method.as_str().to_ascii_lowercase()),
        "tags": [noun],
        "summary": route.summary,
        "description": match route.access {
            Access::Public => "Public.",
            Access::Requires(permission) if permission.is_of_agents() => {
                "Requires a user token, an agent token or a session."
            }
            Access::Requires(_) => "Requires a user token or session; agent tokens are rejected.",
        },
    });
    match route.access {
        Access::Public => operation["security"] = json!([]),
        Access::Requires(permission) => operation["x-permission"] = json!(permission.name()),
    }
    let in_path = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let in_path = in_path.map(|name| {
        let description = PATH_PARAMETERS.iter().find(|(parameter, _)| *parameter == name).map_or("", |(_, text)| text);
        json!({"name": name, "in": "path", "required": true, "description": description, "schema": {"type": "string"}})
    });
    let in_query = route.query.iter().map(|parameter| {
        json!({"name": parameter.name, "in": "query", "description": parameter.description, "schema": parameter.schema()})
    });
    let parameters: Vec<_> = in_path.chain(in_query).collect();
    if !parameters.is_empty() {
        operation["parameters"] = parameters.into();
    }
    if let Some(body) = &route.body {
        let content = json!({body.content_type: {"schema": (body.schema)(schemas)}});
        operation["requestBody"] = json!({"required": !body.is_optional, "content": content});
    }
    let mut responses: Map<_, _> =
        route.responses.iter().map(|spec| (spec.status.to_string(), response(spec, schemas))).collect();
    responses.insert("default".to_owned(), json!({"$ref": "#/components/responses/Problem"}));
    operation["responses"] = responses.into();
    operation
}

fn response(spec: &ResponseSpec, schemas: &mut SchemaGenerator) -> Value {
    let mut response = json!({"description": spec.description});
    if let Some((kind, schema)) = spec.content {
        response["content"] = json!({kind: {"schema": schema(schemas)}});
    }
    response
}

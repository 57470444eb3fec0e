//! URIs of resources at the gateway. A URI stays as it is while it belongs to the first server that has it; the same URI
//! of a later server gets a prefix with the slug of its server. A URI with a prefix is always accepted.

use std::collections::HashMap;

use linchpin::server::UriTemplate;
use linchpin_hub_core::hub::ServerSurface;
use linchpin_hub_core::id::ServerId;
use serde_json::Value;

/// Scheme prefix of a URI that names its server: `mcp+SLUG:URI`.
const PREFIX: &str = "mcp+";

/// Maximum number of templates of one server that URIs are matched with.
const MAX_TEMPLATES: usize = 200;

/// Resources of all servers of a caller, found by URI.
#[derive(Debug, Default)]
pub(crate) struct Uris {
    /// Slugs of the servers, oldest first.
    servers: Vec<String>,
    /// Slug of each server, by its id.
    slugs: HashMap<ServerId, String>,
    /// Server of each listed resource URI, by its position.
    resources: HashMap<String, usize>,
    /// Server of each listed template text, by its position.
    template_texts: HashMap<String, usize>,
    /// Templates with the position of their server, oldest server first.
    templates: Vec<(UriTemplate, usize)>,
}

impl Uris {
    pub(crate) fn new(surfaces: &[ServerSurface]) -> Self {
        let mut uris = Uris::default();
        for (server, surface) in surfaces.iter().enumerate() {
            uris.servers.push(surface.slug.as_str().to_owned());
            uris.slugs.insert(surface.id, surface.slug.as_str().to_owned());
            for uri in surface.resources.iter().filter_map(|item| item["uri"].as_str()) {
                uris.resources.entry(uri.to_owned()).or_insert(server);
            }
            let texts = surface.resource_templates.iter().filter_map(|item| item["uriTemplate"].as_str());
            for text in texts.take(MAX_TEMPLATES) {
                uris.template_texts.entry(text.to_owned()).or_insert(server);
                uris.templates.extend(parse(text).map(|template| (template, server)));
            }
        }
        uris
    }

    /// Finds the server of a URI that a client sent, and the URI at that server.
    pub(crate) fn resolve<'a>(&'a self, uri: &'a str) -> Option<(&'a str, &'a str)> {
        if let Some(found) = self.split_prefix(uri) {
            return Some(found);
        }
        let server = self.owner(uri)?;
        Some((&self.servers[server], uri))
    }

    /// Returns the slug of a server.
    pub(crate) fn slug(&self, server: ServerId) -> Option<&str> {
        self.slugs.get(&server).map(|slug| &**slug)
    }

    /// Finds the server of a URI template that a client sent, and the template at that server.
    pub(crate) fn resolve_template<'a>(&'a self, text: &'a str) -> Option<(&'a str, &'a str)> {
        let by_text = || self.template_texts.get(text).map(|server| (&*self.servers[*server], text));
        self.split_prefix(text).or_else(by_text)
    }

    fn split_prefix<'a>(&'a self, uri: &'a str) -> Option<(&'a str, &'a str)> {
        let (slug, rest) = uri.strip_prefix(PREFIX)?.split_once(':')?;
        let server = self.servers.iter().find(|server| *server == slug)?;
        Some((server, rest))
    }

    /// Returns the position of the server that a URI without a prefix belongs to: the oldest that lists it or has a template
    /// for it. A URI with the form of a prefixed one belongs to no server.
    fn owner(&self, uri: &str) -> Option<usize> {
        if uri.starts_with(PREFIX) {
            return None;
        }
        let by_template = self.templates.iter().find(|(template, _)| template.matches(uri).is_some());
        let listed = self.resources.get(uri).copied();
        let oldest = listed.into_iter().chain(by_template.map(|(_, server)| *server)).min();
        // A server may have resources that it does not list.
        oldest.or_else(|| (self.servers.len() == 1).then_some(0))
    }

    /// Returns the URI under which clients find a resource of a server. Web pages that no server lists stay as they are.
    pub(crate) fn public(&self, slug: &str, uri: &str) -> String {
        let owner = self.owner(uri);
        let is_web_page = owner.is_none() && (uri.starts_with("https://") || uri.starts_with("http://"));
        let is_own = owner.is_some_and(|server| self.servers[server] == slug);
        if is_own || is_web_page { uri.to_owned() } else { format!("{PREFIX}{slug}:{uri}") }
    }

    /// Returns the URI template under which clients find a resource template of a server.
    pub(crate) fn public_template(&self, slug: &str, text: &str) -> String {
        let is_own = self.template_texts.get(text).is_some_and(|server| self.servers[*server] == slug);
        if is_own { text.to_owned() } else { format!("{PREFIX}{slug}:{text}") }
    }

    /// Replaces the URIs of a server in a result by those under which clients find the resources: in resource links,
    /// embedded resources and read contents, and in references to the user interfaces of tools.
    pub(crate) fn rewrite(&self, slug: &str, value: &mut Value) {
        match value {
            Value::Array(items) => items.iter_mut().for_each(|item| self.rewrite(slug, item)),
            Value::Object(members) => {
                for (name, value) in members {
                    match (name.as_str(), value) {
                        ("uri" | "resourceUri" | "ui/resourceUri", Value::String(uri)) => {
                            *uri = self.public(slug, uri);
                        }
                        // Data of the tool, not of the protocol.
                        ("structuredContent", _) => {}
                        (_, value) => self.rewrite(slug, value),
                    }
                }
            }
            _ => {}
        }
    }
}

/// Parses a template. One that cannot be matched is replaced by its literal prefix, and the server decides.
fn parse(text: &str) -> Option<UriTemplate> {
    let literal_prefix = || format!("{}{{+rest}}", text.split('{').next().unwrap_or_default());
    UriTemplate::parse(text).or_else(|_| UriTemplate::parse(&literal_prefix())).ok()
}

#[cfg(test)]
mod tests {
    use linchpin_hub_core::tool::names::Slug;
    use serde_json::json;

    use super::*;

    fn surface(id: u128, slug: &str, resources: &[&str], templates: &[&str]) -> ServerSurface {
        ServerSurface {
            id: ServerId::from_u128(id),
            slug: Slug::new(slug).unwrap(),
            name: slug.to_owned(),
            instructions: None,
            extensions: std::collections::BTreeSet::new(),
            tools: Vec::new(),
            resources: resources.iter().map(|uri| json!({ "uri": uri })).collect(),
            resource_templates: templates.iter().map(|text| json!({ "uriTemplate": text })).collect(),
            prompts: Vec::new(),
        }
    }

    #[test]
    fn a_uri_that_two_servers_have_belongs_to_the_older_one() {
        let uris = Uris::new(&[
            surface(1, "one", &["file:///a", "file:///b"], &["note://{id}"]),
            surface(2, "two", &["file:///b", "file:///c"], &["note://{id}", "mail://{id}"]),
        ]);
        assert_eq!(uris.resolve("file:///b"), Some(("one", "file:///b")));
        assert_eq!(uris.resolve("file:///c"), Some(("two", "file:///c")));
        assert_eq!(uris.public("two", "file:///b"), "mcp+two:file:///b");
        assert_eq!(uris.resolve("mcp+two:file:///b"), Some(("two", "file:///b")));
        assert_eq!(uris.resolve("mcp+three:file:///b"), None);
        assert_eq!(uris.resolve("note://7"), Some(("one", "note://7")));
        assert_eq!(uris.public("two", "note://7"), "mcp+two:note://7");
        assert_eq!(uris.resolve("mail://7"), Some(("two", "mail://7")));
        assert_eq!(uris.public_template("two", "note://{id}"), "mcp+two:note://{id}");
        assert_eq!(uris.resolve_template("mcp+two:note://{id}"), Some(("two", "note://{id}")));
        assert_eq!(uris.resolve("file:///unlisted"), None);
        assert_eq!(uris.public("two", "https://example.com/page"), "https://example.com/page");
    }

    #[test]
    fn a_newer_server_takes_over_no_uri() {
        let uris = Uris::new(&[
            surface(1, "one", &["file:///b"], &["note://{id}"]),
            surface(2, "two", &["note://7", "mcp+one:file:///b"], &[]),
        ]);
        assert_eq!(uris.resolve("note://7"), Some(("one", "note://7")));
        assert_eq!(uris.public("two", "note://7"), "mcp+two:note://7");
        assert_eq!(uris.public("two", "mcp+one:file:///b"), "mcp+two:mcp+one:file:///b");
        assert_eq!(uris.resolve("mcp+two:mcp+one:file:///b"), Some(("two", "mcp+one:file:///b")));
    }

    #[test]
    fn a_single_server_has_unlisted_resources() {
        let uris = Uris::new(&[surface(1, "one", &["file:///a"], &[])]);
        assert_eq!(uris.resolve("file:///unlisted"), Some(("one", "file:///unlisted")));
        assert_eq!(uris.public("one", "file:///unlisted"), "file:///unlisted");
    }

    #[test]
    fn references_in_results_are_replaced() {
        let uris =
            Uris::new(&[surface(1, "one", &["ui://view"], &[]), surface(2, "two", &["ui://view"], &[])]);
        let mut result = json!({
            "content": [
                { "type": "resource_link", "uri": "ui://view", "name": "a" },
                { "type": "resource", "resource": { "uri": "ui://view", "text": "uri" } },
                { "type": "text", "text": "ui://view" },
            ],
            "structuredContent": { "uri": "ui://view" },
            "_meta": { "ui": { "resourceUri": "ui://view" }, "ui/resourceUri": "ui://view" },
        });
        uris.rewrite("two", &mut result);
        let public = "mcp+two:ui://view";
        assert_eq!(
            result,
            json!({
                "content": [
                    { "type": "resource_link", "uri": public, "name": "a" },
                    { "type": "resource", "resource": { "uri": public, "text": "uri" } },
                    { "type": "text", "text": "ui://view" },
                ],
                "structuredContent": { "uri": "ui://view" },
                "_meta": { "ui": { "resourceUri": public }, "ui/resourceUri": public },
            })
        );
    }
}

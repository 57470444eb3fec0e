//! Servers: added, changed, looked at and removed.

use std::collections::BTreeMap;

use jiff::Timestamp;
use linchpin::Revision;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::server_records::{Contact, Kept, Place};
use super::{Hub, put, told, without_parts};
use crate::agent::Agent;
use crate::connection::Status;
use crate::error::{self, Error, Result};
use crate::id::{ServerId, TenantId};
use crate::names::Slug;
use crate::policy::Reason;
use crate::scope::Scope;
use crate::server::{Authentication, CredentialMode, Draft, Launch, Remote, Server, Settings, Transport};
use crate::store::{Batch, Change, Key, Kind, Stored};
use crate::tool::LeftOut;

/// How many servers a tenant may have.
const MOST: usize = 1_000;
const NOT_IN_FILE: &str = "server_not_in_file";
const LEFT_FILE: &str = "not in the configuration file";

/// A server, as people see it.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[expect(clippy::struct_excessive_bools, reason = "each is a member of the JSON object of the API")]
pub struct ServerView {
    /// Its id.
    #[schemars(with = "String")]
    pub id: ServerId,
    /// Its short name, which never changes.
    pub slug: String,
    /// What people call it.
    pub name: String,
    /// What it is for.
    pub description: Option<String>,
    /// `stdio`, `http` or `sse`.
    pub transport: &'static str,
    /// Where it is.
    pub url: Option<String>,
    /// What is sent with every request.
    pub headers: BTreeMap<String, String>,
    /// The program and its arguments, if it is one.
    pub command: Option<Vec<String>>,
    /// The names of the variables in its environment.
    pub env: Vec<String>,
    /// The names of those whose values are in the vault.
    pub secrets: Vec<String>,
    /// Those of them that nobody has entered yet: without them it is not started.
    pub missing_secrets: Vec<String>,
    /// Whether the operator's file says that it is there: then it is changed in that file alone.
    pub is_from_file: bool,
    /// Whether the configuration file does not declare it any more: it is disabled until the file does, or it is removed.
    pub has_left_file: bool,
    /// How requests say who asks.
    pub authentication: Authentication,
    /// Whose credentials are used.
    pub credentials: CredentialMode,
    /// How long an answer may take.
    pub timeout_ms: u64,
    /// How often connecting, listing and reading is tried again.
    pub retry_attempts: u8,
    /// How many calls a minute it takes.
    pub calls_per_minute: Option<u32>,
    /// How many of its calls may be under way at once.
    pub calls_at_once: Option<u32>,
    /// Protocol revision that is pinned for its connections, if one is.
    pub revision: Option<&'static str>,
    /// Whether it is used at all.
    pub enabled: bool,
    /// Whether arguments and results of its calls are kept.
    pub keep_history: bool,
    /// The status of its connections, or `disabled`.
    pub status: Status,
    /// Why its tools could not be looked at the last time, if it was not changed since; those that are known are of before.
    pub error: Option<String>,
    /// When it last answered.
    #[schemars(with = "Option<String>")]
    pub last_connected: Option<Timestamp>,
    /// When its tools were last looked at.
    #[schemars(with = "Option<String>")]
    pub last_synced: Option<Timestamp>,
    /// How many tools it has.
    pub tools: usize,
    /// Tools of the last sync that the hub does not use, with the reasons. At most 100.
    pub left_out: Vec<LeftOut>,
    /// Counts the changes.
    pub version: u64,
    /// When it was added.
    #[schemars(with = "String")]
    pub created: Timestamp,
    /// When it was last changed.
    #[schemars(with = "String")]
    pub updated: Timestamp,
}

/// Which servers are wanted.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServerFilter {
    /// That are used, or not.
    pub enabled: Option<bool>,
    /// That are connected so.
    pub status: Option<Status>,
    /// With this in their name, short name or description.
    pub q: Option<String>,
}

impl Hub {
    /// The servers of the tenant.
    pub async fn servers(&self, scope: Scope, filter: &ServerFilter) -> Result<Vec<ServerView>> {
        scope.person()?;
        let mut views = Vec::new();
        for server in self.every_server(scope.tenant()).await? {
            let Settings { name, description, enabled, .. } = &server.settings;
            let words = [name, server.slug.as_str(), description.as_deref().unwrap_or_default()];
            let has = |q: &String| words.iter().any(|text| text.to_lowercase().contains(&q.to_lowercase()));
            let status = self.status(scope.tenant(), &server);
            let fits = filter.q.as_ref().is_none_or(has)
                && filter.enabled.is_none_or(|wanted| wanted == *enabled)
                && filter.status.is_none_or(|wanted| wanted == status);
            if fits {
                views.push(self.view_server(scope.tenant(), server).await?);
            }
        }
        Ok(views)
    }

    /// One server, by its id or its short name.
    pub async fn server(&self, scope: Scope, name: &str) -> Result<ServerView> {
        scope.person()?;
        let server = self.find_server(scope.tenant(), name).await?;
        self.view_server(scope.tenant(), server).await
    }

    /// Adds a server that somebody has described. It is looked at soon.
    pub async fn add_server(&self, scope: Scope, form: Value) -> Result<ServerView> {
        scope.person()?;
        let Draft { slug, settings, transport } = Draft::read(form)?;
        let taken: Vec<_> =
            self.every_server(scope.tenant()).await?.into_iter().map(|server| server.slug).collect();
        if taken.len() >= MOST {
            let text = format!("there are {MOST} servers already: remove one first");
            return Err(Error::new(error::Kind::Exhausted, "too_many_servers", text));
        }
        let slug = match slug {
            Some(slug) if taken.contains(&slug) => {
                let text = format!("there is a server `{}` already: choose another one", slug.as_str());
                return Err(Error::new(error::Kind::Conflict, "name_taken", text).about("slug"));
            }
            Some(slug) => slug,
            None => free_slug(&settings.name, &taken),
        };
        let (id, now) = (ServerId::new(&*self.world), self.world.now());
        let kept = Kept {
            slug,
            settings,
            place: Place::of(&transport),
            is_from_file: false,
            has_left_file: false,
            created: now,
            updated: now,
        };
        let entry =
            self.entry(scope, "server.added").with("server", id.to_string()).with("slug", kept.slug.as_str());
        let batch = Batch::new().change(put(kept.document(id)?, 0)).audit(entry);
        let (tenant, due) = (scope.tenant(), self.due.clone());
        self.commit_then(tenant, batch.tell(told::server(id, "added")), move |done| {
            if done.is_ok() {
                due.add((tenant, id));
            }
        })
        .await?;
        self.store_refusal(scope.tenant(), id).await?;
        self.server(scope, &id.to_string()).await
    }

    /// Changes what is given of a server. Another place for it means other credentials: those that are known are dropped.
    pub async fn update_server(&self, scope: Scope, name: &str, changes: Value) -> Result<ServerView> {
        scope.person()?;
        let server = self.find_server(scope.tenant(), name).await?;
        own(&server)?;
        let Value::Object(changes) = changes else {
            return Err(Error::invalid("body", "an object is expected"));
        };
        if changes.contains_key("slug") {
            return Err(Error::invalid("slug", "it never changes: tools are called by it"));
        }
        let mut form = server.form();
        form.extend(changes);
        let Draft { settings, transport, .. } = Draft::read(form.into())?;
        let (id, version) = (server.id, server.version);
        self.replace_server(scope, id, Kept::of(server), version, settings, transport).await?;
        self.store_refusal(scope.tenant(), id).await?;
        self.server(scope, &id.to_string()).await
    }

    /// Turns a server on or off.
    pub async fn enable_server(&self, scope: Scope, name: &str, enabled: bool) -> Result<ServerView> {
        self.update_server(scope, name, json!({ "enabled": enabled })).await
    }

    /// Removes a server with its tools and credentials. Its calls and the audit stay.
    pub async fn remove_server(&self, scope: Scope, name: &str) -> Result<()> {
        scope.person()?;
        let server = self.find_server(scope.tenant(), name).await?;
        if !server.has_left_file {
            own(&server)?;
        }
        self.forget_server(scope, server.id, &server.slug).await
    }

    pub(super) async fn forget_server(&self, scope: Scope, id: ServerId, slug: &Slug) -> Result<()> {
        let tenant = scope.tenant();
        let entry =
            self.entry(scope, "server.removed").with("server", id.to_string()).with("slug", slug.as_str());
        let mut batch = Batch::new().change(Change::Remove(Key::new(Kind::Server, id))).audit(entry);
        batch.changes.extend(
            [Kind::Tool, Kind::Secret, Kind::Contact, Kind::Lease, Kind::Trace]
                .map(|kind| without_parts(kind, id)),
        );
        self.commit_server(tenant, batch.tell(told::server(id, "removed")), (id, None), false).await
    }

    /// Keeps a server as it is from now on, and ends what was under way with it as it was.
    pub(super) async fn replace_server(
        &self,
        scope: Scope,
        id: ServerId,
        before: Kept,
        version: u64,
        settings: Settings,
        transport: Transport,
    ) -> Result<()> {
        let (tenant, place) = (scope.tenant(), Place::of(&transport));
        let mut entry = self.entry(scope, "server.changed").with("server", id.to_string());
        let mut batch = Batch::new();
        // An edit of the configuration file deletes no secret: each is bound to the URL or command and to the authentication
        // that it was entered for, and is used again when those come back.
        let has_other_authentication = settings.authentication != before.settings.authentication;
        if before.is_from_file {
            if has_other_authentication {
                batch.changes = self.bind_to_client(tenant, id, &before.settings.authentication).await?;
            }
        } else if has_other_authentication || place.url() != before.place.url() {
            entry = entry.with("credentials", "dropped");
            batch.changes.extend([Kind::Secret, Kind::Trace].map(|kind| without_parts(kind, id)));
        }
        let kept = Kept { settings, place, has_left_file: false, updated: self.world.now(), ..before };
        let batch = batch.change(put(kept.document(id)?, version)).audit(entry);
        // Whoever finds the new version finds the program that belongs to it.
        let launch = self.keep_launch(tenant, id, transport.launch());
        let (batch, server) = (batch.tell(told::server(id, "changed")), (id, Some(version + 1)));
        if let Err(error) = self.commit_server(tenant, batch, server, kept.settings.enabled).await {
            self.keep_launch(tenant, id, launch);
            self.connections.end(tenant, id); // it may have been started in between
            return Err(error);
        }
        Ok(())
    }

    /// All servers. A program that nobody knows how to start is left out: it hides no other.
    pub(super) async fn every_server(&self, tenant: TenantId) -> Result<Vec<Server>> {
        let mut servers = Vec::new();
        for stored in self.stored(tenant, Kind::Server, None).await? {
            let id = stored.document.key.id.parse()?;
            match self.read_server(tenant, stored) {
                Err(error) if error.code() == NOT_IN_FILE => self.has_no_launch(tenant, id, &error),
                server => servers.push(server?),
            }
        }
        Ok(servers)
    }

    /// A server that the caller may know of, by its id or its short name. For an agent, a server that it was not granted
    /// does not exist; the audit says that it tried.
    pub(super) async fn visible_server(&self, scope: Scope, name: &str) -> Result<Server> {
        let Some(agent) = scope.agent() else {
            scope.person()?;
            return self.find_server(scope.tenant(), name).await;
        };
        let agent = self.find::<Agent>(scope.tenant(), Kind::Agent, agent).await?;
        let found = self.find_server_id(scope.tenant(), name).await?;
        let has = |id| agent.is_some_and(|(agent, _)| agent.enabled && agent.servers.contains_key(&id));
        if found.is_some_and(has) {
            return self.find_server(scope.tenant(), name).await;
        }
        if let Some(id) = found {
            let entry = self.entry(scope, "server.refused").with("server", id.to_string());
            self.audit_refusal_later(scope.tenant(), entry.with("reason", Reason::NotSelected.code()));
        }
        Err(Error::not_found("server", crate::text::shortened(name)))
    }

    /// The id of the server with this id or short name.
    pub(super) async fn find_server_id(&self, tenant: TenantId, name: &str) -> Result<Option<ServerId>> {
        let found = match name.parse::<ServerId>() {
            Ok(id) => self.store.document(tenant, &Key::new(Kind::Server, id)).await?,
            Err(_) => self.store.named(tenant, Kind::Server, name).await?,
        };
        found.map(|stored| stored.document.key.id.parse()).transpose()
    }

    /// A server by its id or its short name.
    pub(super) async fn find_server(&self, tenant: TenantId, name: &str) -> Result<Server> {
        let found = match name.parse::<ServerId>() {
            Ok(id) => self.store.document(tenant, &Key::new(Kind::Server, id)).await?,
            Err(_) => self.store.named(tenant, Kind::Server, name).await?,
        };
        let found = found.ok_or_else(|| Error::not_found("server", crate::text::shortened(name)))?;
        self.read_server(tenant, found)
    }

    fn read_server(&self, tenant: TenantId, stored: Stored) -> Result<Server> {
        let id: ServerId = stored.document.key.id.parse()?;
        let version = stored.version;
        let Kept { slug, settings, place, is_from_file, has_left_file, created, updated } =
            stored.document.read()?;
        let transport = match place {
            Place::Http(remote) => Transport::Http(remote),
            Place::Sse(remote) => Transport::Sse(remote),
            // It is disabled and never started: only the file has its command.
            Place::Stdio if has_left_file => Transport::Stdio(Launch::new("", &[])),
            Place::Stdio => Transport::Stdio(self.launch(tenant, id).ok_or_else(|| {
                let text = format!("`{}` is not in the operator's file any more", slug.as_str());
                Error::new(error::Kind::Unavailable, NOT_IN_FILE, text)
            })?),
        };
        Ok(Server { id, slug, settings, transport, is_from_file, has_left_file, version, created, updated })
    }

    fn status(&self, tenant: TenantId, server: &Server) -> Status {
        if server.settings.enabled { self.connections.status(tenant, server.id) } else { Status::Disabled }
    }

    async fn view_server(&self, tenant: TenantId, server: Server) -> Result<ServerView> {
        let contact = self.contact(tenant, server.id).await?.0;
        let missing_secrets = self.missing_secrets(tenant, &server).await?;
        let (command, env, secrets) = match &server.transport {
            Transport::Stdio(Launch { command, args, env, secrets, .. }) => {
                let words = std::iter::once(command).chain(args).cloned().collect();
                (
                    Some(words).filter(|_| !server.has_left_file),
                    env.keys().cloned().collect(),
                    secrets.iter().cloned().collect(),
                )
            }
            Transport::Http(_) | Transport::Sse(_) => (None, Vec::new(), Vec::new()),
        };
        let (remote, status) = (server.transport.place().cloned(), self.status(tenant, &server));
        let settings = server.settings;
        Ok(ServerView {
            id: server.id,
            slug: server.slug.as_str().to_owned(),
            name: settings.name,
            description: settings.description,
            transport: server.transport.name(),
            url: remote.as_ref().map(|remote| remote.url.clone()),
            headers: remote.map(|remote| remote.headers).unwrap_or_default(),
            command,
            env,
            secrets,
            missing_secrets,
            is_from_file: server.is_from_file,
            has_left_file: server.has_left_file,
            authentication: settings.authentication,
            credentials: settings.credentials,
            timeout_ms: u64::try_from(settings.timeout.as_millis()).unwrap_or(u64::MAX),
            retry_attempts: settings.retry_attempts,
            calls_per_minute: settings.calls_per_minute,
            calls_at_once: settings.calls_at_once,
            revision: settings.revision.map(Revision::as_str),
            enabled: settings.enabled,
            keep_history: settings.keep_history,
            status,
            // With a credential that has just been entered it may work.
            error: if server.has_left_file {
                Some(LEFT_FILE.to_owned())
            } else {
                contact.error.filter(|_| [0, server.version].contains(&contact.of))
            },
            last_connected: contact.last_connected,
            last_synced: contact.last_synced,
            tools: contact.tools,
            left_out: contact.left_out,
            version: server.version,
            created: server.created,
            updated: server.updated,
        })
    }

    /// When the hub last spoke with a server, and the version of that.
    pub(super) async fn contact(&self, tenant: TenantId, server: ServerId) -> Result<(Contact, u64)> {
        Ok(self.find(tenant, Kind::Contact, server).await?.unwrap_or_default())
    }
}

/// Refuses a server that only the configuration file changes.
fn own(server: &Server) -> Result<()> {
    if !server.is_from_file {
        return Ok(());
    }
    left_file(server)?;
    let text = format!(
        "`{0}` is in the configuration file: use `linchpin server …` on the machine of the hub, or edit that file",
        server.slug.as_str()
    );
    Err(Error::new(error::Kind::Conflict, "server_from_file", text))
}

/// Refuses a server that is not in the configuration file any more.
pub(super) fn left_file(server: &Server) -> Result<()> {
    if !server.has_left_file {
        return Ok(());
    }
    let slug = server.slug.as_str();
    let text = format!(
        "`{slug}` is {LEFT_FILE}: add it there again, or remove it with `linchpin server remove {slug}`"
    );
    Err(Error::new(error::Kind::Conflict, NOT_IN_FILE, text))
}

/// A short name that looks like a name and is not taken.
fn free_slug(name: &str, taken: &[Slug]) -> Slug {
    let wanted =
        Slug::from_name(name).or_else(|| Slug::from_name("server")).unwrap_or_else(|| unreachable!());
    let numbered = (2..).map(|number| wanted.numbered(number));
    std::iter::once(wanted.clone()).chain(numbered).find(|slug| !taken.contains(slug)).unwrap_or(wanted)
}

/// The scheme, name and port that credentials are bound to.
pub(super) fn origin(transport: &Transport) -> Option<String> {
    Place::of(transport).origin()
}

impl Server {
    /// What a form would have to say to get this server.
    fn form(&self) -> Map<String, Value> {
        let mut form = match serde_json::to_value(&self.settings) {
            Ok(Value::Object(form)) => form,
            _ => Map::new(),
        };
        form.insert("transport".into(), self.transport.name().into());
        if let Some(Remote { url, headers }) = self.transport.place() {
            form.insert("url".into(), url.as_str().into());
            form.insert("headers".into(), json!(headers));
        }
        form
    }
}

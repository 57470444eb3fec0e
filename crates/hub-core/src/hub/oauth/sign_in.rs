//! A sign-in under way: begun by a person, who is led away and comes back. Whoever brings them back proves that it is the
//! browser in which it was begun.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use linchpin::auth::{AuthError, AuthErrorKind, OAuth};
use linchpin::server::web::decode_form;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use tokio::sync::{oneshot, watch};

use super::{Hop, Whose};
use crate::connection::Proof;
use crate::digest::Digest;
use crate::error::{self, Error, Result};
use crate::hub::Hub;
use crate::hub::connecting::list_tools;
use crate::id::{AgentId, ServerId};
use crate::scope::{Scope, Subject};
use crate::server::{CredentialMode, Server};
use crate::store::{Batch, Kind};
use crate::sync::lock;
use crate::world::random;

/// How the address ends at which people come back.
const CALLBACK: &str = "/oauth/callback";
/// How many can be under way in a tenant.
const MOST: usize = 32;
/// How long whoever begins waits for the address, and whoever comes back for the end.
const PATIENCE: Duration = Duration::from_mins(1);
/// How long one that is over can be asked about.
const REMEMBERED: jiff::SignedDuration = jiff::SignedDuration::from_mins(15);

/// How far a sign-in is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(tag = "status", rename_all = "kebab-case")]
pub enum Progress {
    /// It is found out who signs people in.
    Beginning,
    /// A person is to sign in.
    Waiting,
    /// It is done.
    Done,
    /// The server let the hub in without.
    NotNeeded,
    /// It did not work.
    Failed {
        /// Why not.
        error: String,
    },
}

impl Progress {
    fn is_over(&self) -> bool {
        !matches!(self, Progress::Beginning | Progress::Waiting)
    }
}

/// A sign-in, as people see it.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct SignInView {
    /// Its id.
    pub id: String,
    /// The server.
    #[schemars(with = "String")]
    pub server: ServerId,
    /// Whose it is; everybody's without it.
    #[schemars(with = "Option<String>")]
    pub agent: Option<AgentId>,
    /// Where the person goes to sign in: at this hub, which leads them on.
    pub url: String,
    /// How far it is.
    #[serde(flatten)]
    pub progress: Progress,
    /// When it was begun.
    #[schemars(with = "String")]
    pub created: Timestamp,
    /// What was asked of whom.
    pub hops: Vec<Hop>,
}

/// A sign-in that was begun.
pub(super) struct SignIn {
    id: String,
    whose: Whose,
    by: Subject,
    created: Timestamp,
    progress: watch::Sender<Progress>,
    visit: Mutex<Option<Visit>>,
}

/// A person who is away.
struct Visit {
    url: String,
    /// What they come back with.
    state: String,
    back: oneshot::Sender<String>,
}

#[derive(Default)]
pub(super) struct UnderWay(Mutex<HashMap<String, Arc<SignIn>>>);

impl UnderWay {
    fn find(&self, fits: impl Fn(&SignIn) -> bool) -> Option<Arc<SignIn>> {
        lock(&self.0).values().find(|sign_in| fits(sign_in)).cloned()
    }

    fn add(&self, sign_in: Arc<SignIn>) -> Result<()> {
        let (mut all, now) = (lock(&self.0), sign_in.created);
        all.retain(|_, other| {
            !other.progress.borrow().is_over() || now.duration_since(other.created) < REMEMBERED
        });
        if all.values().filter(|other| other.whose.0 == sign_in.whose.0).count() >= MOST {
            let text = format!("{MOST} sign-ins are under way already: finish one of them first");
            return Err(Error::new(error::Kind::Exhausted, "too_many_sign_ins", text));
        }
        all.insert(sign_in.id.clone(), sign_in);
        Ok(())
    }
}

impl SignIn {
    fn set(&self, progress: Progress) {
        self.progress.send_replace(progress);
    }

    async fn until(&self, fits: impl Fn(&Progress) -> bool) {
        let mut progress = self.progress.subscribe();
        let _ = tokio::time::timeout(PATIENCE, progress.wait_for(|progress| fits(progress))).await; // as far as it is
    }

    /// Leads the person away, and gives what they come back with.
    async fn visit(&self, url: String) -> Result<String, AuthError> {
        let query = url.split_once('?').map_or("", |(_, query)| query);
        let state = decode_form(query).find(|(name, _)| name == "state").map(|(_, state)| state.into_owned());
        let (back, returned) = oneshot::channel();
        *lock(&self.visit) = Some(Visit { url, state: state.unwrap_or_default(), back });
        self.set(Progress::Waiting);
        let gone = |_| AuthError::new(AuthErrorKind::Person, "the sign-in was given up: begin again");
        returned.await.map_err(gone)
    }
}

/// What only the browser knows in which a sign-in was begun.
fn binding(id: &str) -> String {
    Digest::of("linchpin sign-in of a browser").part(id).end().to_string()
}

impl Hub {
    /// Begins to sign in to a server: for everybody, or for an agent. Gives where the person goes.
    pub async fn begin_sign_in(
        self: &Arc<Self>,
        scope: Scope,
        name: &str,
        agent: Option<AgentId>,
    ) -> Result<SignInView> {
        scope.person()?;
        let (tenant, server) = (scope.tenant(), self.find_server(scope.tenant(), name).await?);
        match (server.settings.credentials, agent) {
            (CredentialMode::Shared, Some(_)) => {
                let text = "the server has one sign-in for all: set `credentials` to `per-agent` first";
                return Err(Error::invalid("agent", text));
            }
            (CredentialMode::PerAgent, None) => {
                return Err(Error::invalid("agent", "each agent has its own sign-in: say which one"));
            }
            (CredentialMode::PerAgent, Some(agent)) => {
                self.need::<crate::agent::Agent>(tenant, Kind::Agent, agent).await?;
            }
            (CredentialMode::Shared, None) => {}
        }
        let Some(callback) = self.options.callback.clone() else {
            let text = "this hub has no address that a browser could come back to";
            return Err(Error::new(error::Kind::Unavailable, "no_callback", text));
        };
        let whose = (tenant, server.id, agent);
        let (oauth, tokens) = self.oauth(whose, &server).await?;
        let sign_in = Arc::new(SignIn {
            id: Digest::from_bytes(random(&*self.world)).to_string(),
            whose,
            by: scope.subject(),
            created: self.world.now(),
            progress: watch::Sender::new(Progress::Beginning),
            visit: Mutex::default(),
        });
        self.broker.under_way.add(sign_in.clone())?;
        let person = sign_in.clone();
        let oauth = oauth.redirect(callback, move |url| {
            let person = person.clone();
            async move { person.visit(url).await }
        });
        let (hub, flow) = (self.clone(), sign_in.clone());
        self.tasks.start(async move {
            let mut ending = hub.ending.subscribe();
            let over = tokio::select! {
                over = hub.sign_in_at(scope, &server, Proof::OAuth(oauth, tokens), &flow) => over,
                () = async { drop(ending.wait_for(Option::is_some).await) } => Progress::Failed { error: "the hub ended".to_owned() },
            };
            hub.sign_in_over(scope, &flow, over).await;
        });
        sign_in.until(|progress| *progress != Progress::Beginning).await;
        Ok(self.view_sign_in(&sign_in))
    }

    /// Signs in by using the server: it says what it wants.
    async fn sign_in_at(&self, scope: Scope, server: &Server, proof: Proof, sign_in: &SignIn) -> Progress {
        let was_led_away =
            || lock(&sign_in.visit).is_some() || *sign_in.progress.borrow() == Progress::Waiting;
        let failed = |error: String| Progress::Failed { error };
        let client = match self.connections.try_out(scope, server, Some(&proof)).await {
            Ok(client) => client,
            Err(error) => return failed(error.message().to_owned()),
        };
        let listed = list_tools(&client).await;
        client.close().await;
        match listed {
            Err(error) => failed(crate::pin::visible(&error.to_string())),
            Ok(_) if was_led_away() => Progress::Done,
            Ok(_) => Progress::NotNeeded,
        }
    }

    /// A sign-in is over: whatever was connected is connected wrongly now, and its tools are looked at.
    async fn sign_in_over(&self, scope: Scope, sign_in: &SignIn, over: Progress) {
        let (tenant, server, agent) = sign_in.whose;
        let status = match &over {
            Progress::Done => "done",
            Progress::NotNeeded => "not needed",
            _ => "failed",
        };
        let mut entry =
            self.entry(scope, "sign_in.over").with("server", server.to_string()).with("status", status);
        if let Some(agent) = agent {
            entry = entry.with("agent", agent.to_string());
        }
        if let Err(error) = self.store.commit(tenant, Batch::new().audit(entry)).await {
            tracing::error!(%error, "the audit does not say that somebody has signed in");
        }
        if over == Progress::Done {
            self.broker.forget(sign_in.whose);
            self.connections.end(tenant, server);
            self.look_soon(tenant, server);
        }
        sign_in.set(over);
        let body = json!({ "sign_in": sign_in.id, "server": server, "agent": agent, "status": status });
        self.events.publish(tenant, "sign_in", body);
    }

    /// A sign-in that a person has begun.
    pub fn sign_in_view(&self, scope: Scope, id: &str) -> Result<SignInView> {
        Ok(self.view_sign_in(&*self.own_sign_in(scope, id)?))
    }

    /// Where the person is led who has begun it, and what proves that it is them who come back.
    pub fn leave_to_sign_in(&self, scope: Scope, id: &str) -> Result<(String, String)> {
        let sign_in = self.own_sign_in(scope, id)?;
        let url = lock(&sign_in.visit).as_ref().map(|visit| visit.url.clone());
        let over = || Error::new(error::Kind::Conflict, "sign_in_over", "this sign-in is over: begin again");
        Ok((url.ok_or_else(over)?, binding(id)))
    }

    fn own_sign_in(&self, scope: Scope, id: &str) -> Result<Arc<SignIn>> {
        scope.person()?;
        let own = |sign_in: &SignIn| {
            sign_in.id == id && (sign_in.whose.0, sign_in.by) == (scope.tenant(), scope.subject())
        };
        self.broker.under_way.find(own).ok_or_else(|| Error::not_found("sign-in", crate::text::shortened(id)))
    }

    /// Somebody comes back, with what the authorization server sent them with: how it ended.
    pub async fn return_from_sign_in(&self, query: &str, proof: &str) -> Result<SignInView> {
        let state = decode_form(query).find(|(name, _)| name == "state").map(|(_, state)| state.into_owned());
        let unknown = || {
            let text = "nobody who is waited for comes back so: begin to sign in again, in this browser";
            Error::new(error::Kind::NotFound, "unknown_sign_in", text)
        };
        let state = state.filter(|state| !state.is_empty()).ok_or_else(unknown)?;
        let fits = |sign_in: &SignIn| lock(&sign_in.visit).as_ref().is_some_and(|visit| visit.state == state);
        let sign_in = self.broker.under_way.find(fits).ok_or_else(unknown)?;
        if binding(&sign_in.id) != proof {
            return Err(unknown());
        }
        let visit = lock(&sign_in.visit).take().ok_or_else(unknown)?;
        let callback = self.options.callback.as_deref().unwrap_or_default();
        let _ = visit.back.send(format!("{callback}?{query}")); // whoever waited may have given up
        sign_in.until(Progress::is_over).await;
        Ok(self.view_sign_in(&sign_in))
    }

    /// Forgets a sign-in, and gives its tokens back where they are taken. Whether that was so is said.
    pub async fn sign_out_of(
        self: &Arc<Self>,
        scope: Scope,
        name: &str,
        agent: Option<AgentId>,
    ) -> Result<bool> {
        scope.person()?;
        let (tenant, server) = (scope.tenant(), self.find_server(scope.tenant(), name).await?);
        let whose = (tenant, server.id, agent);
        let (oauth, _): (OAuth, _) = self.oauth(whose, &server).await?;
        let Some(place) = server.transport.place() else { return Ok(false) };
        let entry = self.entry(scope, "grant.dropped").with("server", server.id.to_string());
        let entry = agent.iter().fold(entry, |entry, agent| entry.with("agent", agent.to_string()));
        self.store.commit(tenant, Batch::new().audit(entry)).await?;
        let given_back = oauth.sign_out(&place.url, &self.connections.egress(scope, server.id)).await;
        self.broker.forget(whose);
        self.connections.end(tenant, server.id);
        self.server_changed(tenant, server.id, "credential");
        given_back.map_err(|error| {
            let text = crate::pin::visible(&error.to_string());
            Error::new(error::Kind::Unavailable, "not_revoked", text)
        })
    }

    fn view_sign_in(&self, sign_in: &SignIn) -> SignInView {
        let (_, server, agent) = sign_in.whose;
        let base = self.options.callback.as_deref().unwrap_or_default();
        SignInView {
            id: sign_in.id.clone(),
            server,
            agent,
            url: format!("{}/oauth/start/{}", base.strip_suffix(CALLBACK).unwrap_or(base), sign_in.id),
            progress: sign_in.progress.borrow().clone(),
            created: sign_in.created,
            hops: self.broker.traces.of(sign_in.whose),
        }
    }
}

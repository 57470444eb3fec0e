//! Users, sessions, tokens and agents, through a hub on a real store, each with a second tenant.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod agents;
mod canary;
#[path = "../support/clock.rs"]
mod clock;
mod login_links;
mod sessions;
mod tenants;
mod tokens;
mod users;

use std::sync::Arc;
use std::time::Duration;

use clock::Clock;
use linchpin::auth::Secret;
use linchpin::egress::Egress;
use linchpin_hub_core::events::{Event, EventSubscription};
use linchpin_hub_core::hub::sessions::RequestClient;
use linchpin_hub_core::hub::users::ChangedBy;
use linchpin_hub_core::hub::{Hub, HubOptions, LOCAL, LOCAL_USER};
use linchpin_hub_core::id::{AgentId, ServerId, TenantId, UserId};
use linchpin_hub_core::platform::SystemPlatform;
use linchpin_hub_core::store::{Batch, Document, DocumentKey, DocumentKind, PageRequest, Store, StoreChange};
use linchpin_hub_core::vault::KeyFile;
use linchpin_hub_core::{Actor, Error, Platform, Subject};
use linchpin_hub_store::Sqlite;
use serde_json::{Value, json};
use tempfile::TempDir;

/// User of the local tenant.
const ADA: Actor = scope(LOCAL, LOCAL_USER);
const OTHER: TenantId = TenantId::from_u128(2);
/// User of another tenant.
const BOB: Actor = scope(OTHER, UserId::from_u128(7));

const PASSWORD: &str = "canary-password-of-ada";

/// Host that sessions are bound to.
const HOST: &str = "127.0.0.1:7420";

/// Returns a browser on this machine.
fn local_browser() -> RequestClient {
    RequestClient { address: Some([127, 0, 0, 1].into()), host: HOST.to_owned(), user: None }
}

const fn scope(tenant: TenantId, user: UserId) -> Actor {
    Actor::new(tenant, Subject::User(user))
}

fn hub(place: &TempDir, store: &Arc<dyn Store>, clock: &Arc<Clock>) -> Hub {
    let (keys, _) = KeyFile::open(&place.path().join("keys"), &SystemPlatform).unwrap();
    Hub::new(clock.clone(), store.clone(), keys, Egress::default(), HubOptions::default())
}

struct Stage {
    hub: Hub,
    store: Arc<dyn Store>,
    clock: Arc<Clock>,
    place: TempDir,
}

impl Stage {
    /// A hub with the local user, and Bob in the other tenant.
    async fn open() -> Self {
        let place = tempfile::tempdir().unwrap();
        let stage = Self::reopen(place, Arc::default()).await;
        let bob = json!({"id": UserId::from_u128(7), "name": "bob", "password": null, "passwords": 0, "created": stage.clock.now()});
        stage.put(OTHER, DocumentKind::User, UserId::from_u128(7), Some("bob"), bob).await;
        stage
    }

    async fn reopen(place: TempDir, clock: Arc<Clock>) -> Self {
        let store: Arc<dyn Store> = Arc::new(Sqlite::open(&place.path().join("hub.db")).unwrap());
        let hub = hub(&place, &store, &clock);
        hub.identity().ensure_local_user().await.unwrap();
        Stage { hub, store, clock, place }
    }

    /// A second hub on the same store.
    fn another_hub(&self) -> Hub {
        hub(&self.place, &self.store, &self.clock)
    }

    /// Ends the hub and starts another on the same files.
    async fn restart(self) -> Self {
        let Stage { hub, store, clock, place } = self;
        drop((hub, store));
        Self::reopen(place, clock).await
    }

    fn advance(&self, seconds: i64) {
        self.clock.advance(seconds);
    }

    async fn put(
        &self,
        tenant: TenantId,
        kind: DocumentKind,
        id: impl std::fmt::Display,
        name: Option<&str>,
        body: Value,
    ) {
        let document = Document {
            key: DocumentKey::new(kind, id),
            name: name.map(str::to_owned),
            parent: None,
            body,
            code: None,
        };
        self.store
            .commit(tenant, Batch::new().change(StoreChange::Put { document, version: 0 }))
            .await
            .unwrap();
    }

    /// Adds a server record that agents can select.
    async fn server(&self, tenant: TenantId, id: u128, slug: &str) -> ServerId {
        self.put(tenant, DocumentKind::Server, ServerId::from_u128(id), Some(slug), json!({})).await;
        ServerId::from_u128(id)
    }

    async fn agent(&self, actor: Actor, name: &str) -> AgentId {
        self.hub.identity().add_agent(actor, json!({"name": name})).await.unwrap().summary.id
    }

    /// Adds a user with a password.
    async fn add_user(&self, actor: Actor, name: &str, password: &str) -> UserId {
        let id = self.hub.identity().add_user(actor, name).await.unwrap().id;
        self.hub.identity().set_password(actor, id, &password.into(), ChangedBy::Operator).await.unwrap();
        id
    }

    async fn session_scope(&self, cookie: &Secret) -> Option<Actor> {
        self.hub.identity().session(cookie, HOST).await.unwrap().map(|(actor, _)| actor)
    }

    /// Returns all documents of a tenant.
    async fn documents(&self, tenant: TenantId) -> Vec<String> {
        let mut all = Vec::new();
        for kind in DocumentKind::ALL {
            let page = self
                .store
                .documents(tenant, kind, None, &PageRequest { after: None, limit: 500 })
                .await
                .unwrap();
            assert_eq!(page.next, None);
            all.extend(page.items.iter().map(|item| format!("{item:?}")));
        }
        all
    }

    /// Returns the audit actions of a tenant.
    async fn actions(&self, tenant: TenantId) -> Vec<String> {
        let rows = self.store.audit_entries(tenant, 0, 500).await.unwrap();
        rows.into_iter().map(|row| row.action).collect()
    }
}

fn code<T>(result: Result<T, Error>) -> &'static str {
    result.err().map_or("done", |error| error.code())
}

fn field<T>(result: Result<T, Error>) -> Option<String> {
    result.err().and_then(|error| error.field().map(str::to_owned))
}

/// Waits for the next event.
async fn next(events: &mut EventSubscription) -> Arc<Event> {
    tokio::time::timeout(Duration::from_secs(30), events.next()).await.unwrap().unwrap()
}

//! Operations on API tokens of agents and users: issue, list, revoke and verify. A token is shown once; the hub stores
//! its digest.

use std::time::Duration;

use jiff::Timestamp;
use linchpin::auth::Secret;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::authenticator::{check_name, unauthenticated};
use super::users::UserRecord;
use crate::actor::{Actor, Subject};
use crate::api_token;
use crate::digest::Digest;
use crate::error::{self, Error, Result};
use crate::events::NewEvent;
use crate::hub::identity::Identity;
use crate::hub::{LOCAL, LOCAL_USER, document, upsert};
use crate::id::{TenantId, TokenId};
use crate::store::{Batch, DocumentKey, DocumentKind, StoreChange};

/// Permitted lifetime of an API token, in days.
const TTL_DAYS: std::ops::RangeInclusive<u32> = 1..=3_650;
const DEFAULT_TTL_DAYS: u32 = 90;
const MSG_INVALID_TOKEN: &str =
    "invalid, expired or revoked token: issue a new one with `linchpin token add`";

/// API token as stored: its owner and a digest, without the secret.
#[derive(Serialize, Deserialize)]
pub(in crate::hub) struct TokenRecord {
    id: TokenId,
    pub(in crate::hub) owner: String,
    name: String,
    pub(in crate::hub) digest: String,
    created: Timestamp,
    pub(in crate::hub) expires: Timestamp,
}

/// API token as shown to users, without the secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TokenView {
    /// Id of the API token.
    #[schemars(with = "String")]
    pub id: TokenId,
    /// Owner: `agent:` or `user:`, and an id.
    pub owner: String,
    /// Name of the user or agent that owns the token.
    pub owner_name: Option<String>,
    /// Display name.
    pub name: String,
    /// Time at which the token was issued.
    #[schemars(with = "String")]
    pub created: Timestamp,
    /// Time at which the token expires.
    #[schemars(with = "String")]
    pub expires: Timestamp,
}

impl TokenRecord {
    fn view(self, owner_name: Option<String>) -> TokenView {
        let TokenRecord { id, owner, name, created, expires, .. } = self;
        TokenView { id, owner, owner_name, name, created, expires }
    }
}

impl Identity {
    /// Issues a token for an agent or for the calling user. The secret is returned only here.
    pub async fn issue_token(
        &self,
        actor: Actor,
        owner: Subject,
        text: &str,
        days: Option<u32>,
    ) -> Result<(Secret, TokenView)> {
        let person = actor.require_user()?;
        if matches!(owner, Subject::User(user) if user != person) {
            let text = "a token acts as its user: users can issue tokens only for themselves and for agents";
            return Err(Error::new(error::ErrorKind::PermissionDenied, "forbidden", text));
        }
        let days = days.unwrap_or(DEFAULT_TTL_DAYS);
        if !TTL_DAYS.contains(&days) {
            let text = format!("must be an integer from {} to {}", TTL_DAYS.start(), TTL_DAYS.end());
            return Err(Error::invalid("days", text));
        }
        let name = check_name(text)?;
        let (parent, version) = self.owner_of_tokens(actor.tenant(), owner).await?;
        let owner_name = self.names(actor.tenant()).get(&owner.to_string()).await?;
        let ((id, secret, digest), created) =
            (api_token::issue(&*self.context.platform), self.context.platform.now());
        let expires = created + Duration::from_hours(24 * u64::from(days));
        let token =
            TokenRecord { id, owner: owner.to_string(), name, digest: digest.to_string(), created, expires };
        let entry = self.context.entry(actor, "token.issued").with("token", id.to_string());
        let entry = entry.with("owner", &*token.owner).with("name", &*token.name);
        let token_document = document(DocumentKind::Token, id, &token)?.with_parent(&parent.id);
        let require_owner = match owner {
            // A password change deletes the tokens of the user: one that is issued concurrently must not survive it.
            Subject::User(_) => StoreChange::RequireVersions(vec![(parent, version)]),
            Subject::Agent(_) | Subject::Hub => StoreChange::RequireExists(parent),
        };
        let batch = Batch::new().change(require_owner).change(upsert(token_document, 0)).audit(entry);
        self.context.store.commit(actor.tenant(), batch.with_event(token_event(&token))).await?;
        Ok((secret, token.view(owner_name)))
    }

    async fn view_tokens(
        &self,
        tenant: TenantId,
        tokens: impl Iterator<Item = TokenRecord>,
    ) -> Result<Vec<TokenView>> {
        let (mut views, mut names) = (Vec::new(), self.names(tenant));
        for token in tokens {
            let owner_name = names.get(&token.owner).await?;
            views.push(token.view(owner_name));
        }
        Ok(views)
    }

    /// Returns the document key and version of the user or agent that owns tokens.
    async fn owner_of_tokens(&self, tenant: TenantId, owner: Subject) -> Result<(DocumentKey, u64)> {
        let key = match owner {
            Subject::User(user) => DocumentKey::new(DocumentKind::User, user),
            Subject::Agent(agent) => DocumentKey::new(DocumentKind::Agent, agent),
            Subject::Hub => {
                let text = "must be an agent or a user";
                return Err(Error::invalid("owner", text));
            }
        };
        let found = self.context.store.document(tenant, &key).await?;
        let missing = || Error::not_found(key.kind.name(), &key.id);
        let version = found.ok_or_else(missing)?.version;
        Ok((key, version))
    }

    /// Lists the tokens of an agent or a user.
    pub async fn tokens(&self, actor: Actor, owner: Subject) -> Result<Vec<TokenView>> {
        actor.require_user()?;
        let (parent, _) = self.owner_of_tokens(actor.tenant(), owner).await?;
        let all = self
            .context
            .load_all::<TokenRecord>(actor.tenant(), DocumentKind::Token, Some(&parent.id))
            .await?;
        self.view_tokens(actor.tenant(), all.into_iter().map(|(token, _)| token)).await
    }

    /// Lists the tokens of the calling user and of all agents.
    pub async fn all_tokens(&self, actor: Actor) -> Result<Vec<TokenView>> {
        let own_subject = Subject::User(actor.require_user()?).to_string();
        let all = self.context.load_all::<TokenRecord>(actor.tenant(), DocumentKind::Token, None).await?;
        let is_shown = |token: &TokenRecord| token.owner == own_subject || token.owner.starts_with("agent:");
        self.view_tokens(actor.tenant(), all.into_iter().map(|(token, _)| token).filter(is_shown)).await
    }

    /// Revokes an API token. It is rejected from the next request on.
    pub async fn revoke_token(&self, actor: Actor, owner: Subject, id: TokenId) -> Result<()> {
        actor.require_user()?;
        let (token, _) = self.context.require::<TokenRecord>(actor.tenant(), DocumentKind::Token, id).await?;
        if token.owner != owner.to_string() {
            return Err(Error::not_found("token", id));
        }
        let entry = self
            .context
            .entry(actor, "token.revoked")
            .with("token", id.to_string())
            .with("owner", &*token.owner);
        let removed = StoreChange::Delete(DocumentKey::new(DocumentKind::Token, id));
        self.context
            .store
            .commit(actor.tenant(), Batch::new().change(removed).audit(entry).with_event(token_event(&token)))
            .await
    }

    /// Returns the API token of the local user that is valid for this process only. It is not stored and is valid until
    /// the process ends.
    pub fn process_token(&self) -> Secret {
        self.authenticator.process.secret.clone()
    }

    /// Reports whether a token is the one of this process, which the operator on this machine has.
    pub fn is_process_token(&self, token: &Secret) -> bool {
        *token == self.authenticator.process.secret
    }

    /// Verifies an API token and returns its user or agent. The error is the same for every reason.
    pub async fn authenticate(&self, text: &str) -> Result<Actor> {
        let rejected = || unauthenticated(MSG_INVALID_TOKEN);
        let (id, digest) = api_token::parse(text).ok_or_else(rejected)?;
        if id == self.authenticator.process.id {
            let is_match = digest_matches(digest, &self.authenticator.process.digest.to_string());
            return is_match.then(|| Actor::new(LOCAL, Subject::User(LOCAL_USER))).ok_or_else(rejected);
        }
        let token = self.token_snapshot(id).await?.ok_or_else(rejected)?;
        if !digest_matches(digest, &token.record.digest)
            || self.context.platform.now() >= token.record.expires
        {
            return Err(rejected());
        }
        let (tenant, owner) = (token.tenant, token.owner);
        let is_valid = match owner {
            Subject::User(user) => {
                self.context.load::<UserRecord>(tenant, DocumentKind::User, user).await?.is_some()
            }
            Subject::Agent(agent) => {
                self.agent_snapshot(tenant, agent).await?.is_some_and(|snapshot| snapshot.agent.enabled)
            }
            Subject::Hub => false,
        };
        is_valid.then(|| Actor::new(tenant, owner)).ok_or_else(rejected)
    }
}

/// Creates the event for an added or removed token.
fn token_event(token: &TokenRecord) -> NewEvent {
    NewEvent::new("token", json!({ "token": token.id, "owner": token.owner }))
}

/// Compares the digest of an API token with the stored one in constant time.
fn digest_matches(digest: Digest, stored: &str) -> bool {
    Secret::new(digest.to_string()) == Secret::new(stored)
}

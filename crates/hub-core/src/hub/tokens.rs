//! API tokens of agents and users. A token is shown once; the hub stores its digest.

use std::time::Duration;

use jiff::Timestamp;
use linchpin::auth::Secret;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::authenticator::{name, unauthorized};
use super::users::User;
use super::{Hub, LOCAL, LOCAL_USER, document, put};
use crate::actor::{Scope, Subject};
use crate::agent::Agent;
use crate::api_token;
use crate::digest::Digest;
use crate::error::{self, Error, Result};
use crate::events::Told;
use crate::id::{TenantId, TokenId};
use crate::store::{Batch, Change, Key, Kind};

const DAYS: std::ops::RangeInclusive<u32> = 1..=3_650;
const DEFAULT_DAYS: u32 = 90;
const REFUSED: &str = "invalid, expired or revoked token: issue a new one with `linchpin token add`";

/// Stored token.
#[derive(Serialize, Deserialize)]
struct Token {
    id: TokenId,
    owner: String,
    name: String,
    digest: String,
    created: Timestamp,
    expires: Timestamp,
}

/// Token metadata, without the secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TokenView {
    /// Token id.
    #[schemars(with = "String")]
    pub id: TokenId,
    /// Owner: `agent:` or `user:`, and an id.
    pub owner: String,
    /// Name of the owner.
    pub owner_name: Option<String>,
    /// Display name.
    pub name: String,
    /// Time of issue.
    #[schemars(with = "String")]
    pub created: Timestamp,
    /// Time of expiry.
    #[schemars(with = "String")]
    pub expires: Timestamp,
}

impl Token {
    fn view(self, owner_name: Option<String>) -> TokenView {
        let Token { id, owner, name, created, expires, .. } = self;
        TokenView { id, owner, owner_name, name, created, expires }
    }
}

impl Hub {
    /// Issues a token for an agent or for the calling user. The secret is returned only here.
    pub async fn issue_token(
        &self,
        scope: Scope,
        owner: Subject,
        text: &str,
        days: Option<u32>,
    ) -> Result<(Secret, TokenView)> {
        let person = scope.person()?;
        if matches!(owner, Subject::User(user) if user != person) {
            let text = "a token acts as its user: users can issue tokens only for themselves and for agents";
            return Err(Error::new(error::Kind::Denied, "not_yours", text));
        }
        let days = days.unwrap_or(DEFAULT_DAYS);
        if !DAYS.contains(&days) {
            let text = format!("must be an integer from {} to {}", DAYS.start(), DAYS.end());
            return Err(Error::invalid("days", text));
        }
        let name = name(text)?;
        let (parent, version) = self.owner_of_tokens(scope.tenant(), owner).await?;
        let owner_name = self.names(scope.tenant()).of(&owner.to_string()).await?;
        let ((id, secret, digest), created) = (api_token::issue(&*self.world), self.world.now());
        let expires = created + Duration::from_hours(24 * u64::from(days));
        let token =
            Token { id, owner: owner.to_string(), name, digest: digest.to_string(), created, expires };
        let entry = self.entry(scope, "token.issued").with("token", id.to_string());
        let entry = entry.with("owner", &*token.owner).with("name", &*token.name);
        let token_of = document(Kind::Token, id, &token)?.of(&parent.id);
        let needed = match owner {
            // A password change deletes the tokens of the user: one that is issued concurrently must not survive it.
            Subject::User(_) => Change::Same(vec![(parent, version)]),
            Subject::Agent(_) | Subject::Hub => Change::Need(parent),
        };
        let batch = Batch::new().change(needed).change(put(token_of, 0)).audit(entry);
        self.store.commit(scope.tenant(), batch.tell(changed(&token))).await?;
        Ok((secret, token.view(owner_name)))
    }

    async fn view_tokens(
        &self,
        tenant: TenantId,
        tokens: impl Iterator<Item = Token>,
    ) -> Result<Vec<TokenView>> {
        let (mut views, mut names) = (Vec::new(), self.names(tenant));
        for token in tokens {
            let owner_name = names.of(&token.owner).await?;
            views.push(token.view(owner_name));
        }
        Ok(views)
    }

    /// Returns the document key and version of the user or agent that owns tokens.
    async fn owner_of_tokens(&self, tenant: TenantId, owner: Subject) -> Result<(Key, u64)> {
        let key = match owner {
            Subject::User(user) => Key::new(Kind::User, user),
            Subject::Agent(agent) => Key::new(Kind::Agent, agent),
            Subject::Hub => {
                let text = "must be an agent or a user";
                return Err(Error::invalid("owner", text));
            }
        };
        let found = self.store.document(tenant, &key).await?;
        let missing = || Error::not_found(key.kind.name(), &key.id);
        let version = found.ok_or_else(missing)?.version;
        Ok((key, version))
    }

    /// Lists the tokens of an agent or a user.
    pub async fn tokens(&self, scope: Scope, owner: Subject) -> Result<Vec<TokenView>> {
        scope.person()?;
        let (parent, _) = self.owner_of_tokens(scope.tenant(), owner).await?;
        let all = self.all::<Token>(scope.tenant(), Kind::Token, Some(&parent.id)).await?;
        self.view_tokens(scope.tenant(), all.into_iter().map(|(token, _)| token)).await
    }

    /// Lists the tokens of the calling user and of all agents.
    pub async fn all_tokens(&self, scope: Scope) -> Result<Vec<TokenView>> {
        let own = Subject::User(scope.person()?).to_string();
        let all = self.all::<Token>(scope.tenant(), Kind::Token, None).await?;
        let is_shown = |token: &Token| token.owner == own || token.owner.starts_with("agent:");
        self.view_tokens(scope.tenant(), all.into_iter().map(|(token, _)| token).filter(is_shown)).await
    }

    /// Revokes a token. It is rejected from the next request on.
    pub async fn revoke_token(&self, scope: Scope, owner: Subject, id: TokenId) -> Result<()> {
        scope.person()?;
        let (token, _) = self.need::<Token>(scope.tenant(), Kind::Token, id).await?;
        if token.owner != owner.to_string() {
            return Err(Error::not_found("token", id));
        }
        let entry =
            self.entry(scope, "token.revoked").with("token", id.to_string()).with("owner", &*token.owner);
        let gone = Change::Remove(Key::new(Kind::Token, id));
        self.store.commit(scope.tenant(), Batch::new().change(gone).audit(entry).tell(changed(&token))).await
    }

    /// Returns the token of the local user for this process. It is not stored and is valid until the process ends.
    pub fn process_token(&self) -> Secret {
        self.people.process.secret.clone()
    }

    /// Reports whether a token is the one of this process, which the operator on this machine has.
    pub fn is_process_token(&self, token: &Secret) -> bool {
        *token == self.people.process.secret
    }

    /// Authenticates a token. The error is the same for every reason.
    pub async fn authenticate(&self, text: &str) -> Result<Scope> {
        let refused = || unauthorized(REFUSED);
        let (id, digest) = api_token::read(text).ok_or_else(refused)?;
        if id == self.people.process.id {
            let fits = same(digest, &self.people.process.digest.to_string());
            return fits.then(|| Scope::new(LOCAL, Subject::User(LOCAL_USER))).ok_or_else(refused);
        }
        let found = self.store.anywhere(&Key::new(Kind::Token, id)).await?;
        let (tenant, stored) = found.ok_or_else(refused)?;
        let token: Token = stored.document.read()?;
        if !same(digest, &token.digest) || self.world.now() >= token.expires {
            return Err(refused());
        }
        let owner: Subject = token.owner.parse().map_err(|_| refused())?;
        let counts = match owner {
            Subject::User(user) => self.find::<User>(tenant, Kind::User, user).await?.is_some(),
            Subject::Agent(agent) => {
                self.find::<Agent>(tenant, Kind::Agent, agent).await?.is_some_and(|(agent, _)| agent.enabled)
            }
            Subject::Hub => false,
        };
        counts.then(|| Scope::new(tenant, owner)).ok_or_else(refused)
    }
}

/// Event for an added or removed token.
fn changed(token: &Token) -> Told {
    Told::new("token", json!({ "token": token.id, "owner": token.owner }))
}

/// Compares in constant time.
fn same(digest: Digest, kept: &str) -> bool {
    Secret::new(digest.to_string()) == Secret::new(kept)
}

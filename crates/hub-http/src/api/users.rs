//! Users.

use axum::response::Response;
use linchpin::auth::Secret;
use linchpin_hub_core::Error;
use linchpin_hub_core::hub::users::ChangedBy;
use linchpin_hub_core::id::UserId;
use schemars::JsonSchema;

use super::sessions::keeping;
use crate::paging::cut;
use crate::problem::Result;
use crate::request::Asked;
use crate::response::{created, done, json};
use crate::route::API;

/// Request to add a user.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only describes the request body: it is read field by field")]
pub(crate) struct NewUser {
    /// Login name.
    #[schemars(length(min = 1, max = 100))]
    name: String,
}

/// Request to change a password.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only describes the request body: it is read field by field")]
pub(crate) struct NewPassword {
    /// The new password.
    #[schemars(length(min = 8, max = 1_024))]
    password: String,
    /// Current password of the user. Not required from the operator, who uses the process token of the hub, and from a
    /// user without a password who logged in with a login link.
    #[schemars(length(max = 1_024))]
    old_password: Option<String>,
}

pub(crate) async fn list(asked: Asked) -> Result<Response> {
    let users = asked.hub().users(asked.scope()?).await?;
    json(&cut(users, &asked.query.paging(), |user| user.id.to_string()))
}

pub(crate) async fn get(asked: Asked) -> Result<Response> {
    let id: UserId = asked.path("user").parse()?;
    let users = asked.hub().users(asked.scope()?).await?;
    let found = users.into_iter().find(|user| user.id == id);
    json(&found.ok_or_else(|| Error::not_found("user", id))?)
}

pub(crate) async fn add(mut asked: Asked) -> Result<Response> {
    let mut form = asked.form()?;
    let name = form.text("name", 100)?.ok_or_else(|| Error::invalid("name", "must be set"))?;
    form.end()?;
    let user = asked.hub().add_user(asked.scope()?, &name).await?;
    created(&format!("{API}/users/{}", user.id), &user)
}

pub(crate) async fn remove(asked: Asked) -> Result<Response> {
    asked.hub().remove_user(asked.scope()?, asked.path("user").parse()?).await?;
    Ok(done())
}

/// Sets a password. Ends all sessions and tokens of the user; the browser that makes the change gets a new session.
pub(crate) async fn set_password(mut asked: Asked) -> Result<Response> {
    let mut form = asked.form()?;
    let missing = || Error::invalid("password", "must be the new password");
    let password = Secret::new(form.text("password", 1_024)?.ok_or_else(missing)?);
    let old = form.text("old_password", 1_024)?.map(Secret::new);
    form.end()?;
    let (caller, user) = (asked.caller()?, asked.path("user").parse()?);
    let session = caller.cookie().map(|_| &asked.remote);
    let by = if caller.is_operator(&asked.app) {
        ChangedBy::Operator
    } else {
        ChangedBy::User { old: old.as_ref(), session }
    };
    let set = asked.hub().set_password(caller.scope, user, &password, by).await?;
    let answer = json(&set.user)?;
    Ok(match set.session {
        Some(session) => keeping(&asked, answer, Some(&session.cookie)),
        None => answer,
    })
}

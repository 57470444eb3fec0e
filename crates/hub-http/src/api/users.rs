//! People.

use axum::response::Response;
use linchpin::auth::Secret;
use linchpin_hub_core::Error;
use linchpin_hub_core::id::UserId;
use schemars::JsonSchema;

use crate::answer::{created, done, json};
use crate::asked::Asked;
use crate::list::cut;
use crate::problem::Result;
use crate::route::API;

/// Somebody who is to be added.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "it only says what is sent: it is read field by field")]
pub(crate) struct NewUser {
    /// The name that they sign in with.
    #[schemars(length(min = 1, max = 100))]
    name: String,
}

/// Another password.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "it only says what is sent: it is read field by field")]
pub(crate) struct NewPassword {
    /// The password.
    password: String,
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
    let name = form.text("name", 100)?.ok_or_else(|| Error::invalid("name", "a person has a name"))?;
    form.end()?;
    let user = asked.hub().add_user(asked.scope()?, &name).await?;
    created(&format!("{API}/users/{}", user.id), &user)
}

pub(crate) async fn remove(asked: Asked) -> Result<Response> {
    asked.hub().remove_user(asked.scope()?, asked.path("user").parse()?).await?;
    Ok(done())
}

/// Sets a password. What that person has signed in to ends, except for the session that asks.
pub(crate) async fn set_password(mut asked: Asked) -> Result<Response> {
    let mut form = asked.form()?;
    let missing = || Error::invalid("password", "which password?");
    let password = Secret::new(form.text("password", 1_024)?.ok_or_else(missing)?);
    form.end()?;
    let (caller, user) = (asked.caller()?, asked.path("user").parse()?);
    json(&asked.hub().set_password(caller.scope, user, &password, caller.cookie()).await?)
}

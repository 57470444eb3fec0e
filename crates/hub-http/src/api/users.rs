//! REST endpoints of users: list, add, remove and set a password.

use axum::response::Response;
use linchpin::auth::Secret;
use linchpin_hub_core::Error;
use linchpin_hub_core::hub::users::ChangedBy;
use linchpin_hub_core::id::UserId;
use schemars::JsonSchema;

use super::sessions::with_session_cookie;
use crate::paging::page_by_key;
use crate::problem::Result;
use crate::request::ApiRequest;
use crate::response::{created, json, no_content};
use crate::route::API;

/// Request body that adds a user.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only describes the request body: it is read field by field")]
pub(crate) struct NewUser {
    /// Login name.
    #[schemars(length(min = 1, max = 100))]
    name: String,
}

/// Request body that changes a password.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only describes the request body: it is read field by field")]
pub(crate) struct NewPassword {
    /// New password of the user.
    #[schemars(length(min = 8, max = 1_024))]
    password: String,
    /// Current password of the user. Not required from the operator, who uses the process token of the hub, and from a
    /// user without a password who logged in with a login link.
    #[schemars(length(max = 1_024))]
    old_password: Option<String>,
}

pub(crate) async fn list(request: ApiRequest) -> Result<Response> {
    let users = request.hub().identity().users(request.actor()?).await?;
    json(&page_by_key(users, &request.query.paging(), |user| user.id.to_string()))
}

pub(crate) async fn get(request: ApiRequest) -> Result<Response> {
    let id: UserId = request.path("user").parse()?;
    let users = request.hub().identity().users(request.actor()?).await?;
    let found = users.into_iter().find(|user| user.id == id);
    json(&found.ok_or_else(|| Error::not_found("user", id))?)
}

pub(crate) async fn add(mut request: ApiRequest) -> Result<Response> {
    let mut form = request.form_body()?;
    let name = form
        .string("name", 100)?
        .ok_or_else(|| Error::invalid("name", "must be set: the name of the new user"))?;
    form.finish()?;
    let user = request.hub().identity().add_user(request.actor()?, &name).await?;
    created(&format!("{API}/users/{}", user.id), &user)
}

pub(crate) async fn remove(request: ApiRequest) -> Result<Response> {
    request.hub().identity().remove_user(request.actor()?, request.path("user").parse()?).await?;
    Ok(no_content())
}

/// Sets the password of a user. Ends all sessions and tokens of the user; the browser that makes the change gets a new
/// session.
pub(crate) async fn set_password(mut request: ApiRequest) -> Result<Response> {
    let mut form = request.form_body()?;
    let missing = || Error::invalid("password", "must be set: the new password");
    let password = Secret::new(form.string("password", 1_024)?.ok_or_else(missing)?);
    let old_password = form.string("old_password", 1_024)?.map(Secret::new);
    form.finish()?;
    let (caller, user) = (request.caller()?, request.path("user").parse()?);
    let session = caller.session_cookie().map(|_| &request.remote);
    let by = if caller.is_operator(&request.app) {
        ChangedBy::Operator
    } else {
        ChangedBy::User { old_password: old_password.as_ref(), session }
    };
    let set = request.hub().identity().set_password(caller.actor, user, &password, by).await?;
    let response = json(&set.user)?;
    Ok(match set.session {
        Some(session) => with_session_cookie(&request, response, Some(&session.cookie)),
        None => response,
    })
}

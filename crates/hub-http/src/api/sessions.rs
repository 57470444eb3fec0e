//! REST endpoints of the caller's own session: login, logout and login links.

use axum::response::Response;
use http::header::SET_COOKIE;
use http::{HeaderValue, StatusCode};
use jiff::Timestamp;
use linchpin::auth::Secret;
use linchpin_hub_core::hub::LOCAL;
use linchpin_hub_core::hub::sessions::NewSession;
use linchpin_hub_core::hub::users::UserView;
use linchpin_hub_core::{Error, Subject};
use schemars::JsonSchema;
use serde::Serialize;

use crate::authentication::cookie;
use crate::problem::{Problem, Result};
use crate::request::ApiRequest;
use crate::response::{json, json_with_status, no_content};

/// Authenticated caller of the REST API, as shown to itself.
#[derive(Serialize, JsonSchema)]
pub(crate) struct CallerView {
    /// Subject of the caller: `user:ID` or `agent:ID`.
    subject: String,
    /// User, if the caller is a user and not an agent.
    user: Option<UserView>,
    /// Value of the header x-csrf-token, required in requests that change data; null for API tokens.
    csrf_token: Option<String>,
    /// Expiry time of the session, if known.
    #[schemars(with = "Option<String>")]
    expires: Option<Timestamp>,
}

/// Request body of a login: user name and password.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only describes the request body: it is read field by field")]
pub(crate) struct LoginRequest {
    /// Name of the user. Default: `local`.
    #[schemars(length(max = 100))]
    name: Option<String>,
    /// Password of the user.
    #[schemars(length(max = 1_024))]
    password: String,
}

pub(crate) async fn get(request: ApiRequest) -> Result<Response> {
    let caller = request.caller()?;
    let user = match caller.actor.subject() {
        Subject::User(id) => {
            let users = request.hub().identity().users(caller.actor).await?;
            users.into_iter().find(|user| user.id == id)
        }
        _ => None,
    };
    json(&CallerView {
        subject: caller.actor.subject().to_string(),
        user,
        csrf_token: caller.csrf.as_ref().map(|csrf| csrf.expose().to_owned()),
        expires: None,
    })
}

/// Logs in with a name and a password.
pub(crate) async fn log_in_with_password(request: &mut ApiRequest) -> Result<NewSession> {
    let mut form = request.form_body()?;
    let name =
        form.string("name", 100)?.filter(|name| !name.is_empty()).unwrap_or_else(|| "local".to_owned());
    let missing = || Error::invalid("password", "must be set: the password of the user");
    let password = Secret::new(form.string("password", 1_024)?.ok_or_else(missing)?);
    form.finish()?;
    Ok(request.hub().identity().log_in(LOCAL, &name, &password, &request.remote).await?)
}

pub(crate) async fn log_in(mut request: ApiRequest) -> Result<Response> {
    let signed_in = log_in_with_password(&mut request).await?;
    let session = CallerView {
        subject: signed_in.actor.subject().to_string(),
        user: Some(signed_in.user),
        csrf_token: Some(signed_in.csrf.expose().to_owned()),
        expires: Some(signed_in.expires),
    };
    Ok(with_session_cookie(
        &request,
        json_with_status(StatusCode::CREATED, &session)?,
        Some(&signed_in.cookie),
    ))
}

/// Creates a one-time login link for the local user.
pub(crate) async fn create_login_link(request: ApiRequest) -> Result<Response> {
    if !request.caller()?.is_operator(&request.app) {
        let text =
            "only the operator may create a login link: run `linchpin login-link` on the machine of the hub";
        return Err(Problem::new(StatusCode::FORBIDDEN, "operator_needed", text));
    }
    json_with_status(StatusCode::CREATED, &request.hub().identity().create_operator_login_link().await?)
}

/// Adds the cookie of a new session to a response, or removes the cookie.
pub(crate) fn with_session_cookie(
    request: &ApiRequest,
    mut response: Response,
    session: Option<&Secret>,
) -> Response {
    let cookie_header: Option<HeaderValue> = cookie(&request.cookie, session, request.app.is_secure);
    response.headers_mut().extend(cookie_header.map(|cookie| (SET_COOKIE, cookie)));
    response
}

pub(crate) async fn log_out(request: ApiRequest) -> Result<Response> {
    let Some(cookie) = request.caller()?.session_cookie() else {
        let text = "an API token has no session: revoke the token instead";
        return Err(Problem::new(StatusCode::CONFLICT, "no_session", text));
    };
    request.hub().identity().log_out(cookie).await?;
    Ok(with_session_cookie(&request, no_content(), None))
}

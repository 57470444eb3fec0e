//! The session of whoever asks.

use axum::response::Response;
use http::header::SET_COOKIE;
use http::{HeaderValue, StatusCode};
use jiff::Timestamp;
use linchpin::auth::Secret;
use linchpin_hub_core::hub::LOCAL;
use linchpin_hub_core::hub::sessions::SignedIn;
use linchpin_hub_core::hub::users::UserView;
use linchpin_hub_core::{Error, Subject};
use schemars::JsonSchema;
use serde::Serialize;

use crate::answer::{done, json, json_with};
use crate::asked::Asked;
use crate::problem::{Problem, Result};
use crate::session::cookie;

/// Who asks.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Session {
    /// Who acts: `user:` or `agent:`, and an id.
    subject: String,
    /// The person, if it is one.
    user: Option<UserView>,
    /// What pages send in the header x-csrf-token with whatever changes something; tokens need none.
    csrf_token: Option<String>,
    /// When the session ends, where that is known.
    #[schemars(with = "Option<String>")]
    expires: Option<Timestamp>,
}

/// Who wants to sign in.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "it only says what is sent: it is read field by field")]
pub(crate) struct SignIn {
    /// The name of the person; `local` when nothing is said.
    #[schemars(length(max = 100))]
    name: Option<String>,
    /// Their password.
    #[schemars(length(max = 1_024))]
    password: String,
}

pub(crate) async fn get(asked: Asked) -> Result<Response> {
    let caller = asked.caller()?;
    let user = match caller.scope.subject() {
        Subject::User(id) => {
            let users = asked.hub().users(caller.scope).await?;
            users.into_iter().find(|user| user.id == id)
        }
        _ => None,
    };
    json(&Session {
        subject: caller.scope.subject().to_string(),
        user,
        csrf_token: caller.csrf.as_ref().map(|csrf| csrf.expose().to_owned()),
        expires: None,
    })
}

/// Signs in with a name and a password.
pub(crate) async fn with_password(asked: &mut Asked) -> Result<SignedIn> {
    let mut form = asked.form()?;
    let name = form.text("name", 100)?.filter(|name| !name.is_empty()).unwrap_or_else(|| "local".to_owned());
    let missing = || Error::invalid("password", "who signs in gives a password");
    let password = Secret::new(form.text("password", 1_024)?.ok_or_else(missing)?);
    form.end()?;
    Ok(asked.hub().sign_in(LOCAL, &name, &password, &asked.remote).await?)
}

pub(crate) async fn begin(mut asked: Asked) -> Result<Response> {
    let signed_in = with_password(&mut asked).await?;
    let session = Session {
        subject: signed_in.scope.subject().to_string(),
        user: Some(signed_in.user),
        csrf_token: Some(signed_in.csrf.expose().to_owned()),
        expires: Some(signed_in.expires),
    };
    Ok(keeping(&asked, json_with(StatusCode::CREATED, &session)?, Some(&signed_in.cookie)))
}

/// Creates a link that signs the local user in once.
pub(crate) async fn link(asked: Asked) -> Result<Response> {
    if !asked.caller()?.is_operator(&asked.app) {
        let text = "only the operator may create a sign-in link: run `linchpin login-link` on the machine of the hub";
        return Err(Problem::new(StatusCode::FORBIDDEN, "operator_needed", text));
    }
    json_with(StatusCode::CREATED, &asked.hub().login_link().await?)
}

/// With the cookie of a session that has begun, or has ended.
pub(crate) fn keeping(asked: &Asked, mut response: Response, session: Option<&Secret>) -> Response {
    let kept: Option<HeaderValue> = cookie(&asked.cookie, session, asked.app.is_secure);
    response.headers_mut().extend(kept.map(|cookie| (SET_COOKIE, cookie)));
    response
}

pub(crate) async fn end(asked: Asked) -> Result<Response> {
    let Some(cookie) = asked.caller()?.cookie() else {
        let text = "a token has no session that could end: revoke the token";
        return Err(Problem::new(StatusCode::CONFLICT, "no_session", text));
    };
    asked.hub().sign_out(cookie).await?;
    Ok(keeping(&asked, done(), None))
}

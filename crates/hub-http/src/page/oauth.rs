//! Pages at which OAuth sign-ins to servers start and end. A cookie per pending sign-in binds the callback to the
//! browser that started it, so that a callback URL opened in another browser fails.

use axum::response::Response;
use http::header::{COOKIE, LOCATION, SET_COOKIE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use linchpin_hub_core::digest::Digest;
use linchpin_hub_core::hub::oauth::{SignInStatus, SignInView, state_in};

use super::{html_response, login_page, start_page};
use crate::problem::{Problem, Result};
use crate::request::ApiRequest;
use crate::response::see_other;

/// Maximum duration of a pending sign-in, in seconds.
const PENDING_COOKIE_SECONDS: u32 = 600;
/// Maximum pending sign-ins per browser.
const MAX_PENDING_SIGN_INS: usize = 8;

/// Redirects the user who has started a sign-in to the authorization server.
pub(crate) async fn start(request: ApiRequest) -> Result<Response> {
    let Some(caller) = request.caller.as_ref().filter(|caller| caller.session_cookie().is_some()) else {
        return Ok(html_response(
            StatusCode::UNAUTHORIZED,
            login_page(Some("Log in to the hub first, then open the link again.")),
        ));
    };
    let (url, proof) =
        request.hub().upstream().sign_in_redirect(caller.actor, request.path("sign_in")).await?;
    let (mut response, is_secure) = (see_other("/"), request.app.is_secure);
    let name = cookie_name(url.split_once('?').map_or("", |(_, query)| query), is_secure);
    let invalid_url = |_| {
        Problem::bad_request(
            "invalid_authorization_url",
            "the authorization server of this server has no valid authorization URL",
        )
    };
    response.headers_mut().insert(LOCATION, HeaderValue::try_from(url).map_err(invalid_url)?);
    let others: Vec<_> =
        cookies(&request.headers).filter(|(other, _)| is_sign_in_cookie(other) && *other != name).collect();
    for (oldest, _) in others.iter().rev().skip(MAX_PENDING_SIGN_INS - 1) {
        set_cookie(&mut response, oldest, None, is_secure);
    }
    set_cookie(&mut response, &name, Some(&proof), is_secure);
    Ok(response)
}

/// Handles the OAuth callback and shows the result.
pub(crate) async fn callback(request: ApiRequest) -> Result<Response> {
    if request.method != Method::GET {
        return Ok(html_response(StatusCode::OK, String::new()));
    }
    let name = cookie_name(&request.raw_query, request.app.is_secure);
    let proof = cookies(&request.headers).find(|(cookie, _)| *cookie == name).map_or("", |(_, proof)| proof);
    let outcome = request.hub().complete_sign_in(&request.raw_query, proof).await;
    let is_used = outcome.is_ok();
    let (status, heading, text) = match outcome {
        Ok(SignInView { progress: SignInStatus::Failed { error }, .. }) => {
            (StatusCode::BAD_REQUEST, "Sign-in failed", error)
        }
        Ok(SignInView { sync_error, .. }) => {
            let note = sync_error.map(|error| format!(" Failed to sync the tools of the server: {error}"));
            let text = format!("You can close this window.{}", note.unwrap_or_default());
            (StatusCode::OK, "You are signed in", text)
        }
        Err(error) => (StatusCode::BAD_REQUEST, "Sign-in failed", error.message().to_owned()),
    };
    let mut page = start_page();
    page.markup("<header><h1>Linchpin</h1></header><main><h2>").text(heading).markup("</h2><p>");
    page.text(text).markup("</p></main></body></html>");
    let mut response = html_response(status, page.into_string());
    if is_used {
        set_cookie(&mut response, &name, None, request.app.is_secure);
    }
    Ok(response)
}

const COOKIE_PREFIX: &str = "linchpin-away-";

/// Returns the name of the cookie that binds the sign-in with the `state` of the query to the browser.
fn cookie_name(query: &str, is_secure: bool) -> String {
    let digest = Digest::of("linchpin away").part(state_in(query).unwrap_or_default()).finish().to_string();
    format!("{}{COOKIE_PREFIX}{}", if is_secure { "__Host-" } else { "" }, &digest[digest.len() - 16..])
}

fn is_sign_in_cookie(name: &str) -> bool {
    name.strip_prefix("__Host-").unwrap_or(name).starts_with(COOKIE_PREFIX)
}

/// Sets or removes the cookie that binds a sign-in to the browser. `SameSite=Lax`, because the callback is a navigation
/// from another site.
fn set_cookie(response: &mut Response, name: &str, proof: Option<&str>, is_secure: bool) {
    let (value, age, secure) = (
        proof.unwrap_or_default(),
        proof.map_or(0, |_| PENDING_COOKIE_SECONDS),
        if is_secure { "; Secure" } else { "" },
    );
    let text = format!("{name}={value}; Path=/; Max-Age={age}; HttpOnly; SameSite=Lax{secure}");
    response.headers_mut().extend(HeaderValue::try_from(text).ok().map(|cookie| (SET_COOKIE, cookie)));
}

/// Returns all cookies, oldest first, as browsers send them.
fn cookies(headers: &HeaderMap) -> impl Iterator<Item = (&str, &str)> {
    let cookies = headers.get_all(COOKIE).iter().filter_map(|cookies| cookies.to_str().ok());
    cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='))
}

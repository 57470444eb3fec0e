//! Start and callback pages of OAuth sign-ins. A cookie per pending sign-in binds the callback to the browser that
//! started it, so that a callback URL opened in another browser fails.

use axum::response::Response;
use http::header::{COOKIE, LOCATION, SET_COOKIE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use linchpin_hub_core::digest::Digest;
use linchpin_hub_core::hub::oauth::{Progress, SignInView, state_in};

use super::{begin, door, html};
use crate::problem::{Problem, Result};
use crate::request::Asked;
use crate::response::see_other;

/// Maximum duration of a pending sign-in, in seconds.
const AWAY: u32 = 600;
/// Maximum pending sign-ins per browser.
const MOST: usize = 8;

/// Redirects the user who has started a sign-in to the authorization server.
pub(crate) async fn start(asked: Asked) -> Result<Response> {
    let Some(caller) = asked.caller.as_ref().filter(|caller| caller.cookie().is_some()) else {
        return Ok(html(
            StatusCode::UNAUTHORIZED,
            door(Some("Log in to the hub first, then open the link again.")),
        ));
    };
    let (url, proof) = asked.hub().leave_to_sign_in(caller.scope, asked.path("sign_in")).await?;
    let (mut response, is_secure) = (see_other("/"), asked.app.is_secure);
    let name = name(url.split_once('?').map_or("", |(_, query)| query), is_secure);
    let wrong = |_| {
        Problem::malformed(
            "wrong_address",
            "the authorization server of this server has no valid authorization URL",
        )
    };
    response.headers_mut().insert(LOCATION, HeaderValue::try_from(url).map_err(wrong)?);
    let others: Vec<_> = kept(&asked.headers).filter(|(known, _)| is_ours(known) && *known != name).collect();
    for (oldest, _) in others.iter().rev().skip(MOST - 1) {
        keep(&mut response, oldest, None, is_secure);
    }
    keep(&mut response, &name, Some(&proof), is_secure);
    Ok(response)
}

/// Handles the OAuth callback and shows the result.
pub(crate) async fn back(asked: Asked) -> Result<Response> {
    if asked.method != Method::GET {
        return Ok(html(StatusCode::OK, String::new()));
    }
    let name = name(&asked.raw_query, asked.app.is_secure);
    let proof = kept(&asked.headers).find(|(known, _)| *known == name).map_or("", |(_, proof)| proof);
    let back = asked.hub().return_from_sign_in(&asked.raw_query, proof).await;
    let is_used = back.is_ok();
    let (status, heading, text) = match back {
        Ok(SignInView { progress: Progress::Failed { error }, .. }) => {
            (StatusCode::BAD_REQUEST, "Sign-in failed", error)
        }
        Ok(SignInView { sync_error, .. }) => {
            let but = sync_error.map(|error| format!(" Failed to sync the tools of the server: {error}"));
            let text = format!("You can close this window.{}", but.unwrap_or_default());
            (StatusCode::OK, "You are signed in", text)
        }
        Err(error) => (StatusCode::BAD_REQUEST, "Sign-in failed", error.message().to_owned()),
    };
    let mut page = begin();
    page.markup("<header><h1>Linchpin</h1></header><main><h2>").text(heading).markup("</h2><p>");
    page.text(text).markup("</p></main></body></html>");
    let mut response = html(status, page.end());
    if is_used {
        keep(&mut response, &name, None, asked.app.is_secure);
    }
    Ok(response)
}

const PREFIX: &str = "linchpin-away-";

/// Returns the cookie name of the sign-in whose `state` is in the query.
fn name(query: &str, is_secure: bool) -> String {
    let digest = Digest::of("linchpin away").part(state_in(query).unwrap_or_default()).end().to_string();
    format!("{}{PREFIX}{}", if is_secure { "__Host-" } else { "" }, &digest[digest.len() - 16..])
}

fn is_ours(name: &str) -> bool {
    name.strip_prefix("__Host-").unwrap_or(name).starts_with(PREFIX)
}

/// Sets or removes a sign-in cookie. `SameSite=Lax`, because the callback is a navigation from another site.
fn keep(response: &mut Response, name: &str, proof: Option<&str>, is_secure: bool) {
    let (value, age, secure) =
        (proof.unwrap_or_default(), proof.map_or(0, |_| AWAY), if is_secure { "; Secure" } else { "" });
    let text = format!("{name}={value}; Path=/; Max-Age={age}; HttpOnly; SameSite=Lax{secure}");
    response.headers_mut().extend(HeaderValue::try_from(text).ok().map(|cookie| (SET_COOKIE, cookie)));
}

/// Returns all cookies, oldest first, as browsers send them.
fn kept(headers: &HeaderMap) -> impl Iterator<Item = (&str, &str)> {
    let cookies = headers.get_all(COOKIE).iter().filter_map(|cookies| cookies.to_str().ok());
    cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='))
}

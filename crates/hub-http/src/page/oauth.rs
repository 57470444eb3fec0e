//! Where people leave to sign in to a server, and come back to. A cookie that lives as long as they are away tells that it is
//! the same browser: an address that somebody sends to another leads nowhere.

use axum::response::Response;
use http::header::{COOKIE, LOCATION, SET_COOKIE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use linchpin_hub_core::hub::oauth::{Progress, SignInView};

use super::{begin, door, html};
use crate::answer::see_other;
use crate::asked::Asked;
use crate::problem::{Problem, Result};

/// How long somebody may be away, in seconds.
const AWAY: u32 = 600;

/// Leads the person who has begun a sign-in to where it is done.
pub(crate) async fn start(asked: Asked) -> Result<Response> {
    let Some(caller) = asked.caller.as_ref().filter(|caller| caller.cookie().is_some()) else {
        return Ok(html(
            StatusCode::UNAUTHORIZED,
            door(Some("Sign in here first, and open the address again.")),
        ));
    };
    let (url, proof) = asked.hub().leave_to_sign_in(caller.scope, asked.path("sign_in")).await?;
    let mut response = see_other("/");
    let wrong =
        |_| Problem::malformed("wrong_address", "the server's authorization server has no usable address");
    response.headers_mut().insert(LOCATION, HeaderValue::try_from(url).map_err(wrong)?);
    keep(&mut response, Some(&proof), asked.app.is_secure);
    Ok(response)
}

/// Hears the person who comes back.
pub(crate) async fn back(asked: Asked) -> Result<Response> {
    if asked.method != Method::GET {
        return Ok(html(StatusCode::OK, String::new()));
    }
    let proof = kept(&asked.headers, asked.app.is_secure).unwrap_or_default();
    let (status, heading, text) = match asked.hub().return_from_sign_in(&asked.raw_query, proof).await {
        Ok(SignInView { progress: Progress::Failed { error }, .. }) => {
            (StatusCode::BAD_REQUEST, "That did not work", error)
        }
        Ok(SignInView { sync_error, .. }) => {
            let but = sync_error.map(|error| format!(" The server's tools could not be looked at: {error}"));
            let text = format!("You can close this window.{}", but.unwrap_or_default());
            (StatusCode::OK, "You are signed in", text)
        }
        Err(error) => (StatusCode::BAD_REQUEST, "That did not work", error.message().to_owned()),
    };
    let mut page = begin();
    page.markup("<header><h1>Linchpin</h1></header><main><h2>").text(heading).markup("</h2><p>");
    page.text(text).markup("</p></main></body></html>");
    let mut response = html(status, page.end());
    keep(&mut response, None, asked.app.is_secure);
    Ok(response)
}

fn name(is_secure: bool) -> &'static str {
    if is_secure { "__Host-linchpin-away" } else { "linchpin-away" }
}

/// The cookie comes back with somebody whom another site sends here: `Lax`.
fn keep(response: &mut Response, proof: Option<&str>, is_secure: bool) {
    let (value, age, secure) =
        (proof.unwrap_or_default(), proof.map_or(0, |_| AWAY), if is_secure { "; Secure" } else { "" });
    let text = format!("{}={value}; Path=/; Max-Age={age}; HttpOnly; SameSite=Lax{secure}", name(is_secure));
    response.headers_mut().extend(HeaderValue::try_from(text).ok().map(|cookie| (SET_COOKIE, cookie)));
}

fn kept(headers: &HeaderMap, is_secure: bool) -> Option<&str> {
    let cookies = headers.get_all(COOKIE).iter().filter_map(|cookies| cookies.to_str().ok());
    let mut pairs =
        cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(known, _)| *known == name(is_secure)).map(|(_, value)| value)
}

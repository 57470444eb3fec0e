//! User of the test authority with a browser: opens the authorization URL, approves, and is redirected back.

use http::{Request, StatusCode, header::LOCATION};

use super::form;
use crate::egress::{Body, Egress, Target};
use crate::{Error, Result};

/// Redirect with which the test authority sends the user's browser back to the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirect {
    /// Complete URL of the redirect.
    pub url: String,
    /// Query parameters, in order.
    pub parameters: Vec<(String, String)>,
}

impl Redirect {
    /// Returns a parameter of the redirect that occurs exactly once: `code`, `state`, `iss`, `error`.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        form::find(&self.parameters, name)
    }

    /// Requests the redirect target like a browser, and returns the page.
    pub async fn follow(&self) -> Result<String> {
        let (_, _, body) = get(&self.url).await?;
        Ok(body)
    }
}

/// Opens an authorization URL as an approving user. The redirect target is not requested.
pub(super) async fn approve(url: &str) -> Result<Redirect> {
    let (status, location, body) = get(url).await?;
    let Some(url) = location else {
        let text =
            format!("the authorization endpoint returned a page instead of a redirect: {status}: {body}");
        return Err(Error::setup(text));
    };
    let query = url.split_once('?').map_or("", |(_, query)| query);
    Ok(Redirect { parameters: form::decode(query), url })
}

async fn get(url: &str) -> Result<(StatusCode, Option<String>, String)> {
    let target = Target::configured(url)?;
    let response = Egress::builder().build()?.send(Request::new(Body::empty()), &target).await?;
    let status = response.status();
    let location = response.headers().get(LOCATION).and_then(|url| url.to_str().ok()).map(str::to_owned);
    let body = response.into_body().read_to_end(1 << 20).await?;
    Ok((status, location, String::from_utf8_lossy(&body).into_owned()))
}

//! The person with the browser: opens what they are told to, agrees, and is led back.

use http::{Request, StatusCode, header::LOCATION};

use super::form;
use crate::egress::{Body, Egress, Target};
use crate::{Error, Result};

/// Where the browser is led back to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirect {
    /// The whole URL.
    pub url: String,
    /// The parameters of its query, in their order.
    pub parameters: Vec<(String, String)>,
}

impl Redirect {
    /// A parameter that is there once: `code`, `state`, `iss`, `error`.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        form::find(&self.parameters, name)
    }

    /// Goes there, as the browser does, and gives what is shown.
    pub async fn follow(&self) -> Result<String> {
        let (_, _, body) = get(&self.url).await?;
        Ok(body)
    }
}

/// Opens an authorization URL and agrees. Whoever is at the end of the way back is not connected to.
pub(super) async fn approve(url: &str) -> Result<Redirect> {
    let (status, location, body) = get(url).await?;
    let Some(url) = location else {
        let text = format!("the browser shows a page and leads nowhere: {status}: {body}");
        return Err(Error::setup(text));
    };
    let query = url.split_once('?').map_or("", |(_, query)| query);
    Ok(Redirect { parameters: form::decode(query), url })
}

async fn get(url: &str) -> Result<(StatusCode, Option<String>, String)> {
    let target = Target::typed(url)?;
    let response = Egress::builder().build()?.send(Request::new(Body::empty()), &target).await?;
    let status = response.status();
    let location = response.headers().get(LOCATION).and_then(|url| url.to_str().ok()).map(str::to_owned);
    let body = response.into_body().read_to_end(1 << 20).await?;
    Ok((status, location, String::from_utf8_lossy(&body).into_owned()))
}

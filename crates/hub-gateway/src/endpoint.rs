//! HTTP endpoint of the gateway: authenticates a request by its API token, and passes it to the surface of its caller.

use bytes::Buf;
use http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body::Body as HttpBody;
use linchpin::auth::Secret;
use linchpin::server::Body;
use linchpin_hub_core::{Actor, Error, ErrorKind, Subject};
use serde_json::json;

use crate::Gateway;

impl Gateway {
    /// Serves one HTTP request of an MCP client. With `agent`, given by id or name, the client acts as that agent.
    pub async fn handle<B>(&self, mut request: Request<B>, agent: Option<&str>) -> Response<Body>
    where
        B: HttpBody<Data: Buf> + Send,
    {
        let path = request.uri().path().to_owned();
        // The token is for the hub: nothing behind this point needs it.
        let token = take_bearer_token(request.headers_mut());
        let (actor, owner) = match self.authenticate(token, agent).await {
            Ok(authenticated) => authenticated,
            Err(error) => return error_response(&error),
        };
        match self.surface(actor, owner, &path).await {
            Ok(surface) => surface.http().handle(request).await,
            Err(error) => error_response(&error),
        }
    }

    /// Returns the actor of a request, and the owner of its token.
    async fn authenticate(
        &self,
        token: Option<Secret>,
        agent: Option<&str>,
    ) -> Result<(Actor, Subject), Error> {
        let identity = self.hub.identity();
        let token = token.ok_or_else(|| {
            let text = "the gateway requires an API token: send Authorization: Bearer TOKEN; \
                        `linchpin token add` creates one";
            Error::new(ErrorKind::Unauthenticated, "unauthorized", text)
        })?;
        let owner = identity.authenticate(token.expose()).await?;
        let actor = match agent {
            Some(agent) => identity.act_as_agent(owner, agent).await?,
            None => owner,
        };
        Ok((actor, owner.subject()))
    }
}

/// Removes the credentials of a request, and returns its bearer token if it has exactly one.
fn take_bearer_token(headers: &mut HeaderMap) -> Option<Secret> {
    let is_single = headers.get_all(AUTHORIZATION).iter().count() == 1;
    let value = headers.remove(AUTHORIZATION).filter(|_| is_single)?;
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| Secret::new(token.trim()))
}

/// Creates the response to a request that is not served.
fn error_response(error: &Error) -> Response<Body> {
    let status = match error.kind() {
        ErrorKind::Unauthenticated => StatusCode::UNAUTHORIZED,
        ErrorKind::NotFound => StatusCode::NOT_FOUND,
        ErrorKind::PermissionDenied => StatusCode::FORBIDDEN,
        ErrorKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let body = json!({ "jsonrpc": "2.0", "error": { "code": -32_000, "message": error.to_string() } });
    let mut response = Response::new(Body::from(body.to_string().into_bytes()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

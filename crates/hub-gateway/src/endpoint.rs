//! HTTP endpoint of the gateway: authenticates a request by its API token, and passes it to the surface of its caller.

use bytes::Buf;
use http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body::Body as HttpBody;
use linchpin::auth::Secret;
use linchpin::server::Body;
use linchpin_hub_core::tool::names::Slug;
use linchpin_hub_core::{Error, ErrorKind, shorten};
use serde_json::json;

use crate::{Gateway, SurfaceKey};

/// What a client reaches, from the path of its request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GatewayPath {
    /// Everything that the owner of the token may use.
    All,
    /// Everything that an agent may use, given by id or name.
    Agent(String),
    /// One server, given by its slug, under its own names.
    Server(String),
}

impl Gateway {
    /// Serves one HTTP request of an MCP client.
    pub async fn handle<B>(&self, mut request: Request<B>, reached: GatewayPath) -> Response<Body>
    where
        B: HttpBody<Data: Buf> + Send,
    {
        if request.method() == Method::OPTIONS {
            return self.preflight.handle(request).await; // browsers send no token with it
        }
        // The token is for the hub: nothing behind this point needs it.
        let token = take_bearer_token(request.headers_mut());
        let key = match self.authenticate(token, reached).await {
            Ok(key) => key,
            Err(error) => return error_response(&error),
        };
        set_path(request.uri_mut(), &key.path);
        match self.surface(key).await {
            Ok(surface) => surface.http().handle(request).await,
            Err(error) => error_response(&error),
        }
    }

    async fn authenticate(&self, token: Option<Secret>, reached: GatewayPath) -> Result<SurfaceKey, Error> {
        let token = token.ok_or_else(|| {
            let text = "the gateway requires an API token: send Authorization: Bearer TOKEN; \
                        `linchpin token add` creates one";
            Error::new(ErrorKind::Unauthenticated, "unauthorized", text)
        })?;
        let owner = self.hub.identity().authenticate(token.expose()).await?;
        // An agent has one path, whether the client uses its name or its id.
        let (actor, server, path) = match reached {
            GatewayPath::All => (owner, None, "/mcp".to_owned()),
            GatewayPath::Agent(agent) => {
                let (actor, id) = self.hub.identity().act_as_agent(owner, &agent).await?;
                (actor, None, format!("/mcp/agents/{id}"))
            }
            GatewayPath::Server(server) => {
                let slug = Slug::new(&server).map_err(|_| Error::not_found("server", shorten(&server)))?;
                (owner, Some(slug.as_str().to_owned()), format!("/mcp/servers/{}", slug.as_str()))
            }
        };
        Ok(SurfaceKey { actor, owner: owner.subject(), server, path })
    }
}

/// Replaces the path of a URI.
fn set_path(uri: &mut Uri, path: &str) {
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let mut parts = std::mem::take(uri).into_parts();
    parts.path_and_query = format!("{path}{query}").parse().ok();
    *uri = Uri::from_parts(parts).unwrap_or_default();
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

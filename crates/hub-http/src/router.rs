//! Dispatch of a request to its handler: authentication, then query parameters, then the body.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use axum::Router;
use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{RawPathParams, Request, State};
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::{MethodFilter, on};
use http::StatusCode;
use http::request::Parts;
use linchpin_hub_core::object_reader::ObjectReader;
use tokio::sync::Notify;

use crate::app::AppState;
use crate::authentication::{Caller, cookie_name, remote};
use crate::gateway::with_gateway;
use crate::problem::{Problem, Result};
use crate::query::Query;
use crate::request::ApiRequest;
use crate::route::{Access, Route};
use crate::{body, middleware};

/// Parameters in the path of a REST request: name and value.
type Parameters = Vec<(String, String)>;

/// Builds the HTTP router of the hub from the routes.
pub(crate) fn router(app: &Arc<AppState>, all: Vec<Route>) -> Router {
    let all: Vec<_> = all.into_iter().map(Arc::new).collect();
    let mut router = Router::new();
    for route in &all {
        let target = route.clone();
        let handler = move |State(app), path: Result<RawPathParams, RawPathParamsRejection>, request| {
            serve(
                app,
                target.clone(),
                path.as_ref().map(path_parameters).map_err(|_| Problem::not_found()),
                request,
            )
        };
        router = router.route(&route.path, on(method(route), handler));
    }
    for (path, route, parameters) in shadowed_routes(&all) {
        let target = route.clone();
        let handler = move |State(app), request| serve(app, target.clone(), Ok(parameters.clone()), request);
        router = router.route(path, on(method(route), handler));
    }
    with_gateway(router)
        .fallback(|| async { Problem::not_found() })
        .method_not_allowed_fallback(|| async {
            let text =
                "the method is not allowed on this path: /api/v1/openapi.json lists the allowed methods";
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", text)
        })
        .layer(from_fn_with_state(app.clone(), middleware::middleware))
        .with_state(app.clone())
}

fn method(route: &Route) -> MethodFilter {
    MethodFilter::try_from(route.method.clone()).unwrap_or(MethodFilter::GET)
}

fn path_parameters(path: &RawPathParams) -> Parameters {
    path.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Finds routes shadowed by a literal path: a server may be called `test`, and the router prefers the literal path
/// `/servers/test`. Methods that the literal path does not have are added to it.
fn shadowed_routes(all: &[Arc<Route>]) -> impl Iterator<Item = (&str, &Arc<Route>, Parameters)> {
    let words = all.iter().map(|route| &*route.path).filter(|path| !path.contains('{'));
    words.flat_map(move |word| {
        let has_route = move |method| all.iter().any(|route| route.path == word && route.method == method);
        let others = all.iter().filter(move |route| !has_route(&route.method));
        others.filter_map(move |route| Some((word, route, parameters(&route.path, word)?)))
    })
}

/// Returns the path parameters of a URL path, if it matches the pattern of a route.
fn parameters(pattern: &str, path: &str) -> Option<Parameters> {
    if pattern.split('/').count() != path.split('/').count() {
        return None;
    }
    let mut parameters = Vec::new();
    for (pattern, part) in pattern.split('/').zip(path.split('/')) {
        match pattern.strip_prefix('{').and_then(|pattern| pattern.strip_suffix('}')) {
            Some(name) => parameters.push((name.to_owned(), part.to_owned())),
            None if pattern == part => {}
            None => return None,
        }
    }
    (!parameters.is_empty()).then_some(parameters)
}

async fn serve(
    app: Arc<AppState>,
    route: Arc<Route>,
    path: Result<Parameters>,
    request: Request,
) -> Result<Response> {
    let (parts, body) = request.into_parts();
    let caller = match Caller::authenticate(&app, &parts).await {
        // An invalid credential on a public route counts as none.
        found if route.access == Access::Public => found.unwrap_or_default(),
        found => {
            let caller = found?.ok_or_else(Problem::unauthenticated)?;
            if let Access::Requires(permission) = route.access {
                caller.actor.require(permission)?;
            }
            if !parts.method.is_safe() {
                caller.check_csrf(&parts.headers)?;
            }
            Some(caller)
        }
    };
    let raw_query = parts.uri.query().unwrap_or_default().to_owned();
    let query = if route.any_query { Query::default() } else { Query::read(&raw_query, &route.query)? };
    let reading = body::read(&app, &route, &parts, body, caller.as_ref());
    let (mut body, reservation) = read_body_rechecked(&app, caller.as_ref(), reading).await?;
    if route.body.is_none() {
        ObjectReader::new(body.take())?.finish()?;
    }
    let (remote, cookie) = (remote(&app, &parts, caller.as_ref()), cookie_name(app.is_secure, &parts));
    let (handler, Parts { method, headers, .. }) = (route.handler.clone(), parts);
    let body_released = Arc::new(Notify::new());
    let (app, released) = (app.clone(), body_released.clone());
    let path = path?;
    let api_request = ApiRequest {
        app,
        caller,
        remote,
        cookie,
        path,
        query,
        raw_query,
        method,
        headers,
        body,
        received_body: reservation.bytes.clone(),
        body_released,
    };
    let mut handling = handler(api_request);
    tokio::select! {
        response = &mut handling => return response,
        () = released.notified() => drop(reservation),
    }
    handling.await
}

/// Reads the body of a request. If the body does not arrive at once, checks the credential again: it may have been
/// revoked since.
async fn read_body_rechecked<T>(
    app: &AppState,
    caller: Option<&Caller>,
    reading: impl Future<Output = Result<T>>,
) -> Result<T> {
    let mut reading = std::pin::pin!(reading);
    if let Poll::Ready(read) = poll_fn(|cx| Poll::Ready(reading.as_mut().poll(cx))).await {
        return read;
    }
    let read = reading.await?;
    match caller {
        Some(caller) if !caller.is_still_valid(app).await? => Err(Problem::unauthenticated()),
        _ => Ok(read),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_the_name_of_a_word_is_found() {
        let all: Vec<_> = crate::routes::all_routes().into_iter().map(Arc::new).collect();
        let mut found: Vec<_> = shadowed_routes(&all)
            .map(|(word, route, parameters)| format!("{} {word} {parameters:?}", route.method))
            .collect();
        found.sort_unstable();
        let expected = ["DELETE", "GET", "PATCH"]
            .map(|method| format!("{method} /api/v1/servers/test [(\"server\", \"test\")]"));
        assert_eq!(found, expected);
        assert_eq!(parameters("/a/{b}/c", "/a/x/d"), None);
        assert_eq!(parameters("/a/{b}", "/a/x/y"), None);
    }
}

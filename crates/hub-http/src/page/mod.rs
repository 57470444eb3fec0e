//! Status page without scripts: hub status, servers and recent calls for a logged-in user, otherwise the login form.

mod html;
pub(crate) mod oauth;

use axum::response::Response;
use http::header::{CACHE_CONTROL, REFERRER_POLICY, RETRY_AFTER};
use http::{HeaderValue, Method, StatusCode};
use jiff::Timestamp;
use linchpin::auth::Secret;
use linchpin_hub_core::actor::Actor;
use linchpin_hub_core::connection;
use linchpin_hub_core::hub::{CallView, ServerFilter, ServerView};
use linchpin_hub_core::store::{CallFilter, PageRequest};
use serde_json::Value;

use self::html::Html;
use crate::api::sessions::{log_in_with_password, with_session_cookie};
use crate::api::status::{self, HubStatus};
use crate::authentication::require_origin;
use crate::problem::{Problem, Result};
use crate::query::Parameter;
use crate::request::ApiRequest;
use crate::response::{respond_with, see_other};

/// Number of recent calls on the status page.
const MAX_RECENT_CALLS: usize = 20;

pub(crate) const LOGIN_LINK_PARAMETERS: [Parameter; 2] = [
    Parameter::text("token", "One-time login token"),
    Parameter::text("sign_in", "Pending OAuth sign-in to continue after the login"),
];

/// Returns the caller of the request, if it is a user.
fn logged_in_user(request: &ApiRequest) -> Option<Actor> {
    request.caller.as_ref().map(|caller| caller.actor).filter(|actor| actor.require_user().is_ok())
}

/// Responds with the status page, or with the login form if no user is logged in.
pub(crate) async fn home(request: ApiRequest) -> Result<Response> {
    let Some(actor) = logged_in_user(&request) else {
        return Ok(html_response(StatusCode::OK, login_page(None)));
    };
    let status = status::collect(&request).await?;
    let servers = request.hub().registry().servers(actor, &ServerFilter::default()).await?;
    let paging = PageRequest { after: None, limit: MAX_RECENT_CALLS };
    let calls = request.hub().calls().list(actor, CallFilter::default(), &paging).await?.items;
    Ok(html_response(StatusCode::OK, status_page(&status, &servers, &calls, request.app.platform.now())))
}

pub(crate) async fn style(_: ApiRequest) -> Result<Response> {
    let mut response = respond_with(StatusCode::OK, "text/css; charset=utf-8", include_str!("style.css"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("max-age=300"));
    Ok(response)
}

/// Logs in with a login link. If the link is invalid but the browser already has a session, continues to its target.
pub(crate) async fn log_in_with_link(request: ApiRequest) -> Result<Response> {
    let Some(token) = request.query.text("token").filter(|_| request.method == Method::GET) else {
        return Ok(see_other("/"));
    };
    let is_id = |id: &&str| !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let redirect_path = request.query.text("sign_in").filter(is_id).map(|id| format!("/oauth/start/{id}"));
    let redirect = see_other(redirect_path.as_deref().unwrap_or("/"));
    match request.hub().identity().redeem_login_link(&Secret::new(token), &request.remote).await {
        Ok(signed_in) => Ok(with_session_cookie(&request, redirect, Some(&signed_in.cookie))),
        Err(_) if logged_in_user(&request).is_some() => Ok(redirect),
        Err(error) => login_failed(error.into()),
    }
}

/// Logs in with a password.
pub(crate) async fn log_in(mut request: ApiRequest) -> Result<Response> {
    require_origin(&request.headers)?;
    match log_in_with_password(&mut request).await {
        Ok(signed_in) => Ok(with_session_cookie(&request, see_other("/"), Some(&signed_in.cookie))),
        Err(problem) => login_failed(problem),
    }
}

/// Shows the login form again, with the reason why the login failed.
fn login_failed(problem: Problem) -> Result<Response> {
    let status = problem.status();
    let is_internal_error = status.is_server_error() && status != StatusCode::SERVICE_UNAVAILABLE;
    if is_internal_error {
        return Err(problem);
    }
    let mut response = html_response(status, login_page(Some(problem.detail())));
    if let Some(wait) = problem.retry_after() {
        response.headers_mut().insert(RETRY_AFTER, wait.as_secs().into());
    }
    Ok(response)
}

/// Creates an HTML response. With `no-referrer`, browsers would send the form with `Origin: null`, so the referrer
/// policy is `same-origin`.
fn html_response(status: StatusCode, page: String) -> Response {
    let mut response = respond_with(status, "text/html; charset=utf-8", page);
    response.headers_mut().insert(REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    response
}

fn start_page() -> Html {
    let mut html = Html::default();
    html.markup("<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>Linchpin</title>");
    html.markup("<meta name=\"viewport\" content=\"width=device-width\">");
    html.markup("<link rel=\"stylesheet\" href=\"/style.css\"></head><body>");
    html
}

/// Renders the page with the login form.
fn login_page(reason: Option<&str>) -> String {
    let mut html = start_page();
    html.markup("<header><h1>Linchpin</h1></header><main><h2>Log in</h2>");
    if let Some(reason) = reason {
        html.markup("<p class=\"error\" role=\"alert\">").text(reason).markup("</p>");
    }
    html.markup("<p>Open the link that the terminal showed when the hub was started. It works once; ");
    html.markup("<code>linchpin login-link</code> prints a new one.</p>");
    html.markup("<h2>Or use a password</h2><form class=\"card\" method=\"post\" action=\"/sign-in\">");
    html.markup(
        "<label>Name <input name=\"name\" value=\"local\" autocomplete=\"username\" required></label>",
    );
    html.markup("<label>Password <input name=\"password\" type=\"password\" ");
    html.markup("autocomplete=\"current-password\" required></label><button>Log in</button></form></main>");
    html.markup("</body></html>");
    html.into_string()
}

/// Renders the status page.
fn status_page(status: &HubStatus, servers: &[ServerView], calls: &[CallView], now: Timestamp) -> String {
    let mut html = start_page();
    html.markup("<header><h1>Linchpin</h1><span class=\"faint\">").text(status.version);
    html.markup(", running since ").text(format_time(status.started)).markup("</span></header><main>");
    if let Some(problem) = &status.file_problem {
        html.markup("<p class=\"error\" role=\"alert\">Parts of the configuration file are not applied. ");
        html.text(problem).markup("</p>");
    }
    html.markup("<p>");
    html.text(pluralize(status.servers, "server")).markup(", ").text(pluralize(status.tools, "tool"));
    if status.pending_approvals > 0 {
        html.markup(", <strong class=\"pending\">").text(status.pending_approvals);
        html.markup(" waiting for approval</strong>");
    }
    html.markup("</p><h2>Servers</h2>");
    if servers.is_empty() {
        html.markup("<p class=\"faint\">No servers yet. Add one with <code>linchpin server add</code>.</p>");
    } else {
        html.markup("<div class=\"card scroll\"><table><thead><tr><th>Name</th><th>Slug</th><th>Status</th>");
        html.markup("<th class=\"number\">Tools</th></tr></thead><tbody>");
        for server in servers {
            server_row(&mut html, server);
        }
        html.markup("</tbody></table></div>");
    }
    html.markup("<h2>Recent calls</h2>");
    if calls.is_empty() {
        html.markup("<p class=\"faint\">No calls yet. Call a tool with <code>linchpin tool call</code>.</p>");
    } else {
        html.markup(
            "<div class=\"card scroll\"><table><thead><tr><th>Time</th><th>Tool</th><th>Subject</th>",
        );
        html.markup("<th>Status</th><th class=\"number\">Duration</th></tr></thead><tbody>");
        for call in calls {
            call_row(&mut html, call);
        }
        html.markup("</tbody></table></div>");
    }
    html.markup("<p class=\"faint\">As of ").text(format_time(now));
    html.markup(". The API is described in <a href=\"/api/v1/openapi.json\">openapi.json</a>.</p></main>");
    html.markup("</body></html>");
    html.into_string()
}

fn server_row(html: &mut Html, server: &ServerView) {
    html.markup("<tr><td>").text(&server.name).markup("</td><td><code>").text(&server.slug);
    html.markup("</code></td><td>");
    let class = match server.status {
        connection::ConnectionStatus::Connected => "<span class=\"connected\">",
        connection::ConnectionStatus::Connecting => "<span class=\"connecting\">",
        connection::ConnectionStatus::Error => "<span class=\"error\">",
        connection::ConnectionStatus::Disconnected | connection::ConnectionStatus::Disabled => {
            "<span class=\"faint\">"
        }
    };
    html.markup(class).text(status_name(server.status)).markup("</span>");
    if let Some(error) = server.error.as_ref().filter(|_| server.enabled) {
        html.markup("<br><small class=\"faint\">").text(error).markup("</small>");
    }
    html.markup("</td><td class=\"number\">").text(server.tools).markup("</td></tr>");
}

fn call_row(html: &mut Html, call: &CallView) {
    use linchpin_hub_core::store::CallStatus::{Pending, Running, Success};
    let class = match call.status {
        Success => "<span class=\"success\">",
        Pending | Running => "<span class=\"pending\">",
        _ => "<span class=\"error\">",
    };
    html.markup("<tr><td>").text(format_time(call.created)).markup("</td><td><code>");
    html.text(call.name.as_deref().unwrap_or(&call.tool)).markup("</code></td><td>");
    html.text(call.subject_name.as_deref().unwrap_or(&call.subject)).markup("</td><td>");
    html.markup(class).text(call.status.name()).markup("</span>");
    if let Some(error) = &call.error {
        html.markup("<br><small class=\"faint\">").text(error).markup("</small>");
    }
    html.markup("</td><td class=\"number\">");
    if let Some((started, completed)) = call.started.zip(call.completed) {
        html.text(completed.duration_since(started).as_millis()).markup(" ms");
    }
    html.markup("</td></tr>");
}

/// Formats a time for a page as day and time of day in UTC, with seconds.
fn format_time(time: Timestamp) -> String {
    let text = time.to_string();
    let (day, rest) = text.split_once('T').unwrap_or((&text, ""));
    format!("{day} {} UTC", rest.get(..8).unwrap_or_default())
}

fn pluralize(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Returns the name of a connection status, as the API writes it.
fn status_name(status: connection::ConnectionStatus) -> String {
    match serde_json::to_value(status) {
        Ok(Value::String(word)) => word,
        _ => String::new(),
    }
}

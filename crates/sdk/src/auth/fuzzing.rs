//! Entry points to the OAuth flow and its parsers for the fuzz targets, which are separate crates.

use super::challenge::Challenge;
use super::flow::http::FlowResponse;
use super::flow::{Flow, FlowAction, FlowEvent, FlowInput};
use super::oauth::OAuth;
use super::secret::Secret;
use crate::egress::Target;
use crate::jose::{Algorithm, CompactJws, PublicKey};

/// Maximum number of steps of a fuzzed flow, regardless of its input.
const MAX_STEPS: usize = 200;

/// Record of what an authorization flow did with fuzzed responses: URLs used, and whether it ended.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FlowTrace {
    /// URLs that received a POST with secrets.
    pub posted: Vec<String>,
    /// URLs that the user was redirected to.
    pub redirected_to: Vec<String>,
    /// Whether the OAuth flow ended with a token.
    pub has_token: bool,
    /// Whether the OAuth flow exceeded the step limit.
    pub is_endless: bool,
}

/// Runs a flow with `replies` as the responses, each a status and a body; `None` is an unreachable server. The redirect
/// has the requested `state` and the parameters of `redirect`.
pub fn run_flow(
    challenge: &str,
    redirect: &str,
    mut replies: impl FnMut() -> Option<(u16, Vec<u8>)>,
) -> FlowTrace {
    let mut trace = FlowTrace::default();
    let Ok(server) = Target::configured("https://public.example/mcp") else { return trace };
    let profile = OAuth::new("fuzz").client_metadata_url("https://client.example/document").config;
    let start = FlowInput {
        profile,
        server,
        challenge: Challenge::parse([challenge]),
        stored: None,
        can_redirect: true,
    };
    let mut flow = Flow::new(start);
    let (mut action, mut steps) = (flow.next(FlowEvent::Start, 1), 0);
    while let Ok(next) = action {
        steps += 1;
        if steps > MAX_STEPS {
            trace.is_endless = true;
            return trace;
        }
        let event = match next {
            FlowAction::Done(record) => {
                trace.has_token = record.access_token.is_some();
                return trace;
            }
            FlowAction::Send(exchange) => {
                if exchange.method() == "POST" {
                    trace.posted.push(exchange.url().to_owned());
                }
                match replies() {
                    Some((status, body)) => {
                        FlowEvent::Response(FlowResponse { status, body, nonce: Some("n".into()) })
                    }
                    None => FlowEvent::Unreachable(super::AuthError::new(
                        super::AuthErrorKind::Unreachable,
                        "unreachable",
                    )),
                }
            }
            FlowAction::GetRedirectUri => FlowEvent::RedirectUri("http://127.0.0.1:1/callback".into()),
            FlowAction::RedirectUser(url) => {
                let query = url.split_once('?').map_or("", |(_, query)| query);
                let state = super::form_urlencoded::decode(query).find(|(name, _)| name == "state");
                let state = state.map(|(_, state)| state.into_owned()).unwrap_or_default();
                trace.redirected_to.push(url);
                FlowEvent::Redirect(format!("/callback?state={state}&{redirect}"))
            }
            FlowAction::GetAssertion { .. } => FlowEvent::Assertion(Secret::new("assertion")),
        };
        action = flow.next(event, 1);
    }
    trace
}

/// Returns whether a text is a token that is signed by the key in its own header.
pub fn is_signed_by_itself(text: &str) -> bool {
    let Ok(token) = CompactJws::parse(text) else { return false };
    let key = token.header().jwk.as_ref().map(PublicKey::from_jwk);
    key.is_some_and(|key| key.is_ok_and(|key| token.verify(&key, &Algorithm::ALL).is_ok()))
}

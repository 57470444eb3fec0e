//! Entry points to the flow and the parsers for the fuzz targets, which are separate crates.

use super::challenge::Challenge;
use super::flow::http::Reply;
use super::flow::{Action, Event, Flow, Start};
use super::oauth::OAuth;
use super::secret::Secret;
use crate::egress::Target;
use crate::jose::{Algorithm, PublicKey, Token};

/// Upper bound of the steps of a flow, regardless of its input.
const MOST_STEPS: usize = 200;

/// Trace of a flow.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Driven {
    /// URLs that received secrets.
    pub posted: Vec<String>,
    /// URLs that the user was redirected to.
    pub visited: Vec<String>,
    /// Whether the flow ended with a token.
    pub has_token: bool,
    /// Whether the flow exceeded the step limit.
    pub is_endless: bool,
}

/// Runs a flow with `replies` as the responses, each a status and a body; `None` is an unreachable server. The redirect
/// has the requested `state` and the parameters of `redirect`.
pub fn drive(challenge: &str, redirect: &str, mut replies: impl FnMut() -> Option<(u16, Vec<u8>)>) -> Driven {
    let mut driven = Driven::default();
    let Ok(server) = Target::typed("https://public.example/mcp") else { return driven };
    let profile = OAuth::new("fuzz").client_metadata_url("https://client.example/document").profile;
    let start =
        Start { profile, server, challenge: Challenge::read([challenge]), earlier: None, person: true };
    let mut flow = Flow::new(start);
    let (mut action, mut steps) = (flow.next(Event::Begin, 1), 0);
    while let Ok(next) = action {
        steps += 1;
        if steps > MOST_STEPS {
            driven.is_endless = true;
            return driven;
        }
        let event = match next {
            Action::Done(record) => {
                driven.has_token = record.access_token.is_some();
                return driven;
            }
            Action::Send(exchange) => {
                if exchange.method() == "POST" {
                    driven.posted.push(exchange.url().to_owned());
                }
                match replies() {
                    Some((status, body)) => Event::Replied(Reply { status, body, nonce: Some("n".into()) }),
                    None => Event::Unreachable(super::AuthError::new(
                        super::AuthErrorKind::Unreachable,
                        "unreachable",
                    )),
                }
            }
            Action::Prepare => Event::Prepared("http://127.0.0.1:1/callback".into()),
            Action::Visit(url) => {
                let query = url.split_once('?').map_or("", |(_, query)| query);
                let state = super::form_urlencoded::decode(query).find(|(name, _)| name == "state");
                let state = state.map(|(_, state)| state.into_owned()).unwrap_or_default();
                driven.visited.push(url);
                Event::Returned(format!("/callback?state={state}&{redirect}"))
            }
            Action::Assert { .. } => Event::Asserted(Secret::new("assertion")),
        };
        action = flow.next(event, 1);
    }
    driven
}

/// Returns whether a text is a token that is signed by the key in its own header.
pub fn is_signed_by_itself(text: &str) -> bool {
    let Ok(token) = Token::parse(text) else { return false };
    let key = token.header().jwk.as_ref().map(PublicKey::from_jwk);
    key.is_some_and(|key| key.is_ok_and(|key| token.verify(&key, &Algorithm::ALL).is_ok()))
}

//! The steps so far.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use linchpin::Revision;
use linchpin::auth::{AuthErrorKind, AuthStep, Purpose};
use linchpin::egress::{Hop, Phase};
use serde_json::{Value, json};

use super::advice;
use crate::terminal::one_line;

/// One step of a connection.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) name: &'static str,
    pub(crate) ok: bool,
    pub(crate) text: String,
    pub(crate) took: Option<Duration>,
    pub(crate) advice: Option<String>,
    /// Where it went, if it was a step of signing in.
    url: Option<String>,
}

impl Step {
    pub(crate) fn good(name: &'static str, text: impl Into<String>) -> Self {
        Step { name, ok: true, text: text.into(), took: None, advice: None, url: None }
    }

    pub(crate) fn bad(name: &'static str, text: impl Into<String>, advice: Option<String>) -> Self {
        Step { ok: false, advice, ..Self::good(name, text) }
    }

    /// A tool that is listed and cannot be used. The others can, so the step is no failure.
    pub(super) fn left_out(tool: &str, reason: &str) -> Self {
        let text = format!("`{}`: {}", one_line(tool), one_line(reason));
        let advice = "the tool cannot be used until its server lists it correctly".to_owned();
        Step::good("left out", text).advised(Some(advice))
    }

    pub(super) fn advised(self, advice: Option<String>) -> Self {
        Step { advice, ..self }
    }

    pub(crate) fn after(mut self, took: Duration) -> Self {
        self.took = Some(took);
        self
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({
            "step": self.name,
            "ok": self.ok,
            "text": self.text,
            "milliseconds": self.took.map(|took| took.as_secs_f64() * 1_000.0),
            "advice": self.advice,
        })
    }
}

/// What was seen on the way.
pub(crate) struct Trace(Mutex<Seen>);

#[derive(Default)]
struct Seen {
    steps: Vec<Step>,
    /// Steps of the network: only those of the first connection are shown.
    connected: bool,
    diagnostics: Vec<String>,
    /// How signing in failed at last, and how many steps there were before.
    ended: Option<(AuthErrorKind, usize)>,
}

/// The steps of signing in.
pub(super) const METADATA: &str = "metadata";
const AUTHORITY: &str = "authority";
pub(super) const REGISTRATION: &str = "registration";
const SIGN_IN: &str = "sign-in";
const TOKEN: &str = "token";

/// Stands in front of a place that did not help.
const IN_VAIN: &str = "nothing to be used at ";

/// Lines that are kept of what the transport says.
const MAX_LINES: usize = 200;

impl Trace {
    pub(crate) fn new() -> Self {
        Trace(Mutex::default())
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, step: Step) {
        self.seen().steps.push(step);
    }

    pub(crate) fn count(&self) -> usize {
        self.seen().steps.len()
    }

    /// The connection failed; where a step says so already, it gets the advice.
    pub(crate) fn failed(&self, step: &'static str, text: &str, advice: Option<String>) {
        let mut seen = self.seen();
        match seen.steps.last_mut().filter(|last| !last.ok) {
            Some(last) => last.advice = last.advice.take().or(advice),
            None => seen.steps.push(Step::bad(step, text, advice)),
        }
    }

    /// Signing in ended with a failure of this kind. When it began there were so many steps.
    pub(crate) fn ended(&self, kind: AuthErrorKind, begun: usize) {
        self.seen().ended = Some((kind, begun));
    }

    /// It is for this reason that there is no connection. The step that ended it says so, and so do others that looked
    /// for the same in vain.
    pub(crate) fn not_signed_in(&self, reason: &str) {
        let mut seen = self.seen();
        let (kind, begun) = seen.ended.unwrap_or((AuthErrorKind::Setup, usize::MAX));
        let steps = seen.steps.get_mut(begun..).unwrap_or_default();
        let is_named =
            |step: &Step| step.url.as_ref().is_some_and(|url| reason.contains(&format!("`{url}`")));
        let named = steps.iter().position(is_named);
        let last = steps.last().map(|step| step.name);
        let name = named.map(|at| steps[at].name).or(place(kind)).or(last).unwrap_or(SIGN_IN);
        for step in steps.iter_mut().filter(|step| step.name == name) {
            step.ok = false;
            if step.url.as_ref().is_some_and(|url| step.text.starts_with(url)) {
                step.text.insert_str(0, IN_VAIN);
            }
        }
        let at = named.or_else(|| steps.iter().rposition(|step| step.name == name));
        let advice = advice::for_sign_in(kind, at.map(|_| name)).to_owned();
        match at {
            Some(at) => (steps[at].text, steps[at].advice) = (reason.to_owned(), Some(advice)),
            None => seen.steps.push(Step::bad(name, reason, Some(advice))),
        }
    }

    pub(crate) fn steps(&self) -> Vec<Step> {
        self.seen().steps.clone()
    }

    /// A step of the network is over.
    pub(crate) fn hop(&self, hop: &Hop<'_>) {
        let mut seen = self.seen();
        if seen.connected {
            return;
        }
        let name = match hop.phase {
            Phase::Resolve => "DNS",
            Phase::Connect => "TCP",
            Phase::Proxy => "proxy",
            Phase::Tls => "TLS",
            _ => "network",
        };
        let addresses: Vec<_> = hop.addresses.iter().map(ToString::to_string).collect();
        let step = match hop.error {
            Some(error) => Step::bad(name, error.to_string(), None),
            None if hop.phase == Phase::Tls => {
                Step::good(name, format!("the certificate is {}'s", one_line(hop.host)))
            }
            None => Step::good(name, addresses.join(", ")),
        };
        if hop.phase == Phase::Connect && step.ok {
            // One address is enough.
            for other in seen.steps.iter_mut().filter(|other| other.name == name && !other.ok) {
                other.ok = true;
                other.text.push_str(" (another address works)");
            }
        }
        seen.steps.push(step.after(hop.took));
    }

    /// A step of signing in is over.
    pub(crate) fn sign_in(&self, step: &AuthStep<'_>) {
        let name = match step.purpose {
            Some(Purpose::ResourceMetadata) => METADATA,
            Some(Purpose::ServerMetadata) => AUTHORITY,
            Some(Purpose::Registration) => REGISTRATION,
            Some(_) => TOKEN,
            None => SIGN_IN,
        };
        let url = one_line(step.url);
        let text = match (step.status, step.error) {
            (_, Some(error)) => one_line(&error.to_string()),
            (Some(status @ 200..300), _) => format!("{url} ({status})"),
            (Some(status), _) => format!("{IN_VAIN}{url} ({status})"),
            (None, None) => format!("somebody was there and came back from {url}"),
        };
        // There may be other places, or another way: whether it ended here is said in the end.
        self.add(Step { url: Some(url), ..Step::good(name, text).after(step.took) });
    }

    /// The transport says something.
    pub(crate) fn diagnostic(&self, line: &str) {
        let mut seen = self.seen();
        seen.connected = true; // whatever comes now is about a connection that has come about, or failed
        if seen.diagnostics.len() < MAX_LINES {
            seen.diagnostics.push(line.to_owned());
        }
    }

    /// How messages travel, as far as that can be seen.
    pub(crate) fn transport(&self, revision: Revision) -> &'static str {
        let seen = self.seen();
        let says = |text: &str| seen.diagnostics.iter().any(|line| line.contains(text));
        if says("speaks HTTP+SSE") {
            return "HTTP+SSE: the stream of events is the session";
        }
        if revision > Revision::LATEST_SESSION {
            return "none: this revision has no sessions";
        }
        if says("a session was opened") { "the server gave one" } else { "the server gave none" }
    }
}

/// The step that a failure belongs to; `None` is whichever was the last.
fn place(kind: AuthErrorKind) -> Option<&'static str> {
    match kind {
        AuthErrorKind::Metadata | AuthErrorKind::Unreachable => None,
        AuthErrorKind::Registration => Some(REGISTRATION),
        AuthErrorKind::Token | AuthErrorKind::Scope => Some(TOKEN),
        _ => Some(SIGN_IN),
    }
}

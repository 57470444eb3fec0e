//! The steps so far.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use linchpin::Revision;
use linchpin::auth::{AuthStep, Purpose};
use linchpin::egress::{Hop, Phase};
use serde_json::{Value, json};

use crate::terminal::one_line;

/// One step of a connection.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) name: &'static str,
    pub(crate) ok: bool,
    pub(crate) text: String,
    pub(crate) took: Option<Duration>,
    pub(crate) advice: Option<String>,
}

impl Step {
    pub(crate) fn good(name: &'static str, text: impl Into<String>) -> Self {
        Step { name, ok: true, text: text.into(), took: None, advice: None }
    }

    pub(crate) fn bad(name: &'static str, text: impl Into<String>, advice: Option<String>) -> Self {
        Step { ok: false, advice, ..Self::good(name, text) }
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
}

/// What is said of signing in as a whole, and the names of its steps.
pub(super) const SIGN_IN: &str = "sign-in";
const OF_SIGN_IN: [&str; 5] = ["metadata", "authority", "registration", "token", SIGN_IN];

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

    /// The connection failed; where a step says so already, it gets the advice.
    pub(crate) fn failed(&self, step: &'static str, text: &str, advice: Option<String>) {
        let mut seen = self.seen();
        match seen.steps.last_mut().filter(|last| !last.ok && step != SIGN_IN) {
            Some(last) => last.advice = last.advice.take().or(advice),
            None => seen.steps.push(Step::bad(step, text, advice)),
        }
    }

    /// The connection came about: what did not work at first while signing in was made good.
    pub(crate) fn recovered(&self) {
        for step in self.seen().steps.iter_mut().filter(|step| OF_SIGN_IN.contains(&step.name)) {
            step.ok = true;
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
            Some(Purpose::ResourceMetadata) => "metadata",
            Some(Purpose::ServerMetadata) => "authority",
            Some(Purpose::Registration) => "registration",
            Some(_) => "token",
            None => SIGN_IN,
        };
        let url = one_line(step.url);
        let text = match (step.status, step.error) {
            (_, Some(error)) => one_line(&error.to_string()),
            (Some(status @ 200..300), _) => format!("{url} ({status})"),
            (Some(status), _) => format!("nothing to be used at {url} ({status})"),
            (None, None) => format!("somebody was there and came back from {url}"),
        };
        // Where it is looked for metadata there are other places; whether none was left is said in the end.
        let is_search = matches!(step.purpose, Some(Purpose::ResourceMetadata | Purpose::ServerMetadata));
        let good = step.error.is_none() && (is_search || step.status.is_none_or(|status| status < 300));
        let step = Step { ok: good, ..Step::good(name, text).after(step.took) };
        self.add(step);
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

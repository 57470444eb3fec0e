//! Recorder of the diagnosis: connection steps, sign-in steps and transport diagnostics.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use linchpin::Revision;
use linchpin::auth::{AuthErrorKind, AuthStep, Purpose};
use linchpin::egress::{ConnectPhase, ConnectStep};
use serde_json::{Value, json};

use super::advice;
use crate::terminal::one_line;

/// Step of a diagnosis by `linchpin doctor`: its name, result, duration and advice.
#[derive(Debug, Clone)]
pub(crate) struct DoctorStep {
    pub(crate) name: &'static str,
    pub(crate) ok: bool,
    pub(crate) text: String,
    pub(crate) duration: Option<Duration>,
    pub(crate) advice: Option<String>,
    /// URL of the OAuth request or redirect, in sign-in steps.
    url: Option<String>,
}

impl DoctorStep {
    pub(crate) fn passed(name: &'static str, text: impl Into<String>) -> Self {
        DoctorStep { name, ok: true, text: text.into(), duration: None, advice: None, url: None }
    }

    pub(crate) fn failed(name: &'static str, text: impl Into<String>, advice: Option<String>) -> Self {
        DoctorStep { ok: false, advice, ..Self::passed(name, text) }
    }

    /// Creates the step that reports a listed tool that cannot be used. It is not a failure, since other tools can.
    pub(super) fn skipped_tool(tool: &str, reason: &str) -> Self {
        let text = format!("`{}`: {}", one_line(tool), one_line(reason));
        let advice = "the tool cannot be used until its server lists it correctly".to_owned();
        DoctorStep::passed("left out", text).with_advice(Some(advice))
    }

    pub(super) fn with_advice(self, advice: Option<String>) -> Self {
        DoctorStep { advice, ..self }
    }

    pub(crate) fn with_duration(mut self, duration: Duration) -> Self {
        self.duration = Some(duration);
        self
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({
            "step": self.name,
            "ok": self.ok,
            "text": self.text,
            "milliseconds": self.duration.map(|duration| duration.as_secs_f64() * 1_000.0),
            "advice": self.advice,
        })
    }
}

/// Recorder of the steps of a diagnosis by `linchpin doctor`.
pub(crate) struct Trace(Mutex<TraceState>);

#[derive(Default)]
struct TraceState {
    steps: Vec<DoctorStep>,
    /// Whether the first connection was opened or has failed: network steps of later connections are not recorded.
    connected: bool,
    diagnostics: Vec<String>,
    /// Kind of the last sign-in failure, and the number of trace steps before that sign-in.
    sign_in_failure: Option<(AuthErrorKind, usize)>,
}

/// Name of the sign-in step that reads metadata. The next constants name the other sign-in steps.
pub(super) const METADATA: &str = "metadata";
const AUTHORITY: &str = "authority";
pub(super) const REGISTRATION: &str = "registration";
const SIGN_IN: &str = "sign-in";
const TOKEN: &str = "token";

/// Start of the diagnostic about a URL that provided nothing usable.
const NOT_USABLE_AT: &str = "no usable response from ";

/// Maximum number of recorded diagnostic lines of the HTTP transport.
const MAX_LINES: usize = 200;

impl Trace {
    pub(crate) fn new() -> Self {
        Trace(Mutex::default())
    }

    fn state(&self) -> MutexGuard<'_, TraceState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, step: DoctorStep) {
        self.state().steps.push(step);
    }

    pub(crate) fn count(&self) -> usize {
        self.state().steps.len()
    }

    /// Records a connection failure in the diagnosis of `linchpin doctor`. If the last step has already failed, only
    /// adds the advice to it.
    pub(crate) fn record_failure(&self, step: &'static str, text: &str, advice: Option<String>) {
        let mut state = self.state();
        match state.steps.last_mut().filter(|last| !last.ok) {
            Some(last) => last.advice = last.advice.take().or(advice),
            None => state.steps.push(DoctorStep::failed(step, text, advice)),
        }
    }

    /// Records why a sign-in failed, and at which step it started, so that its failed step can be found later.
    pub(crate) fn record_sign_in_failure(&self, kind: AuthErrorKind, first_step: usize) {
        self.state().sign_in_failure = Some((kind, first_step));
    }

    /// Marks the step that made the sign-in fail, with the reason and advice. Other steps of the same name, which tried
    /// alternative URLs, are marked as failed, too.
    pub(crate) fn fail_sign_in_step(&self, reason: &str) {
        let mut state = self.state();
        let (kind, first_step) = state.sign_in_failure.unwrap_or((AuthErrorKind::Setup, usize::MAX));
        let steps = state.steps.get_mut(first_step..).unwrap_or_default();
        let is_named =
            |step: &DoctorStep| step.url.as_ref().is_some_and(|url| reason.contains(&format!("`{url}`")));
        let named = steps.iter().position(is_named);
        let last = steps.last().map(|step| step.name);
        let name = named.map(|at| steps[at].name).or(failing_step(kind)).or(last).unwrap_or(SIGN_IN);
        for step in steps.iter_mut().filter(|step| step.name == name) {
            step.ok = false;
            if step.url.as_ref().is_some_and(|url| step.text.starts_with(url)) {
                step.text.insert_str(0, NOT_USABLE_AT);
            }
        }
        let at = named.or_else(|| steps.iter().rposition(|step| step.name == name));
        let advice = advice::for_sign_in(kind, at.map(|_| name)).to_owned();
        match at {
            Some(at) => (steps[at].text, steps[at].advice) = (reason.to_owned(), Some(advice)),
            None => state.steps.push(DoctorStep::failed(name, reason, Some(advice))),
        }
    }

    pub(crate) fn steps(&self) -> Vec<DoctorStep> {
        self.state().steps.clone()
    }

    /// Records a finished step of opening a connection, such as DNS or TLS.
    pub(crate) fn record_network_step(&self, connect_step: &ConnectStep<'_>) {
        let mut state = self.state();
        if state.connected {
            return;
        }
        let name = match connect_step.phase {
            ConnectPhase::Resolve => "DNS",
            ConnectPhase::Connect => "TCP",
            ConnectPhase::Proxy => "proxy",
            ConnectPhase::Tls => "TLS",
            _ => "network",
        };
        let addresses: Vec<_> = connect_step.addresses.iter().map(ToString::to_string).collect();
        let step = match connect_step.error {
            Some(error) => DoctorStep::failed(name, error.to_string(), None),
            None if connect_step.phase == ConnectPhase::Tls => {
                DoctorStep::passed(name, format!("valid certificate for {}", one_line(connect_step.host)))
            }
            None => DoctorStep::passed(name, addresses.join(", ")),
        };
        if connect_step.phase == ConnectPhase::Connect && step.ok {
            // One working address is enough.
            for other in state.steps.iter_mut().filter(|other| other.name == name && !other.ok) {
                other.ok = true;
                other.text.push_str(" (another address works)");
            }
        }
        state.steps.push(step.with_duration(connect_step.duration));
    }

    /// Records a finished step of a sign-in: an OAuth request, or the redirect of the user.
    pub(crate) fn record_sign_in_step(&self, step: &AuthStep<'_>) {
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
            (Some(status), _) => format!("{NOT_USABLE_AT}{url} ({status})"),
            (None, None) => format!("the user was redirected back from {url}"),
        };
        // Not a failure yet: discovery may try other URLs. `fail_sign_in_step` marks the step that failed the sign-in.
        self.add(DoctorStep {
            url: Some(url),
            ..DoctorStep::passed(name, text).with_duration(step.duration)
        });
    }

    /// Records a diagnostic line of the HTTP transport.
    pub(crate) fn record_diagnostic(&self, line: &str) {
        let mut state = self.state();
        state.connected = true; // diagnostics start only after the first connection was made or has failed
        if state.diagnostics.len() < MAX_LINES {
            state.diagnostics.push(line.to_owned());
        }
    }

    /// Describes how the connection uses sessions, derived from the diagnostics of the transport.
    pub(crate) fn describe_session(&self, revision: Revision) -> &'static str {
        let state = self.state();
        let contains = |text: &str| state.diagnostics.iter().any(|line| line.contains(text));
        if contains("speaks HTTP+SSE") {
            return "none needed: with HTTP+SSE the event stream is the session";
        }
        if revision > Revision::LATEST_SESSION {
            return "none needed: this revision has no sessions";
        }
        if contains("a session was opened") {
            "the server assigned a session id"
        } else {
            "the server assigned no session id"
        }
    }
}

/// Returns the diagnostic step that a kind of sign-in failure belongs to; `None` means the last step.
fn failing_step(kind: AuthErrorKind) -> Option<&'static str> {
    match kind {
        AuthErrorKind::Metadata | AuthErrorKind::Unreachable => None,
        AuthErrorKind::Registration => Some(REGISTRATION),
        AuthErrorKind::Token | AuthErrorKind::Scope => Some(TOKEN),
        _ => Some(SIGN_IN),
    }
}

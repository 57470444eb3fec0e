//! Request state, which travels sealed through the client between two round trips: the call, its binding and its log.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use linchpin_jsonrpc::Params;
use linchpin_protocol::Error as ProtocolError;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::state_keys::StateKeys;
use crate::server::input::mailbox::ReplayLog;

/// Maximum length of a request state that is accepted from a client, in bytes.
const MAX_STATE_BYTES: usize = 256 << 10;
/// Maximum size of a replay log in a request state, in bytes. A larger log is left out.
const MAX_LOG_BYTES: usize = 64 << 10;

/// Request state: what a call needs to continue with the next request, encrypted and passed through the client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RequestState {
    /// Client and request (method, name and arguments) that the state is valid for.
    pub(crate) binding: StateBinding,
    /// Expiry of the request state, in seconds since the Unix epoch.
    pub(crate) expires: u64,
    /// Id of the call, which this server process may still hold.
    pub(crate) call: u128,
    /// Number of the round trip of the call that this state belongs to.
    pub(crate) round: u32,
    /// Tool that the call started, which a layer may have chosen; `None` while only layers have run.
    pub(crate) tool: Option<ResolvedTool>,
    /// Replay log of the call, omitted if it is too large.
    pub(crate) log: Option<ReplayLog>,
}

/// Tool that a call ran before it requested input, as recorded in its request state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ResolvedTool {
    pub(crate) name: String,
    /// Whether the tool may safely run twice.
    pub(crate) repeatable: bool,
}

/// Principal, server and request that a request state is bound to, so that it cannot be used for others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StateBinding {
    pub(crate) principal: Option<String>,
    pub(crate) audience: String,
    /// Digest of the method, the name or URI, and the arguments.
    pub(crate) request: String,
}

impl StateBinding {
    pub(crate) fn new(principal: Option<&str>, audience: &str, method: &str, params: &Params<'_>) -> Self {
        let mut digest = Sha256::new();
        for part in [Some(method), params.find("name"), params.find("uri")] {
            let part = part.unwrap_or_default();
            digest.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_le_bytes());
            digest.update(part);
        }
        // In canonical form, because a client may send the same arguments in another order.
        let arguments = params.find("arguments").unwrap_or("null");
        match serde_json::from_str(arguments) {
            Ok(value) => digest.update(canonical(value).to_string()),
            Err(_) => digest.update(arguments), // for example, a number that is out of range
        }
        StateBinding {
            principal: principal.map(str::to_owned),
            audience: audience.to_owned(),
            request: URL_SAFE_NO_PAD.encode(digest.finalize()),
        }
    }
}

/// Sorts the members of all objects, so that equal arguments have equal digests.
fn canonical(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> = members.into_iter().collect();
            members.sort_by(|a, b| a.0.cmp(&b.0));
            Value::Object(
                members.into_iter().map(|(key, value)| (key, canonical(value))).collect::<Map<_, _>>(),
            )
        }
        Value::Array(items) => Value::Array(items.into_iter().map(canonical).collect()),
        other => other,
    }
}

const PURPOSE: &str = "linchpin request state 2";

impl RequestState {
    /// Encrypts the request state as text that only the keys of this server can open.
    pub(crate) fn seal(mut self, keys: &StateKeys) -> String {
        let size = |log: &ReplayLog| serde_json::to_vec(log).map_or(usize::MAX, |log| log.len());
        self.log = self.log.filter(|log| size(log) <= MAX_LOG_BYTES);
        let plain = serde_json::to_vec(&self).expect("a state consists of strings and numbers");
        URL_SAFE_NO_PAD.encode(keys.seal(&plain, PURPOSE))
    }

    /// Opens a state and checks that it is valid for this request and has not expired.
    pub(crate) fn open(
        text: &str,
        keys: &StateKeys,
        binding: &StateBinding,
        now: Duration,
    ) -> Result<Self, ProtocolError> {
        let refuse = |reason: &str| ProtocolError::invalid("/requestState", reason);
        let unknown =
            || refuse("the requestState was not issued for this request: send the request again without it");
        if text.len() > MAX_STATE_BYTES {
            return Err(unknown());
        }
        let sealed = URL_SAFE_NO_PAD.decode(text).map_err(|_| unknown())?;
        let plain = keys.open(&sealed, PURPOSE).ok_or_else(unknown)?;
        let state: RequestState = serde_json::from_slice(&plain).map_err(|_| unknown())?;
        if state.binding != *binding {
            return Err(unknown());
        }
        if now.as_secs() > state.expires {
            return Err(refuse("the requestState has expired: send the request again without it"));
        }
        Ok(state)
    }
}

#[cfg(test)]
mod tests {
    use linchpin_jsonrpc::Limits;

    use super::*;
    use crate::server::input::rounds::state_keys::StateKey;

    fn binding(principal: &str, method: &str, params: &str) -> StateBinding {
        let params = Params::parse(params, Limits::default()).unwrap();
        StateBinding::new(Some(principal), "demo", method, &params)
    }

    fn state() -> RequestState {
        let params = r#"{"name":"pay","arguments":{"a":1,"b":[{"c":2,"d":3}]}}"#;
        let binding = binding("ada", "tools/call", params);
        RequestState { binding, expires: 100, call: 7, round: 1, tool: None, log: Some(ReplayLog::default()) }
    }

    #[test]
    fn a_state_is_good_for_one_request_of_one_client_for_a_while() {
        let keys = StateKeys::new(StateKey::new(&[1; 32]));
        let text = state().seal(&keys);
        let now = Duration::from_secs(100);
        assert_eq!(RequestState::open(&text, &keys, &state().binding, now), Ok(state()));
        let other_order = r#"{"arguments":{"b":[{"d":3,"c":2}],"a":1},"name":"pay","_meta":{}}"#;
        let same = binding("ada", "tools/call", other_order);
        assert!(RequestState::open(&text, &keys, &same, now).is_ok());
        for other in [
            binding("eve", "tools/call", other_order),
            binding("ada", "prompts/get", other_order),
            binding("ada", "tools/call", r#"{"name":"pay","arguments":{"a":2,"b":[{"c":2,"d":3}]}}"#),
            binding("ada", "tools/call", r#"{"name":"pay","arguments":{"a":1e999}}"#),
            binding("ada", "tools/call", r#"{"name":"pax","arguments":{"a":1,"b":[{"c":2,"d":3}]}}"#),
            StateBinding { audience: "other".into(), ..state().binding },
            StateBinding { principal: None, ..state().binding },
        ] {
            assert!(RequestState::open(&text, &keys, &other, now).is_err(), "{other:?}");
        }
        let late = RequestState::open(&text, &keys, &state().binding, Duration::from_secs(101)).unwrap_err();
        assert!(late.to_string().contains("the requestState has expired"), "{late}");
        assert!(RequestState::open(&text, &StateKeys::random(), &state().binding, now).is_err());
    }

    #[test]
    fn arguments_that_have_no_place_in_memory_are_told_apart() {
        let with =
            |number: &str| binding("ada", "tools/call", &format!(r#"{{"arguments":{{"a":{number}}}}}"#));
        assert_ne!(with("1e999"), with("1e998"));
        assert_eq!(with("1e999"), with("1e999"));
    }

    #[test]
    fn every_flipped_byte_is_refused() {
        let keys = StateKeys::random();
        for _ in 0..10 {
            let text = state().seal(&keys);
            for at in 0..text.len() {
                for flip in [1, 2, 4, 32] {
                    let mut bytes = text.clone().into_bytes();
                    bytes[at] ^= flip;
                    let Ok(changed) = String::from_utf8(bytes) else { continue };
                    let opened = RequestState::open(&changed, &keys, &state().binding, Duration::ZERO);
                    assert!(opened.is_err(), "byte {at} of {changed}");
                }
            }
        }
    }

    #[test]
    fn a_log_that_is_too_large_stays_here() {
        let mut large = state();
        let responses = [("q1".to_owned(), "x".repeat(MAX_LOG_BYTES))].into();
        large.log = Some(ReplayLog { responses, ..ReplayLog::default() });
        let keys = StateKeys::random();
        let text = large.clone().seal(&keys);
        assert_eq!(RequestState::open(&text, &keys, &large.binding, Duration::ZERO).unwrap().log, None);
    }
}

//! Approval rules: approvals of a user that cover later calls of an agent. A rule is bound to agent, server, tool and
//! the pin of the tool definition, and is limited to a session, a time, or conditions on the arguments.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::id::{AgentId, ApprovalId, ApprovalRuleId, ServerId};
use crate::object_reader::ObjectReader;

/// Maximum length of the session id of a call, in characters.
pub const MAX_SESSION_LEN: usize = 256;
/// Minimum and maximum validity of a rule, in minutes.
pub const RULE_MINUTES: std::ops::RangeInclusive<u64> = 1..=10_080;
/// Maximum number of conditions of a rule.
const MAX_CONDITIONS: usize = 8;
/// Maximum length of a JSON Pointer, in bytes.
const MAX_POINTER_LEN: usize = 1_000;
/// Maximum number of values in a list of accepted values.
const MAX_VALUES: usize = 100;
/// Maximum size of all conditions of a rule as JSON, in bytes: every call that requires approval evaluates them.
const MAX_CONDITION_BYTES: usize = 16 << 10;

/// Condition on the arguments of a call: the value at a JSON Pointer, and what it must be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ArgumentCondition {
    /// JSON Pointer to a value in the arguments, such as `/path`. The empty pointer is the complete arguments.
    #[schemars(length(max = 1_000))]
    pub pointer: String,
    /// What the value must be.
    #[serde(flatten)]
    pub test: ValueTest,
}

/// Test of a value in the arguments of a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ValueTest {
    /// The value is equal to this one. Numbers of different types, such as 1 and 1.0, differ.
    Equals(Value),
    /// The value is a string that starts with this text. Only characters are compared: `/data/` is also a prefix of
    /// `/data/../etc`.
    Prefix(#[schemars(length(min = 1))] String),
    /// The value is equal to one of these values.
    In(#[schemars(length(min = 1, max = 100))] Vec<Value>),
}

impl ArgumentCondition {
    /// Returns whether the condition holds for the arguments of a call. It does not if the value is missing.
    pub fn holds(&self, arguments: &Value) -> bool {
        let Some(value) = arguments.pointer(&self.pointer) else { return false };
        match &self.test {
            ValueTest::Equals(expected) => value == expected,
            ValueTest::Prefix(prefix) => value.as_str().is_some_and(|text| text.starts_with(prefix)),
            ValueTest::In(accepted) => accepted.contains(value),
        }
    }

    fn read(value: Value) -> Result<Self, &'static str> {
        const MEMBERS: &str = "must have `pointer` and one of `equals`, `prefix` and `in`, and nothing else";
        let Value::Object(mut members) = value else { return Err("must be an object") };
        let Some(Value::String(pointer)) = members.remove("pointer") else { return Err(MEMBERS) };
        if pointer.len() > MAX_POINTER_LEN || !is_pointer(&pointer) {
            return Err("`pointer` must be a JSON Pointer of at most 1000 bytes, such as `/path`");
        }
        let mut members: Map<String, Value> = members;
        let test = match (members.remove("equals"), members.remove("prefix"), members.remove("in")) {
            (Some(value), None, None) => ValueTest::Equals(value),
            (None, Some(Value::String(prefix)), None) if !prefix.is_empty() => ValueTest::Prefix(prefix),
            (None, Some(_), None) => return Err("`prefix` must be a string of at least one character"),
            (None, None, Some(Value::Array(values))) if (1..=MAX_VALUES).contains(&values.len()) => {
                ValueTest::In(values)
            }
            (None, None, Some(_)) => return Err("`in` must be a list of 1 to 100 values"),
            _ => return Err(MEMBERS),
        };
        if members.is_empty() { Ok(ArgumentCondition { pointer, test }) } else { Err(MEMBERS) }
    }
}

/// Returns whether a text is a JSON Pointer (RFC 6901).
fn is_pointer(text: &str) -> bool {
    let is_escaped = |rest: &str| rest.starts_with('0') || rest.starts_with('1');
    (text.is_empty() || text.starts_with('/')) && text.split('~').skip(1).all(is_escaped)
}

/// Limits of an approval rule that a user creates. A rule has at least one of them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RuleScope {
    /// Validity in minutes.
    pub minutes: Option<u64>,
    /// Conditions on the arguments, all of which must hold.
    pub conditions: Vec<ArgumentCondition>,
}

impl RuleScope {
    /// Takes the validity and the conditions of a rule from a request body.
    pub fn read(form: &mut ObjectReader) -> Result<Self> {
        let minutes = form.number("minutes", RULE_MINUTES)?;
        let conditions = match form.value("conditions") {
            None => Vec::new(),
            Some(Value::Array(items)) if items.len() <= MAX_CONDITIONS => {
                let read = |(index, item)| {
                    ArgumentCondition::read(item)
                        .map_err(|text| form.error(&format!("conditions[{index}]"), text))
                };
                items.into_iter().enumerate().map(read).collect::<Result<Vec<_>>>()?
            }
            Some(_) => {
                return Err(
                    form.error("conditions", format!("must be a list of at most {MAX_CONDITIONS} objects"))
                );
            }
        };
        let size = serde_json::to_string(&conditions).map_or(usize::MAX, |text| text.len());
        if size > MAX_CONDITION_BYTES {
            let text = format!("must have at most {MAX_CONDITION_BYTES} bytes as JSON");
            return Err(form.error("conditions", text));
        }
        Ok(RuleScope { minutes, conditions })
    }
}

/// Approval rule, as stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ApprovalRule {
    /// Id of the rule.
    pub id: ApprovalRuleId,
    /// Agent whose calls the rule approves.
    pub agent: AgentId,
    /// Server that has the tool.
    pub server: ServerId,
    /// Upstream name of the tool.
    pub tool: String,
    /// Pin of the tool definition that the user has approved.
    pub pin: Digest,
    /// Session of the caller to which the rule is limited.
    pub session: Option<String>,
    /// Conditions on the arguments, all of which must hold.
    pub conditions: Vec<ArgumentCondition>,
    /// Time at which the rule expires.
    pub expires: Option<Timestamp>,
    /// Approval with which the rule was created.
    pub approval: Option<ApprovalId>,
    /// User who created the rule: `user:ID`.
    pub created_by: String,
    /// Time at which the rule was created.
    pub created: Timestamp,
}

/// Call that requires approval, as far as an approval rule decides on it.
#[derive(Debug, Clone, Copy)]
pub struct RuleRequest<'a> {
    /// Server that has the tool.
    pub server: ServerId,
    /// Upstream name of the tool.
    pub tool: &'a str,
    /// Pin of the current definition of the tool.
    pub pin: Digest,
    /// Session of the caller.
    pub session: Option<&'a str>,
    /// Arguments of the call.
    pub arguments: &'a Value,
}

impl ApprovalRule {
    /// Returns whether the rule approves a call at this time.
    pub fn approves(&self, call: &RuleRequest<'_>, now: Timestamp) -> bool {
        self.server == call.server
            && self.tool == call.tool
            && self.pin == call.pin
            && !self.is_expired(now)
            && self.session.as_deref().is_none_or(|session| call.session == Some(session))
            && self.conditions.iter().all(|condition| condition.holds(call.arguments))
    }

    /// Returns whether the rule has expired.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }
}

/// Checks the session id of a call: one line of visible characters.
pub(crate) fn check_session(session: &str) -> Result<()> {
    if session.is_empty() || session.chars().count() > MAX_SESSION_LEN {
        return Err(Error::invalid("session", format!("must have 1 to {MAX_SESSION_LEN} characters")));
    }
    crate::text::check_visible_line("session", session)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(value: Value) -> Result<RuleScope> {
        RuleScope::read(&mut ObjectReader::new(value).unwrap())
    }

    fn rule(scope: Value) -> ApprovalRule {
        let scope = read(scope).unwrap();
        ApprovalRule {
            id: ApprovalRuleId::from_u128(1),
            agent: AgentId::from_u128(1),
            server: ServerId::from_u128(1),
            tool: "read".into(),
            pin: Digest::of("pin").finish(),
            session: None,
            conditions: scope.conditions,
            expires: None,
            approval: None,
            created_by: "user:1".into(),
            created: Timestamp::UNIX_EPOCH,
        }
    }

    #[test]
    fn conditions_compare_the_value_at_a_pointer() {
        let arguments = json!({"path": "/data/a", "n": 1, "list": [{"a/b": null}], "none": null});
        for (condition, holds) in [
            (json!({"pointer": "/path", "equals": "/data/a"}), true),
            (json!({"pointer": "/path", "equals": "/data"}), false),
            (json!({"pointer": "/n", "equals": 1}), true),
            (json!({"pointer": "/n", "equals": 1.0}), false),
            (json!({"pointer": "/n", "equals": "1"}), false),
            (json!({"pointer": "/none", "equals": null}), true),
            (json!({"pointer": "/missing", "equals": null}), false),
            (json!({"pointer": "", "equals": arguments}), true),
            (json!({"pointer": "/list/0/a~1b", "equals": null}), true),
            (json!({"pointer": "/path", "prefix": "/data/"}), true),
            (json!({"pointer": "/path", "prefix": "/other/"}), false),
            (json!({"pointer": "/n", "prefix": "1"}), false),
            (json!({"pointer": "/n", "in": [0, 1]}), true),
            (json!({"pointer": "/n", "in": ["1"]}), false),
        ] {
            let read = ArgumentCondition::read(condition.clone()).unwrap();
            assert_eq!(read.holds(&arguments), holds, "{condition}");
            assert_eq!(serde_json::to_value(&read).unwrap(), condition);
            assert_eq!(serde_json::from_value::<ArgumentCondition>(condition).unwrap(), read);
        }
    }

    #[test]
    fn invalid_conditions_are_rejected_by_their_position() {
        for condition in [
            json!("x"),
            json!({}),
            json!({"pointer": "/a"}),
            json!({"pointer": 1, "equals": 1}),
            json!({"pointer": "a", "equals": 1}),
            json!({"pointer": "/a~2", "equals": 1}),
            json!({"pointer": "/a~", "equals": 1}),
            json!({"pointer": "/".repeat(1_001), "equals": 1}),
            json!({"pointer": "/a", "equals": 1, "prefix": "a"}),
            json!({"pointer": "/a", "equals": 1, "other": "a"}),
            json!({"pointer": "/a", "prefix": ""}),
            json!({"pointer": "/a", "prefix": 1}),
            json!({"pointer": "/a", "in": []}),
            json!({"pointer": "/a", "in": "a"}),
            json!({"pointer": "/a", "in": vec![1; 101]}),
        ] {
            let good = json!({"pointer": "/a", "equals": 1});
            let error = read(json!({"conditions": [good, condition]})).unwrap_err();
            assert_eq!(error.field(), Some("conditions[1]"), "{condition}");
        }
        let nine = vec![json!({"pointer": "/a", "equals": 1}); 9];
        let large = json!([{"pointer": "/a", "equals": "x".repeat(16 << 10)}]);
        for conditions in [json!(nine), json!({}), json!("x"), large] {
            assert_eq!(read(json!({"conditions": conditions})).unwrap_err().field(), Some("conditions"));
        }
        for minutes in [json!(0), json!(10_081), json!("1"), json!(1.5)] {
            assert_eq!(read(json!({"minutes": minutes})).unwrap_err().field(), Some("minutes"));
        }
    }

    #[test]
    fn a_rule_approves_only_the_call_it_is_bound_to() {
        let (pin, now) = (Digest::of("pin").finish(), Timestamp::UNIX_EPOCH);
        let arguments = json!({"path": "/data/a"});
        let call = RuleRequest {
            server: ServerId::from_u128(1),
            tool: "read",
            pin,
            session: Some("s"),
            arguments: &arguments,
        };
        let plain = rule(json!({"conditions": [
            {"pointer": "/path", "prefix": "/data/"},
            {"pointer": "/path", "in": ["/data/a", "/data/b"]},
        ]}));
        assert!(plain.approves(&call, now));
        let (other_path, other_pin) = (json!({"path": "/data/c"}), Digest::of("other").finish());
        for other in [
            RuleRequest { server: ServerId::from_u128(2), ..call },
            RuleRequest { tool: "write", ..call },
            RuleRequest { pin: other_pin, ..call },
            RuleRequest { arguments: &other_path, ..call },
        ] {
            assert!(!plain.approves(&other, now), "{other:?}");
        }
        let in_session = ApprovalRule { session: Some("s".into()), ..plain.clone() };
        assert!(in_session.approves(&call, now));
        for session in [None, Some("t")] {
            assert!(!in_session.approves(&RuleRequest { session, ..call }, now));
        }
        let expires = "1970-01-01T00:01:00Z".parse().unwrap();
        let timed = ApprovalRule { expires: Some(expires), ..plain };
        assert!(timed.approves(&call, "1970-01-01T00:00:59Z".parse().unwrap()));
        assert!(!timed.approves(&call, expires));
    }

    #[test]
    fn session_ids_are_one_visible_line() {
        assert!(check_session("a b-ü").is_ok());
        for session in ["", "a\nb", "a\u{202E}b", &"x".repeat(257)] {
            assert_eq!(check_session(session).unwrap_err().field(), Some("session"), "{session}");
        }
    }
}

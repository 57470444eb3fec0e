//! Arguments of a call: the JSON text that was received, which is stored and sent unchanged, and its parsed value.

use serde_json::Value;
use serde_json::value::RawValue;

/// Arguments of a call. The received text is stored and sent; the value is read by the policy and the validation.
#[derive(Debug, Clone)]
pub struct CallArguments {
    text: Box<RawValue>,
    value: Value,
}

impl CallArguments {
    /// Creates arguments from their received text and the value that was parsed from it. The text must not contain a
    /// member twice: the server could read another one than the policy.
    pub fn from_received(text: &RawValue, value: Value) -> Self {
        CallArguments { text: text.to_owned(), value }
    }

    /// Returns the parsed arguments.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// Returns the JSON text of the arguments.
    pub fn text(&self) -> &RawValue {
        &self.text
    }

    /// Returns the parsed arguments.
    pub fn into_value(self) -> Value {
        self.value
    }
}

impl From<Value> for CallArguments {
    fn from(value: Value) -> Self {
        let text = serde_json::value::to_raw_value(&value).expect("a JSON value has a JSON text");
        CallArguments { text, value }
    }
}

/// Arguments are equal if their values are: white space does not count.
impl PartialEq for CallArguments {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn received_arguments_retain_their_text() {
        let text = r#"{"b": 1.50, "a" :"\u00e4"}"#;
        let raw: &RawValue = serde_json::from_str(text).unwrap();
        let received = CallArguments::from_received(raw, serde_json::from_str(text).unwrap());
        assert_eq!(received.text().get(), text);
        assert_eq!(*received.value(), json!({ "a": "ä", "b": 1.5 }));
        assert_eq!(received, CallArguments::from(json!({ "a": "ä", "b": 1.5 })));
        assert_eq!(CallArguments::from(json!({ "a": 1 })).text().get(), r#"{"a":1}"#);
    }
}

//! Decoding of JSON text into protocol types; errors name the location and reason.

use linchpin_jsonrpc::{DecodeError, from_checked, path_at};
use serde::de::DeserializeOwned;

/// Location in a JSON text, and the reason why its value cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidValue {
    /// JSON pointer to the invalid value.
    pub path: String,
    /// Description of the error.
    pub reason: String,
}

/// Decodes JSON text into a value of the protocol. The scanner must have accepted it.
pub fn decode<T: DeserializeOwned>(text: &str) -> Result<T, InvalidValue> {
    from_checked(text).map_err(|error| locate_error(text, error))
}

#[cold]
fn locate_error(text: &str, error: DecodeError) -> InvalidValue {
    InvalidValue { path: error.at.map(|at| path_at(text, at)).unwrap_or_default(), reason: error.reason }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    struct Order {
        #[expect(dead_code, reason = "only decoded")]
        items: Vec<Item>,
    }

    #[derive(Debug, Deserialize)]
    struct Item {
        #[expect(dead_code, reason = "only decoded")]
        count: u8,
    }

    #[test]
    fn the_place_and_the_reason_are_named() {
        let fault = |text: &str| decode::<Order>(text).map(|_| ()).unwrap_err();
        let error = fault(r#"{"items": [{"count": 1}, {"count": "two"}]}"#);
        assert_eq!(
            (&*error.path, &*error.reason),
            ("/items/1/count", "invalid type: string \"two\", expected u8")
        );
        let missing = fault("{\"items\": [\n {}\n]}");
        assert_eq!((&*missing.path, &*missing.reason), ("/items/0", "missing field `count`"));
        let large = fault(r#"{"items":[{"count":300}]}"#);
        assert_eq!(
            (&*large.path, &*large.reason),
            ("/items/0/count", "invalid value: integer `300`, expected u8")
        );
        assert_eq!(fault("[]").path, "");
    }
}

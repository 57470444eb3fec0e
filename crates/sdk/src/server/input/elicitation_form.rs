//! Schemas of elicitation forms, derived from Rust types.

use linchpin_protocol::model::ElicitSchema;
use serde_json::{Map, Value, json};

use crate::server::definitions::args::Args;
use crate::server::definitions::derived_schema;
use crate::{Error, Result};

/// Schema keywords that a form field may have.
const FIELD_KEYWORDS: [&str; 14] = [
    "type",
    "title",
    "description",
    "minLength",
    "maxLength",
    "format",
    "minimum",
    "maximum",
    "enum",
    "oneOf",
    "items",
    "minItems",
    "maxItems",
    "default",
];
/// Words in field names that suggest a secret, which must not be elicited in a form: clients and logs see it.
const SECRET_WORDS: [&str; 9] = [
    "password",
    "passwd",
    "passphrase",
    "clientsecret",
    "secretkey",
    "apikey",
    "accesstoken",
    "privatekey",
    "creditcard",
];

/// Returns the elicitation form for a value of this Rust type.
pub(crate) fn form_of<T: Args>() -> Result<ElicitSchema> {
    let mut schema = derived_schema::input_schema::<T>().schema;
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut).map(std::mem::take);
    let properties = properties.unwrap_or_default();
    let fields: Result<Map<String, Value>> = properties
        .into_iter()
        .map(|(name, property)| {
            let field = field(&name, property)?;
            Ok((name, field))
        })
        .collect();
    let required = schema
        .get("required")
        .and_then(Value::as_array)
        .map(|names| names.iter().filter_map(Value::as_str).map(str::to_owned).collect());
    Ok(ElicitSchema { schema: None, kind: "object".into(), properties: fields?, required })
}

fn field(name: &str, property: Value) -> Result<Value> {
    let plain: String = name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
    if SECRET_WORDS.iter().any(|secret| plain.contains(secret)) {
        return Err(Error::setup(format!(
            "a form must not request a secret such as `{name}`: send the user to a page with cx.elicit_url"
        )));
    }
    let Value::Object(mut members) = property else { return Err(unsupported_field(name)) };
    set_choice_titles(&mut members, "oneOf");
    let items = members.get_mut("items").and_then(Value::as_object_mut);
    if let Some(items) = items {
        set_choice_titles(items, "oneOf");
        if let Some(choices) = items.remove("oneOf") {
            items.remove("type");
            items.insert("anyOf".into(), choices);
        }
    }
    let choice = |members: &Map<String, Value>| members.contains_key("enum") || members.contains_key("anyOf");
    let flat = match members.get("type").and_then(Value::as_str) {
        Some("string" | "number" | "integer" | "boolean") => true,
        Some("array") => members.get("items").and_then(Value::as_object).is_some_and(choice),
        None if members.contains_key("oneOf") => {
            members.insert("type".into(), "string".into());
            true
        }
        _ => false,
    };
    members.retain(|key, _| FIELD_KEYWORDS.contains(&&**key));
    if flat { Ok(Value::Object(members)) } else { Err(unsupported_field(name)) }
}

/// Turns choices with a description, as derived from types, into choices with a title.
fn set_choice_titles(members: &mut Map<String, Value>, key: &str) {
    let Some(Value::Array(choices)) = members.get_mut(key) else { return };
    for choice in choices {
        let value = choice.get("const").cloned().unwrap_or_default();
        let title = choice.get("title").or_else(|| choice.get("description")).unwrap_or(&value).clone();
        *choice = json!({ "const": value, "title": title });
    }
}

fn unsupported_field(name: &str) -> Error {
    Error::setup(format!(
        "the field `{name}` cannot be in a form: use strings, numbers, booleans and choices"
    ))
}

#[cfg(test)]
mod tests {
    use schemars::JsonSchema;
    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    struct Order {
        /// Who gets it
        #[schemars(length(min = 1))]
        name: String,
        count: u8,
        gift: Option<bool>,
        size: Size,
        extras: Vec<Size>,
    }

    #[derive(Deserialize, JsonSchema)]
    enum Size {
        /// not large
        Small,
        /// not small
        Large,
    }

    #[derive(Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    struct Nested {
        order: Order,
    }

    #[derive(Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    struct Login {
        user_password: String,
    }

    impl Args for Order {}
    impl Args for Nested {}
    impl Args for Login {}

    #[test]
    fn a_flat_struct_is_a_form() {
        let form = form_of::<Order>().unwrap();
        assert_eq!(
            form.properties["name"],
            json!({ "type": "string", "description": "Who gets it", "minLength": 1 })
        );
        assert_eq!(form.properties["count"]["type"], "integer");
        assert_eq!(form.properties["gift"]["type"], "boolean");
        let choices =
            json!([{ "const": "Small", "title": "not large" }, { "const": "Large", "title": "not small" }]);
        assert_eq!(form.properties["size"], json!({ "oneOf": choices, "type": "string" }));
        assert_eq!(form.properties["extras"]["items"], json!({ "anyOf": choices }));
        assert_eq!(form.required.unwrap(), ["name", "count", "size", "extras"]);
    }

    #[test]
    fn what_no_form_can_show_is_refused() {
        let fault = form_of::<Nested>().unwrap_err().to_string();
        assert!(fault.contains("`order`") && fault.contains("strings, numbers"), "{fault}");
        let fault = form_of::<Login>().unwrap_err().to_string();
        assert!(fault.contains("`user_password`") && fault.contains("elicit_url"), "{fault}");
    }
}

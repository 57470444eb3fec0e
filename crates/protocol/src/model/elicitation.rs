//! Elicitation: requests for user input by form or URL.

use serde_json::{Map, Value};

use super::{Meta, TaskMetadata};
use crate::encode::{Encode, Encoder, model, words};
use crate::version::Feature;

model! {
    /// Parameters of `elicitation/create`.
    pub struct ElicitParams {
        /// Mode of the elicitation: form or URL. Default: form.
        mode: Option<ElicitMode> = "mode" since UrlElicitation,
        /// Message to the user.
        message: String = "message",
        /// Form schema: a flat object of primitive fields.
        requested_schema: Option<ElicitSchema> = "requestedSchema",
        /// URL for the user to visit, in URL mode.
        url: Option<String> = "url" since UrlElicitation,
        /// Id of the elicitation, in URL mode.
        elicitation_id: Option<String> = "elicitationId" since ElicitationIds,
        /// Requests that the receiver runs the request as a task.
        task: Option<TaskMetadata> = "task" since CoreTasks,
        /// Metadata of the request (`_meta`).
        meta: Option<Meta> = "_meta" since Sessions,
    }

    /// Parameters of `notifications/elicitation/complete`.
    pub struct ElicitationCompleteParams {
        /// Id of the elicitation.
        elicitation_id: String = "elicitationId",
        /// Metadata of the notification (`_meta`).
        meta: Option<Meta> = "_meta",
    }

    /// Schema of one field of an elicitation form. `kind` determines which other members apply.
    #[derive(Default)]
    pub struct PrimitiveSchema {
        /// JSON Schema type: `string`, `number`, `integer`, `boolean` or `array`.
        kind: String = "type",
        /// Display name.
        title: Option<String> = "title",
        /// Description of the field.
        description: Option<String> = "description",
        /// Minimum length of a string field.
        min_length: Option<u64> = "minLength",
        /// Maximum length of a string field.
        max_length: Option<u64> = "maxLength",
        /// Format of a string: `email`, `uri`, `date` or `date-time`.
        format: Option<String> = "format",
        /// Minimum of a number field.
        minimum: Option<Value> = "minimum",
        /// Maximum of a number field.
        maximum: Option<Value> = "maximum",
        /// Enum values without titles.
        choices: Option<Vec<String>> = "enum",
        /// Titles of the enum values, in the older form.
        choice_names: Option<Vec<String>> = "enumNames",
        /// Enum values with titles.
        one_of: Option<Vec<EnumOption>> = "oneOf",
        /// Enum values of a multiple-choice field.
        items: Option<EnumItems> = "items",
        /// Minimum number of choices that the user must select.
        min_items: Option<u64> = "minItems",
        /// Maximum number of choices that the user may select.
        max_items: Option<u64> = "maxItems",
        /// Default value of the field.
        default: Option<Value> = "default",
    }

    /// Value that the user of an elicitation form can choose, with its display name.
    pub struct EnumOption {
        /// Value that is sent if the user selects the option.
        value: String = "const",
        /// Display name.
        title: String = "title",
    }

    /// Values of a multiple-choice field of an elicitation form.
    pub struct EnumItems {
        /// JSON Schema type of the values: `string`, if they have no titles.
        kind: Option<String> = "type",
        /// Values to choose from, without titles.
        choices: Option<Vec<String>> = "enum",
        /// Values to choose from, with titles.
        any_of: Option<Vec<EnumOption>> = "anyOf",
    }
}

impl ElicitParams {
    /// Returns the default values of the elicitation form by field name: the initial values for the user, and the
    /// values sent for unchanged fields.
    pub fn defaults(&self) -> Map<String, Value> {
        let fields = self.requested_schema.iter().flat_map(|schema| &schema.properties);
        fields.filter_map(|(name, field)| Some((name.clone(), field.get("default")?.clone()))).collect()
    }
}

impl ElicitResult {
    /// Creates a result with the user's input, a JSON object.
    pub fn accept(content: Value) -> Self {
        let content = if let Value::Object(content) = content { Some(content) } else { None };
        ElicitResult { action: ElicitAction::Accept, content, meta: None }
    }

    /// Creates a result for a declined request.
    pub fn decline() -> Self {
        ElicitResult { action: ElicitAction::Decline, content: None, meta: None }
    }

    /// Creates a result for a dismissed request.
    pub fn cancel() -> Self {
        ElicitResult { action: ElicitAction::Cancel, content: None, meta: None }
    }
}

/// Schema of an elicitation form.
///
/// Fallback form: revisions without titled enums get `enum` and `enumNames` instead of `oneOf`.
#[derive(Debug, Clone, PartialEq, serde::Deserialize)]
pub struct ElicitSchema {
    /// JSON Schema dialect of the form schema.
    #[serde(rename = "$schema")]
    pub schema: Option<String>,
    /// JSON type of the form schema; always `object`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Fields of the form, in order.
    pub properties: Map<String, Value>,
    /// Names of the required fields.
    pub required: Option<Vec<String>>,
}

impl Encode for ElicitSchema {
    fn encode(&self, to: &mut Encoder<'_>) {
        to.object(|fields| {
            fields.field_since(Feature::RichForms, "$schema", &self.schema);
            fields.field("type", &self.kind);
            fields.field_with("properties", |to| {
                let rich = to.revision.has(Feature::RichForms);
                to.object(|fields| {
                    for (name, field) in &self.properties {
                        if rich {
                            fields.member(name, field);
                        } else {
                            fields.member(name, &downgrade_field(field));
                        }
                    }
                });
            });
            fields.field("required", &self.required);
        });
    }
}

/// Converts a field for revisions in which only boolean fields have defaults and enum titles are in `enumNames`.
fn downgrade_field(field: &Value) -> Value {
    let mut field = field.clone();
    let Some(members) = field.as_object_mut() else { return field };
    if members.get("type").is_some_and(|kind| kind != "boolean") {
        members.shift_remove("default");
    }
    if let Some(Value::Array(options)) = members.shift_remove("oneOf") {
        let all = |key: &str| options.iter().map(|option| option[key].clone()).collect();
        members.insert("enum".into(), all("const"));
        members.insert("enumNames".into(), all("title"));
    }
    field
}

words! {
    /// How an elicitation gets input from the user: in a form, or at a URL.
    pub enum ElicitMode {
        /// Form mode: the client shows a form to the user.
        Form = "form",
        /// The user opens a URL.
        Url = "url",
    }

    /// What the user did with an elicitation.
    pub enum ElicitAction {
        /// The user submitted the form or agreed to open the URL.
        Accept = "accept",
        /// The user declined the request.
        Decline = "decline",
        /// The user dismissed the request.
        Cancel = "cancel",
    }
}

model! {
    /// Result of an elicitation: whether the user accepted, declined or cancelled, with the submitted data. It is sent
    /// as a result in the session era and inside a request in the stateless era.
    pub struct ElicitResult {
        /// Action of the user.
        action: ElicitAction = "action",
        /// Form data that the user has submitted.
        content: Option<Map<String, Value>> = "content",
        /// Metadata of the result (`_meta`).
        meta: Option<Meta> = "_meta" since Sessions,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_form_knows_what_it_proposes() {
        let fields = json!({
            "name": { "type": "string", "default": "Ada" },
            "age": { "type": "integer" },
            "member": { "type": "boolean", "default": false },
        });
        let form = json!({ "message": "m", "requestedSchema": { "type": "object", "properties": fields } });
        let form: ElicitParams = serde_json::from_value(form).unwrap();
        assert_eq!(Value::Object(form.defaults()), json!({ "name": "Ada", "member": false }));
        let page: ElicitParams =
            serde_json::from_value(json!({ "message": "m", "url": "https://a.b" })).unwrap();
        assert!(page.defaults().is_empty());
    }
}

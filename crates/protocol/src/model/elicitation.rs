//! Asking the user, by a form or by a URL.

use serde_json::{Map, Value};

use super::{Meta, TaskMetadata};
use crate::encode::{Encode, Encoder, model, words};
use crate::version::Feature;

model! {
    /// A question to the user.
    pub struct ElicitParams {
        /// Form or URL; a form when nothing is said.
        mode: Option<ElicitMode> = "mode" since UrlElicitation,
        /// What to show.
        message: String = "message",
        /// The form: a flat object of simple fields.
        requested_schema: Option<ElicitSchema> = "requestedSchema",
        /// The URL to visit.
        url: Option<String> = "url" since UrlElicitation,
        /// The name of this visit.
        elicitation_id: Option<String> = "elicitationId" since ElicitationIds,
        /// The wish that a task answers it.
        task: Option<TaskMetadata> = "task" since CoreTasks,
        /// Metadata.
        meta: Option<Meta> = "_meta" since Sessions,
    }

    /// A visit that has ended.
    pub struct ElicitationCompleteParams {
        /// The name of the visit.
        elicitation_id: String = "elicitationId",
        /// Metadata.
        meta: Option<Meta> = "_meta",
    }

    /// One field of a form. Which members make sense depends on `kind`.
    #[derive(Default)]
    pub struct PrimitiveSchema {
        /// `string`, `number`, `integer`, `boolean` or `array`.
        kind: String = "type",
        /// What to call it.
        title: Option<String> = "title",
        /// What it is for.
        description: Option<String> = "description",
        /// Shortest text.
        min_length: Option<u64> = "minLength",
        /// Longest text.
        max_length: Option<u64> = "maxLength",
        /// `email`, `uri`, `date` or `date-time`.
        format: Option<String> = "format",
        /// Least number.
        minimum: Option<Value> = "minimum",
        /// Greatest number.
        maximum: Option<Value> = "maximum",
        /// Choices without titles.
        choices: Option<Vec<String>> = "enum",
        /// Titles of the choices, in an older form.
        choice_names: Option<Vec<String>> = "enumNames",
        /// Choices with titles.
        one_of: Option<Vec<EnumOption>> = "oneOf",
        /// The choices of a field that takes several.
        items: Option<EnumItems> = "items",
        /// Fewest choices.
        min_items: Option<u64> = "minItems",
        /// Most choices.
        max_items: Option<u64> = "maxItems",
        /// What is filled in at first.
        default: Option<Value> = "default",
    }

    /// A choice with a title.
    pub struct EnumOption {
        /// The value.
        value: String = "const",
        /// What to show.
        title: String = "title",
    }

    /// The choices of a field that takes several.
    pub struct EnumItems {
        /// `string`, for choices without titles.
        kind: Option<String> = "type",
        /// Choices without titles.
        choices: Option<Vec<String>> = "enum",
        /// Choices with titles.
        any_of: Option<Vec<EnumOption>> = "anyOf",
    }
}

impl ElicitParams {
    /// What the form proposes, by the names of its fields: where a user starts from, and what is sent for fields
    /// that nobody touched.
    pub fn defaults(&self) -> Map<String, Value> {
        let fields = self.requested_schema.iter().flat_map(|schema| &schema.properties);
        fields.filter_map(|(name, field)| Some((name.clone(), field.get("default")?.clone()))).collect()
    }
}

impl ElicitResult {
    /// What the user filled in: a JSON object.
    pub fn accept(content: Value) -> Self {
        let content = if let Value::Object(content) = content { Some(content) } else { None };
        ElicitResult { action: ElicitAction::Accept, content, meta: None }
    }

    /// The user said no.
    pub fn decline() -> Self {
        ElicitResult { action: ElicitAction::Decline, content: None, meta: None }
    }

    /// The user closed the question.
    pub fn cancel() -> Self {
        ElicitResult { action: ElicitAction::Cancel, content: None, meta: None }
    }
}

/// A form.
///
/// Fallback form: where forms know titles of choices only in the older way, a choice with titles is written so.
#[derive(Debug, Clone, PartialEq, serde::Deserialize)]
pub struct ElicitSchema {
    /// The dialect.
    #[serde(rename = "$schema")]
    pub schema: Option<String>,
    /// Always `object`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its fields, in order.
    pub properties: Map<String, Value>,
    /// Fields that must be filled in.
    pub required: Option<Vec<String>>,
}

impl Encode for ElicitSchema {
    fn encode(&self, to: &mut Encoder<'_>) {
        to.object(|fields| {
            fields.since(Feature::RichForms, "$schema", &self.schema);
            fields.field("type", &self.kind);
            fields.with("properties", |to| {
                let rich = to.revision.has(Feature::RichForms);
                to.object(|fields| {
                    for (name, field) in &self.properties {
                        if rich { fields.member(name, field) } else { fields.member(name, &plain(field)) }
                    }
                });
            });
            fields.field("required", &self.required);
        });
    }
}

/// A field for revisions in which only yes-or-no has a default and titles of choices stand beside the choices.
fn plain(field: &Value) -> Value {
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
    /// How to ask.
    pub enum ElicitMode {
        /// By a form.
        Form = "form",
        /// By a URL.
        Url = "url",
    }

    /// What the user did.
    pub enum ElicitAction {
        /// Answered.
        Accept = "accept",
        /// Said no.
        Decline = "decline",
        /// Closed the question.
        Cancel = "cancel",
    }
}

model! {
    /// The user's answer. It travels as a result in the session era and inside a request in the stateless era.
    pub struct ElicitResult {
        /// What the user did.
        action: ElicitAction = "action",
        /// What the user filled in.
        content: Option<Map<String, Value>> = "content",
        /// Metadata.
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

//! Asking the user, by a form or by a URL.

use serde_json::{Map, Value};

use super::Meta;
use crate::encode::{model, words};

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
        /// How a task may answer it.
        task: Option<Value> = "task" since CoreTasks,
        /// Metadata.
        meta: Option<Meta> = "_meta" since Sessions,
    }

    /// A form.
    pub struct ElicitSchema {
        /// The dialect.
        schema: Option<String> = "$schema",
        /// Always `object`.
        kind: String = "type",
        /// Its fields, in order.
        properties: Map<String, Value> = "properties",
        /// Fields that must be filled in.
        required: Option<Vec<String>> = "required",
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

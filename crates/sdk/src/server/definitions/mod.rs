//! Definitions that a server author registers: tools, prompts, resources, completions and custom methods.

pub(super) mod args;
pub(super) mod common_fields;
pub(super) mod completion;
pub(super) mod custom_method;
pub(super) mod definition_ref;
pub(super) mod derived_schema;
pub(super) mod handler;
pub(super) mod output;
pub(super) mod prompt;
pub(super) mod resource;
pub(super) mod shared_state;
pub(super) mod string_args;
pub(super) mod tool;
pub(super) mod uri_template;
pub(super) mod validator;

//! Official JSON Schema of one revision: its definitions, the validators built from them, and its methods.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use jsonschema::Validator;
use serde_json::{Map, Value, json};

use crate::report::report;

/// Which members the check against the specification allows in an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Members {
    /// Undeclared members are accepted if the schema allows them.
    Any,
    /// Undeclared members are rejected, even if the schema allows them.
    Declared,
}

#[derive(Debug)]
pub(crate) struct Document {
    /// JSON Schema dialect of the file.
    dialect: Value,
    /// Keyword of the definitions in this dialect: `$defs`, or `definitions` in older drafts.
    keyword: &'static str,
    definitions: Map<String, Value>,
    closed: Map<String, Value>,
    validators: Mutex<HashMap<(String, Members), Arc<Validator>>>,
}

impl Document {
    pub(crate) fn new(mut schema: Value) -> Self {
        let keyword = if schema.get("$defs").is_some() { "$defs" } else { "definitions" };
        let definitions = match schema[keyword].take() {
            Value::Object(definitions) => definitions,
            _ => Map::new(),
        };
        let mut closed = definitions.clone();
        for (name, definition) in &mut closed {
            if let Some(merged) = merge_all_of(&definitions, definition) {
                *definition = merged;
            }
            forbid_undeclared(name, definition);
        }
        Document {
            dialect: schema["$schema"].take(),
            keyword,
            definitions,
            closed,
            validators: Mutex::default(),
        }
    }

    /// Returns a definition of the specification schema, or a part of one. The path consists of member names separated
    /// by slashes.
    pub(crate) fn find(&self, path: &str) -> Option<&Value> {
        let (name, rest) = path.split_once('/').unwrap_or((path, ""));
        let mut found = self.definitions.get(name)?;
        for step in rest.split('/').filter(|step| !step.is_empty()) {
            found = found.get(step)?;
        }
        Some(found)
    }

    pub(crate) fn members(&self, path: &str) -> BTreeSet<String> {
        let Some(definition) = self.find(path) else { return BTreeSet::new() };
        if let Some(parts) = definition.get("allOf").and_then(Value::as_array) {
            let names = parts.iter().filter_map(|part| part.get("$ref")?.as_str().and_then(last_segment));
            return names.flat_map(|name| self.members(name)).collect();
        }
        if let Some(name) = definition.get("$ref").and_then(Value::as_str).and_then(last_segment) {
            return self.members(name);
        }
        let named = definition.get("properties").and_then(Value::as_object);
        named.map(|members| members.keys().cloned().collect()).unwrap_or_default()
    }

    pub(crate) fn check(&self, definition: &str, value: &Value, members: Members) -> Result<(), String> {
        let validator = self.validator(definition, members)?;
        report(validator.iter_errors(value)).map_err(|faults| format!("not a valid {definition}: {faults}"))
    }

    fn validator(&self, definition: &str, members: Members) -> Result<Arc<Validator>, String> {
        if self.find(definition).is_none() {
            return Err(format!("the revision has no definition \"{definition}\""));
        }
        let key = (definition.to_owned(), members);
        let mut validators = self.validators.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(validator) = validators.get(&key) {
            return Ok(Arc::clone(validator));
        }
        let definitions = if members == Members::Any { &self.definitions } else { &self.closed };
        let schema = json!({
            "$schema": self.dialect,
            "$ref": format!("#/{}/{definition}", self.keyword),
            self.keyword: reachable(definitions, definition),
        });
        let built = jsonschema::options().should_validate_formats(true).build(&schema);
        let validator =
            Arc::new(built.map_err(|error| format!("the schema of {definition} is invalid: {error}"))?);
        validators.insert(key, Arc::clone(&validator));
        Ok(validator)
    }

    /// Returns the definitions of requests or notifications, with their methods. `kind` is `Request` or `Notification`.
    pub(crate) fn with_method<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.definitions.iter().filter_map(move |(name, definition)| {
            // A union with one member is written like that member.
            let union = name.strip_suffix(kind).is_none_or(|stem| stem == "Client" || stem == "Server");
            let method = definition.pointer("/properties/method/const")?.as_str()?;
            (!union).then_some((name.as_str(), method))
        })
    }

    pub(crate) fn methods(&self) -> BTreeSet<String> {
        let all = self.with_method("Request").chain(self.with_method("Notification"));
        all.map(|(_, method)| method.to_owned()).collect()
    }

    /// Reports whether a request or notification is sent as a message of its own, not only inside a result. In the
    /// stateless era some requests exist only inside results: they have a definition, but the message unions of client
    /// and server do not contain it.
    pub(crate) fn is_message(&self, name: &str, kind: &str) -> bool {
        ["Client", "Server"].iter().any(|side| {
            let union = self.find(&format!("{side}{kind}/anyOf")).and_then(Value::as_array);
            union.is_some_and(|union| {
                union.iter().any(|one| one["$ref"].as_str().and_then(last_segment) == Some(name))
            })
        })
    }

    /// Returns the name of the definition of the error response with this code.
    pub(crate) fn find_error(&self, code: &Value) -> Option<&str> {
        let is_match = |definition: &Value| {
            let parts = definition.pointer("/properties/error/allOf").and_then(Value::as_array);
            parts.is_some_and(|parts| {
                parts.iter().any(|part| part.pointer("/properties/code/const") == Some(code))
            })
        };
        self.definitions.iter().find(|(_, definition)| is_match(definition)).map(|(name, _)| name.as_str())
    }

    /// Returns the first of these definition names that the revision has.
    pub(crate) fn first_definition<'a>(&self, names: &[&'a str]) -> Option<&'a str> {
        names.iter().copied().find(|name| self.definitions.contains_key(*name))
    }
}

/// Returns the definitions reachable from `path`: the time to compile a validator grows with the number of definitions.
fn reachable(definitions: &Map<String, Value>, path: &str) -> Map<String, Value> {
    let mut reachable_definitions = Map::new();
    let mut open = vec![path.split('/').next().unwrap_or_default()];
    while let Some(name) = open.pop() {
        if let Some(definition) = definitions.get(name).filter(|_| !reachable_definitions.contains_key(name))
        {
            reachable_definitions.insert(name.to_owned(), definition.clone());
            collect_references(definition, &mut open);
        }
    }
    reachable_definitions
}

fn collect_references<'a>(schema: &'a Value, found: &mut Vec<&'a str>) {
    match schema {
        Value::Object(members) => {
            found.extend(members.get("$ref").and_then(Value::as_str).and_then(last_segment));
            members.values().for_each(|inner| collect_references(inner, found));
        }
        Value::Array(items) => items.iter().for_each(|inner| collect_references(inner, found)),
        _ => {}
    }
}

fn last_segment(reference: &str) -> Option<&str> {
    reference.rsplit('/').next()
}

/// Merges a definition that is an `allOf` into one object with all members. Closed separately, each part would forbid
/// the members of the others.
fn merge_all_of(definitions: &Map<String, Value>, definition: &Value) -> Option<Value> {
    let (mut members, mut required) = (Map::new(), Vec::new());
    for part in definition.get("allOf")?.as_array()? {
        let part = definitions.get(last_segment(part.get("$ref")?.as_str()?)?)?;
        members.extend(part.get("properties")?.as_object()?.clone());
        required.extend(part.get("required").and_then(Value::as_array).into_iter().flatten().cloned());
    }
    Some(json!({"type": "object", "properties": members, "required": required}))
}

/// Changes a schema so that it forbids undeclared members, recursively. Exceptions: `_meta`, the JSON Schemas of tools,
/// and the parts of an `allOf`, which share their members.
fn forbid_undeclared(name: &str, schema: &mut Value) {
    let Value::Object(schema) = schema else { return };
    if name == "_meta" || name.ends_with("MetaObject") || matches!(name, "inputSchema" | "outputSchema") {
        return;
    }
    for keyword in ["items", "additionalProperties"] {
        if let Some(inner) = schema.get_mut(keyword) {
            forbid_undeclared("", inner);
        }
    }
    for inner in schema.get_mut("anyOf").and_then(Value::as_array_mut).into_iter().flatten() {
        forbid_undeclared("", inner);
    }
    let Some(members) = schema.get_mut("properties").and_then(Value::as_object_mut) else { return };
    for (member, inner) in &mut *members {
        forbid_undeclared(member, inner);
    }
    if name == "params" {
        // Older files declare params inline and `_meta` only in the generic request.
        members.entry("_meta").or_insert_with(|| json!({"type": "object"}));
    }
    schema.entry("additionalProperties").or_insert(Value::Bool(false));
}

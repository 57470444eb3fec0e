//! Index of the subschemas of a document: their locations and the references between them.

use std::collections::HashMap;

use serde_json::Value;

use crate::dialect::{self, Dialect, SubschemaShape};
use crate::error::{ValidationError, push_token};
use crate::node::Id;
use crate::{Limits, uri};

/// Maximum nesting depth that `Limits::depth` may set, since the search for subschemas is recursive.
const MAX_DEPTH: usize = 256;
/// Depth in a schema up to which locations are determined; deeper ones are reported without a path. Subschemas are up
/// to two levels apart, and references can lead deeper.
const MAX_PATH_DEPTH: usize = 2 * MAX_DEPTH;

/// Subschema of a schema document, and the schema resource that it belongs to.
pub(crate) struct Subschema<'a> {
    pub(crate) value: &'a Value,
    pub(crate) resource: u32,
}

/// Schema resource: a part of a schema document with its own `$id`. The first resource is the document itself.
struct SchemaResource<'a> {
    base: String,
    root: &'a Value,
    anchors: HashMap<&'a str, &'a Value>,
    dynamic: HashMap<&'a str, &'a Value>,
}

pub(crate) struct Index<'a> {
    document: &'a Value,
    pub(crate) dialect: Dialect,
    pub(crate) subschemas: Vec<Subschema<'a>>,
    limits: Limits,
    resources: Vec<SchemaResource<'a>>,
    by_base: HashMap<String, u32>,
    /// Subschemas by the address of their value, which is stable for the lifetime of the index.
    by_value: HashMap<*const Value, Id>,
}

impl<'a> Index<'a> {
    pub(crate) fn new(document: &'a Value, limits: Limits) -> Result<Self, ValidationError> {
        let dialect = match document.get("$schema") {
            None => Dialect::default(),
            Some(name) => Dialect::from_uri(name)
                .map_err(|reason| ValidationError { path: "/$schema".into(), reason })?,
        };
        let mut index = Self {
            document,
            dialect,
            subschemas: Vec::new(),
            limits,
            resources: Vec::new(),
            by_base: HashMap::new(),
            by_value: HashMap::new(),
        };
        index.add_resource(String::new(), document);
        index.walk(document, 0, 0)?;
        if index.subschemas.is_empty() {
            return Err(ValidationError {
                path: String::new(),
                reason: "a schema must be an object or a boolean".into(),
            });
        }
        index.follow_references()?;
        Ok(index)
    }

    pub(crate) fn find(&self, value: &Value) -> Option<Id> {
        self.by_value.get(&std::ptr::from_ref(value)).copied()
    }

    /// Returns the location of a subschema in the document as a JSON pointer. It is computed only for errors: the paths
    /// of all subschemas together may be far longer than the document.
    pub(crate) fn path(&self, part: &Value) -> String {
        let mut path = String::new();
        find_part(self.document, part, 0, &mut path);
        path
    }

    /// Adds every subschema of `value` that a keyword contains. Values that are not schemas are left to the compiler to
    /// reject.
    fn walk(&mut self, value: &'a Value, resource: u32, depth: usize) -> Result<(), ValidationError> {
        let fault = |reason: String| Err(ValidationError { path: String::new(), reason });
        if !(value.is_boolean() || value.is_object()) || self.find(value).is_some() {
            return Ok(());
        }
        if depth > self.limits.depth.min(MAX_DEPTH) {
            return fault(format!(
                "the schema is nested deeper than {} levels",
                self.limits.depth.min(MAX_DEPTH)
            ));
        }
        let (Ok(id), true) =
            (Id::try_from(self.subschemas.len()), self.subschemas.len() < self.limits.subschemas)
        else {
            return fault(format!("the schema contains more than {} subschemas", self.limits.subschemas));
        };
        let named = self.register_names(value, resource);
        let resource = named.map_err(|reason| ValidationError { path: self.path(value), reason })?;
        self.by_value.insert(value, id);
        self.subschemas.push(Subschema { value, resource });
        for (key, inner) in value.as_object().into_iter().flatten() {
            let Some(shape) = dialect::subschema_shape(key) else { continue };
            let depth = depth + 1;
            match (shape, inner) {
                (SubschemaShape::One | SubschemaShape::OneOrMany, Value::Object(_) | Value::Bool(_)) => {
                    self.walk(inner, resource, depth)?;
                }
                (SubschemaShape::Many | SubschemaShape::OneOrMany, Value::Array(items)) => {
                    items.iter().try_for_each(|item| self.walk(item, resource, depth))?;
                }
                (SubschemaShape::Named, Value::Object(members)) => {
                    members.values().try_for_each(|member| self.walk(member, resource, depth))?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Registers the `$id` and the anchors of a subschema. Returns the resource that it belongs to.
    fn register_names(&mut self, value: &'a Value, mut resource: u32) -> Result<u32, String> {
        let text = |key: &str| match value.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.as_str())),
            Some(_) => Err(format!("{key} must be a string")),
        };
        if let Some(name) = value.get("$schema")
            && Dialect::from_uri(name)? != self.dialect
        {
            return Err("a document cannot use two dialects".into());
        }
        let old = self.dialect == Dialect::Draft07;
        let mut anchor = None;
        if let Some(id) = text("$id")?.filter(|_| !(old && value.get("$ref").is_some())) {
            let (address, fragment) = id.split_once('#').unwrap_or((id, ""));
            if !address.is_empty() {
                resource = self.enter_resource(address, value, resource)?;
            }
            match fragment {
                "" => {}
                name if old => anchor = Some(name),
                _ => return Err("$id must not have a fragment: use $anchor".into()),
            }
        }
        if !old {
            anchor = text("$anchor")?;
        }
        let dynamic = text("$dynamicAnchor")?.filter(|_| self.dialect == Dialect::Draft202012);
        let owner = &mut self.resources[resource as usize];
        for name in anchor.into_iter().chain(dynamic.filter(|_| anchor != dynamic)) {
            if owner.anchors.insert(name, value).is_some() {
                return Err(format!("duplicate anchor {name:?}"));
            }
        }
        owner.dynamic.extend(dynamic.map(|name| (name, value)));
        Ok(resource)
    }

    fn enter_resource(&mut self, address: &str, value: &'a Value, resource: u32) -> Result<u32, String> {
        let outer = &self.resources[resource as usize];
        let base = uri::resolve(&outer.base, address);
        if self.by_base.contains_key(&base) {
            return Err(format!("duplicate $id {base:?}"));
        }
        if std::ptr::eq(outer.root, value) {
            self.by_base.insert(base.clone(), resource);
            self.resources[resource as usize].base = base;
            return Ok(resource);
        }
        Ok(self.add_resource(base, value))
    }

    fn add_resource(&mut self, base: String, root: &'a Value) -> u32 {
        // There are at most as many resources as subschemas, whose number fits into an `Id`.
        let number = u32::try_from(self.resources.len()).unwrap_or(u32::MAX);
        self.by_base.insert(base.clone(), number);
        self.resources.push(SchemaResource { base, root, anchors: HashMap::new(), dynamic: HashMap::new() });
        number
    }

    /// Adds the targets of `$ref` and `$dynamicRef` to the index: they may be outside all subschemas found so far.
    fn follow_references(&mut self) -> Result<(), ValidationError> {
        let mut next = 0;
        while let Some(found) = self.subschemas.get(next) {
            let (value, resource) = (found.value, found.resource);
            for key in ["$ref", "$dynamicRef"] {
                let Some(reference) = value.get(key).and_then(Value::as_str) else { continue };
                if key == "$dynamicRef" && self.dialect != Dialect::Draft202012 {
                    continue;
                }
                let resolved = self.resolve(reference, resource);
                let (target, owner) = resolved.map_err(|reason| ValidationError {
                    path: format!("{}/{key}", self.path(value)),
                    reason,
                })?;
                self.walk(target, owner, 0)?;
            }
            next += 1;
        }
        Ok(())
    }

    /// Resolves a `$ref` or `$dynamicRef` to a part of the same document, which need not be a schema. Returns its
    /// target and the resource that the target belongs to.
    pub(crate) fn resolve(&self, reference: &str, resource: u32) -> Result<(&'a Value, u32), String> {
        let missing = || format!("{reference:?} cannot be resolved in this schema");
        let (address, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let mut owner = resource;
        if !address.is_empty() {
            let address = uri::resolve(&self.resources[resource as usize].base, address);
            owner = *self.by_base.get(&address).ok_or_else(|| {
                format!("{reference:?} refers to another document, which is never fetched: copy its schema into $defs")
            })?;
        }
        let fragment = uri::decode(fragment);
        let mut value = self.resources[owner as usize].root;
        let Some(pointer) = fragment.strip_prefix('/') else {
            if !fragment.is_empty() {
                let anchors = &self.resources[owner as usize].anchors;
                value = anchors.get(&*fragment).copied().ok_or_else(missing)?;
            }
            return Ok((value, owner));
        };
        for step in pointer.split('/') {
            let step = step.replace("~1", "/").replace("~0", "~");
            let inner = match value {
                Value::Object(members) => members.get(&step),
                Value::Array(items) => step.parse::<usize>().ok().and_then(|index| items.get(index)),
                _ => None,
            };
            value = inner.ok_or_else(missing)?;
            if let Some(id) = self.find(value) {
                owner = self.subschemas[id as usize].resource;
            }
        }
        Ok((value, owner))
    }

    /// Returns the target of a `$dynamicRef` in every schema resource that has its dynamic anchor. Empty if the
    /// reference is not dynamic.
    pub(crate) fn dynamic_targets(&self, reference: &str, initial: &Value, owner: u32) -> Vec<(u32, Id)> {
        let name = uri::decode(reference.split_once('#').map_or("", |(_, name)| name));
        let dynamic_anchor = self.resources[owner as usize].dynamic.get(&*name);
        if !dynamic_anchor.is_some_and(|dynamic_anchor| std::ptr::eq(*dynamic_anchor, initial)) {
            return Vec::new();
        }
        let targets = (0..).zip(&self.resources).filter_map(|(number, resource)| {
            let target = resource.dynamic.get(&*name)?;
            Some((number, self.find(target)?))
        });
        targets.collect()
    }
}

/// Appends the JSON pointer of `part` within `value` to `path`. Returns `false` if the part is not within `value`.
fn find_part(value: &Value, part: &Value, depth: usize, path: &mut String) -> bool {
    if std::ptr::eq(value, part) {
        return true;
    }
    let length = path.len();
    let mut step = |key: &str, inner: &Value| {
        push_token(path, key);
        let found = depth < MAX_PATH_DEPTH && find_part(inner, part, depth + 1, path);
        if !found {
            path.truncate(length);
        }
        found
    };
    match value {
        Value::Array(items) => items.iter().enumerate().any(|(index, item)| step(&index.to_string(), item)),
        Value::Object(members) => members.iter().any(|(key, member)| step(key, member)),
        _ => false,
    }
}

//! Members common to all results: `_meta`, and `resultType` in the stateless era.

use super::{Meta, key};
use crate::encode::{Encode, Encoder, Fields};
use crate::version::Feature;

/// Result of a request, to be encoded without the members common to all results.
pub trait ResultBody {
    /// Appends the members that are specific to this kind of result.
    fn encode_body(&self, fields: &mut Fields<'_, '_>);

    /// Returns the `_meta` of the result.
    fn meta(&self) -> Option<&Meta>;

    /// Returns the `resultType` that the result has in the stateless era.
    fn result_type(&self) -> &'static str {
        "complete"
    }
}

/// Appends a complete result as JSON, with the members that all results have. `identity` is encoded JSON of one `_meta`
/// member (key, colon, value) with which a server identifies itself in the stateless era.
pub(crate) fn encode_result(result: &dyn ResultBody, identity: Option<&[u8]>, to: &mut Encoder<'_>) {
    to.object(|fields| {
        if fields.revision().has(Feature::Stateless) {
            fields.field("resultType", result.result_type());
        }
        result.encode_body(fields);
        encode_meta(fields, result.meta(), identity);
    });
}

fn encode_meta(fields: &mut Fields<'_, '_>, meta: Option<&Meta>, identity: Option<&[u8]>) {
    let sends = identity.is_some();
    let identity =
        identity.filter(|identity| fields.revision().has(Feature::Stateless) && !identity.is_empty());
    if meta.is_none() && identity.is_none() {
        return;
    }
    fields.field_with("_meta", |to| {
        let start = to.out.len();
        // A forwarded result may still contain the identity of the server that produced it.
        let others = meta.into_iter().flatten().filter(|(key, _)| !sends || *key != key::SERVER_INFO);
        to.object(|inner| others.for_each(|(key, value)| inner.member(key, value)));
        if let Some(identity) = identity {
            to.out.pop();
            if to.out.len() > start + 1 {
                to.out.push(b',');
            }
            to.out.extend_from_slice(identity);
            to.out.push(b'}');
        }
    });
}

/// Declares results with fields as in `model!`, and adds `_meta`.
macro_rules! results {
    ($(
        $(#[$meta:meta])*
        pub struct $name:ident {
            $( $(#[$field_meta:meta])* $field:ident : $type:ty = $key:literal $(since $feature:ident)? ),* $(,)?
        }
    )*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, serde::Deserialize)]
        #[serde(expecting = "an object")]
        pub struct $name {
            $( $(#[$field_meta])* #[serde(rename = $key)] pub $field: $type, )*
            /// Metadata of the result.
            #[serde(rename = "_meta", default)]
            pub meta: Option<$crate::model::Meta>,
        }

        impl $crate::model::ResultBody for $name {
            fn encode_body(&self, _fields: &mut $crate::encode::Fields<'_, '_>) {
                $( $crate::encode::model!(@field _fields, self.$field, $key $(, $feature)?); )*
            }

            fn meta(&self) -> Option<&$crate::model::Meta> {
                self.meta.as_ref()
            }
        }

        impl $crate::encode::Encode for $name {
            fn encode(&self, to: &mut $crate::encode::Encoder<'_>) {
                $crate::model::results::encode_result(self, None, to);
            }
        }
    )*};
}

pub(crate) use results;

results! {
    /// Empty result: success without data.
    pub struct EmptyResult {}
}

impl EmptyResult {
    /// Creates an empty result without metadata.
    pub const fn new() -> Self {
        EmptyResult { meta: None }
    }
}

impl Default for EmptyResult {
    fn default() -> Self {
        Self::new()
    }
}

impl Encode for &dyn ResultBody {
    fn encode(&self, to: &mut Encoder<'_>) {
        encode_result(*self, None, to);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::Revision;
    use crate::wire::encode_result;

    #[test]
    fn a_result_says_once_who_sends_it_also_when_it_is_passed_on() {
        let before = Meta::from_iter([
            (key::SERVER_INFO.to_owned(), json!({"name": "behind"})),
            ("example.com/a".to_owned(), json!(1)),
        ]);
        let server_info = br#""io.modelcontextprotocol/serverInfo":{"name":"front"}"#;
        let sent = |meta: &Meta, revision: Revision, identity: &[u8]| {
            let mut out = Vec::new();
            encode_result(revision, &EmptyResult { meta: Some(meta.clone()) }, identity, &mut out);
            let text = String::from_utf8(out).unwrap();
            assert!(text.matches("serverInfo").count() <= 1, "{text}");
            serde_json::from_str::<Value>(&text).unwrap()["_meta"].take()
        };
        let named = json!({(key::SERVER_INFO): {"name": "front"}});
        assert_eq!(sent(&Meta::new(), Revision::LATEST, server_info), named);
        let mut both = named;
        both["example.com/a"] = json!(1);
        assert_eq!(sent(&before, Revision::LATEST, server_info), both);
        for (revision, identity) in
            [(Revision::LATEST, &b""[..]), (Revision::LATEST_SESSION, &server_info[..])]
        {
            assert_eq!(sent(&before, revision, identity), json!({"example.com/a": 1}), "{revision}");
        }
    }
}

//! What all results share: `_meta`, and `resultType` in the stateless era.

use super::Meta;
use crate::encode::{Encode, Encoder, Fields};
use crate::version::Feature;

/// The body of a result, without what every result has.
pub trait ResultBody {
    /// Appends the members of this kind of result.
    fn encode_body(&self, fields: &mut Fields<'_, '_>);

    /// The result's own metadata.
    fn meta(&self) -> Option<&Meta>;

    /// The word that tells this kind of result from others in the stateless era.
    fn result_type(&self) -> &'static str {
        "complete"
    }
}

/// Appends a whole result. `identity` is ready-made JSON of one `_meta` member (key, colon, value) with which a
/// server identifies itself in the stateless era.
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
    let identity = identity.filter(|_| fields.revision().has(Feature::Stateless));
    let (None, Some(identity)) = (meta, identity) else {
        let Some(meta) = meta else { return };
        return fields.with("_meta", |to| {
            to.object(|inner| inner.members(meta));
            if let Some(identity) = identity {
                to.out.pop();
                if !meta.is_empty() {
                    to.out.push(b',');
                }
                to.out.extend_from_slice(identity);
                to.out.push(b'}');
            }
        });
    };
    fields.with("_meta", |to| {
        to.out.push(b'{');
        to.out.extend_from_slice(identity);
        to.out.push(b'}');
    });
}

/// Declares results: the fields as in `model!`, `_meta` is added.
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
            /// Metadata of the result itself.
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
    /// A result that says nothing but that it worked.
    pub struct EmptyResult {}
}

impl EmptyResult {
    /// The plain one.
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

//! Wire format: decoding of requests, encoding of results and errors, and the differences between the two eras. Apart
//! from the `since` marks of the model, only this module knows the JSON of each revision.

mod decode;
mod errors;
mod request;
pub mod session_era;
pub mod stateless_era;

pub use decode::{InvalidValue, decode};
pub use errors::error_object;
pub use request::{CallTool, ClientRequest, DecodeError};

use crate::encode::Encoder;
use crate::model::ResultBody;
use crate::version::Revision;

/// Appends a complete result as JSON of `revision`. `identity` is the `_meta` member with which the server identifies
/// itself in the stateless era, see [`stateless_era::identity`].
pub fn encode_result(revision: Revision, result: &dyn ResultBody, identity: &[u8], out: &mut Vec<u8>) {
    crate::model::encode_result(result, Some(identity), &mut Encoder { out, revision });
}

//! Between JSON and the model: decoding requests, encoding results and errors, and what the two eras do
//! differently. The only place that knows JSON shapes per revision, besides the `since` marks of the model.

mod decode;
mod errors;
mod request;
pub mod session_era;
pub mod stateless_era;

pub use decode::{Invalid, decode};
pub use errors::error_object;
pub use request::{CallTool, ClientRequest, DecodeError};

use crate::encode::Encoder;
use crate::model::ResultBody;
use crate::version::Revision;

/// Appends a result for `revision`. `identity` is the server's `_meta` member of the stateless era, see
/// [`stateless_era::identity`].
pub fn encode_result(revision: Revision, result: &dyn ResultBody, identity: &[u8], out: &mut Vec<u8>) {
    crate::model::encode_result(result, Some(identity), &mut Encoder { out, revision });
}

//! Headers that mirror the body (stateless era): they must match it, because intermediaries may act on them.

use ::http::request::Parts;
use ::http::{HeaderName, HeaderValue};
use linchpin_jsonrpc::Params;
use linchpin_protocol::model::RequestMeta;
use linchpin_protocol::{Error as ProtocolError, Method, Revision};

use super::super::catalog::Catalog;
use crate::http::{decode_string, header_names, header_value};

type HeaderCheck = Result<(), ProtocolError>;

fn mismatch(text: impl Into<String>) -> ProtocolError {
    ProtocolError::HeaderMismatch(text.into())
}

/// Returns the value of a header that may occur only once. Duplicates are rejected, since intermediaries may have read
/// another one.
fn single<'a>(parts: &'a Parts, name: &HeaderName) -> Result<Option<&'a HeaderValue>, ProtocolError> {
    let mut values = parts.headers.get_all(name).iter();
    let first = values.next();
    if values.next().is_some() {
        return Err(mismatch(format!("the header {name} occurs more than once")));
    }
    Ok(first)
}

/// Returns the revision that the headers of the request name, if any.
pub(super) fn named_revision(
    parts: &Parts,
    supported: &[Revision],
) -> Result<Option<Revision>, ProtocolError> {
    let Some(header) = single(parts, &header_names::PROTOCOL_VERSION)? else { return Ok(None) };
    let named = header.to_str().ok().and_then(Revision::find).filter(|named| supported.contains(named));
    named.map(Some).ok_or_else(|| {
        let requested = String::from_utf8_lossy(header.as_bytes()).into();
        ProtocolError::UnsupportedVersion { requested, supported: supported.to_vec() }
    })
}

/// Returns the session id header of the request, if any.
pub(super) fn session_id(parts: &Parts) -> Result<Option<&HeaderValue>, ProtocolError> {
    let duplicate_error =
        |_| ProtocolError::InvalidRequest("the header Mcp-Session-Id occurs more than once".into());
    single(parts, &header_names::SESSION_ID).map_err(duplicate_error)
}

/// Checks that the version header matches the body.
pub(crate) fn check_version(parts: &Parts, meta: &RequestMeta) -> HeaderCheck {
    let said = single(parts, &header_names::PROTOCOL_VERSION)?.map(HeaderValue::as_bytes);
    match (said, &meta.protocol_version) {
        (None, _) => Err(mismatch("the header MCP-Protocol-Version is missing")),
        (Some(said), Some(version)) if said != version.as_bytes() => {
            Err(mismatch("the header MCP-Protocol-Version names another revision than the body"))
        }
        _ => Ok(()),
    }
}

/// Checks that the headers that mirror the method, name and parameters match the body.
pub(crate) fn check(parts: &Parts, method: &str, params: &Params<'_>, catalog: &Catalog) -> HeaderCheck {
    match single(parts, &header_names::METHOD)? {
        None => return Err(mismatch("the header Mcp-Method is missing")),
        Some(said) if said.as_bytes() != method.as_bytes() => {
            return Err(mismatch("the header Mcp-Method names another method than the body"));
        }
        Some(_) => {}
    }
    let known_method = Method::find(method);
    let Some(name) =
        known_method.and_then(Method::name_parameter).and_then(|member| decode_string(params.find(member)?))
    else {
        return Ok(()); // nothing is mirrored, or the parameters are invalid and rejected later
    };
    let said =
        single(parts, &header_names::NAME)?.ok_or_else(|| mismatch("the header Mcp-Name is missing"))?;
    match header_value::decode(said.as_bytes()) {
        Some(said) if said == name => {}
        Some(_) => return Err(mismatch("the header Mcp-Name does not match the body")),
        None => return Err(mismatch("the header Mcp-Name cannot be decoded")),
    }
    if known_method == Some(Method::CallTool)
        && let Some(tool) = catalog.tools.find(&name)
        && !tool.mirror.is_empty()
    {
        let arguments = params.find("arguments").unwrap_or("{}");
        tool.mirror.check(arguments, &parts.headers).map_err(ProtocolError::HeaderMismatch)?;
    }
    Ok(())
}

//! Stateless era: metadata in every request and server identity in every result.

use linchpin_jsonrpc::Params;

use super::decode::{InvalidValue, decode};
use crate::encode::{Encode, Encoder};
use crate::error::Error;
use crate::model::{Implementation, RequestMeta, key};
use crate::version::{Era, Revision};

/// Reads the reserved members of `_meta` from the parameters of a request. Returns `None` if the request has no
/// `_meta`.
pub fn request_meta(params: &Params<'_>) -> Result<Option<RequestMeta>, Error> {
    let Some(text) = params.find("_meta") else { return Ok(None) };
    match decode(text) {
        Ok(meta) => Ok(Some(meta)),
        Err(InvalidValue { path, reason }) => {
            Err(Error::InvalidParams { path: format!("/_meta{path}"), reason })
        }
    }
}

/// Reports whether a request has metadata of the stateless era.
pub fn is_stateless(meta: &RequestMeta) -> bool {
    meta.protocol_version.is_some() || meta.client_capabilities.is_some() || meta.client_info.is_some()
}

/// Checks the required metadata of a stateless request and returns its revision.
pub fn check(meta: &RequestMeta, revisions: &[Revision]) -> Result<Revision, Error> {
    let Some(version) = &meta.protocol_version else {
        return Err(Error::invalid("/_meta", format!("missing field `{}`", key::PROTOCOL_VERSION)));
    };
    let stateless = |revision: &&Revision| revision.era() == Era::Stateless;
    let Some(revision) = revisions.iter().filter(stateless).find(|revision| revision.as_str() == version)
    else {
        let supported = revisions.iter().filter(stateless).copied().collect();
        return Err(Error::UnsupportedVersion { requested: version.clone(), supported });
    };
    if meta.client_capabilities.is_none() {
        return Err(Error::invalid("/_meta", format!("missing field `{}`", key::CLIENT_CAPABILITIES)));
    }
    Ok(*revision)
}

/// Returns the `_meta` member with which a server identifies itself in every result: key, colon and value.
pub fn identity(server: &Implementation) -> Vec<u8> {
    let mut out = Vec::new();
    let mut to = Encoder { out: &mut out, revision: Revision::LATEST };
    key::SERVER_INFO.encode(&mut to);
    to.out.push(b':');
    server.encode(&mut to);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code;
    use crate::wire::error_object;

    fn meta(version: Option<&str>, capabilities: bool) -> RequestMeta {
        RequestMeta {
            protocol_version: version.map(str::to_owned),
            client_capabilities: capabilities.then(Default::default),
            ..RequestMeta::default()
        }
    }

    #[test]
    fn what_is_missing_is_named_and_other_revisions_are_refused() {
        let latest = Revision::LATEST.as_str();
        assert_eq!(check(&meta(Some(latest), true), &Revision::ALL), Ok(Revision::LATEST));
        let code_of = |version, capabilities| {
            let error = check(&meta(version, capabilities), &Revision::ALL).unwrap_err();
            let object = error_object(&error, Revision::LATEST);
            (object.code, object.message)
        };
        assert!(code_of(None, true).1.contains(key::PROTOCOL_VERSION));
        assert!(code_of(Some(latest), false).1.contains(key::CLIENT_CAPABILITIES));
        assert_eq!(code_of(Some(latest), false).0, code::INVALID_PARAMS);
        assert_eq!(code_of(Some("1900-01-01"), true).0, code::UNSUPPORTED_VERSION);
        assert_eq!(code_of(Some(Revision::LATEST_SESSION.as_str()), true).0, code::UNSUPPORTED_VERSION);
    }
}

//! Secrets in foreign data: redaction of known credentials, and detection of values that look like secrets.

pub(super) mod hub_secrets;
pub(super) mod redact;
pub mod scan;

//! Private keys in PEM files.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use super::error::JoseError;

/// What the first block of a PEM text holds.
pub(super) enum Block {
    Pkcs8(Zeroizing<Vec<u8>>),
    /// An RSA key in the form that came before PKCS #8.
    Pkcs1(Zeroizing<Vec<u8>>),
}

pub(super) fn private_key(text: &str) -> Result<Block, JoseError> {
    let no_key = || JoseError::new("there is no private key: `-----BEGIN PRIVATE KEY-----` is expected");
    let (_, from_label) = text.split_once("-----BEGIN ").ok_or_else(no_key)?;
    let (label, rest) = from_label.split_once("-----").ok_or_else(no_key)?;
    let (body, _) = rest
        .split_once(&format!("-----END {label}-----"))
        .ok_or_else(|| JoseError::new(format!("the PEM text has no `-----END {label}-----`")))?;
    let bytes = || {
        let packed: Zeroizing<String> = Zeroizing::new(body.split_ascii_whitespace().collect());
        let bytes = STANDARD.decode(packed.as_bytes());
        bytes.map(Zeroizing::new).map_err(|_| JoseError::new("the PEM text is damaged: it is no Base64"))
    };
    match label {
        "PRIVATE KEY" => bytes().map(Block::Pkcs8),
        "RSA PRIVATE KEY" if !body.contains("Proc-Type") => bytes().map(Block::Pkcs1),
        "EC PRIVATE KEY" => Err(JoseError::new(
            "the key is in the SEC 1 form: `openssl pkcs8 -topk8 -nocrypt` turns it into PKCS #8",
        )),
        "ENCRYPTED PRIVATE KEY" | "RSA PRIVATE KEY" => Err(JoseError::new(
            "the key is encrypted: `openssl pkcs8 -topk8 -nocrypt` takes the password off",
        )),
        "PUBLIC KEY" | "CERTIFICATE" => {
            Err(JoseError::new("this is the public side; the private key is needed to sign"))
        }
        _ => Err(no_key()),
    }
}

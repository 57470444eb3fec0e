//! PEM parser that reads the private key in the first block of a file.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use super::error::JoseError;

/// Private key in the first PEM block of a file, by format.
pub(super) enum Block {
    Pkcs8(Zeroizing<Vec<u8>>),
    /// An RSA key in PKCS #1, the format before PKCS #8.
    Pkcs1(Zeroizing<Vec<u8>>),
}

pub(super) fn private_key(text: &str) -> Result<Block, JoseError> {
    let no_key = || JoseError::new("no private key found: expected `-----BEGIN PRIVATE KEY-----`");
    let (_, from_label) = text.split_once("-----BEGIN ").ok_or_else(no_key)?;
    let (label, rest) = from_label.split_once("-----").ok_or_else(no_key)?;
    let (body, _) = rest
        .split_once(&format!("-----END {label}-----"))
        .ok_or_else(|| JoseError::new(format!("the PEM text has no `-----END {label}-----`")))?;
    let bytes = || {
        let base64_text: Zeroizing<String> = Zeroizing::new(body.split_ascii_whitespace().collect());
        let bytes = STANDARD.decode(base64_text.as_bytes());
        bytes.map(Zeroizing::new).map_err(|_| JoseError::new("the PEM text is damaged: it is not Base64"))
    };
    match label {
        "PRIVATE KEY" => bytes().map(Block::Pkcs8),
        "RSA PRIVATE KEY" if !body.contains("Proc-Type") => bytes().map(Block::Pkcs1),
        "EC PRIVATE KEY" => Err(JoseError::new(
            "the key is in SEC 1 format: convert it to PKCS #8 with `openssl pkcs8 -topk8 -nocrypt`",
        )),
        "ENCRYPTED PRIVATE KEY" | "RSA PRIVATE KEY" => Err(JoseError::new(
            "the key is encrypted: remove the password with `openssl pkcs8 -topk8 -nocrypt`",
        )),
        "PUBLIC KEY" | "CERTIFICATE" => {
            Err(JoseError::new("this is a public key or a certificate; the private key is required to sign"))
        }
        _ => Err(no_key()),
    }
}

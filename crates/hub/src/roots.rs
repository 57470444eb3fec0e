//! MCP root that CLI commands declare to servers: the current directory.

use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use linchpin::model::Root;

/// Returns the current directory as a root; empty if the directory no longer exists.
pub(crate) fn current_directory() -> Vec<Root> {
    let folder = std::env::current_dir();
    folder.iter().map(|folder| Root { uri: file_uri(folder), name: None, meta: None }).collect()
}

fn file_uri(folder: &Path) -> String {
    let mut uri = "file://".to_owned();
    for byte in folder.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._~".contains(byte) {
            uri.push(char::from(*byte));
        } else {
            let _ = write!(uri, "%{byte:02X}");
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_a_uri() {
        assert_eq!(file_uri(Path::new("/a b/ä#.d")), "file:///a%20b/%C3%A4%23.d");
    }
}

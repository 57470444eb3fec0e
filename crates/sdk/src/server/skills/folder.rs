//! Reader of a skill folder on disk, which enforces the limits of a skill.

use std::fs;
use std::io::Read as _;
use std::path::Path;

use crate::skills::{MAX_BYTES, MAX_FILES};

/// Maximum depth of nested folders in the folder of a skill.
const MAX_DEPTH: usize = 16;

/// Returns all files below a folder with their paths, sorted. Names that start with a dot are skipped. Anything else
/// than a file or folder is an error, including links, which may point anywhere.
pub(super) fn read(folder: &Path) -> Result<Vec<(String, Vec<u8>)>, String> {
    let mut walk = Walk { files: Vec::new(), bytes_left: MAX_BYTES };
    walk.folder(folder, "", 0)?;
    walk.files.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    Ok(walk.files)
}

struct Walk {
    files: Vec<(String, Vec<u8>)>,
    bytes_left: u64,
}

impl Walk {
    fn folder(&mut self, folder: &Path, prefix: &str, depth: usize) -> Result<(), String> {
        let at = |error: std::io::Error| format!("{} cannot be read: {error}", folder.display());
        if depth > MAX_DEPTH {
            return Err(format!("{} is nested more than {MAX_DEPTH} folders deep", folder.display()));
        }
        for entry in fs::read_dir(folder).map_err(at)? {
            let entry = entry.map_err(at)?;
            let path = entry.path();
            let name = entry.file_name();
            let name =
                name.to_str().ok_or_else(|| format!("{} has a name that is not UTF-8", path.display()))?;
            if name.starts_with('.') {
                continue;
            }
            let kind = entry.file_type().map_err(at)?;
            if kind.is_dir() {
                self.folder(&path, &format!("{prefix}{name}/"), depth + 1)?;
            } else if kind.is_file() {
                self.file(&path, format!("{prefix}{name}"))?;
            } else {
                return Err(format!(
                    "{} is neither a file nor a folder: replace it by a regular file or folder",
                    path.display()
                ));
            }
        }
        Ok(())
    }

    fn file(&mut self, path: &Path, name: String) -> Result<(), String> {
        let at = |error: std::io::Error| format!("{} cannot be read: {error}", path.display());
        if self.files.len() == MAX_FILES {
            return Err(format!("the folder has more than {MAX_FILES} files"));
        }
        let mut bytes = Vec::new();
        let limit = self.bytes_left + 1; // one more byte, to detect that the file is too large
        let read = fs::File::open(path).map_err(at)?.take(limit).read_to_end(&mut bytes).map_err(at)?;
        self.bytes_left = self
            .bytes_left
            .checked_sub(read as u64)
            .ok_or_else(|| format!("the files of the skill have more than {MAX_BYTES} bytes in total"))?;
        self.files.push((name, bytes));
        Ok(())
    }
}

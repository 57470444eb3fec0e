//! The key file: the root keys, and the key that signs checkpoints of the audit. Only its owner may read it.
//!
//! ```text
//! # linchpin keys
//! audit 6f0c…
//! root 1 93ab…
//! root 2 01ff…
//! ```

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use super::Root;
use super::seal::Key;
use crate::private;
use crate::text::{hex, unhex};
use crate::world::{World, random};

const HEAD: &str = "# linchpin keys";
const LONGEST: u64 = 64 << 10;

/// Why a key file cannot be used. Nothing of what is in it is shown.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// It cannot be read or written.
    #[error("the key file `{}` cannot be used: {error}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Others can get at it.
    #[error("the key file `{}` is not yours alone: {why}", path.display())]
    Exposed {
        /// Which.
        path: PathBuf,
        /// Who can.
        why: private::Exposed,
    },
    /// It is no key file.
    #[error("`{}` is no key file (line {line}): give the one that the hub made, or a copy of it", path.display())]
    Broken {
        /// Which.
        path: PathBuf,
        /// Where.
        line: usize,
    },
}

/// What the key file holds.
pub struct KeyFile {
    path: PathBuf,
    /// The seed of the key that signs checkpoints.
    pub audit: Zeroizing<[u8; 32]>,
    /// Oldest first; the last one is in use.
    roots: Vec<Root>,
}

impl KeyFile {
    /// Reads the file, or makes one if there is none. Whether it was made.
    pub fn open(path: &Path, world: &dyn World) -> Result<(Self, bool), KeyFileError> {
        let failed = |error| KeyFileError::Io { path: path.to_owned(), error };
        match File::open(path) {
            Ok(file) => Self::read(path, file).map(|keys| (keys, false)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let (path, audit) = (path.to_owned(), Zeroizing::new(random(world)));
                let made = KeyFile { path, audit, roots: vec![Root::new(world, 0)] };
                made.save(world).map_err(failed)?;
                Ok((made, true))
            }
            Err(error) => Err(failed(error)),
        }
    }

    fn read(path: &Path, file: File) -> Result<Self, KeyFileError> {
        let failed = |error| KeyFileError::Io { path: path.to_owned(), error };
        private::check(&file.metadata().map_err(failed)?)
            .map_err(|why| KeyFileError::Exposed { path: path.to_owned(), why })?;
        let mut text = Zeroizing::new(String::new());
        file.take(LONGEST).read_to_string(&mut text).map_err(failed)?;
        Self::parse(path, &text)
    }

    /// What the text of a key file says, which is to be at this path.
    pub fn parse(path: &Path, text: &str) -> Result<Self, KeyFileError> {
        let broken = |line| KeyFileError::Broken { path: path.to_owned(), line };
        let (mut audit, mut roots) = (None, Vec::<Root>::new());
        if text.lines().next() != Some(HEAD) {
            return Err(broken(1));
        }
        for (index, line) in text.lines().enumerate().skip(1).filter(|(_, line)| !line.trim().is_empty()) {
            let mut words = line.split_ascii_whitespace();
            let (kind, last) = (words.next(), words.next_back());
            let key = last.and_then(key).ok_or_else(|| broken(index + 1))?;
            let number = words.next().map(str::parse);
            match (kind, number, words.next()) {
                (Some("audit"), None, None) if audit.is_none() => audit = Some(key),
                (Some("root"), Some(Ok(number)), None)
                    if roots.last().is_none_or(|last| last.number < number) =>
                {
                    roots.extend(Key::from_slice(&*key).map(|key| Root { number, key }));
                }
                _ => return Err(broken(index + 1)),
            }
        }
        let audit = audit.filter(|_| !roots.is_empty()).ok_or_else(|| broken(text.lines().count()))?;
        Ok(KeyFile { path: path.to_owned(), audit, roots })
    }

    /// The root key in use.
    pub fn root(&self) -> &Root {
        self.roots.last().expect("a key file has a root key")
    }

    /// The root key with this number.
    pub fn find(&self, number: u32) -> Option<&Root> {
        self.roots.iter().find(|root| root.number == number)
    }

    /// Adds a root key, which is used from now on. Those before stay until nothing is sealed with them.
    pub fn add(&mut self, world: &dyn World) -> io::Result<()> {
        self.roots.push(Root::new(world, self.root().number));
        self.save(world).inspect_err(|_| {
            self.roots.pop();
        })
    }

    /// Forgets all root keys but the one in use.
    pub fn forget(&mut self, world: &dyn World) -> io::Result<()> {
        let kept = self.roots.split_off(self.roots.len() - 1);
        let before = std::mem::replace(&mut self.roots, kept);
        self.save(world).inspect_err(|_| self.roots.splice(0..0, before.iter().cloned()).for_each(drop))
    }

    /// Writes the file.
    pub fn save(&self, world: &dyn World) -> io::Result<()> {
        private::write(&self.path, self.text().as_bytes(), world)
    }

    /// What the file says.
    pub fn text(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(format!("{HEAD}\naudit {}\n", *digits(&self.audit)));
        for root in &self.roots {
            text.push_str("root ");
            text.push_str(&root.number.to_string());
            text.push(' ');
            text.push_str(&digits(root.key.bytes()));
            text.push('\n');
        }
        text
    }
}

/// Both ways through memory that is wiped.
fn digits(key: &[u8; 32]) -> Zeroizing<String> {
    Zeroizing::new(hex(key))
}

fn key(text: &str) -> Option<Zeroizing<[u8; 32]>> {
    let bytes = Zeroizing::new(unhex(text)?);
    Some(Zeroizing::new(bytes.as_slice().try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;
    use crate::id::TenantId;
    use crate::world::System;

    fn open(folder: &TempDir) -> Result<(KeyFile, bool), String> {
        KeyFile::open(&folder.path().join("keys"), &System).map_err(|error| error.to_string())
    }

    #[test]
    fn it_is_made_once_and_turned_over() {
        let folder = tempfile::tempdir().unwrap();
        let (mut keys, was_made) = open(&folder).unwrap();
        assert!(was_made);
        let (_, wrapped) = keys.root().make(&System, TenantId::fixed(1), 0);
        keys.add(&System).unwrap();
        let (mut again, was_made) = open(&folder).unwrap();
        assert!(!was_made && again.root().number == 2 && *again.audit == *keys.audit);
        let opened = again.find(1).unwrap().unwrap(&wrapped).unwrap();
        let wrapped = again.root().wrap(&System, &opened);
        again.forget(&System).unwrap();
        let (last, _) = open(&folder).unwrap();
        assert!(last.find(1).is_none() && last.root().unwrap(&wrapped).is_ok());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[cfg(unix)]
    #[test]
    fn only_its_owner_reads_it() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        open(&folder).unwrap();
        let path = folder.path().join("keys");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let error = open(&folder).err().unwrap();
        assert!(
            error.starts_with("the key file")
                && error.contains("others can read")
                && error.ends_with("`chmod 600`"),
            "{error}"
        );
    }

    #[test]
    fn what_is_no_key_file_is_not_touched() {
        let folder = tempfile::tempdir().unwrap();
        open(&folder).unwrap();
        let path = folder.path().join("keys");
        let good = fs::read_to_string(&path).unwrap();
        let root = good.lines().last().unwrap();
        for (text, line) in [
            (String::new(), 1),
            ("canary".to_owned(), 1),
            (HEAD.to_owned(), 1),
            (good.replace("audit", "audio"), 2),
            (good.replace("root 1", "root x"), 3),
            (good[..good.len() - 3].to_owned(), 3),
            (format!("{good}{root}\n"), 4),
            (format!("{good}root 2 canary\n"), 4),
        ] {
            fs::write(&path, &text).unwrap();
            let error = open(&folder).err().unwrap();
            assert!(error.contains(&format!("is no key file (line {line})")), "{error}");
            assert!(!error.contains("canary"));
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }
}

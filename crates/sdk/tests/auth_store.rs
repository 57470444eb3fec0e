//! File token store: records are complete, encrypted and bound to their key.
#![cfg(feature = "http-client")]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::fs;
use std::path::{Path, PathBuf};

use linchpin::auth::{FileStore, Secret, TokenStore};

/// Temporary folder of one test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("store-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path); // of an earlier run
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn open(&self) -> Result<FileStore, String> {
        FileStore::open(self.0.join("kept"), self.0.join("key")).map_err(|error| error.to_string())
    }

    fn sealed(&self) -> Vec<PathBuf> {
        let files = fs::read_dir(self.0.join("kept")).unwrap().map(|entry| entry.unwrap().path());
        files.filter(|path| path.extension().is_some_and(|ending| ending == "sealed")).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

async fn load(store: &FileStore, key: &str) -> Result<Option<String>, String> {
    let loaded = store.load(key).await.map_err(|error| error.to_string())?;
    Ok(loaded.map(|secret| secret.expose().to_owned()))
}

#[tokio::test]
async fn what_is_kept_is_found_again() {
    let folder = Folder::new("again");
    let store = folder.open().unwrap();
    assert_eq!(load(&store, "a").await, Ok(None));
    store.save("a", Secret::new("first")).await.unwrap();
    store.save("a", Secret::new("second")).await.unwrap();
    store.save("b", Secret::new("other")).await.unwrap();
    let again = folder.open().unwrap();
    assert_eq!(load(&again, "a").await, Ok(Some("second".into())));
    again.remove("a").await.unwrap();
    again.remove("a").await.unwrap();
    assert_eq!((load(&store, "a").await, load(&store, "b").await), (Ok(None), Ok(Some("other".into()))));
}

#[tokio::test]
async fn nothing_can_be_read_moved_or_changed() {
    let folder = Folder::new("sealed");
    let store = folder.open().unwrap();
    store.save("a", Secret::new("canary-of-the-store")).await.unwrap();
    let file = folder.sealed().remove(0);
    let bytes = fs::read(&file).unwrap();
    assert!(!bytes.windows(6).any(|part| part == b"canary"));

    store.save("b", Secret::new("of b")).await.unwrap();
    let other = folder.sealed().into_iter().find(|path| *path != file).unwrap();
    let moved = fs::read(&other).unwrap();
    for broken in [&moved[..], &bytes[..bytes.len() - 1], &bytes[..10], &[]] {
        fs::write(&file, broken).unwrap();
        assert_eq!(load(&store, "a").await, Ok(None), "it does not block another key");
    }
    fs::write(&file, &bytes).unwrap();
    assert_eq!(load(&store, "a").await.unwrap().as_deref(), Some("canary-of-the-store"));
    fs::remove_file(folder.0.join("key")).unwrap();
    assert_eq!(load(&folder.open().unwrap(), "a").await, Ok(None));
}

#[cfg(unix)]
#[tokio::test]
async fn only_their_owner_reads_them() {
    use std::os::unix::fs::PermissionsExt;
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let folder = Folder::new("owner");
    let store = folder.open().unwrap();
    store.save("a", Secret::new("x")).await.unwrap();
    assert_eq!(mode(&folder.0.join("key")), 0o600);
    assert_eq!(mode(&folder.0.join("kept")), 0o700);
    assert_eq!(mode(&folder.sealed()[0]), 0o600);
    fs::set_permissions(folder.0.join("key"), fs::Permissions::from_mode(0o644)).unwrap();
    let error = folder.open().err().unwrap();
    assert!(error.contains("is readable by others") && error.contains("chmod 600"), "{error}");
    fs::write(folder.0.join("key"), "short").unwrap();
    fs::set_permissions(folder.0.join("key"), fs::Permissions::from_mode(0o600)).unwrap();
    assert!(folder.open().err().unwrap().contains("must contain a key of 32 bytes"));
}

#[tokio::test(start_paused = true)]
async fn one_at_a_time() {
    let folder = Folder::new("lock");
    let (one, other) = (folder.open().unwrap(), folder.open().unwrap());
    let held = one.lock("a").await.unwrap();
    drop(one.lock("b").await.unwrap());
    let mut waits = Box::pin(other.lock("a"));
    tokio::select! {
        biased;
        _ = &mut waits => panic!("it is held"),
        () = tokio::task::yield_now() => {}
    }
    drop(held);
    drop(waits.await.unwrap());
    let _held = one.lock("a").await.unwrap();
    let error = other.lock("a").await.err().unwrap().to_string();
    assert!(
        error.ends_with(
            "cannot be locked: another process has held the lock for a minute: end it, or try again later"
        ),
        "{error}"
    );
}

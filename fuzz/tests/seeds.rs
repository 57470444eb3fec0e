//! Every seed, and so everything that fuzzing ever found, goes through its target.

use std::path::Path;

fn replay(name: &str, target: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(name);
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).expect("the folder of seeds can be listed") {
        let path = entry.expect("the folder of seeds can be listed").path();
        let data = std::fs::read(&path).expect("a seed can be read");
        let outcome = std::panic::catch_unwind(|| target(&data));
        assert!(outcome.is_ok(), "the seed {} breaks the target {name}", path.display());
        count += 1;
    }
    assert!(count >= 12, "{} holds {count} seeds", folder.display());
}

#[test]
fn envelope() {
    replay("envelope", fuzz::envelope);
}

#[test]
fn lines() {
    replay("lines", fuzz::lines);
}

#[test]
fn codecs() {
    replay("codecs", fuzz::codecs);
}

#[test]
fn events() {
    replay("events", fuzz::events);
}

#[test]
fn headers() {
    replay("headers", fuzz::headers);
}

#[test]
fn egress() {
    replay("egress", fuzz::egress);
}

#[test]
fn auth() {
    replay("auth", fuzz::auth);
}

#[test]
fn schema() {
    replay("schema", fuzz::schema);
}

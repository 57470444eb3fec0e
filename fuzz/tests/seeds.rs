//! Runs every target with its seeds, which include all earlier findings.

use std::path::Path;

fn replay(name: &str, target: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(name);
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).expect("cannot list the seed directory") {
        let path = entry.expect("cannot list the seed directory").path();
        let data = std::fs::read(&path).expect("cannot read the seed");
        let outcome = std::panic::catch_unwind(|| target(&data));
        assert!(outcome.is_ok(), "the seed {} fails in the target {name}", path.display());
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

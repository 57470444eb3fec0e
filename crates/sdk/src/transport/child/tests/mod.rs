//! Tests with real processes: messages arrive, and exits are noticed. [`orphans`] tests that no process is left.

mod orphans;

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};

use linchpin_jsonrpc::{Id, Outbox};

use super::*;
use crate::lock::lock;
use crate::transport::Receiver;

const MAX_MESSAGE: usize = 16 << 20;
/// Timeout that only expires when something is broken.
const TEST_TIMEOUT: Duration = Duration::from_mins(1);
/// For children that do not exit by themselves.
const SHORT_CLOSE_TIMEOUT: Duration = Duration::from_millis(100);

#[derive(Clone, Debug, PartialEq)]
enum Event {
    Message(String),
    TooLong,
    Ended(String),
}

fn message(text: &str) -> Event {
    Event::Message(text.to_owned())
}

fn ended(text: &str) -> Event {
    Event::Ended(text.to_owned())
}

/// Records what arrives.
#[derive(Default)]
struct EventRecorder {
    events: Mutex<Vec<Event>>,
    changed: Condvar,
}

impl EventRecorder {
    fn add(&self, event: Event) {
        lock(&self.events).push(event);
        self.changed.notify_all();
    }

    fn wait(&self, is_there: impl Fn(&[Event]) -> bool) -> Vec<Event> {
        let events = lock(&self.events);
        let (events, waited) =
            self.changed.wait_timeout_while(events, TEST_TIMEOUT, |events| !is_there(events)).unwrap();
        assert!(!waited.timed_out(), "the expected event did not happen");
        events.clone()
    }

    /// Returns all events, once the connection has ended.
    fn all(&self) -> Vec<Event> {
        self.wait(|events| matches!(events.last(), Some(Event::Ended(_))))
    }

    /// Returns the first messages.
    fn messages(&self, count: usize) -> Vec<String> {
        let events = self.wait(|events| events.len() >= count);
        let text = |event: &Event| match event {
            Event::Message(text) => text.clone(),
            other => panic!("{other:?} is not a message"),
        };
        events[..count].iter().map(text).collect()
    }
}

impl Receiver for EventRecorder {
    fn receive(&self, message: &[u8], _: Option<&Id<'_>>) -> bool {
        self.add(Event::Message(String::from_utf8_lossy(message).into_owned()));
        true
    }

    fn too_long(&self) {
        self.add(Event::TooLong);
    }

    fn on_closed(&self, reason: &str) {
        self.add(Event::Ended(reason.to_owned()));
    }
}

struct ConnectedChild {
    handle: Box<dyn TransportHandle>,
    record: Arc<EventRecorder>,
    outbox: Arc<Outbox>,
}

impl ConnectedChild {
    fn send(&self, text: &str) {
        self.outbox.send(|out| out.extend_from_slice(text.as_bytes()));
    }
}

fn wire(max_message: usize) -> (Wire, Arc<EventRecorder>, Arc<Outbox>) {
    let record = Arc::new(EventRecorder::default());
    let outbox = Arc::new(Outbox::without_callback(1 << 20));
    (Wire::new(record.clone(), outbox.clone(), max_message), record, outbox)
}

async fn connect_for(command: &Command, max_message: usize) -> ConnectedChild {
    let (wire, record, outbox) = wire(max_message);
    ConnectedChild { handle: command.open(wire).await.unwrap(), record, outbox }
}

async fn connect(command: &Command) -> ConnectedChild {
    connect_for(command, MAX_MESSAGE).await
}

fn shell(script: &str) -> Command {
    Command::new("sh").args(["-c", script]).close_timeout(TEST_TIMEOUT)
}

fn unique() -> String {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// A file that does not exist yet, removed on drop.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        Scratch(std::env::temp_dir().join(format!("linchpin-child-{}", unique())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[tokio::test]
async fn messages_go_there_and_back_in_order() {
    let child = connect(&Command::new("cat")).await;
    child.send("one");
    child.send("two");
    assert_eq!(child.record.messages(2), ["one", "two"]);
    child.send("three");
    child.handle.close().await;
    let all = [message("one"), message("two"), message("three"), ended("the client closed the connection")];
    assert_eq!(child.record.all(), all);
    assert!(child.outbox.is_closed());
}

#[tokio::test]
async fn what_waited_before_the_start_is_sent() {
    let (wire, record, outbox) = wire(MAX_MESSAGE);
    outbox.send(|out| out.extend_from_slice(b"early"));
    let _line = Command::new("cat").open(wire).await.unwrap();
    assert_eq!(record.messages(1), ["early"]);
}

#[tokio::test]
async fn many_senders_lose_nothing_and_keep_their_order() {
    const LINES_PER_STREAM: usize = 2_000;
    let child = connect(&Command::new("cat")).await;
    std::thread::scope(|scope| {
        for sender in 0..4 {
            let child = &child;
            scope.spawn(move || {
                (0..LINES_PER_STREAM).for_each(|number| child.send(&format!("{sender} {number}")));
            });
        }
    });
    let messages = child.record.messages(4 * LINES_PER_STREAM);
    for sender in 0..4 {
        let prefix = format!("{sender} ");
        let numbers = messages.iter().filter_map(|message| message.strip_prefix(&prefix));
        assert!(numbers.eq((0..LINES_PER_STREAM).map(|number| number.to_string())), "{sender}");
    }
}

#[tokio::test]
async fn large_messages_pass_both_ways() {
    let child = connect(&Command::new("cat")).await;
    let large: Vec<_> = ["a", "b"].into_iter().map(|letter| letter.repeat(8 << 20)).collect();
    for text in &large {
        child.send(text);
    }
    assert!(child.record.messages(2) == large);
    child.send("small");
    assert_eq!(child.record.messages(3)[2], "small");
}

#[tokio::test]
async fn closing_writes_everything_first() {
    let scratch = Scratch::new();
    let command = shell(r#"cat > "$1"; echo written"#).arg("sh").arg(&scratch.0);
    let child = connect(&command).await;
    let large = "x".repeat(4 << 20);
    child.send(&large);
    child.send("last");
    child.handle.close().await;
    assert!(std::fs::read_to_string(&scratch.0).unwrap() == format!("{large}\nlast\n"));
    assert_eq!(child.record.all(), [message("written"), ended("the client closed the connection")]);
}

#[tokio::test]
async fn an_end_says_how_and_why() {
    let cases = [
        (
            "echo one; echo 'boom: no key' >&2; exit 3",
            "exited with status 3; last error output: boom: no key",
        ),
        ("echo one", "exited with status 0"),
        ("echo one; kill -9 $$", "was terminated by signal 9 (SIGKILL)"),
    ];
    for (script, expected) in cases {
        let child = connect(&shell(script)).await;
        let events = [message("one"), ended(&format!("the server {expected}"))];
        assert_eq!(child.record.all(), events, "{script}");
        child.handle.close().await;
        assert!(child.outbox.is_closed());
    }
}

#[tokio::test]
async fn a_closed_input_is_no_end() {
    let scratch = Scratch::new();
    let script = r#"exec <&-; echo deaf; while ! [ -e "$1" ]; do sleep 0.01; done; echo last; exit 4"#;
    let child = connect(&shell(script).arg("sh").arg(&scratch.0)).await;
    assert_eq!(child.record.messages(1), ["deaf"]);
    child.send("unread");
    child.send("nor this");
    std::fs::write(&scratch.0, "").unwrap();
    assert_eq!(child.record.all()[1..], [message("last"), ended("the server exited with status 4")]);
}

#[tokio::test]
async fn noise_is_passed_on_and_long_lines_are_skipped() {
    let script = r"printf 'noise\n\377\n0123456789\n'; head -c 1000000 /dev/zero; printf '\nafter\npartial'";
    let child = connect_for(&shell(script), 9).await;
    let events = [
        message("noise"),
        message("\u{fffd}"),
        Event::TooLong,
        Event::TooLong,
        message("after"),
        message("partial"),
        ended("the server exited with status 0"),
    ];
    assert_eq!(child.record.all(), events);
}

#[tokio::test]
async fn closing_may_be_asked_for_often() {
    let child = connect(&Command::new("cat")).await;
    tokio::join!(child.handle.close(), child.handle.close());
    child.handle.close().await;
    child.send("too late");
    assert_eq!(child.record.all(), [ended("the client closed the connection")]);
}

#[tokio::test]
async fn hooks_see_every_line_and_may_panic() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (outs, errs) = (seen.clone(), seen.clone());
    let command = shell("echo out; echo err >&2; printf tail >&2")
        .on_stdout(move |line| {
            lock(&outs).push(line.to_owned());
            panic!("in a hook, on purpose");
        })
        .on_stderr(move |line| lock(&errs).push(line.to_owned()));
    let child = connect(&command).await;
    let reason = "the server exited with status 0; last error output: err\ntail";
    assert_eq!(child.record.all(), [message("out"), ended(reason)]);
    let mut seen = lock(&seen).clone();
    seen.sort();
    assert_eq!(seen, ["err", "out", "tail"]);
}

#[tokio::test]
async fn the_environment_is_asked_for_at_each_start() {
    let count = AtomicUsize::new(0);
    let command = Command::new("/bin/sh")
        .args(["-c", r#"echo "$A $B ${HOME-none} $PWD""#])
        .current_dir("/")
        .env_clear()
        .env("A", "set")
        .env_with(move || Ok(vec![("B".into(), count.fetch_add(1, Ordering::Relaxed).to_string())]));
    assert_eq!(connect(&command).await.record.messages(1), ["set 0 none /"]);
    assert_eq!(connect(&command).await.record.messages(1), ["set 1 none /"]);
}

#[tokio::test]
async fn a_failed_start_says_what_to_do() {
    let file = Scratch::new();
    std::fs::write(&file.0, "#!/no/such/interpreter\n").unwrap();
    let plain = file.0.to_str().unwrap();
    let refuse = || Err(io::Error::other("the keychain is locked"));
    let cases = [
        (Command::new("no-such-program"), "`no-such-program`: no such program in PATH; install it"),
        (Command::new("/no/such/file"), "`/no/such/file`: there is no such file"),
        (Command::new(plain), "the program is not executable; make it so with `chmod +x`"),
        (
            Command::new("cat").current_dir("/no/such"),
            "the working directory /no/such cannot be used (No such",
        ),
        (Command::new("cat").current_dir(plain), "is not a directory"),
        (
            Command::new("cat").env_with(refuse),
            "environment of the server could not be prepared: the keychain is locked",
        ),
        (Command::new("cat").env_with(|| panic!("on purpose")), "the function given to `env_with` panicked"),
    ];
    for (command, expected) in cases {
        let error = command.open(wire(1).0).await.err().unwrap().to_string();
        assert!(error.starts_with("cannot start `") && error.contains(expected), "{error}");
    }
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&file.0, executable).unwrap();
    let error = Command::new(plain).open(wire(1).0).await.err().unwrap().to_string();
    assert!(error.contains("the interpreter or dynamic loader of the program is missing"), "{error}");
}

#[test]
fn names_are_unambiguous_and_nothing_shows_the_environment() {
    let command =
        Command::new("npx").arg("-y").args(["a b", "c\"d"]).current_dir("/w x").env("KEY", "secret");
    assert_eq!(command.name(), r#""npx" "-y" "a b" "c\"d" in "/w x""#);
    assert_eq!(Command::new("npx").name(), r#""npx""#);
    let shown = format!("{command:?}");
    assert!(shown.contains("npx") && shown.contains("a b") && shown.contains("KEY"), "{shown}");
    assert!(!shown.contains("secret"), "{shown}");
}

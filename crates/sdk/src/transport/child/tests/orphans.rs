//! Tests that no process started by a server is left, however its connection ends, and no other process is touched.

use std::sync::mpsc::sync_channel;
use std::time::Instant;

use super::*;

const TAG: &str = "LINCHPIN_TEST_TAG";
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Returns the running processes that have `tag` in their environment.
fn processes_with_tag(tag: &str) -> Vec<proc_table::Process> {
    let variable = format!("{TAG}={tag}").into_bytes();
    let is_tagged = |process: &proc_table::Process| {
        let environment = proc_table::environment(process.id).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|found| found == variable)
    };
    proc_table::all().into_iter().filter(|process| process.is_alive && is_tagged(process)).collect()
}

fn find(id: &str) -> proc_table::Process {
    proc_table::find(id.parse().unwrap()).unwrap()
}

fn is_alive(process: &proc_table::Process) -> bool {
    proc_table::find(process.id).is_some_and(|now| now.start == process.start && now.is_alive)
}

#[tokio::test]
async fn closing_gives_up_on_a_child_that_does_not_read() {
    let child = connect(&shell("echo $$; exec sleep 1000").close_timeout(SHORT_CLOSE_TIMEOUT)).await;
    let process = find(&child.record.messages(1)[0]);
    child.send(&"x".repeat(1 << 20));
    child.handle.close().await;
    assert!(!is_alive(&process));
}

#[tokio::test]
async fn an_end_is_noticed_when_a_grandchild_keeps_the_output() {
    let script = "setsid sh -c 'echo $$; exec sleep 1000' & read line; exit 5";
    let child = connect(&shell(script)).await;
    let process = find(&child.record.messages(1)[0]);
    assert!(is_alive(&process));
    child.send("go");
    assert_eq!(child.record.all()[1], ended("the server exited with status 5"));
    assert!(!is_alive(&process));
}

#[tokio::test]
async fn a_closed_output_is_an_end() {
    let tag = unique();
    let command = shell("echo one; exec sleep 1000 >&-").env(TAG, &tag).close_timeout(SHORT_CLOSE_TIMEOUT);
    let child = connect(&command).await;
    let reason = "the server closed its standard output without exiting, and was terminated";
    assert_eq!(child.record.all(), [message("one"), ended(reason)]);
    assert_eq!(processes_with_tag(&tag), []);
}

/// Scripts with a grandchild that prints its pid and then stays, started in ways that make it hard to find or stop.
const STUBBORN_SCRIPTS: [&str; 7] = [
    "sh -c 'echo $$; exec sleep 1000' & cat",
    "sh -c 'trap \"\" TERM HUP; echo $$; sleep 1000; sleep 1000' & cat",
    "setsid sh -c 'echo $$; exec sleep 1000' & cat",
    "(setsid sh -c '(trap \"\" TERM; sh -c \"echo \\$\\$; exec sleep 1000\") & exit' &); cat",
    "nohup sh -c 'echo $$; exec sleep 1000' & cat",
    "env -i setsid sh -c 'echo $$; exec sleep 1000' & cat",
    "trap '' TERM; echo $$; while :; do sleep 1000; done",
];

#[tokio::test]
async fn closing_leaves_no_stubborn_descendant() {
    for script in STUBBORN_SCRIPTS {
        let tag = unique();
        let child = connect(&shell(script).env(TAG, &tag).close_timeout(SHORT_CLOSE_TIMEOUT)).await;
        let process = find(&child.record.messages(1)[0]);
        assert!(is_alive(&process));
        child.handle.close().await;
        assert!(!is_alive(&process), "{script}");
        assert_eq!(processes_with_tag(&tag), [], "{script}");
        assert_eq!(child.record.all()[1..], [ended("the client closed the connection")]);
    }
}

#[tokio::test]
async fn dropping_leaves_no_stubborn_descendant() {
    for script in STUBBORN_SCRIPTS {
        let tag = unique();
        let child = connect(&shell(script).env(TAG, &tag)).await;
        let process = find(&child.record.messages(1)[0]);
        drop(child.handle);
        assert!(!is_alive(&process), "{script}");
        assert_eq!(processes_with_tag(&tag), [], "{script}");
        assert_eq!(child.record.all()[1..], [ended("the client dropped the connection")]);
    }
}

#[tokio::test]
async fn a_grandchild_that_ends_in_good_order_is_let() {
    let scratch = Scratch::new();
    // The shell exits at once; the server behind it gets `SIGTERM`, and has work to do first.
    let server = r#"trap "echo saved > \"$1\"; exit" TERM; echo ready; while :; do sleep 0.01; done"#;
    let command = shell(r#"sh -c "$1" sh "$2" & read line"#).args(["sh", server]).arg(&scratch.0);
    let child = connect(&command).await;
    assert_eq!(child.record.messages(1), ["ready"]);
    child.handle.close().await;
    assert_eq!(std::fs::read_to_string(&scratch.0).unwrap(), "saved\n");
}

#[tokio::test]
async fn nothing_is_left_after_a_hundred_connections() {
    let tag = unique();
    let command = shell("(setsid sleep 1000 >&2 &); sleep 1000 >&2 & cat").env(TAG, &tag);
    for round in 0..100 {
        let child = connect(&command).await;
        if round % 2 == 0 {
            child.send("hello");
            assert_eq!(child.record.messages(1), ["hello"]);
        }
        if round % 4 < 2 {
            child.handle.close().await;
        }
    }
    assert_eq!(processes_with_tag(&tag), []);
}

#[tokio::test]
async fn strangers_are_left_alone() {
    let tag = unique();
    let mut unrelated = std::process::Command::new("sleep").arg("1000").env(TAG, &tag).spawn().unwrap();
    let first = connect(&Command::new("cat").env(TAG, &tag)).await;
    let second = connect(&Command::new("cat").env(TAG, &tag)).await;
    drop(first.handle);
    second.send("still here");
    assert_eq!(second.record.messages(1), ["still here"]);
    second.handle.close().await;
    assert!(unrelated.try_wait().unwrap().is_none());
    unrelated.kill().unwrap();
    unrelated.wait().unwrap();
}

#[tokio::test]
async fn a_lineage_is_ended_whole_and_no_other() {
    let (tag, other) = (unique(), unique());
    let (lineage, others) = (Lineage::unique(), Lineage::unique());
    let mut children = Vec::new();
    for script in STUBBORN_SCRIPTS {
        let child =
            connect(&shell(script).env_clear().env("PATH", PATH).env(TAG, &tag).lineage(&lineage)).await;
        let process = find(&child.record.messages(1)[0]);
        children.push((child, process));
    }
    let unrelated = connect(&Command::new("cat").env(TAG, &other).lineage(&others)).await;
    // As another process would, which has the text form only.
    let ended = Lineage::parse(&lineage.to_string()).unwrap().kill();
    assert!(ended >= 2 * STUBBORN_SCRIPTS.len() - 1, "{ended}");
    assert_eq!(processes_with_tag(&tag), []);
    for (child, process) in children {
        assert!(!is_alive(&process));
        // A shell whose child is killed first exits with status 137.
        let events = child.record.all();
        let Some(Event::Ended(reason)) = events.last() else { panic!("{events:?}") };
        assert!(reason.contains("SIGKILL") || reason.contains("status 137"), "{reason}");
    }
    assert_eq!(lineage.kill(), 0, "no process is left");
    unrelated.send("still here");
    assert_eq!(unrelated.record.messages(1), ["still here"]);
    assert_eq!(others.kill(), 1);
}

#[tokio::test]
async fn dropping_ends_a_closing_that_takes_long() {
    let tag = unique();
    let child = connect(&shell("echo ready; exec sleep 1000").env(TAG, &tag)).await;
    child.record.messages(1);
    assert!(tokio::time::timeout(SHORT_CLOSE_TIMEOUT, child.handle.close()).await.is_err());
    let before = Instant::now();
    drop(child.handle);
    assert!(before.elapsed() < TEST_TIMEOUT / 10);
    assert_eq!(processes_with_tag(&tag), []);
    assert_eq!(child.record.all()[1..], [ended("the client dropped the connection")]);
}

#[tokio::test]
async fn a_hook_may_drop_the_connection() {
    let tag = unique();
    let handle_slot = Arc::new(Mutex::new(None::<Box<dyn TransportHandle>>));
    let line = handle_slot.clone();
    let command = Command::new("cat").env(TAG, &tag).on_stdout(move |_| drop(lock(&line).take()));
    let ConnectedChild { handle: line, record, outbox } = connect(&command).await;
    *lock(&handle_slot) = Some(line);
    outbox.send(|out| out.extend_from_slice(b"one\ntwo"));
    // The line read before the hook dropped the connection is still passed on, and nothing after it.
    assert_eq!(record.all(), [message("one"), ended("the client dropped the connection")]);
    assert_eq!(processes_with_tag(&tag), []);
}

#[tokio::test]
async fn dropping_does_not_wait_for_a_hook() {
    let tag = unique();
    let (entered, is_entered) = sync_channel(1);
    let (release, released) = sync_channel(1);
    let released = Mutex::new(released);
    let command = Command::new("cat").env(TAG, &tag).on_stdout(move |_| {
        entered.send(()).unwrap();
        lock(&released).recv_timeout(TEST_TIMEOUT).unwrap();
    });
    let child = connect(&command).await;
    child.send("one");
    is_entered.recv_timeout(TEST_TIMEOUT).unwrap();
    drop(child.handle);
    assert_eq!(processes_with_tag(&tag), []);
    release.send(()).unwrap();
    assert_eq!(child.record.all().last(), Some(&ended("the client dropped the connection")));
}

#[tokio::test]
async fn an_opening_that_is_given_up_leaves_nothing() {
    let tag = unique();
    let (release, released) = sync_channel(1);
    let released = Mutex::new(released);
    let command = Command::new("cat").env(TAG, &tag).env_with(move || {
        lock(&released).recv_timeout(TEST_TIMEOUT).map_err(io::Error::other)?;
        Ok(Vec::new())
    });
    let (wire, record, _outbox) = wire(MAX_MESSAGE);
    assert!(tokio::time::timeout(SHORT_CLOSE_TIMEOUT, command.open(wire)).await.is_err());
    release.send(()).unwrap();
    assert_eq!(record.all(), [ended("the client dropped the connection")]);
    assert_eq!(processes_with_tag(&tag), []);
}

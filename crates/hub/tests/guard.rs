//! No process outlives its hub, however the hub ends. Real processes: this test program acts as the hub, and the guard
//! is that of `linchpin`.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use linchpin::Client;
use linchpin::egress::Egress;
use linchpin_hub_core::connection::{ConnectionPool, Processes};
use linchpin_hub_core::events::EventLog;
use linchpin_hub_core::id::{ServerId, TenantId};
use linchpin_hub_core::platform::SystemPlatform;
use linchpin_hub_core::process_guard::{COMMAND, ProcessGuard};
use linchpin_hub_core::server::{ProgramSpec, Server, ServerSettings, Transport};
use linchpin_hub_core::tool::names::Slug;
use linchpin_hub_core::{Actor, Platform, Subject};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use support::LINCHPIN;
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// Environment variable that makes a process act as the hub, in this folder.
const HUB: &str = "LINCHPIN_TEST_HUB";
const SERVERS: u128 = 20;
const CYCLES: usize = 50;
/// Maximum lifetime of processes after their hub was killed.
const KILL_TIMEOUT: Duration = Duration::from_secs(2);
/// Test timeout, reached only if something is broken.
const TEST_TIMEOUT: Duration = Duration::from_mins(1);

/// The demo server with two more children. One tries to outlive it: it ignores termination
/// signals, has left the process group and closed its pipes. The other one has lost its parent.
const SERVER: &str = r#"
exec 9>"$ALIVE"
(setsid sh -c '(echo up >&9; exec sleep 1000) & exit' &)
setsid sh -c 'trap "" TERM HUP INT; exec <&- >&- 2>&-; echo up >&9; exec sleep 1000' &
exec "$0" demo
"#;

/// Serializes the tests: they count resources of the whole process.
fn lock_tests() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Folder with the lineage of a hub, and a pipe that stays open while any process of the hub lives.
struct Place {
    folder: TempDir,
    /// Two lines per started server. Closed when the last process exits.
    alive: Receiver<String>,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("alive");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let (up, alive) = sync_channel(1_000);
        // Opening the pipe blocks until the other end is opened.
        std::thread::spawn(move || {
            let lines = BufReader::new(File::open(pipe).unwrap()).lines();
            lines.for_each(|line| drop(up.send(line.unwrap())));
        });
        Place { folder, alive }
    }

    fn file(&self) -> PathBuf {
        file(self.folder.path())
    }

    fn mark(&self) -> String {
        fs::read_to_string(self.file()).unwrap().trim_end().to_owned()
    }

    fn until_up(&self, servers: u128) {
        for _ in 0..2 * servers {
            assert_eq!(self.alive.recv_timeout(TEST_TIMEOUT).as_deref(), Ok("up"));
        }
    }

    /// Asserts that all processes exit soon, including those that were just being started.
    #[track_caller]
    fn assert_empty_soon(&self, mark: &str) {
        let until = Instant::now() + KILL_TIMEOUT;
        let next = || self.alive.recv_timeout(until.saturating_duration_since(Instant::now()));
        let end = std::iter::repeat_with(next).find_map(Result::err);
        assert_eq!(end, Some(RecvTimeoutError::Disconnected), "{:?}", lineage_processes(mark));
        assert_eq!(lineage_processes(mark), [0; 0]);
    }
}

fn file(folder: &Path) -> PathBuf {
    folder.join("lineage")
}

/// A hub in a separate process, with its servers.
struct Hub {
    place: Place,
    process: Child,
}

impl Hub {
    /// Starts a hub and waits until this number of servers is running.
    fn start(servers: u128) -> Self {
        let place = Place::new();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "nothing_outlives_a_hub_that_is_killed"]).env(HUB, place.folder.path());
        command.stdin(Stdio::piped()).stdout(Stdio::null()).process_group(0);
        let hub = Hub { process: command.spawn().unwrap(), place };
        hub.place.until_up(servers);
        hub
    }

    fn id(&self) -> Pid {
        Pid::from_child(&self.process)
    }

    /// Returns the guard of the hub, as soon as it differs from `other`.
    fn guard(&self, other: Option<Pid>) -> Pid {
        let begun = Instant::now();
        loop {
            let is_guard = |id: &i32| {
                let command = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
                parent(*id) == Some(self.id().as_raw_pid())
                    && command.ends_with(format!("{COMMAND}\0").as_bytes())
            };
            let found = processes().find(is_guard).and_then(Pid::from_raw);
            if let Some(guard) = found.filter(|_| found != other) {
                return guard;
            }
            assert!(begun.elapsed() < TEST_TIMEOUT, "there is no guard");
            std::thread::yield_now();
        }
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        let _ = self.process.kill(); // it may have ended
        let _ = self.process.wait();
    }
}

/// Acts as a hub: starts the guard and connects to the servers, until standard input ends.
fn run_hub(folder: &Path) {
    let guard = ProcessGuard::start(Path::new(LINCHPIN), &file(folder)).unwrap();
    let _alive = OpenOptions::new().write(true).open(folder.join("alive")).unwrap();
    let runtime = Runtime::new().unwrap();
    let connections = runtime.block_on(connect(&guard, folder, SERVERS));
    io::stdin().read_to_end(&mut Vec::new()).unwrap();
    drop(connections);
}

async fn connect(guard: &ProcessGuard, folder: &Path, servers: u128) -> Vec<Client> {
    let (world, events) = (Arc::new(SystemPlatform), EventLog::default());
    let processes = Processes { lineage: Some(guard.lineage().clone()), ..Processes::default() };
    let connections =
        ConnectionPool::new(world, Egress::default(), events, Arc::new(|_, _, _| ()), processes);
    let actor = Actor::new(TenantId::from_u128(1), Subject::Hub);
    let mut clients = Vec::new();
    for number in 1..=servers {
        clients.push(connections.connect_unpooled(actor, &server(number, folder), None).await.unwrap());
    }
    clients
}

fn server(number: u128, folder: &Path) -> Server {
    let env = BTreeMap::from([("ALIVE".to_owned(), folder.join("alive").to_str().unwrap().to_owned())]);
    let now = SystemPlatform.now();
    Server {
        id: ServerId::from_u128(number),
        slug: Slug::new("stubborn").unwrap(),
        settings: ServerSettings::with_name("Stubborn"),
        transport: Transport::Stdio(ProgramSpec { env, ..ProgramSpec::new("sh", &["-c", SERVER, LINCHPIN]) }),
        is_configured: true,
        is_undeclared: false,
        version: 1,
        created: now,
        updated: now,
    }
}

fn processes() -> impl Iterator<Item = i32> {
    fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok())
}

/// Returns the live processes of a lineage.
fn lineage_processes(mark: &str) -> Vec<i32> {
    let carries = |id: &i32| {
        let environment = fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
        environment.windows(mark.len()).any(|part| part == mark.as_bytes())
    };
    processes().filter(carries).collect()
}

/// Returns the fields of `/proc/PID/stat` after the name: state, parent, and more.
fn fields(id: i32) -> Vec<String> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit(')').next().unwrap_or_default().split_whitespace().map(str::to_owned).collect()
}

fn parent(id: i32) -> Option<i32> {
    fields(id).get(1)?.parse().ok()
}

/// Returns all children of this process, including zombies.
fn children() -> Vec<i32> {
    let own = i32::try_from(std::process::id()).ok();
    processes().filter(|id| parent(*id) == own).collect()
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn nothing_outlives_a_hub_that_is_killed() {
    if let Some(folder) = std::env::var_os(HUB) {
        return run_hub(Path::new(&folder));
    }
    let _alone = lock_tests();
    for kill in [kill_process, kill_process_group] {
        // Kill when all servers are running, and while more are being started.
        for servers in [SERVERS, 1, 2, 3, 5, 8] {
            let hub = Hub::start(servers);
            let mark = hub.place.mark();
            kill(hub.id(), Signal::KILL).unwrap();
            hub.place.assert_empty_soon(&mark);
        }
    }
}

#[test]
fn nothing_outlives_a_hub_that_ends_in_good_order() {
    let _alone = lock_tests();
    let mut hub = Hub::start(SERVERS);
    let mark = hub.place.mark();
    drop(hub.process.stdin.take());
    assert!(hub.process.wait().unwrap().success());
    hub.place.assert_empty_soon(&mark);
}

#[test]
fn a_guard_that_is_killed_is_replaced() {
    let _alone = lock_tests();
    let hub = Hub::start(SERVERS);
    let mark = hub.place.mark();
    let mut guard = hub.guard(None);
    for _ in 0..3 {
        kill_process(guard, Signal::KILL).unwrap();
        guard = hub.guard(Some(guard));
    }
    let before = lineage_processes(&mark);
    let error = ProcessGuard::start(Path::new(LINCHPIN), &hub.place.file()).err().unwrap().to_string();
    assert!(error.contains("another hub runs on the same data: stop it"), "{error}");
    assert_eq!(
        (lineage_processes(&mark), hub.place.mark()),
        (before, mark.clone()),
        "the running hub is unaffected"
    );
    kill_process(hub.id(), Signal::KILL).unwrap();
    hub.place.assert_empty_soon(&mark);
}

#[test]
fn what_hub_and_guard_leave_when_both_are_killed_ends_with_the_next_start() {
    let _alone = lock_tests();
    let mut hub = Hub::start(SERVERS);
    let mark = hub.place.mark();
    kill_process(hub.id(), Signal::STOP).unwrap(); // so that it starts no other guard
    kill_process(hub.guard(None), Signal::KILL).unwrap();
    hub.process.kill().unwrap();
    hub.process.wait().unwrap();
    assert!(
        lineage_processes(&mark).len() >= usize::try_from(SERVERS).unwrap(),
        "the processes ignore SIGTERM"
    );
    let next = ProcessGuard::start(Path::new(LINCHPIN), &hub.place.file()).unwrap();
    hub.place.assert_empty_soon(&mark);
    assert_eq!(hub.place.mark(), next.lineage().to_string());
    assert_ne!(hub.place.mark(), mark);
    assert_eq!(fs::metadata(hub.place.file()).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn whatever_stands_in_the_file_a_hub_starts() {
    let _alone = lock_tests();
    let place = Place::new();
    for text in [&b""[..], b"\n", b"1-2", b"\xff", &[b'x'; 10_000]] {
        fs::write(place.file(), text).unwrap();
        let guard = ProcessGuard::start(Path::new(LINCHPIN), &place.file()).unwrap();
        assert_eq!(place.mark(), guard.lineage().to_string());
    }
    let error = ProcessGuard::start(Path::new(LINCHPIN), place.folder.path()).err().unwrap().to_string();
    assert!(error.starts_with("the lock file `") && error.contains("cannot be used: "), "{error}");
    let error = ProcessGuard::start(Path::new("/no/such/program"), &place.file()).err().unwrap().to_string();
    assert!(error.starts_with("`/no/such/program __guard` cannot be started: "), "{error}");
}

#[test]
fn nothing_is_left_after_many_starts() {
    let _alone = lock_tests();
    let place = Place::new();
    let _alive = OpenOptions::new().write(true).open(place.folder.path().join("alive")).unwrap();
    let runtime = Runtime::new().unwrap();
    let before = (children(), descriptors());
    for round in 0..CYCLES {
        let guard = ProcessGuard::start(Path::new(LINCHPIN), &place.file()).unwrap();
        let lineage = guard.lineage().to_string();
        let connections = runtime.block_on(connect(&guard, place.folder.path(), 1));
        place.until_up(1);
        if round % 2 == 0 {
            drop(connections);
            drop(guard);
        } else {
            drop(guard);
            assert_eq!(lineage_processes(&lineage), [0; 0], "the guard kills the remaining processes");
            drop(connections);
        }
        assert_eq!(lineage_processes(&lineage), [0; 0]);
        // The threads of connections close their descriptors a moment later.
        let begin = Instant::now();
        while (children(), descriptors()) != before {
            let now = (children(), descriptors());
            assert!(
                begin.elapsed() < TEST_TIMEOUT,
                "zombies, guards and descriptors: {now:?} and not {before:?}"
            );
            std::thread::yield_now();
        }
    }
}

//! PostgreSQL server for tests. It belongs to the test process and stops with it, even if the process is killed. `cargo
//! xtask test` installs PostgreSQL.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod installation;
mod watchdog;

use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};

use self::installation::{Installation, ServerUser};
use self::watchdog::ServerProcess;

/// Superuser of the PostgreSQL test server; it has no password.
const USER: &str = "tester";
/// First of the ports that the test server tries, which are below the ephemeral ports of the system.
const FIRST_PORT: u16 = 20_000;
/// Number of ports that the test server tries.
const PORT_COUNT: u32 = 12_000;

/// PostgreSQL server of a test process, whose files are removed when the process is gone.
pub struct Server {
    programs: Installation,
    owner: ServerUser,
    folder: PathBuf,
    port: u16,
    process: Mutex<Option<ServerProcess>>,
    databases: AtomicU32,
}

/// Returns the PostgreSQL server that all tests of this process share.
pub fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(Server::start)
}

impl Server {
    /// Starts a separate PostgreSQL server, for a test that stops it.
    pub fn start() -> Self {
        static NEXT_TURN: AtomicU32 = AtomicU32::new(0);
        let (programs, owner) = (Installation::find(), ServerUser::find());
        let folder = owner.create_folder();
        let mut initdb = owner.command(&programs.path("initdb"));
        initdb.args([
            "--auth=trust",
            "--no-locale",
            "--encoding=UTF8",
            "--no-sync",
            "--username",
            USER,
            "-D",
        ]);
        require_success(initdb.arg(folder.join("data")).output().unwrap());
        let mut server = Server {
            programs,
            owner,
            folder,
            port: 0,
            process: Mutex::default(),
            databases: AtomicU32::new(0),
        };
        // Only binding shows whether a port is free. No port is tried twice: it may belong to a server that is just
        // being restarted.
        let mut last = String::new();
        for _ in 0..20 {
            let port_offset = std::process::id() % PORT_COUNT
                + 997 * (NEXT_TURN.fetch_add(1, Ordering::Relaxed) % PORT_COUNT);
            server.port = FIRST_PORT + u16::try_from(port_offset % PORT_COUNT).unwrap();
            match server.run() {
                Ok(guard) => {
                    server.process = Mutex::new(Some(guard));
                    return server;
                }
                Err(output) => last = output,
            }
        }
        panic!("PostgreSQL failed to start:\n{last}");
    }

    fn run(&self) -> Result<ServerProcess, String> {
        ServerProcess::start(&self.owner, &self.programs.path("postgres"), &self.folder, self.port)
    }

    /// Stops the PostgreSQL server. Its files stay.
    pub fn stop(&self) {
        self.process.lock().unwrap().take().unwrap().stop();
    }

    /// Starts the stopped PostgreSQL server again.
    pub fn restart(&self) {
        *self.process.lock().unwrap() = Some(self.run().unwrap());
    }

    /// Enables TLS with this certificate and key, in PEM, and restarts the server.
    pub fn enable_tls(&self, certificate: &[u8], key: &[u8]) {
        for (name, bytes) in [("server.crt", certificate), ("server.key", key)] {
            self.owner.write_private(&self.folder.join("data").join(name), bytes);
        }
        self.sql("postgres", "ALTER SYSTEM SET ssl = on");
        self.stop();
        self.restart();
    }

    /// Creates an empty test database and returns its name.
    pub fn create_database(&self) -> String {
        let name = format!("test_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.sql("postgres", &format!("CREATE DATABASE {name} TEMPLATE template0"));
        name
    }

    /// Returns the URL of a test database over the Unix socket.
    pub fn url(&self, database: &str) -> String {
        let folder = self.folder.to_str().unwrap().replace('/', "%2F");
        format!("postgres://{USER}@{folder}:{}/{database}", self.port)
    }

    /// Returns the URL of a test database over TCP.
    pub fn tcp_url(&self, database: &str) -> String {
        format!("postgres://{USER}@127.0.0.1:{}/{database}", self.port)
    }

    /// Executes SQL statements in a database of the test server. Returns a line for each row, with `|` between the
    /// columns.
    pub fn sql(&self, database: &str, statements: &str) -> String {
        let mut psql = Command::new(self.programs.path("psql"));
        psql.args([
            "--no-psqlrc",
            "--quiet",
            "--tuples-only",
            "--no-align",
            "--set=ON_ERROR_STOP=1",
            "--username",
            USER,
        ]);
        psql.arg("--host").arg(&self.folder).arg(format!("--port={}", self.port));
        psql.arg("--dbname").arg(database).arg("--command").arg(statements);
        require_success(psql.output().unwrap()).trim().to_owned()
    }
}

fn require_success(output: Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

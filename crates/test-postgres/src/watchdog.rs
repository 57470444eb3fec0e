//! Watchdog: a shell between a test and its PostgreSQL server. When the test process ends, even by `SIGKILL`, the input
//! of the shell is closed, and the shell stops the server.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use crate::installation::ServerUser;

/// Timeout of starting a PostgreSQL server.
const START_TIMEOUT: Duration = Duration::from_mins(1);
const READY_MESSAGE: &str = "database system is ready to accept connections";
/// Shell script that stops the PostgreSQL server when its input contains a line or ends. If the input ends without a
/// line, the script also removes the files of the server.
const SCRIPT: &str = r#"
folder=$1; shift
"$@" </dev/null 2>&1 & server=$!
exec >/dev/null 2>&1
read -r line
kill -INT $server
wait $server
[ -n "$line" ] || rm -rf "$folder"
"#;

/// Running PostgreSQL server of a test, and the shell that stops it.
pub(crate) struct ServerProcess(Child);

impl ServerProcess {
    /// Starts the PostgreSQL server below a shell that stops it when this process ends. On failure returns its output.
    pub(crate) fn start(
        owner: &ServerUser,
        postgres: &Path,
        folder: &Path,
        port: u16,
    ) -> Result<Self, String> {
        let mut shell = owner.command(Path::new("/bin/sh"));
        shell.arg("-c").arg(SCRIPT).arg("guard").arg(folder).arg(postgres);
        shell.arg("-D").arg(folder.join("data")).arg("-k").arg(folder).arg("-p").arg(port.to_string());
        for setting in
            ["listen_addresses=127.0.0.1", "fsync=off", "full_page_writes=off", "max_connections=200"]
        {
            shell.args(["-c", setting]);
        }
        let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(shell.stdout.take().unwrap()).lines();
        let (started, start) = sync_channel(1);
        // Reads until the server ends: a full pipe would block the server.
        std::thread::spawn(move || {
            let mut output = String::new();
            for line in lines.map_while(Result::ok) {
                if line.contains(READY_MESSAGE) {
                    let _ = started.try_send(Ok(())); // the receiver may have timed out
                }
                output.extend([&*line, "\n"]);
            }
            let _ = started.try_send(Err(output));
        });
        let outcome = start
            .recv_timeout(START_TIMEOUT)
            .unwrap_or_else(|_| Err(format!("not ready after {START_TIMEOUT:?}")));
        let guard = ServerProcess(shell);
        match outcome {
            Ok(()) => Ok(guard),
            Err(output) => {
                guard.stop();
                Err(output)
            }
        }
    }

    /// Stops the PostgreSQL server; its files stay.
    pub(crate) fn stop(mut self) {
        self.0.stdin.as_mut().unwrap().write_all(b"stay\n").unwrap();
        self.0.wait().unwrap();
    }
}

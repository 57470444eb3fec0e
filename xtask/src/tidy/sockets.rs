//! Rule: only the egress module opens connections, so that the egress policy cannot be bypassed.

use super::{Finding, SourceFile, rust};

/// Module that opens connections.
const EGRESS_PATH: &str = "crates/sdk/src/egress/";
/// Module of the HTTP server, which listens.
const LISTENER_PATH: &str = "crates/sdk/src/server/http";
/// Loopback listener for the OAuth redirect.
const LOOPBACK_PATH: &str = "crates/sdk/src/auth/redirect/loopback.rs";
/// Socket in the data directory, between processes of the hub.
const LOCAL_SOCKET_PATH: &str = "crates/hub/src/serve/gateway_socket.rs";

const OUTGOING: [&str; 7] = [
    "TcpStream::connect",
    "TcpSocket",
    "UdpSocket",
    "UnixStream::connect",
    "UnixDatagram",
    "lookup_host",
    "to_socket_addrs",
];
const LISTENERS: [&str; 2] = ["TcpListener", "UnixListener"];

pub(super) fn sockets_are_opened_in_one_place(files: &[SourceFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let checked = |file: &&SourceFile| is_product(&file.path) && file.path != LOCAL_SOCKET_PATH;
    for file in rust(files).filter(checked) {
        for (number, line) in file.lines_before_tests() {
            if line.trim_start().starts_with("//") {
                continue;
            }
            if let Some(found) = OUTGOING.into_iter().find(|word| line.contains(word)) {
                findings.push(
                    file.finding(
                        number,
                        format!("\"{found}\": only {EGRESS_PATH} opens connections; use it"),
                    ),
                );
            }
            let listens = LISTENERS.into_iter().find(|word| line.contains(word));
            if let Some(found) =
                listens.filter(|_| !file.path.starts_with(LISTENER_PATH) && file.path != LOOPBACK_PATH)
            {
                findings.push(file.finding(
                    number,
                    format!("\"{found}\": only {LISTENER_PATH} and {LOOPBACK_PATH} listen; use them"),
                ));
            }
        }
    }
    findings
}

fn is_product(path: &str) -> bool {
    let in_tests = path.split('/').any(|folder| folder == "tests");
    path.starts_with("crates/") && path.contains("/src/") && !in_tests && !path.starts_with(EGRESS_PATH)
}

#[cfg(test)]
mod tests {
    use super::super::tests::finding_locations;
    use super::*;

    #[test]
    fn sockets_elsewhere_are_found() {
        let text = "// UdpSocket is meant for others.\nlet a = TcpStream::connect(b);\nlet c = TcpListener::bind(d);\n\
                    #[cfg(test)]\nTcpStream::connect(e);\n";
        let files = [
            ("crates/sdk/src/client/a.rs", text),
            ("crates/sdk/src/egress/dial.rs", text),
            ("crates/sdk/src/server/http/bound.rs", text),
            ("crates/sdk/tests/a.rs", text),
            ("crates/hub/src/main.rs", text),
            ("bench/src/main.rs", text),
        ];
        let expected = [
            "crates/sdk/src/client/a.rs:2",
            "crates/sdk/src/client/a.rs:3",
            "crates/sdk/src/server/http/bound.rs:2",
            "crates/hub/src/main.rs:2",
            "crates/hub/src/main.rs:3",
        ];
        assert_eq!(finding_locations(sockets_are_opened_in_one_place, &files), expected);
    }
}

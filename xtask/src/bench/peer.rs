//! The three compared implementations: how their servers and clients are built and started, and one figure per peer.

use anyhow::bail;

use crate::command;

/// Build directory of the peers' workspace, separate from ours.
const PEERS: &str = "target/peers";
pub(super) const LOAD_GENERATOR: &str = "target/peers/release/mcp-load";

/// Implementation in the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    /// Minimal correct implementation.
    Raw,
    Ours,
    /// The official SDK, in its fastest configuration.
    Rmcp,
}

/// Transport of a workload, taken from the prefix of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PeerTransport {
    Stdio,
    /// HTTP with a session.
    Session,
    /// HTTP in the stateless revision.
    Stateless,
}

impl PeerTransport {
    /// Splits the transport prefix off the name of a workload.
    pub(super) fn of(workload: &str) -> (Self, &str) {
        if let Some(rest) = workload.strip_prefix("http 2026 ") {
            return (Self::Stateless, rest);
        }
        workload.strip_prefix("http ").map_or((Self::Stdio, workload), |rest| (Self::Session, rest))
    }
}

impl Peer {
    pub(super) const ALL: [Self; 3] = [Self::Raw, Self::Ours, Self::Rmcp];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Ours => "ours",
            Self::Rmcp => "rmcp",
        }
    }

    pub(super) fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|peer| peer.name() == name)
    }

    /// Returns the command that starts the server, relative to the workspace root.
    pub(super) fn command(self, way: PeerTransport, port: &str) -> Vec<String> {
        let words = match (self, way) {
            (Self::Raw, PeerTransport::Stdio) => "target/peers/release/raw-limit stdio".to_owned(),
            (Self::Ours, PeerTransport::Stdio) => "target/release/bench-server stdio".to_owned(),
            (Self::Rmcp, PeerTransport::Stdio) => {
                "target/peers/release/rmcp-echo stdio-pipes --rt current".to_owned()
            }
            (Self::Raw, _) => format!("target/peers/release/raw-limit hyper {port} --rt current"),
            (Self::Ours, _) => format!("target/release/bench-server http --port {port}"),
            (Self::Rmcp, PeerTransport::Session) => {
                format!("target/peers/release/rmcp-echo http {port} --rt current")
            }
            (Self::Rmcp, PeerTransport::Stateless) => {
                format!("target/peers/release/rmcp-echo http {port} --stateless --json --rt current")
            }
        };
        words.split(' ').map(str::to_owned).collect()
    }

    /// Returns the path of the peer's client program.
    pub(super) fn client(self) -> Option<&'static str> {
        match self {
            Self::Raw => None,
            Self::Ours => Some("target/release/bench-client"),
            Self::Rmcp => Some("target/peers/release/rmcp-client"),
        }
    }
}

/// Builds the peers and the load generator.
pub(super) fn build(peers: &[Peer]) -> anyhow::Result<()> {
    if peers.contains(&Peer::Ours) {
        command::cargo(&["build", "--release", "--package", "bench", "--target-dir", "target"])?;
    }
    let manifest = "bench/peers/Cargo.toml";
    command::cargo(&["build", "--release", "--locked", "--manifest-path", manifest, "--target-dir", PEERS])
}

/// One figure per peer; `None` if the measurement failed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PerPeer([Option<f64>; 3]);

impl PerPeer {
    pub(super) fn get(&self, peer: Peer) -> Option<f64> {
        self.0[peer as usize]
    }

    pub(super) fn set(&mut self, peer: Peer, figure: Option<f64>) {
        self.0[peer as usize] = figure;
    }

    /// Returns the ratio of two peers' figures.
    pub(super) fn ratio(&self, of: Peer, to: Peer) -> Option<f64> {
        let (of, to) = (self.get(of)?, self.get(to)?);
        (to > 0.0).then(|| of / to)
    }
}

/// Number of failed measurements. Each is printed at once; any makes the run fail at the end.
#[derive(Debug, Default)]
pub(super) struct Failures(usize);

impl Failures {
    pub(super) fn record<T>(&mut self, peer: Peer, workload: &str, outcome: anyhow::Result<T>) -> Option<T> {
        outcome
            .inspect_err(|error| {
                self.0 += 1;
                eprintln!("! {} {workload}: {error:#}", peer.name());
            })
            .ok()
    }

    pub(super) fn into_result(self) -> anyhow::Result<()> {
        if self.0 > 0 {
            bail!("{} of the measurements failed, see the lines that start with \"!\"", self.0);
        }
        Ok(())
    }
}

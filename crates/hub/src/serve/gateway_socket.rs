//! Socket in the data directory through which `linchpin gateway` processes connect their clients to the running hub. The
//! first line in each direction is a handshake; after it, the socket carries the same messages as standard input and
//! output.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream as BlockingStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use linchpin::auth::Secret;
use linchpin_hub_core::hub::Hub;
use linchpin_hub_core::{Actor, Subject};
use linchpin_hub_gateway::{Gateway, Surface, SurfaceKey};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::error::CliError;

/// Path of the endpoint under which clients on stdio have their surface.
const STDIO_PATH: &str = "/stdio";
/// Maximum number of connected clients.
const MAX_CLIENTS: usize = 256;
/// Maximum length of the line with which a client starts.
const MAX_HANDSHAKE_LEN: usize = 4 << 10;
/// Timeout of the handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns the surface of a client on stdio.
pub(super) fn stdio_surface(actor: Actor, owner: Subject) -> SurfaceKey {
    SurfaceKey { actor, owner, server: None, path: STDIO_PATH.to_owned() }
}

/// First line of a client: its token, and the agent in whose name it acts.
#[derive(Serialize, Deserialize)]
struct Handshake {
    token: String,
    agent: Option<String>,
}

/// First line of the hub.
#[derive(Serialize, Deserialize)]
struct HandshakeReply {
    /// Why the client is rejected.
    error: Option<String>,
}

/// Socket of the gateway, which is removed when it is dropped.
pub(super) struct GatewaySocket {
    listener: UnixListener,
    path: PathBuf,
}

impl Drop for GatewaySocket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path); // it may have been removed
    }
}

impl GatewaySocket {
    /// Binds the socket. Only the user of the hub can open it. The lock of the data directory must be held. Without the
    /// socket the hub works, except for `linchpin gateway`.
    pub(super) fn bind(path: PathBuf) -> Option<Self> {
        match Self::try_bind(&path) {
            Ok(listener) => Some(GatewaySocket { listener, path }),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "failed to create the socket for `linchpin gateway`");
                None
            }
        }
    }

    fn try_bind(path: &Path) -> io::Result<UnixListener> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {} // left behind by a killed hub
        }
        let listener = UnixListener::bind(path)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        Ok(listener)
    }

    /// Serves clients until `end` completes.
    pub(super) async fn serve(
        self,
        hub: Arc<Hub>,
        gateway: Arc<Gateway>,
        end: impl Future<Output = ()>,
    ) -> Result<(), CliError> {
        let (mut end, mut clients) = (std::pin::pin!(end), JoinSet::new());
        loop {
            tokio::select! {
                () = &mut end => break,
                Some(_) = clients.join_next() => {}
                accepted = self.listener.accept(), if clients.len() < MAX_CLIENTS => match accepted {
                    Ok((stream, _)) => {
                        clients.spawn(serve_client(hub.clone(), gateway.clone(), stream));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "failed to accept a client of the gateway");
                        tokio::time::sleep(Duration::from_millis(100)).await; // out of file descriptors
                    }
                }
            }
        }
        clients.shutdown().await;
        Ok(())
    }
}

async fn serve_client(hub: Arc<Hub>, gateway: Arc<Gateway>, mut stream: UnixStream) {
    let surface = match timeout(HANDSHAKE_TIMEOUT, shake_hands(&hub, &gateway, &mut stream)).await {
        Ok(Ok(Some(surface))) => surface,
        Ok(Ok(None)) => return,
        Ok(Err(error)) => return tracing::debug!(%error, "handshake of a gateway client failed"),
        Err(_) => return tracing::debug!("handshake of a gateway client timed out"),
    };
    if let Err(error) = serve_messages(&surface, stream).await {
        tracing::debug!(?error, "connection of a gateway client failed");
    }
}

/// Authenticates a client. Returns `None` if it is rejected.
async fn shake_hands(
    hub: &Hub,
    gateway: &Gateway,
    stream: &mut UnixStream,
) -> io::Result<Option<Arc<Surface>>> {
    let line = read_line(stream).await?;
    let found = async {
        let handshake: Handshake =
            serde_json::from_slice(&line).map_err(|error| format!("the handshake is malformed: {error}"))?;
        let owner = hub.identity().authenticate(&handshake.token).await.map_err(|error| error.to_string())?;
        let actor = match &handshake.agent {
            Some(agent) => {
                hub.identity().act_as_agent(owner, agent).await.map_err(|error| error.to_string())?.0
            }
            None => owner,
        };
        gateway.surface(stdio_surface(actor, owner.subject())).await.map_err(|error| error.to_string())
    };
    let found = found.await;
    let reply = HandshakeReply { error: found.as_ref().err().cloned() };
    let mut reply = serde_json::to_vec(&reply)?;
    reply.push(b'\n');
    stream.write_all(&reply).await?;
    Ok(found.ok())
}

async fn read_line(stream: &mut UnixStream) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    loop {
        match stream.read_u8().await? {
            b'\n' => return Ok(line),
            _ if line.len() >= MAX_HANDSHAKE_LEN => {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the handshake is too long"));
            }
            byte => line.push(byte),
        }
    }
}

/// Closes a socket when it is dropped, so that a thread that reads from it ends.
struct CloseOnDrop(BlockingStream);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        let _ = self.0.shutdown(Shutdown::Both); // it may be closed already
    }
}

async fn serve_messages(surface: &Surface, stream: UnixStream) -> linchpin::Result {
    let stream = stream.into_std()?;
    stream.set_nonblocking(false)?;
    let (input, _close) = (stream.try_clone()?, CloseOnDrop(stream.try_clone()?));
    surface.service().run_on(input, stream).await
}

/// Opens the socket of the running hub for a client. The inner error is the reason why the hub rejects the client.
pub(crate) fn connect(
    path: &Path,
    token: &Secret,
    agent: Option<String>,
) -> io::Result<Result<BlockingStream, String>> {
    let mut stream = BlockingStream::connect(path)?;
    let mut line = serde_json::to_vec(&Handshake { token: token.expose().to_owned(), agent })?;
    line.push(b'\n');
    stream.write_all(&line)?;
    // The hub sends nothing more before the first message of the client, so that nothing is lost in the buffer.
    let mut reply = String::new();
    BufReader::new(&stream).read_line(&mut reply)?;
    let reply: HandshakeReply = serde_json::from_str(&reply)?;
    Ok(reply.error.map_or(Ok(stream), Err))
}

//! Upstream server over HTTP whose responses a test scripts, message by message.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// What the server does with a request.
pub(crate) enum Action {
    /// Responds with these messages as an event stream, whatever ids they have.
    Send(Vec<Value>),
    /// Closes the connection without a response.
    Close,
}

/// Running server. It ends on drop.
pub(crate) struct ScriptedServer {
    pub(crate) url: String,
    _tasks: JoinSet<()>,
}

impl ScriptedServer {
    /// Starts a server of revision 2025-11-25 with one tool of each name. `call` scripts the calls.
    pub(crate) async fn start(
        tools: &'static [&'static str],
        call: impl Fn(&str, &Value) -> Action + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let (mut tasks, call) = (JoinSet::new(), Arc::new(call));
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                let call = call.clone();
                connections.spawn(async move { serve(socket, tools, &*call).await });
            }
        });
        ScriptedServer { url, _tasks: tasks }
    }
}

async fn serve(socket: TcpStream, tools: &[&str], call: &(dyn Fn(&str, &Value) -> Action + Send + Sync)) {
    let mut socket = BufReader::new(socket);
    while let Some(body) = read_request(&mut socket).await {
        let Ok(message) = serde_json::from_slice::<Value>(&body) else {
            let _ = socket.write_all(b"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n").await;
            continue;
        };
        let respond = |result: Value| {
            Action::Send(vec![json!({ "jsonrpc": "2.0", "id": message["id"], "result": result })])
        };
        let action = match message["method"].as_str().unwrap_or_default() {
            "initialize" => respond(json!({
                "protocolVersion": "2025-11-25", "capabilities": { "tools": {}, "logging": {} },
                "serverInfo": { "name": "scripted", "version": "1" },
            })),
            "tools/list" => {
                let tool = |name| json!({ "name": name, "inputSchema": { "type": "object" } });
                respond(json!({ "tools": tools.iter().map(tool).collect::<Vec<_>>() }))
            }
            "tools/call" => call(message["params"]["name"].as_str().unwrap(), &message),
            _ if message.get("id").is_some() && message.get("method").is_some() => {
                Action::Send(vec![json!({
                    "jsonrpc": "2.0", "id": message["id"], "error": { "code": -32601, "message": "Method not found" },
                })])
            }
            _ => Action::Send(Vec::new()),
        };
        let Action::Send(messages) = action else { return };
        let response = if messages.is_empty() {
            "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n".to_owned()
        } else {
            let body =
                messages.iter().fold(String::new(), |body, message| body + &format!("data: {message}\n\n"));
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nMcp-Session-Id: scripted\r\n";
            format!("{head}Content-Length: {}\r\n\r\n{body}", body.len())
        };
        if socket.write_all(response.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Reads one request and returns its body.
async fn read_request(socket: &mut BufReader<TcpStream>) -> Option<Vec<u8>> {
    let (mut length, mut line) = (0, String::new());
    loop {
        line.clear();
        if socket.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        match line.trim_end().split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.parse().ok()?;
            }
            None if line.trim_end().is_empty() => break,
            _ => {}
        }
    }
    let mut body = vec![0; length];
    socket.read_exact(&mut body).await.ok()?;
    Some(body)
}

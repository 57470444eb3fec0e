//! The page and the endpoint are served side by side.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use linchpin::Client;

/// Running example; killed on drop.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill(); // fails if it has already exited
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn the_page_and_the_endpoint() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_axum-router")).stdout(Stdio::piped()).spawn().unwrap();
    let mut url = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
    let _running = Running(child);
    let url = url.trim();

    let mut page = TcpStream::connect(url.trim_start_matches("http://")).unwrap();
    page.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    page.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200") && text.ends_with("an ordinary page"), "{text}");

    let client = Client::http(format!("{url}/mcp")).header("user-agent", "tester/1").connect().await.unwrap();
    assert_eq!(client.call("browser", ()).await.unwrap().to_text(), "tester/1");
    client.close().await;
}

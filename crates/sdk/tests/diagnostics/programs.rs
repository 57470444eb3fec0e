//! Invalid arguments of a stdio server.

use linchpin::Client;

fn main() {
    let _ = Client::stdio("server", []);
    let _ = Client::stdio("server", ["--verbose"]);
    let _ = Client::stdio("server", vec![String::new()]);
    let _ = Client::stdio("server", std::env::args().skip(1));
}

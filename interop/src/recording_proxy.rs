//! Recording proxy between a client and a server, which can also cut a stream.

use std::cell::{Cell, RefCell};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

use crate::TEST_TIMEOUT;
use crate::http::{Requests, Responses};
use crate::http_log::{Entry, ExchangePart, Request};

/// Proxy of one server; stopped on drop.
pub struct Proxy {
    address: SocketAddr,
    heard: Arc<CapturedTraffic>,
}

#[derive(Default)]
struct CapturedTraffic {
    state: Mutex<State>,
    more: Condvar,
}

#[derive(Default)]
struct State {
    entries: Vec<Entry>,
    exchanges: usize,
    /// Cut to make at the next matching event; used once.
    cut: Option<CutPoint>,
    /// The first requests of this method wait until this number has arrived.
    gather_rule: Option<(&'static str, usize)>,
    over: bool,
}

/// Position at which a stream is cut.
struct CutPoint {
    text: String,
    /// Whether the client receives the event that contains the text.
    arrives: bool,
}

impl CapturedTraffic {
    /// Records a part before it is forwarded, so that its consequences are recorded later.
    fn record(&self, exchange: usize, said: ExchangePart) {
        self.state.lock().unwrap().entries.push(Entry { exchange, part: said });
        self.more.notify_all();
    }

    /// Delays a request until the other requests of its group have arrived.
    fn gather(&self, request: &Request) {
        let method = |request: &Request| {
            request.body.as_ref().and_then(|body| body["method"].as_str().map(str::to_owned))
        };
        let state = self.state.lock().unwrap();
        let Some((wanted, count)) =
            state.gather_rule.filter(|(wanted, _)| method(request).as_deref() == Some(*wanted))
        else {
            return;
        };
        let is_one = |entry: &&Entry| matches!(&entry.part, ExchangePart::Request(own) if method(own).as_deref() == Some(wanted));
        let few = |state: &mut State| state.entries.iter().filter(is_one).count() < count;
        let gathered = self.more.wait_timeout_while(state, TEST_TIMEOUT, few).unwrap();
        assert!(!gathered.1.timed_out(), "{wanted} was not received {count} times");
    }

    /// Returns the cut to make at this event.
    fn cut_at(&self, said: &ExchangePart) -> Option<CutPoint> {
        let ExchangePart::Event(fields) = said else { return None };
        let mut state = self.state.lock().unwrap();
        state.cut.take_if(|cut| fields.iter().any(|(_, value)| value.contains(&cut.text)))
    }
}

impl Proxy {
    /// Starts a proxy of the server at `address`.
    pub fn start(address: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap();
        let heard = Arc::new(CapturedTraffic::default());
        let (accepted, server) = (heard.clone(), address.to_owned());
        std::thread::spawn(move || {
            for client in listener.incoming() {
                if accepted.state.lock().unwrap().over {
                    return;
                }
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(&server)) else { continue };
                connect(&client, &server, &accepted);
            }
        });
        Proxy { address: own, heard }
    }

    /// Returns the URL of a path of the server, through the proxy.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Cuts the next response after the event that contains this text.
    pub fn cut_after(&self, text: &str) {
        self.heard.state.lock().unwrap().cut = Some(CutPoint { text: text.to_owned(), arrives: true });
    }

    /// Cuts the next response before the event that contains this text, which the server has already sent.
    pub fn cut_before(&self, text: &str) {
        self.heard.state.lock().unwrap().cut = Some(CutPoint { text: text.to_owned(), arrives: false });
    }

    /// Delays requests of this method until `count` have arrived, so that all their clients are connected.
    pub fn gather(&self, method: &'static str, count: usize) {
        self.heard.state.lock().unwrap().gather_rule = Some((method, count));
    }

    /// Returns all parts recorded so far.
    pub fn entries(&self) -> Vec<Entry> {
        self.heard.state.lock().unwrap().entries.clone()
    }

    /// Returns the number of stream resumptions.
    pub fn resumptions(&self) -> usize {
        let is_resumption = |entry: &&Entry| {
            let ExchangePart::Request(request) = &entry.part else { return false };
            request.verb == "GET" && request.headers.iter().any(|(name, _)| name == "last-event-id")
        };
        self.entries().iter().filter(is_resumption).count()
    }

    /// Waits until the recorded parts satisfy a condition.
    pub fn wait_for(&self, what: &str, mut is: impl FnMut(&[Entry]) -> bool) {
        let state = self.heard.state.lock().unwrap();
        let waited =
            self.heard.more.wait_timeout_while(state, TEST_TIMEOUT, |state| !is(&state.entries)).unwrap();
        assert!(!waited.1.timed_out(), "{what} was not received: {:#?}", waited.0.entries);
    }

    /// Waits until the standalone stream is open.
    pub fn wait_for_stream(&self) {
        self.wait_for("the standalone stream", |entries| {
            let gets = entries
                .iter()
                .filter(|entry| matches!(&entry.part, ExchangePart::Request(get) if get.verb == "GET"));
            let mut gets = gets.map(|get| get.exchange);
            gets.any(|get| {
                entries.iter().any(|entry| {
                    entry.exchange == get
                        && matches!(&entry.part, ExchangePart::Head(head) if head.status == 200)
                })
            })
        });
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.heard.state.lock().unwrap().over = true;
        let _ = TcpStream::connect(self.address); // wakes the accepting thread
    }
}

/// Copies both directions until one ends, which ends the other.
fn connect(client: &TcpStream, server: &TcpStream, heard: &Arc<CapturedTraffic>) {
    // The running exchange of this connection.
    let current = Arc::new(Mutex::new(None::<usize>));
    let copies =
        || (client.try_clone().unwrap(), server.try_clone().unwrap(), heard.clone(), current.clone());
    let (mut from, mut to, up, asked) = copies();
    std::thread::spawn(move || {
        let mut requests = Requests::default();
        let note = |request: Request| {
            let number = {
                let mut state = up.state.lock().unwrap();
                state.exchanges += 1;
                state.exchanges
            };
            *asked.lock().unwrap() = Some(number);
            up.record(number, ExchangePart::Request(request.clone()));
            up.gather(&request);
        };
        copy(&mut from, |bytes| {
            requests.feed(bytes, note);
            to.write_all(bytes).is_ok()
        });
        if let Some(exchange) = asked.lock().unwrap().take() {
            up.record(exchange, ExchangePart::ClientClosed);
        }
        let _ = to.shutdown(Shutdown::Both); // fails if the server has closed it
    });
    let (mut to, mut from, down, asked) = copies();
    std::thread::spawn(move || {
        let mut responses = Responses::default();
        // Whether a part is complete, and the cut to make after it.
        let (is_whole, made) = (Cell::new(false), RefCell::new(None));
        let mut note = |said: ExchangePart| {
            is_whole.set(true);
            let Some(exchange) = *asked.lock().unwrap() else { return };
            let cut = down.cut_at(&said);
            let is_last = cut.is_some() || said == ExchangePart::End;
            if cut.as_ref().is_none_or(|cut| cut.arrives) {
                down.record(exchange, said);
            }
            if cut.is_some() {
                down.record(exchange, ExchangePart::End);
                made.replace(cut);
            }
            if is_last {
                asked.lock().unwrap().take();
            }
        };
        let mut held = Vec::new();
        copy(&mut from, |bytes| {
            // While a cut is pending, incomplete parts are held back.
            let careful = down.state.lock().unwrap().cut.is_some();
            bytes.chunks(if careful { 1 } else { bytes.len() }).all(|bytes| {
                held.extend_from_slice(bytes);
                responses.feed(bytes, &mut note);
                let cut = made.take();
                if careful && !is_whole.take() || cut.as_ref().is_some_and(|cut| !cut.arrives) {
                    return cut.is_none();
                }
                to.write_all(&std::mem::take(&mut held)).is_ok() && cut.is_none()
            })
        });
        responses.end(&mut note);
        for side in [to, from] {
            let _ = side.shutdown(Shutdown::Both); // fails if the peer has closed it
        }
    });
}

fn copy(from: &mut TcpStream, mut on: impl FnMut(&[u8]) -> bool) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if !on(&buffer[..count]) {
            return;
        }
    }
}

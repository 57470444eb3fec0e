//! Clients in front of the gateway: of every revision over HTTP and stdio, and over HTTP+SSE.

use std::fmt;
use std::sync::{Arc, Mutex};

use linchpin::client::{ListChanged, RevisionCache};
use linchpin::model::{CreateMessageResult, ElicitResult, Root};
use linchpin::testing::{Direction, Transcript, piped};
use linchpin::{Client, ClientBuilder, LogLevel, Revision};
use serde_json::json;
use tokio::sync::Notify;

use crate::site::Site;

/// Transport between a client and the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrontTransport {
    Http,
    /// HTTP+SSE, of the first revision.
    LegacySse,
    Stdio,
}

/// Revision and transport of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Front {
    pub(crate) revision: Revision,
    pub(crate) transport: FrontTransport,
}

impl Front {
    pub(crate) fn all() -> Vec<Front> {
        let transports = [FrontTransport::Http, FrontTransport::Stdio];
        let of = |revision| transports.map(|transport| Front { revision, transport });
        let legacy = Front { revision: Revision::ALL[0], transport: FrontTransport::LegacySse };
        std::iter::once(legacy).chain(Revision::ALL.into_iter().flat_map(of)).collect()
    }
}

impl fmt::Display for Front {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let transport = match self.transport {
            FrontTransport::Http => "http",
            FrontTransport::LegacySse => "sse",
            FrontTransport::Stdio => "stdio",
        };
        write!(f, "{} {transport}", self.revision)
    }
}

/// Notifications that a client has received and no test has consumed.
#[derive(Default)]
pub(crate) struct Notifications {
    entries: Mutex<Vec<String>>,
    added: Notify,
}

impl Notifications {
    fn add(&self, text: impl Into<String>) {
        self.entries.lock().unwrap().push(text.into());
        self.added.notify_waiters();
    }

    pub(crate) fn clear(&self) {
        self.entries.lock().unwrap().clear();
    }

    pub(crate) async fn wait_for(&self, text: &str) {
        loop {
            let added = self.added.notified();
            if self.entries.lock().unwrap().iter().any(|entry| entry == text) {
                return;
            }
            added.await;
        }
    }
}

/// Connected client with what it has received.
pub(crate) struct ConnectedClient {
    pub(crate) client: Client,
    pub(crate) notifications: Arc<Notifications>,
    messages: Messages,
}

/// Messages of one conversation, as sent and received.
#[derive(Clone, Default)]
struct Messages(Arc<Mutex<Vec<(Direction, String)>>>, Option<Transcript>);

impl Messages {
    fn lines(&self) -> Vec<(Direction, String)> {
        match &self.1 {
            Some(transcript) => transcript.lines(),
            None => self.0.lock().unwrap().clone(),
        }
    }
}

impl ConnectedClient {
    pub(crate) async fn connect(site: &Site, front: Front) -> Self {
        let authorization = format!("Bearer {}", site.token);
        let mut messages = Messages::default();
        let seen = messages.0.clone();
        let record = move |direction, text: &str| seen.lock().unwrap().push((direction, text.to_owned()));
        let builder: ClientBuilder = match front.transport {
            FrontTransport::Http => {
                Client::http(&site.url).header("Authorization", authorization).on_message(record).boxed()
            }
            FrontTransport::LegacySse => {
                Client::sse(&site.url).header("Authorization", authorization).on_message(record).boxed()
            }
            FrontTransport::Stdio => {
                let transcript = Transcript::new(piped(&site.gateway));
                messages.1 = Some(transcript.clone());
                Client::over(transcript).boxed()
            }
        };
        let notifications = Arc::<Notifications>::default();
        let (logs, lists) = (notifications.clone(), notifications.clone());
        let (updates, others) = (notifications.clone(), notifications.clone());
        let client = builder
            .revisions([front.revision])
            .revision_cache(RevisionCache::new())
            .on_elicit(|_| async { Ok(ElicitResult::accept(json!({ "name": "Ada" }))) })
            .on_elicit_url(|_| async { Ok(ElicitResult::accept(json!(null))) })
            .on_sample_with_tools(|_| async { Ok(CreateMessageResult::text("a model", "42")) })
            .roots([Root { uri: "file:///tmp/a".into(), name: None, meta: None }])
            .on_log(LogLevel::Info, move |log| logs.add(log.data.as_str().unwrap_or_default()))
            .on_list_changed(move |list| {
                if list == ListChanged::Tools {
                    lists.add("tools changed");
                }
            })
            .on_resource_updated(move |uri| updates.add(uri))
            .on_notification(move |method, _| others.add(method))
            .connect()
            .await
            .unwrap_or_else(|error| panic!("{front}: {error}"));
        assert_eq!(client.revision(), front.revision);
        ConnectedClient { client, notifications, messages }
    }

    /// Checks every message of the conversation against the schema of its revision.
    pub(crate) async fn close(self) -> Result<(), String> {
        self.client.close().await;
        let mut conversation = spec_check::Conversation::new();
        for (direction, line) in self.messages.lines() {
            match direction {
                Direction::Sent => conversation.record_sent(line),
                Direction::Received => {
                    conversation.check_received(&line).map_err(|error| format!("{error}: {line}"))?;
                }
            }
        }
        Ok(())
    }
}

//! Connection to PostgreSQL, re-established after it was lost, and its options from the URL.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use linchpin_hub_core::{Error, Result, error};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Mutex, Notify};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_postgres::config::{Config, Host, SslMode, TargetSessionAttrs};
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Connection, NoTls, Row, Socket, Statement};

use super::tls::Tls;
use super::{QueryExecutor, StoreFailure, database_error, unreachable_error};

/// Timeout for establishing a database connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// TCP user timeout, and maximum idle time before keep-alive probes: a silent peer counts as lost.
const TCP_IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// Delay after the first failure to connect, and how many times it doubles.
const RETRY_BACKOFF: (Duration, u32) = (Duration::from_millis(100), 4);

/// Parameters of an SQL statement.
pub(super) type Values<'a> = &'a [&'a (dyn ToSql + Sync)];

/// Options of a PostgreSQL connection, parsed from a database URL. They contain the password and are never logged or
/// shown.
#[derive(Clone)]
pub(super) struct ConnectOptions {
    config: Config,
    tls: Option<Tls>,
}

/// Parses a database URL.
pub(super) fn parse_url(url: &str) -> Result<ConnectOptions> {
    let refused = |text: &str| Err(Error::new(error::ErrorKind::Invalid, "invalid_database", text));
    let (url, tls_options) = TlsOptions::split_from_url(url);
    let is_url = url.starts_with("postgres://") || url.starts_with("postgresql://");
    let mut config: Config = match url.parse() {
        Ok(config) if is_url => config,
        _ => {
            return refused(
                "invalid database URL: use the form `postgres://user:password@host:5432/name`, \
                 and write `%`, `/`, `@`, `:` and `?` in a password as `%25`, `%2F`, `%40`, `%3A` and `%3F`",
            );
        }
    };
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        return refused(
            "the database URL has no host: use the form `postgres://user:password@host:5432/name`",
        );
    }
    if config.get_application_name().is_none() {
        config.application_name("linchpin");
    }
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(TCP_IDLE_TIMEOUT);
    }
    config.target_session_attrs(TargetSessionAttrs::ReadWrite); // of several hosts, use the primary
    config.keepalives_idle(config.get_keepalives_idle().min(TCP_IDLE_TIMEOUT));
    let is_socket = |host: &Host| !matches!(host, Host::Tcp(_));
    let is_local = config.get_hostaddrs().is_empty() && config.get_hosts().iter().all(is_socket);
    // TLS without certificate verification adds no security, and a Unix socket cannot be intercepted.
    if is_local || config.get_ssl_mode() != SslMode::Require {
        config.ssl_mode(SslMode::Disable);
        return Ok(ConnectOptions { config, tls: None });
    }
    match Tls::new(tls_options.root_certificates.as_deref(), tls_options.checks_name) {
        Ok(tls) => Ok(ConnectOptions { config, tls: Some(tls) }),
        Err(text) => refused(&text),
    }
}

/// TLS options of a PostgreSQL URL: host name check and root certificates.
struct TlsOptions {
    checks_name: bool,
    root_certificates: Option<String>,
}

impl TlsOptions {
    /// Removes or replaces the TLS options of a URL that the database driver does not support, and returns them.
    fn split_from_url(url: &str) -> (String, Self) {
        let mut tls_options = TlsOptions { checks_name: true, root_certificates: None };
        let Some((base, query)) = url.split_once('?') else { return (url.to_owned(), tls_options) };
        let mut remaining = Vec::new();
        for pair in query.split('&') {
            match pair.split_once('=') {
                Some(("sslrootcert", path)) => tls_options.root_certificates = Some(decode_parameter(path)),
                Some(("sslmode", mode @ ("verify-ca" | "verify-full"))) => {
                    tls_options.checks_name = mode == "verify-full";
                    remaining.push("sslmode=require");
                }
                _ => remaining.push(pair),
            }
        }
        (format!("{base}?{}", remaining.join("&")), tls_options)
    }
}

/// Decodes a URL parameter in the same way as the driver does.
fn decode_parameter(value: &str) -> String {
    let config = format!("postgres://host/?application_name={value}").parse::<Config>();
    config.ok().and_then(|config| config.get_application_name().map(str::to_owned)).unwrap_or_default()
}

/// Connection to PostgreSQL that is established on first use and re-established after it was lost.
pub(super) struct ReconnectingConnection {
    options: ConnectOptions,
    /// SQL that is run on every new database connection.
    session_setup: String,
    /// Signal that is set by `NOTIFY` messages of the database.
    wakeup: Arc<Notify>,
    state: Mutex<LinkState>,
}

#[derive(Default)]
struct LinkState {
    connected: Option<Arc<DbConnection>>,
    /// Last connection error, returned until this time without another attempt.
    failure: Option<(Error, Instant)>,
    failures: u32,
}

impl ReconnectingConnection {
    pub(super) fn new(options: ConnectOptions, session_setup: String) -> Self {
        ReconnectingConnection { options, session_setup, wakeup: Arc::default(), state: Mutex::default() }
    }

    /// Returns the handle that is notified by `NOTIFY` messages of the database.
    pub(super) fn wakeup(&self) -> Arc<Notify> {
        self.wakeup.clone()
    }

    /// Returns the database connection, and establishes it if necessary. During the backoff after a failure, the last
    /// error is returned at once.
    pub(super) async fn get(&self) -> Result<Arc<DbConnection>> {
        let mut state = self.state.lock().await;
        state.connected.take_if(|connected| connected.client.is_closed());
        if let Some(connected) = &state.connected {
            return Ok(connected.clone());
        }
        if let Some((error, until)) = &state.failure
            && Instant::now() < *until
        {
            return Err(error.clone());
        }
        let connection = match timeout(CONNECT_TIMEOUT, self.connect()).await {
            Ok(connection) => connection.map_err(|error| database_error(&error)),
            Err(_) => Err(unreachable_error("the database did not respond in time")),
        };
        match connection {
            Ok(connected) => {
                let connected = Arc::new(connected);
                *state = LinkState { connected: Some(connected.clone()), ..LinkState::default() };
                Ok(connected)
            }
            Err(error) => {
                let delay = RETRY_BACKOFF.0 * 2_u32.pow(state.failures.min(RETRY_BACKOFF.1));
                state.failures += 1;
                state.failure = Some((error.clone(), Instant::now() + delay));
                Err(error)
            }
        }
    }

    /// Drops a database connection that does not work, so that the next use connects again.
    pub(super) async fn discard(&self, failed: &Arc<DbConnection>) {
        self.state.lock().await.connected.take_if(|connected| Arc::ptr_eq(connected, failed));
    }

    async fn connect(&self) -> Result<DbConnection, tokio_postgres::Error> {
        let ConnectOptions { config, tls } = &self.options;
        let (client, driver) = match tls {
            None => {
                let (client, connection) = config.connect(NoTls).await?;
                (client, self.spawn_driver(connection))
            }
            Some(tls) => {
                let (client, connection) = config.connect(tls.clone()).await?;
                (client, self.spawn_driver(connection))
            }
        };
        client.batch_execute(&self.session_setup).await?;
        Ok(DbConnection { client, statements: std::sync::Mutex::default(), _driver: driver })
    }

    /// Starts the task that performs the I/O of a database connection.
    fn spawn_driver<T>(&self, mut connection: Connection<Socket, T>) -> JoinSet<()>
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (mut driver, wakeup) = (JoinSet::new(), self.wakeup.clone());
        driver.spawn(async move {
            while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
                match message {
                    Ok(AsyncMessage::Notification(_)) => wakeup.notify_one(),
                    Ok(_) => {}
                    Err(error) => {
                        database_error(&error);
                        return;
                    }
                }
            }
        });
        driver
    }
}

/// Open connection to PostgreSQL, with its prepared statements.
pub(super) struct DbConnection {
    client: Client,
    statements: std::sync::Mutex<HashMap<String, Statement>>,
    /// I/O task, aborted with the connection.
    _driver: JoinSet<()>,
}

impl DbConnection {
    /// Runs a statement, and returns the number of affected rows.
    pub(super) async fn execute(&self, sql: &str, values: Values<'_>) -> Result<u64, StoreFailure> {
        Ok(self.client.execute(&self.prepare(sql).await?, values).await?)
    }

    /// Runs SQL statements without parameters.
    pub(super) async fn run(&self, sql: &str) -> Result<(), tokio_postgres::Error> {
        self.client.batch_execute(sql).await
    }

    /// Prepares statements, so that each of them is sent as soon as its future is first polled.
    pub(super) async fn prepare_all(
        &self,
        all: impl IntoIterator<Item = &str>,
    ) -> Result<(), tokio_postgres::Error> {
        for sql in all {
            self.prepare(sql).await?;
        }
        Ok(())
    }

    async fn prepare(&self, sql: &str) -> Result<Statement, tokio_postgres::Error> {
        let statements = || self.statements.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(statement) = statements().get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(sql).await?;
        statements().insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }
}

impl QueryExecutor for DbConnection {
    async fn query(&self, sql: &str, values: Values<'_>) -> Result<Vec<Row>, StoreFailure> {
        Ok(self.client.query(&self.prepare(sql).await?, values).await?)
    }
}

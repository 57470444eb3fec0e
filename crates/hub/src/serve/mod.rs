//! `linchpin` and `linchpin serve`: the hub process. Components are started in a fixed order and stopped in the reverse
//! order.

mod certificate;
pub(crate) mod configured_servers;
mod file_limit;
pub(crate) mod gateway_socket;
mod listen;
mod startup;

use std::ffi::OsString;
use std::io::{self, IsTerminal as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use linchpin::server::web::Listener;
use linchpin_hub_core::connection::Processes;
use linchpin_hub_core::hub::{Hub, LOCAL, LOCAL_USER};
use linchpin_hub_core::platform::SystemPlatform;
use linchpin_hub_core::private_file;
use linchpin_hub_core::process_guard::ProcessGuard;
use linchpin_hub_core::{Actor, Subject};
use linchpin_hub_gateway::Gateway;
use linchpin_hub_http::HubService;
use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::{JoinSet, spawn_blocking};

use self::gateway_socket::{GatewaySocket, stdio_surface};
use self::listen::PublicListener;
use crate::cli::{print, to_anyhow};
use crate::config::{
    Config, Durability, HubPaths, LocationArgs, RunningHub, Variables, WatchedConfig, env_variable,
    parse_address,
};
use crate::error::{CliError, CliErrorKind};
use crate::terminal::{OutputStyle, Style};

/// Poll interval of the configuration file.
const CONFIG_POLL: Duration = Duration::from_secs(1);
/// Delay before the configuration file is applied again after a failure. Longer than [`CONFIG_POLL`], because each iteration restarts
/// the poll.
const APPLY_RETRY: Duration = Duration::from_secs(3);

/// Command-line options of the hub process (`linchpin serve`).
#[derive(Args, Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ServeOptions {
    /// Address that the hub listens on; port 0 selects a free port. Default: 127.0.0.1:7420, or a free port if
    /// that one is taken
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address)]
    listen: Option<SocketAddr>,

    /// Write the URL and a token of the hub to this file when it is ready, for scripts
    #[arg(long, value_name = "FILE")]
    ready_file: Option<PathBuf>,

    /// Format of the log on standard error
    #[arg(long, value_name = "FORMAT")]
    pub(crate) log: Option<LogFormat>,

    /// Durability of call and audit records: process (survives a crash) or power (also survives power loss). Default:
    /// `$LINCHPIN_AUDIT_DURABILITY`, else the configuration file, else process
    #[arg(long, value_name = "WHAT")]
    audit_durability: Option<Durability>,
}

impl ServeOptions {
    /// Returns these options, with unset ones taken from `before`.
    pub(crate) fn or_from(self, before: Self) -> Self {
        ServeOptions {
            listen: self.listen.or(before.listen),
            ready_file: self.ready_file.or(before.ready_file),
            log: self.log.or(before.log),
            audit_durability: self.audit_durability.or(before.audit_durability),
        }
    }

    /// Returns the durability from the option, else the environment, else the configuration file.
    fn durability(&self, variables: Variables<'_>, config: &Config) -> Result<Durability, CliError> {
        let read = |text: OsString| {
            let durability = text.to_str().and_then(|text| Durability::from_str(text, false).ok());
            durability
                .ok_or_else(|| CliError::usage("LINCHPIN_AUDIT_DURABILITY must be `process` or `power`"))
        };
        let set = variables("LINCHPIN_AUDIT_DURABILITY").map(read).transpose()?;
        Ok(self.audit_durability.or(set).or(config.audit.durability).unwrap_or_default())
    }
}

/// Format of the hub's log lines on standard error.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// Log lines for humans.
    Text,
    /// Log as JSON, one object per line.
    Json,
}

/// What the hub process does with its standard output: it prints the URL of the hub, or serves an MCP client.
enum StandardOutput {
    /// Prints the URL, as JSON if set.
    Url { json: bool },
    /// Serves a client in the name of this agent, or of the local user.
    Client { agent: Option<String> },
}

/// Runs the hub (`linchpin serve`) until a termination signal arrives.
pub(crate) async fn run(location: &LocationArgs, options: ServeOptions, json: bool) -> Result<(), CliError> {
    run_hub_process(location, options, StandardOutput::Url { json }).await
}

/// Runs the hub, and serves an MCP client on standard input and output until its input ends.
pub(crate) async fn run_on_stdio(
    location: &LocationArgs,
    options: ServeOptions,
    agent: Option<String>,
) -> Result<(), CliError> {
    run_hub_process(location, options, StandardOutput::Client { agent }).await
}

async fn run_hub_process(
    location: &LocationArgs,
    options: ServeOptions,
    standard_output: StandardOutput,
) -> Result<(), CliError> {
    file_limit::raise_limit();
    // From here on, signals no longer terminate the process by default.
    let (mut shutdown_signals, hangup) = (ShutdownSignals::new()?, signal(SignalKind::hangup())?);
    let exporter = crate::otel::exporter()?;
    let paths = HubPaths::resolve(location, &env_variable)?;
    paths.create()?;
    let lock = paths.lock()?;
    let guard = start_guard(&paths).await?;
    let watched = Arc::new(WatchedConfig::open(paths.config.clone())?);
    let address = options.listen.or(watched.config().listen);
    let public_config = PublicListener::from_config(address, &watched.config())?;
    let listener = listen::bind_local(address, public_config.as_ref()).await?;
    let (url, public) = (listener.origin(), watched.config().url.clone());
    let hub_url = public.as_ref().map_or(&url, |url| &url.url);
    let durability = options.durability(&env_variable, &watched.config())?;
    let hub = startup::open_hub(&paths, durability, &watched.config(), hub_url, processes(&guard)?).await?;
    let (public_listener, is_secure) = match &public_config {
        Some(config) => (Some(config.open_listener(&hub).await?), config.certificate.is_some()),
        None => (None, false),
    };
    configured_servers::apply_servers(&hub, &watched).await?;

    let http_options = linchpin_hub_http::HttpOptions {
        guard: public.as_ref().map(|url| url.guard.clone()).unwrap_or_default(),
        is_secure: is_secure || public.is_some(),
        proxies: watched.config().proxies.clone(),
        hub_url: Some(hub_url.to_owned()),
        file_problem: Some(watched.subscribe_problem()),
    };
    let service = HubService::new(hub.clone(), Arc::new(SystemPlatform), http_options);
    let end = watch::Sender::new(ShutdownPhase::Serving);
    let until = |phase: ShutdownPhase| {
        let mut now = end.subscribe();
        async move { drop(now.wait_for(|now| *now >= phase).await) }
    };
    let (mut work, mut own_tasks, mut last) = (JoinSet::new(), JoinSet::new(), ServeTasks::new());
    work.spawn(serve_requests(listener, service.clone(), until(ShutdownPhase::Draining)));
    let public_origin = public_listener.as_ref().map(Listener::origin);
    if let Some(public_listener) = public_listener {
        work.spawn(serve_requests(public_listener, service.clone(), until(ShutdownPhase::Draining)));
    }
    if let Some(certificate) = public_config.and_then(|config| config.certificate) {
        work.spawn(certificate.watch_files(watched.clone(), until(ShutdownPhase::Draining)));
    }
    if let Some(socket) = GatewaySocket::bind(paths.gateway_socket()) {
        work.spawn(socket.serve(hub.clone(), service.gateway().clone(), until(ShutdownPhase::Draining)));
    }
    work.spawn(watch_config(hub.clone(), watched, hangup, until(ShutdownPhase::Draining)));
    let (gateway, draining) = (service.gateway().clone(), until(ShutdownPhase::Draining));
    own_tasks.spawn(run_hub(hub.clone(), gateway, draining, until(ShutdownPhase::Stopping)));

    if let Some(exporter) = exporter {
        last.spawn(exporter.run(until(ShutdownPhase::Stopped)));
    }

    let running = RunningHub { url, token: hub.identity().process_token(), pid: std::process::id() };
    let by_tls = public_origin.as_ref().filter(|_| is_secure).unwrap_or(&running.url);
    let browser_url = public.as_ref().map_or(by_tls, |url| &url.url);
    lock.announce(&running).map_err(|error| cannot_write(paths.data(), &error))?;
    if let Some(file) = &options.ready_file {
        write_ready(file, &running).map_err(|error| cannot_write(file, &error))?;
    }
    if let StandardOutput::Url { json } = standard_output {
        print_url(&hub, &paths, (&running.url, browser_url), json).await;
    } else if let StandardOutput::Client { agent } = standard_output {
        let gateway = service.gateway().clone();
        work.spawn(serve_stdio(hub.clone(), gateway, agent, until(ShutdownPhase::Draining)));
    }
    log_ready(&running, public_origin.as_deref(), &paths, durability);

    // The first component that ends shuts down the others.
    let first = tokio::select! {
        () = shutdown_signals.wait() => Ok(()),
        error = hub.wait_for_store_failure() => Err(CliError::new(CliErrorKind::Disk, error.to_string())),
        first = join_next(&mut work) => first,
        first = join_next(&mut own_tasks) => first,
    };
    tracing::info!("hub shutting down");
    service.close();
    end.send_replace(ShutdownPhase::Draining);
    hub.begin_shutdown();
    let in_order = async {
        let served = join_all(&mut work).await;
        // Only after the listeners have finished: responses in flight need the background tasks.
        end.send_replace(ShutdownPhase::Stopping);
        let serve_result = served.and(join_all(&mut own_tasks).await);
        end.send_replace(ShutdownPhase::Stopped);
        serve_result.and(join_all(&mut last).await)
    };
    let serve_result = tokio::select! {
        serve_result = in_order => serve_result,
        () = shutdown_signals.wait() => {
            tracing::warn!("second signal; stopping at once and abandoning running work");
            Ok(())
        }
    };
    let result = first.and(serve_result);
    work.shutdown().await;
    own_tasks.shutdown().await;
    last.shutdown().await;
    drop(service);
    // Dropping the last reference to the hub closes its database, and the guard kills remaining processes: both block.
    drop(spawn_blocking(move || drop((hub, guard))).await);
    drop(lock);
    result
}

fn log_ready(running: &RunningHub, public_origin: Option<&str>, paths: &HubPaths, durability: Durability) {
    if let Some(url) = public_origin {
        tracing::info!(url, "public listener ready");
    }
    tracing::info!(url = running.url, data = %paths.data().display(), ?durability, "hub ready");
}

/// Runs the background jobs of the hub and of its gateway.
async fn run_hub(
    hub: Arc<Hub>,
    gateway: Arc<Gateway>,
    draining: impl Future<Output = ()>,
    stopping: impl Future<Output = ()>,
) -> Result<(), CliError> {
    tokio::join!(gateway.run(draining), hub.run(stopping));
    Ok(())
}

/// Serves an MCP client on standard input and output until its input ends, or until `end` completes.
async fn serve_stdio(
    hub: Arc<Hub>,
    gateway: Arc<Gateway>,
    agent: Option<String>,
    end: impl Future<Output = ()>,
) -> Result<(), CliError> {
    let owner = Actor::new(LOCAL, Subject::User(LOCAL_USER));
    let actor = match &agent {
        Some(agent) => hub.identity().act_as_agent(owner, agent).await?.0,
        None => owner,
    };
    let surface = gateway.surface(stdio_surface(actor, owner.subject())).await?;
    tokio::select! {
        served = surface.service().run() => served.map_err(|error| to_anyhow(error).into()),
        () = end => Ok(()),
    }
}

async fn serve_requests(
    listener: Listener,
    service: HubService,
    end: impl Future<Output = ()>,
) -> Result<(), CliError> {
    listener.run_until(end, service.service()).await.map_err(|error| to_anyhow(error).into())
}

/// Phase of the shutdown of the hub process, from serving to stopped. Each one starts when the previous one has
/// finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
enum ShutdownPhase {
    Serving,
    /// No new connections; requests in flight are completed.
    Draining,
    /// Background tasks stop, and everything is stored.
    Stopping,
    /// The hub has stopped; the span exporter flushes and stops.
    Stopped,
}

type ServeTasks = JoinSet<Result<(), CliError>>;

/// Waits for the next task of the hub to end; `Ok` if there is none.
async fn join_next(work: &mut ServeTasks) -> Result<(), CliError> {
    let finished = work.join_next().await;
    finished.unwrap_or(Ok(Ok(()))).map_err(|error| CliError::new(CliErrorKind::Other, error.to_string()))?
}

/// Waits for all tasks of the hub to end; returns the first failure.
async fn join_all(work: &mut ServeTasks) -> Result<(), CliError> {
    let mut result = Ok(());
    while !work.is_empty() {
        result = result.and(join_next(work).await);
    }
    result
}

/// Starts the process guard: it kills leftover processes of the previous hub now, and those of this one if it dies.
async fn start_guard(paths: &HubPaths) -> Result<ProcessGuard, CliError> {
    let (executable, file) = (own_executable()?, paths.guard_file());
    let started = spawn_blocking(move || ProcessGuard::start(&executable, &file)).await;
    let started = started.map_err(|error| CliError::new(CliErrorKind::Other, error.to_string()))?;
    started.map_err(|error| CliError::from(error).context("failed to start the process guard"))
}

/// Returns the process settings with which the hub starts stdio servers: lineage and supervisor.
fn processes(guard: &ProcessGuard) -> io::Result<Processes> {
    Ok(Processes { lineage: Some(guard.lineage().clone()), supervisor: Some(own_executable()?) })
}

/// Writes URL and token of the hub to the file of `--ready-file`.
fn write_ready(file: &Path, running: &RunningHub) -> io::Result<()> {
    let text = json!({ "url": running.url, "token": running.token.expose() });
    private_file::write(file, format!("{text}\n").as_bytes(), &SystemPlatform)
}

/// Returns the path of this executable; on Linux it stays valid if the file is replaced.
fn own_executable() -> io::Result<PathBuf> {
    if cfg!(target_os = "linux") { Ok(PathBuf::from("/proc/self/exe")) } else { std::env::current_exe() }
}

fn cannot_write(path: &Path, error: &io::Error) -> CliError {
    CliError::new(CliErrorKind::Other, format!("the path `{}` cannot be written: {error}", path.display()))
}

/// Applies the configuration file whenever it changes, until `end`.
async fn watch_config(
    hub: Arc<Hub>,
    watched: Arc<WatchedConfig>,
    mut hangup: Signal,
    end: impl Future<Output = ()>,
) -> Result<(), CliError> {
    let (mut end, mut needs_retry) = (std::pin::pin!(end), false);
    let mut egress = watched.config().egress.clone();
    loop {
        tokio::select! {
            () = &mut end => return Ok(()),
            _ = hangup.recv() => {
                watched.reload_now();
                continue;
            }
            _ = watched.wait_for_change(CONFIG_POLL) => {}
            () = tokio::time::sleep(APPLY_RETRY), if needs_retry => {}
        }
        startup::apply_egress(&hub, &watched, &mut egress);
        hub.set_limits(watched.config().hub_limits());
        let retention_result =
            hub.audit().set_retention(watched.config().retention()).await.map_err(CliError::from);
        let applied = retention_result.and(configured_servers::apply_servers(&hub, &watched).await);
        needs_retry = applied.is_err();
        if let Err(error) = applied {
            tracing::warn!(%error, "failed to apply the configuration file; retrying");
        }
    }
}

/// Prints the URL of the hub. A terminal shows the URL for browsers, with a one-time login link if possible.
/// Other output may be stored, so it contains only `url`.
async fn print_url(hub: &Hub, paths: &HubPaths, urls: (&str, &str), json: bool) {
    if let Err(error) = try_print_url(hub, paths, urls, json).await {
        tracing::warn!(%error, "failed to print the hub URL");
    }
}

async fn try_print_url(
    hub: &Hub,
    paths: &HubPaths,
    (url, browser_url): (&str, &str),
    json: bool,
) -> Result<(), CliError> {
    if json {
        return Ok(print(&format!("{}\n", json!({ "url": url })))?);
    }
    if !io::stdout().is_terminal() {
        return Ok(print(&format!("{url}\n"))?);
    }
    let style = OutputStyle::stdout();
    let (address, advice) = match hub.identity().create_login_link().await? {
        Some(token) => {
            let advice = "This link logs you in once and expires after 15 minutes.";
            (format!("{browser_url}/sign-in?token={}", token.expose()), advice)
        }
        None => (browser_url.to_owned(), "Log in with your password."),
    };
    let address = style.paint(Style::Name, &address);
    let version = env!("CARGO_PKG_VERSION");
    let linchpin = paths.shell_command();
    let next = format!(
        "In another terminal: {linchpin} tool list, {linchpin} tool call mcp_demo__add --args '{{\"a\": 2, \"b\": 40}}'"
    );
    Ok(print(&format!(
        "Linchpin {version} is ready:\n\n  {address}\n\n{advice}\n{next}\nPress Ctrl-C to stop.\n"
    ))?)
}

/// SIGINT and SIGTERM, which stop the hub.
struct ShutdownSignals(Signal, Signal);

impl ShutdownSignals {
    fn new() -> io::Result<Self> {
        Ok(ShutdownSignals(signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?))
    }

    async fn wait(&mut self) {
        tokio::select! {
            _ = self.0.recv() => {}
            _ = self.1.recv() => {}
        }
    }
}

/// Tenant that the servers of the configuration file belong to.
const TENANT: linchpin_hub_core::id::TenantId = LOCAL;

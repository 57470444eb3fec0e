//! Reporting of denied outgoing connections per handle, and the destinations reached through it.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::dial::Route;
use super::policy::UrlSource;
use super::pool::Egress;
use super::target::Target;
use crate::lock::lock;

/// Maximum number of destinations that a handle records; beyond that, [`Egress::is_allowed`] returns `false`.
const MAX_DESTINATIONS: usize = 64;

const MAX_HOST_LEN: usize = 253;

/// A denied connection: the policy refuses its address, plain `http` would be unprotected, or a redirect or a
/// document leads to a URL that is not followed.
#[derive(Debug)]
#[non_exhaustive]
pub struct Denial<'a> {
    /// Host of the denied URL.
    pub host: &'a str,
    /// Address that the policy refused, if known.
    pub address: Option<IpAddr>,
    /// Reason for the denial, without query, password or headers.
    pub reason: &'a str,
}

/// Callback for denied outgoing connections, and the destinations reached so far.
pub(super) struct DenialListener {
    callback: Box<dyn Fn(&Denial<'_>) + Send + Sync>,
    denials: AtomicU64,
    destinations: Mutex<Vec<(Target, UrlSource, Route)>>,
}

impl Egress {
    /// Returns a handle that reports denials to a callback. It shares the connections of this one.
    #[must_use]
    pub fn on_denied(&self, callback: impl Fn(&Denial<'_>) + Send + Sync + 'static) -> Egress {
        let listener = DenialListener {
            callback: Box::new(callback),
            denials: AtomicU64::new(0),
            destinations: Mutex::default(),
        };
        let mut handle = self.clone();
        handle.denials = Some(Arc::new(listener));
        handle
    }

    /// Returns whether the current settings allow all destinations that were reached through this handle (see
    /// [`Egress::on_denied`]), at the same addresses: the settings may have [changed](Egress::reconfigure).
    pub fn is_allowed(&self) -> bool {
        let Some(listener) = &self.denials else { return true };
        let (dialer, destinations) = (self.dialer(), lock(&listener.destinations));
        destinations.len() < MAX_DESTINATIONS
            && destinations.iter().all(|(target, source, route)| dialer.allows(target, *source, route))
    }

    /// Returns the number of requests that were denied through this handle (see [`Egress::on_denied`]).
    pub fn denials(&self) -> u64 {
        self.denials.as_ref().map_or(0, |listener| listener.denials.load(Ordering::Relaxed))
    }

    pub(crate) fn deny(&self, host: &str, address: Option<IpAddr>, reason: &str) {
        if let Some(listener) = &self.denials {
            listener.denials.fetch_add(1, Ordering::Relaxed);
            crate::client::catch_hook_panic(|| (listener.callback)(&Denial { host, address, reason }));
        }
    }

    /// Records that a connection to this target was opened, to check it again when the egress policy changes.
    pub(super) fn record_reached(&self, target: &Target, source: UrlSource, route: &Route) {
        let Some(listener) = &self.denials else { return };
        let mut destinations = lock(&listener.destinations);
        let is_known = |(recorded, recorded_source, recorded_route): &(Target, UrlSource, Route)| {
            recorded.same_origin(target)
                && *recorded_source == source
                && recorded_route.address == route.address
        };
        if destinations.len() < MAX_DESTINATIONS && !destinations.iter().any(is_known) {
            destinations.push((target.clone(), source, route.clone()));
        }
    }
}

/// Extracts the host of a possibly invalid URL, for display.
pub(crate) fn host_of(url: &str) -> String {
    let authority = url.split_once("://").map_or(url, |(_, authority)| authority);
    let authority = authority.split(['/', '?', '#', '\\']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    host.chars().filter(|char| !char.is_control()).take(MAX_HOST_LEN).collect()
}

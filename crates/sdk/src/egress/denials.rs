//! Denial reporting per handle, and the destinations reached through it.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::dial::Way;
use super::policy::Trust;
use super::pool::Egress;
use super::target::Target;
use crate::lock::lock;

/// Maximum number of destinations that a handle records; beyond that, [`Egress::is_allowed`] returns `false`.
const MOST_PLACES: usize = 64;

const LONGEST_HOST: usize = 253;

/// A denied connection: the policy refuses its address, plain `http` would be unprotected, or a redirect or a
/// document leads to a URL that is not followed.
#[derive(Debug)]
#[non_exhaustive]
pub struct Denied<'a> {
    /// The host in the URL.
    pub host: &'a str,
    /// The refused address, if known.
    pub address: Option<IpAddr>,
    /// The reason, without query, password or headers.
    pub reason: &'a str,
}

/// Callback for denials, and the destinations reached so far.
pub(super) struct Ear {
    told: Box<dyn Fn(&Denied<'_>) + Send + Sync>,
    denials: AtomicU64,
    reached: Mutex<Vec<(Target, Trust, Way)>>,
}

impl Egress {
    /// Returns a handle that reports denials to a callback. It shares the connections of this one.
    #[must_use]
    pub fn on_denied(&self, told: impl Fn(&Denied<'_>) + Send + Sync + 'static) -> Egress {
        let ear = Ear { told: Box::new(told), denials: AtomicU64::new(0), reached: Mutex::default() };
        let mut heard = self.clone();
        heard.ear = Some(Arc::new(ear));
        heard
    }

    /// Returns whether the current settings allow all destinations that were reached through this handle (see
    /// [`Egress::on_denied`]), at the same addresses: the settings may have [changed](Egress::change).
    pub fn is_allowed(&self) -> bool {
        let Some(ear) = &self.ear else { return true };
        let (dialer, reached) = (self.dialer(), lock(&ear.reached));
        reached.len() < MOST_PLACES
            && reached.iter().all(|(target, trust, way)| dialer.allows(target, *trust, way))
    }

    /// Returns the number of denials through this handle (see [`Egress::on_denied`]).
    pub fn denials(&self) -> u64 {
        self.ear.as_ref().map_or(0, |ear| ear.denials.load(Ordering::Relaxed))
    }

    pub(crate) fn deny(&self, host: &str, address: Option<IpAddr>, reason: &str) {
        if let Some(ear) = &self.ear {
            ear.denials.fetch_add(1, Ordering::Relaxed);
            crate::client::guarded(|| (ear.told)(&Denied { host, address, reason }));
        }
    }

    /// Records a reached destination.
    pub(super) fn note(&self, target: &Target, trust: Trust, way: &Way) {
        let Some(ear) = &self.ear else { return };
        let mut reached = lock(&ear.reached);
        let is_known = |(known, of, at): &(Target, Trust, Way)| {
            known.same_origin(target) && *of == trust && at.address == way.address
        };
        if reached.len() < MOST_PLACES && !reached.iter().any(is_known) {
            reached.push((target.clone(), trust, way.clone()));
        }
    }
}

/// Extracts the host of a possibly invalid URL, for display.
pub(crate) fn host_of(url: &str) -> String {
    let place = url.split_once("://").map_or(url, |(_, place)| place);
    let place = place.split(['/', '?', '#', '\\']).next().unwrap_or_default();
    let host = place.rsplit('@').next().unwrap_or_default();
    host.chars().filter(|char| !char.is_control()).take(LONGEST_HOST).collect()
}

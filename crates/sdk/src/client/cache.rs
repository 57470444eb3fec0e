//! Response cache for lists and read resources.
//!
//! Each client has its own cache, since responses may depend on the client's identity. Only results with a TTL from
//! the server are cached, and a change notification invalidates them early.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use linchpin_protocol::Method;
use linchpin_protocol::wire;
use serde::Deserialize;
use tokio::time::Instant;

use crate::lock::lock;

/// Maximum number of cached results of requests.
const MAX_RESULTS: usize = 1_000;
/// Maximum total size of the cached results in bytes.
const MAX_BYTES: usize = 16 << 20;
/// Maximum time for which a result is cached, whatever TTL the server names.
const MAX_TTL: Duration = Duration::from_hours(24);

/// Cache of the results of lists and resource reads, for as long as their cache hints permit.
#[derive(Default)]
pub(crate) struct ResponseCache(Mutex<CacheState>);

#[derive(Default)]
struct CacheState {
    results: HashMap<CacheKey, CacheEntry>,
    bytes: usize,
    /// Incremented on each invalidation, so that a response in flight at that time is not cached.
    generation: u64,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct CacheKey {
    method: Method,
    params: Box<[u8]>,
}

struct CacheEntry {
    text: String,
    expires_at: Instant,
}

/// Key of a request whose result is not cached, with which its response is cached later.
pub(crate) struct CacheMiss {
    key: CacheKey,
    generation: u64,
}

#[derive(Deserialize)]
struct CacheHintsBody {
    #[serde(rename = "ttlMs")]
    ttl: Option<f64>,
}

/// Returns whether results of a method may be cached.
pub(crate) fn is_cacheable(method: Method) -> bool {
    use Method as M;
    matches!(
        method,
        M::ListTools | M::ListPrompts | M::ListResources | M::ListResourceTemplates | M::ReadResource
    )
}

impl ResponseCache {
    /// Returns the cached result of a request if it is fresh, otherwise the token for [`Self::store`].
    pub(crate) fn find(&self, method: Method, params: &[u8]) -> Result<String, CacheMiss> {
        let key = CacheKey { method, params: params.into() };
        let state = lock(&self.0);
        match state.results.get(&key) {
            Some(entry) if Instant::now() < entry.expires_at => Ok(entry.text.clone()),
            _ => Err(CacheMiss { key, generation: state.generation }),
        }
    }

    /// Returns the token with which the result of a request that bypasses the cache is stored.
    pub(crate) fn bypass(&self, method: Method, params: &[u8]) -> CacheMiss {
        CacheMiss { key: CacheKey { method, params: params.into() }, generation: lock(&self.0).generation }
    }

    /// Caches a complete result for its TTL.
    pub(crate) fn store(&self, miss: CacheMiss, text: &str) {
        let ttl = wire::decode::<CacheHintsBody>(text).ok().and_then(|hints| hints.ttl).unwrap_or_default();
        let size = text.len() + miss.key.params.len();
        if ttl < 1.0 || size > MAX_BYTES / 4 {
            return;
        }
        let ttl = Duration::try_from_secs_f64(ttl / 1_000.0).map_or(MAX_TTL, |ttl| ttl.min(MAX_TTL));
        let now = Instant::now();
        let mut state = lock(&self.0);
        if state.generation != miss.generation {
            return;
        }
        state.remove(|key, entry| *key == miss.key || entry.expires_at <= now);
        if state.results.len() >= MAX_RESULTS || state.bytes + size > MAX_BYTES {
            state.remove(|_, _| true); // a miss costs one request
        }
        state.bytes += size;
        state.results.insert(miss.key, CacheEntry { text: text.to_owned(), expires_at: now + ttl });
    }

    /// Invalidates the cached results of a method.
    pub(crate) fn invalidate(&self, method: Method) {
        let mut state = lock(&self.0);
        state.generation += 1;
        state.remove(|key, _| key.method == method);
    }

    /// Invalidates the cached contents of a resource and of everything below it.
    pub(crate) fn invalidate_resource(&self, uri: &str) {
        let mut state = lock(&self.0);
        state.generation += 1;
        state.remove(|key, _| {
            let read: Option<ReadKey> = serde_json::from_slice(&key.params).ok();
            // Resources below a changed directory may have changed, too.
            key.method == Method::ReadResource && read.is_none_or(|read| read.uri.starts_with(uri))
        });
    }
}

#[derive(Deserialize)]
struct ReadKey {
    uri: String,
}

impl CacheState {
    fn remove(&mut self, matches: impl Fn(&CacheKey, &CacheEntry) -> bool) {
        let bytes = &mut self.bytes;
        self.results.retain(|key, entry| {
            let is_removed = matches(key, entry);
            if is_removed {
                *bytes -= entry.text.len() + key.params.len();
            }
            !is_removed
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: Method = Method::ListTools;

    fn lookup_bypassed(cache: &ResponseCache, method: Method, params: &str) -> CacheMiss {
        cache.bypass(method, params.as_bytes())
    }

    fn insert_response(cache: &ResponseCache, method: Method, params: &str, text: &str) {
        cache.store(lookup_bypassed(cache, method, params), text);
    }

    fn has(cache: &ResponseCache, method: Method, params: &str) -> bool {
        cache.find(method, params.as_bytes()).is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_result_is_fresh_for_as_long_as_it_says() {
        let cache = ResponseCache::default();
        insert_response(&cache, LIST, "{}", r#"{"tools":[],"ttlMs":1000}"#);
        assert_eq!(cache.find(LIST, b"{}").ok().as_deref(), Some(r#"{"tools":[],"ttlMs":1000}"#));
        assert!(!has(&cache, LIST, r#"{"cursor":"2"}"#) && !has(&cache, Method::ListPrompts, "{}"));
        tokio::time::advance(Duration::from_millis(999)).await;
        assert!(has(&cache, LIST, "{}"));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!has(&cache, LIST, "{}"));
    }

    #[tokio::test(start_paused = true)]
    async fn what_says_no_time_is_not_kept() {
        let cache = ResponseCache::default();
        for text in ["{}", r#"{"ttlMs":0}"#, r#"{"ttlMs":-5}"#, r#"{"ttlMs":"7"}"#, "[]", r#"{"ttlMs":null}"#]
        {
            insert_response(&cache, LIST, "{}", text);
            assert!(!has(&cache, LIST, "{}"), "{text}");
        }
        assert!(!is_cacheable(Method::CallTool) && !is_cacheable(Method::GetPrompt));
        insert_response(&cache, LIST, "{}", r#"{"ttlMs":1e300}"#);
        tokio::time::advance(MAX_TTL).await;
        assert!(!has(&cache, LIST, "{}"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_ends_the_time_also_of_what_is_under_way() {
        let (cache, text) = (ResponseCache::default(), r#"{"ttlMs":60000}"#);
        insert_response(&cache, LIST, "{}", text);
        let read = Method::ReadResource;
        insert_response(&cache, read, r#"{"uri":"a:b/c"}"#, text);
        insert_response(&cache, read, r#"{"uri":"a:d"}"#, text);
        let in_flight = lookup_bypassed(&cache, LIST, r#"{"cursor":"2"}"#);
        cache.invalidate(LIST);
        cache.store(in_flight, text);
        assert!(!has(&cache, LIST, "{}") && !has(&cache, LIST, r#"{"cursor":"2"}"#));
        cache.invalidate_resource("a:b");
        assert!(!has(&cache, read, r#"{"uri":"a:b/c"}"#) && has(&cache, read, r#"{"uri":"a:d"}"#));
    }

    #[tokio::test(start_paused = true)]
    async fn memory_is_bounded() {
        let cache = ResponseCache::default();
        let large = format!(r#"{{"ttlMs":60000,"x":"{}"}}"#, "x".repeat(1 << 20));
        for number in 0..40 {
            insert_response(&cache, LIST, &format!(r#"{{"cursor":"{number}"}}"#), &large);
            assert!(lock(&cache.0).bytes <= MAX_BYTES);
        }
        for number in 0..3_000 {
            insert_response(&cache, LIST, &format!(r#"{{"cursor":"{number}"}}"#), r#"{"ttlMs":60000}"#);
        }
        let state = lock(&cache.0);
        assert!(state.results.len() <= MAX_RESULTS);
        let size = |(key, entry): (&CacheKey, &CacheEntry)| key.params.len() + entry.text.len();
        assert_eq!(state.bytes, state.results.iter().map(size).sum::<usize>());
    }
}

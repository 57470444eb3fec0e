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

/// Limits of the cache: number of results, and their total size.
const MAX_RESULTS: usize = 1_000;
const MAX_BYTES: usize = 16 << 20;
/// Upper bound of the TTL.
const LONGEST: Duration = Duration::from_hours(24);

/// Cached results of read-only requests.
#[derive(Default)]
pub(crate) struct Cache(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    results: HashMap<Key, Fresh>,
    bytes: usize,
    /// Incremented on each invalidation, so that a response in flight at that time is not cached.
    changes: u64,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    method: Method,
    params: Box<[u8]>,
}

struct Fresh {
    text: String,
    until: Instant,
}

/// A request without a cached result.
pub(crate) struct Miss {
    key: Key,
    changes: u64,
}

#[derive(Deserialize)]
struct Hints {
    #[serde(rename = "ttlMs")]
    ttl: Option<f64>,
}

/// Returns whether results of a method may be cached.
pub(crate) fn is_kept(method: Method) -> bool {
    use Method as M;
    matches!(
        method,
        M::ListTools | M::ListPrompts | M::ListResources | M::ListResourceTemplates | M::ReadResource
    )
}

impl Cache {
    /// Returns the cached result of a request if it is fresh, otherwise the token for [`Self::keep`].
    pub(crate) fn find(&self, method: Method, params: &[u8]) -> Result<String, Miss> {
        let key = Key { method, params: params.into() };
        let kept = lock(&self.0);
        match kept.results.get(&key) {
            Some(fresh) if Instant::now() < fresh.until => Ok(fresh.text.clone()),
            _ => Err(Miss { key, changes: kept.changes }),
        }
    }

    /// Returns the token for a request that bypasses the cache.
    pub(crate) fn pass(&self, method: Method, params: &[u8]) -> Miss {
        Miss { key: Key { method, params: params.into() }, changes: lock(&self.0).changes }
    }

    /// Caches a complete result for its TTL.
    pub(crate) fn keep(&self, miss: Miss, text: &str) {
        let ttl = wire::decode::<Hints>(text).ok().and_then(|hints| hints.ttl).unwrap_or_default();
        let size = text.len() + miss.key.params.len();
        if ttl < 1.0 || size > MAX_BYTES / 4 {
            return;
        }
        let ttl = Duration::try_from_secs_f64(ttl / 1_000.0).map_or(LONGEST, |ttl| ttl.min(LONGEST));
        let now = Instant::now();
        let mut kept = lock(&self.0);
        if kept.changes != miss.changes {
            return;
        }
        kept.remove(|key, fresh| *key == miss.key || fresh.until <= now);
        if kept.results.len() >= MAX_RESULTS || kept.bytes + size > MAX_BYTES {
            kept.remove(|_, _| true); // a miss costs one request
        }
        kept.bytes += size;
        kept.results.insert(miss.key, Fresh { text: text.to_owned(), until: now + ttl });
    }

    /// Invalidates the results of a method.
    pub(crate) fn forget(&self, method: Method) {
        let mut kept = lock(&self.0);
        kept.changes += 1;
        kept.remove(|key, _| key.method == method);
    }

    /// Invalidates a resource and everything below it.
    pub(crate) fn forget_resource(&self, uri: &str) {
        let mut kept = lock(&self.0);
        kept.changes += 1;
        kept.remove(|key, _| {
            let read: Option<Read> = serde_json::from_slice(&key.params).ok();
            // Resources below a changed directory may have changed, too.
            key.method == Method::ReadResource && read.is_none_or(|read| read.uri.starts_with(uri))
        });
    }
}

#[derive(Deserialize)]
struct Read {
    uri: String,
}

impl Kept {
    fn remove(&mut self, which: impl Fn(&Key, &Fresh) -> bool) {
        let bytes = &mut self.bytes;
        self.results.retain(|key, fresh| {
            let goes = which(key, fresh);
            if goes {
                *bytes -= fresh.text.len() + key.params.len();
            }
            !goes
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: Method = Method::ListTools;

    fn missed(cache: &Cache, method: Method, params: &str) -> Miss {
        cache.pass(method, params.as_bytes())
    }

    fn keep(cache: &Cache, method: Method, params: &str, text: &str) {
        cache.keep(missed(cache, method, params), text);
    }

    fn has(cache: &Cache, method: Method, params: &str) -> bool {
        cache.find(method, params.as_bytes()).is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_result_is_fresh_for_as_long_as_it_says() {
        let cache = Cache::default();
        keep(&cache, LIST, "{}", r#"{"tools":[],"ttlMs":1000}"#);
        assert_eq!(cache.find(LIST, b"{}").ok().as_deref(), Some(r#"{"tools":[],"ttlMs":1000}"#));
        assert!(!has(&cache, LIST, r#"{"cursor":"2"}"#) && !has(&cache, Method::ListPrompts, "{}"));
        tokio::time::advance(Duration::from_millis(999)).await;
        assert!(has(&cache, LIST, "{}"));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!has(&cache, LIST, "{}"));
    }

    #[tokio::test(start_paused = true)]
    async fn what_says_no_time_is_not_kept() {
        let cache = Cache::default();
        for text in ["{}", r#"{"ttlMs":0}"#, r#"{"ttlMs":-5}"#, r#"{"ttlMs":"7"}"#, "[]", r#"{"ttlMs":null}"#]
        {
            keep(&cache, LIST, "{}", text);
            assert!(!has(&cache, LIST, "{}"), "{text}");
        }
        assert!(!is_kept(Method::CallTool) && !is_kept(Method::GetPrompt));
        keep(&cache, LIST, "{}", r#"{"ttlMs":1e300}"#);
        tokio::time::advance(LONGEST).await;
        assert!(!has(&cache, LIST, "{}"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_ends_the_time_also_of_what_is_under_way() {
        let (cache, text) = (Cache::default(), r#"{"ttlMs":60000}"#);
        keep(&cache, LIST, "{}", text);
        let read = Method::ReadResource;
        keep(&cache, read, r#"{"uri":"a:b/c"}"#, text);
        keep(&cache, read, r#"{"uri":"a:d"}"#, text);
        let under_way = missed(&cache, LIST, r#"{"cursor":"2"}"#);
        cache.forget(LIST);
        cache.keep(under_way, text);
        assert!(!has(&cache, LIST, "{}") && !has(&cache, LIST, r#"{"cursor":"2"}"#));
        cache.forget_resource("a:b");
        assert!(!has(&cache, read, r#"{"uri":"a:b/c"}"#) && has(&cache, read, r#"{"uri":"a:d"}"#));
    }

    #[tokio::test(start_paused = true)]
    async fn memory_is_bounded() {
        let cache = Cache::default();
        let large = format!(r#"{{"ttlMs":60000,"x":"{}"}}"#, "x".repeat(1 << 20));
        for number in 0..40 {
            keep(&cache, LIST, &format!(r#"{{"cursor":"{number}"}}"#), &large);
            assert!(lock(&cache.0).bytes <= MAX_BYTES);
        }
        for number in 0..3_000 {
            keep(&cache, LIST, &format!(r#"{{"cursor":"{number}"}}"#), r#"{"ttlMs":60000}"#);
        }
        let kept = lock(&cache.0);
        assert!(kept.results.len() <= MAX_RESULTS);
        let size = |(key, fresh): (&Key, &Fresh)| key.params.len() + fresh.text.len();
        assert_eq!(kept.bytes, kept.results.iter().map(size).sum::<usize>());
    }
}

//! How often servers are asked for something. Tools, resources and prompts count alike.

use super::Hub;
use crate::audit::Entry;
use crate::error::{self, Error, Result};
use crate::limit::{Bucket, Rate};
use crate::scope::Scope;
use crate::server::Server;
use crate::store::Batch;
use crate::sync::lock;

impl Hub {
    /// One request less for a server in this minute. The audit says what was too much.
    pub(super) async fn take_turn(
        &self,
        scope: Scope,
        server: &Server,
        limited: impl FnOnce() -> Entry,
    ) -> Result<()> {
        let Some(per_minute) = server.settings.calls_per_minute else { return Ok(()) };
        let (rate, now) = (Rate { burst: per_minute, per_minute }, self.world.now());
        let key = (scope.tenant(), server.id);
        let taken = lock(&self.limits).entry(key).or_insert_with(|| Bucket::full(rate, now)).take(rate, now);
        let Err(wait) = taken else { return Ok(()) };
        self.store.commit(scope.tenant(), Batch::new().audit(limited())).await?;
        let text = format!(
            "`{}` takes {per_minute} calls a minute: try again in {} s",
            server.slug.as_str(),
            error::seconds(wait)
        );
        Err(Error::new(error::Kind::Exhausted, "rate_limited", text).after(wait))
    }
}

//! Being told of changes, in both styles.

use super::Meta;
use crate::encode::model;

model! {
    /// One resource to watch or to stop watching (session era).
    pub struct SubscribeParams {
        /// Its URI.
        uri: String = "uri",
        /// Metadata.
        meta: Option<Meta> = "_meta",
    }

    /// What a stream of notifications should carry (stateless era).
    pub struct SubscriptionsListenParams {
        /// The wish.
        notifications: SubscriptionFilter = "notifications",
        /// Metadata.
        meta: Option<Meta> = "_meta",
    }

    /// Kinds of notifications.
    #[derive(Default)]
    pub struct SubscriptionFilter {
        /// When tools come or go.
        tools_list_changed: Option<bool> = "toolsListChanged",
        /// When prompts come or go.
        prompts_list_changed: Option<bool> = "promptsListChanged",
        /// When resources come or go.
        resources_list_changed: Option<bool> = "resourcesListChanged",
        /// When one of these resources changes.
        resource_subscriptions: Option<Vec<String>> = "resourceSubscriptions",
        /// When one of these tasks changes (tasks extension).
        task_ids: Option<Vec<String>> = "taskIds",
    }

    /// What the server will really send.
    pub struct SubscriptionsAcknowledgedParams {
        /// The part of the wish that it can fulfil.
        notifications: SubscriptionFilter = "notifications",
        /// Metadata, with the id of the subscription.
        meta: Option<Meta> = "_meta",
    }
}

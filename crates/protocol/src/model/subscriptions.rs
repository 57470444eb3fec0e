//! Subscriptions to changes, for both eras.

use super::Meta;
use crate::encode::model;

model! {
    /// Parameters of `resources/subscribe` and `resources/unsubscribe` (session era).
    pub struct SubscribeParams {
        /// URI of the resource to subscribe to or unsubscribe from.
        uri: String = "uri",
        /// Metadata of the request (`_meta`).
        meta: Option<Meta> = "_meta",
    }

    /// Parameters of `subscriptions/listen` (stateless era).
    pub struct SubscriptionsListenParams {
        /// Notifications that the client requests.
        notifications: SubscriptionFilter = "notifications",
        /// Metadata of the request (`_meta`).
        meta: Option<Meta> = "_meta",
    }

    /// Notifications that a client selects in `subscriptions/listen`.
    #[derive(Default)]
    pub struct SubscriptionFilter {
        /// Whether to send notifications of changes of the tool list.
        tools_list_changed: Option<bool> = "toolsListChanged",
        /// Whether to send notifications of changes of the prompt list.
        prompts_list_changed: Option<bool> = "promptsListChanged",
        /// Whether to send notifications of changes of the resource list.
        resources_list_changed: Option<bool> = "resourcesListChanged",
        /// Subscription to updates of these resources, by URI.
        resource_subscriptions: Option<Vec<String>> = "resourceSubscriptions",
        /// Subscription to status changes of these tasks, by id (tasks extension).
        task_ids: Option<Vec<String>> = "taskIds",
    }

    /// Parameters of `notifications/subscriptions/acknowledged`.
    pub struct SubscriptionsAcknowledgedParams {
        /// Requested notifications that the server supports and will send.
        notifications: SubscriptionFilter = "notifications",
        /// Metadata, with the subscription id.
        meta: Option<Meta> = "_meta",
    }
}

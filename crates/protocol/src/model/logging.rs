//! Log messages from the server to the client.

use serde_json::Value;

use super::Meta;
use crate::encode::{model, words};

words! {
    /// Severity of a log message, as in syslog (RFC 5424).
    pub enum LogLevel {
        /// Debugging information.
        Debug = "debug",
        /// Informational messages.
        Info = "info",
        /// Normal but significant events.
        Notice = "notice",
        /// Warning conditions.
        Warning = "warning",
        /// Error conditions.
        Error = "error",
        /// Critical conditions, such as a failed component.
        Critical = "critical",
        /// Action must be taken immediately.
        Alert = "alert",
        /// The system is unusable.
        Emergency = "emergency",
    }
}

model! {
    /// Parameters of `notifications/message`.
    pub struct LogParams {
        /// Severity of the log message.
        level: LogLevel = "level",
        /// Name of the logger.
        logger: Option<String> = "logger",
        /// Message: any JSON value.
        data: Value = "data",
        /// Metadata of the notification (`_meta`).
        meta: Option<Meta> = "_meta",
    }

    /// Parameters of `logging/setLevel`.
    pub struct SetLevelParams {
        /// Minimum level of log messages.
        level: LogLevel = "level",
        /// Metadata of the request (`_meta`).
        meta: Option<Meta> = "_meta",
    }
}

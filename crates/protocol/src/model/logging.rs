//! Log messages from the server to the client.

use serde_json::Value;

use super::Meta;
use crate::encode::{model, words};

words! {
    /// How serious a log message is, as in syslog.
    pub enum LogLevel {
        /// Detail for finding faults.
        Debug = "debug",
        /// Ordinary events.
        Info = "info",
        /// Ordinary but significant events.
        Notice = "notice",
        /// Something may go wrong.
        Warning = "warning",
        /// Something went wrong.
        Error = "error",
        /// A part of the system failed.
        Critical = "critical",
        /// Somebody must act at once.
        Alert = "alert",
        /// The system cannot be used.
        Emergency = "emergency",
    }
}

model! {
    /// One log message.
    pub struct LogParams {
        /// How serious it is.
        level: LogLevel = "level",
        /// Which part of the server speaks.
        logger: Option<String> = "logger",
        /// The message: any JSON.
        data: Value = "data",
        /// Metadata.
        meta: Option<Meta> = "_meta",
    }

    /// The least level that a session wants to hear.
    pub struct SetLevelParams {
        /// That level.
        level: LogLevel = "level",
        /// Metadata.
        meta: Option<Meta> = "_meta",
    }
}

//! Shared code of the peers: the fifty dummy tools that give `tools/list` a realistic size (29 KB), and the readers of
//! another process's CPU time and memory.

pub mod process;
mod tools;

pub use tools::{DUMMIES, ToolDefinition, dummy_tools, tools_list_result};

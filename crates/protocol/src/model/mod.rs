//! Revision-neutral types: the superset of all revisions, one file per page of the specification.
//!
//! Handlers, clients and the hub use these types and never deal with a revision. The `since` marks of the fields
//! determine the JSON of older revisions; the few fallback forms are documented at their types.

mod caching;
mod cancellation;
mod capabilities;
mod completion;
mod content;
mod discover;
mod elicitation;
mod implementation;
mod initialize;
mod input_required;
mod logging;
mod meta;
mod progress;
mod prompts;
mod resources;
mod results;
mod roots;
mod sampling;
mod skills;
mod subscriptions;
mod tasks;
mod tool_result;
mod tools;

pub use caching::{CacheHints, CacheScope};
pub use cancellation::CancelledParams;
pub use capabilities::{
    ClientCapabilities, ElicitationCapability, ListCapability, ResourcesCapability, RootsCapability,
    SamplingCapability, ServerCapabilities, extension,
};
pub use completion::{
    CompleteParams, CompleteResult, Completion, CompletionArgument, CompletionContext, CompletionReference,
};
pub use content::{
    Annotations, AudioContent, Content, EmbeddedResource, ImageContent, ResourceLink, Role, TextContent,
    ToolResultContent, ToolUseContent,
};
pub use discover::DiscoverResult;
pub use elicitation::{
    ElicitAction, ElicitMode, ElicitParams, ElicitResult, ElicitSchema, ElicitationCompleteParams, EnumItems,
    EnumOption, PrimitiveSchema,
};
pub use implementation::{Icon, IconTheme, Implementation};
pub use initialize::{InitializeParams, InitializeResult};
pub use input_required::{InputRequest, InputRequiredResult};
pub use logging::{LogLevel, LogParams, SetLevelParams};
pub use meta::{EmptyParams, Meta, RequestMeta, key};
pub use progress::ProgressParams;
pub use prompts::{
    GetPromptParams, GetPromptResult, ListPromptsResult, Prompt, PromptArgument, PromptMessage,
};
pub use resources::{
    ListResourceTemplatesResult, ListResourcesResult, ReadResourceParams, ReadResourceResult, Resource,
    ResourceContents, ResourceTemplate, ResourceUpdatedParams,
};
pub(crate) use results::encode_result;
pub use results::{EmptyResult, ResultBody};
pub use roots::{ListRootsResult, Root};
pub use sampling::{
    CreateMessageParams, CreateMessageResult, ModelHint, ModelPreferences, SamplingContent, SamplingMessage,
    ToolChoice, ToolChoiceMode,
};
pub use skills::{
    GetSkillParams, GetSkillResult, ListSkillsResult, ReadResourceDirectoryParams,
    ReadResourceDirectoryResult, Skill, SkillFrontmatter, SkillResource, SkillResources, SkillsSettings,
};
pub use subscriptions::{
    SubscribeParams, SubscriptionFilter, SubscriptionsAcknowledgedParams, SubscriptionsListenParams,
};
pub use tasks::{
    CancelTaskResult, CreateTaskResult, GetTaskPayloadResult, GetTaskResult, ListTasksResult,
    RelatedTaskMetadata, Task, TaskDetail, TaskMetadata, TaskParams, TaskStatus, TaskStatusParams,
    TasksCapability, UpdateTaskParams,
};
pub use tool_result::ToolResultError;
pub use tools::{
    CallToolParams, CallToolResult, ListToolsResult, OutputSchema, PageParams, StructuredContent,
    TaskSupport, Tool, ToolAnnotations, ToolExecution,
};

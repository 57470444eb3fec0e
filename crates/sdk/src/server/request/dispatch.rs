//! Dispatch of a decoded request to its handler: one function per method.

use std::sync::Arc;

use linchpin_jsonrpc::Params;
use linchpin_protocol::Error as ProtocolError;
use linchpin_protocol::encode::Fields;
use linchpin_protocol::model::{
    CompleteParams, CompletionReference, GetPromptParams, ListPromptsResult, ListResourceTemplatesResult,
    ListResourcesResult, ListToolsResult, Meta, ReadResourceResult, ResultBody, SetLevelParams,
    SubscribeParams, TaskSupport,
};
use linchpin_protocol::wire::{self, CallTool, ClientRequest, DecodeError, InvalidValue};

use super::layer;
use super::result::UnencodedResult;
use super::scope::RequestScope;
use super::work::{RequestFuture, catch_panic, tool_failure};
use crate::server::catalog::{CatalogEntry, CatalogList};
use crate::server::definitions::tool::ToolEntry;
use crate::server::input::rounds;
use crate::server::session::MAX_URI_LEN;
use crate::server::{DefinitionRef, forward, skills, subscriptions, tasks};
use crate::{Error, Result};

/// Starts the handler of a request, through the layers if there are any.
pub(crate) fn start_layered(scope: &RequestScope<'_>, params: &Params<'_>) -> RequestFuture {
    if let Err(error) = rounds::take_early_responses(scope, params) {
        return RequestFuture::ready(Err(error.into()));
    }
    if scope.service.settings().layers.is_empty() {
        start(scope, params)
    } else {
        layer::start(scope, params)
    }
}

/// Starts the handler of a request, without the layers.
pub(crate) fn start(scope: &RequestScope<'_>, params: &Params<'_>) -> RequestFuture {
    try_start(scope, params).unwrap_or_else(|error| RequestFuture::ready(Err(error)))
}

fn try_start(scope: &RequestScope<'_>, params: &Params<'_>) -> Result<RequestFuture> {
    let settings = scope.service.settings();
    if !settings.requests.is_empty()
        && let Some(handler) = settings.requests.get(scope.method)
    {
        let work = handler.call(params.text().unwrap_or("{}"), scope).map_err(invalid_at(""))?;
        return Ok(RequestFuture::pending(work, UnencodedResult::Custom));
    }
    let request = ClientRequest::decode(scope.revision, scope.method, params)
        .map_err(|error| hide_unserved(scope, error).into_error(scope.method))?;
    match request {
        ClientRequest::CallTool(call) => call_tool(scope, &call),
        ClientRequest::ListTools(cursor) => list_tools(scope, cursor.as_deref()),
        ClientRequest::ReadResource(uri) => read_resource(scope, &uri),
        ClientRequest::ListResources(cursor) => list_resources(scope, cursor.as_deref()),
        ClientRequest::ListResourceTemplates(cursor) => list_templates(scope, cursor.as_deref()),
        ClientRequest::GetPrompt(params) => get_prompt(scope, &params),
        ClientRequest::ListPrompts(cursor) => list_prompts(scope, cursor.as_deref()),
        ClientRequest::Complete(params) => complete(scope, *params),
        ClientRequest::Subscribe(params) => subscribe(scope, params),
        ClientRequest::Unsubscribe(params) => Ok(unsubscribe(scope, &params)),
        ClientRequest::Listen(params) => subscriptions::listen(scope, params.notifications),
        ClientRequest::SetLevel(params) => Ok(set_level(scope, &params)),
        ClientRequest::Discover => Ok(completed(scope.service.discover())),
        ClientRequest::Ping => Ok(completed(EmptyResultBody)),
        ClientRequest::GetTask(params) => tasks::get(scope, params),
        ClientRequest::UpdateTask(params) => tasks::update(scope, params),
        ClientRequest::CancelTask(params) => tasks::cancel(scope, params),
        ClientRequest::GetTaskPayload(params) => tasks::payload(scope, params),
        ClientRequest::ListTasks(cursor) => tasks::list(scope, cursor.as_deref()),
        ClientRequest::ListSkills(cursor) => skills::list(scope, cursor.as_deref()),
        ClientRequest::GetSkill(params) => skills::get(scope, &params),
        ClientRequest::ReadResourceDirectory(params) => skills::read_directory(scope, params),
        ClientRequest::Initialize(_) => Err(ProtocolError::InvalidRequest(
            "the session is already initialized: send initialize only once".into(),
        )
        .into()),
    }
}

/// Reports a method that this server does not serve as unknown, even if its parameters are invalid.
fn hide_unserved(scope: &RequestScope<'_>, error: DecodeError) -> DecodeError {
    let tasks = scope.method.starts_with("tasks/") && !tasks::is_supported(scope);
    let skills = scope.method.starts_with("skills/") && !skills::has_skills(&scope.service.catalog());
    let folders = scope.method.starts_with("resources/directory/")
        && !skills::supports_directories(&scope.service.catalog());
    if tasks || skills || folders { DecodeError::NotInRevision } else { error }
}

/// Body of an empty result; boxing it does not allocate.
struct EmptyResultBody;

impl ResultBody for EmptyResultBody {
    fn encode_body(&self, _: &mut Fields<'_, '_>) {}

    fn meta(&self) -> Option<&Meta> {
        None
    }
}

fn completed(body: impl ResultBody + Send + 'static) -> RequestFuture {
    RequestFuture::ready(Ok(UnencodedResult::body(body)))
}

/// Returns a function that prefixes the path of a decoding error with the parameter.
fn invalid_at(prefix: &str) -> impl Fn(InvalidValue) -> Error {
    move |invalid| ProtocolError::invalid(format!("{prefix}{}", invalid.path), invalid.reason).into()
}

pub(in crate::server) fn is_visible(scope: &RequestScope<'_>, item: DefinitionRef<'_>) -> bool {
    let Some(visible) = &scope.service.settings().visible else { return true };
    let cx = scope.context();
    visible(item, &cx) && skills::is_file_visible(&scope.service.catalog(), item, |skill| visible(skill, &cx))
}

fn call_tool(scope: &RequestScope<'_>, call: &CallTool<'_>) -> Result<RequestFuture> {
    let catalog = scope.service.catalog();
    let registered = catalog.tools.find(&call.name).filter(|tool| is_visible(scope, tool.definition()));
    let forwarded = || {
        let to = scope.service.live_catalog().forward()?;
        Some(Arc::new(forward::unregistered_tool(&call.name, to)))
    };
    let tool = registered.cloned().or_else(forwarded);
    let tool =
        &tool.ok_or_else(|| ProtocolError::invalid("/name", format!("Unknown tool: {}", call.name)))?;
    scope.set_tool(tool);
    // A layer may have chosen another tool than the client named.
    scope.connection.check_tool(Some(tool))?;
    if !rounds::may_start(scope, tool) {
        return Ok(RequestFuture::ready(Ok(tool_failure(rounds::CALL_LOST.into()))));
    }
    if call.task.is_none() && tool.task_support() == TaskSupport::Forbidden {
        return Ok(start_tool(scope, tool, call));
    }
    tasks::call(scope, tool, call)
}

/// Starts the handler of a tool call.
pub(in crate::server) fn start_tool(
    scope: &RequestScope<'_>,
    tool: &Arc<ToolEntry>,
    call: &CallTool<'_>,
) -> RequestFuture {
    match catch_panic(|| tool.start(call.arguments.unwrap_or("{}"), scope)) {
        Ok(Ok(work)) => RequestFuture::Tool(tool.clone(), work),
        Err(panicked) => RequestFuture::Tool(tool.clone(), Box::pin(std::future::ready(Err(panicked)))),
        Ok(Err(InvalidValue { path, reason })) => {
            let location = if path.is_empty() { String::new() } else { format!("at {path}: ") };
            RequestFuture::ready(Ok(tool_failure(format!(
                "Invalid arguments for the tool `{}`: {location}{reason}",
                tool.name
            ))))
        }
    }
}

fn read_resource(scope: &RequestScope<'_>, uri: &str) -> Result<RequestFuture> {
    let catalog = scope.service.catalog();
    let cache = scope.service.settings().cache;
    let into_result = move |mut result: ReadResourceResult| {
        result.ttl_ms.get_or_insert(cache.ttl_ms);
        result.cache_scope.get_or_insert(cache.scope);
        UnencodedResult::body(result)
    };
    if let Some(resource) =
        catalog.resources.find(uri).filter(|resource| is_visible(scope, resource.definition()))
    {
        scope.set_target(&resource.uri, resource.state.as_ref());
        return Ok(RequestFuture::pending(resource.read(scope), into_result));
    }
    for template in catalog.templates.iter() {
        if let Some(values) = template.matches(uri)
            && is_visible(scope, template.definition())
        {
            scope.set_target(&template.key, template.state.as_ref());
            let reading = template.read(uri, &values, scope).map_err(invalid_at("/uri"))?;
            return Ok(RequestFuture::pending(reading, into_result));
        }
    }
    if let Some(reading) = skills::read(scope, &catalog, uri) {
        return Ok(RequestFuture::pending(reading, into_result));
    }
    let reading = match (&scope.service.settings().fallback_reader, scope.service.live_catalog().forward()) {
        (Some(catch_all), _) => catch_all.read(uri, scope),
        (None, Some(to)) => to.read_resource(uri, scope.context()),
        (None, None) => return Err(Error::resource_not_found(uri)),
    };
    Ok(RequestFuture::pending(reading, into_result))
}

fn get_prompt(scope: &RequestScope<'_>, params: &GetPromptParams) -> Result<RequestFuture> {
    let catalog = scope.service.catalog();
    let registered =
        catalog.prompts.find(&params.name).filter(|prompt| is_visible(scope, prompt.definition()));
    let forwarded = || {
        let to = scope.service.live_catalog().forward()?;
        Some(Arc::new(forward::unregistered_prompt(&params.name, to)))
    };
    let prompt = registered.cloned().or_else(forwarded);
    let prompt = prompt.ok_or_else(|| unknown_prompt("/name", &params.name))?;
    scope.set_target(&prompt.name, prompt.state.as_ref());
    let empty = std::collections::BTreeMap::new();
    let arguments = params.arguments.as_ref().unwrap_or(&empty);
    let prompt_future = prompt.start(arguments, scope).map_err(invalid_at("/arguments"))?;
    let description = prompt.definition.description.clone();
    Ok(RequestFuture::pending(prompt_future, |mut result| {
        result.description = result.description.or(description);
        UnencodedResult::body(result)
    }))
}

fn unknown_prompt(path: &str, name: &str) -> Error {
    ProtocolError::invalid(path, format!("Unknown prompt: {name}")).into()
}

fn complete(scope: &RequestScope<'_>, params: CompleteParams) -> Result<RequestFuture> {
    let catalog = scope.service.catalog();
    let completers = match &params.reference {
        CompletionReference::Prompt { name, .. } => {
            let prompt = catalog.prompts.find(name).filter(|prompt| is_visible(scope, prompt.definition()));
            let prompt = prompt.ok_or_else(|| unknown_prompt("/ref/name", name))?;
            scope.set_target(&prompt.name, prompt.state.as_ref());
            &prompt.completers
        }
        CompletionReference::Resource { uri } => {
            let template =
                catalog.templates.find(uri).filter(|template| is_visible(scope, template.definition()));
            let template = template.ok_or_else(|| {
                ProtocolError::invalid("/ref/uri", format!("Unknown resource template: {uri}"))
            })?;
            scope.set_target(&template.key, template.state.as_ref());
            &template.completers
        }
    };
    Ok(RequestFuture::pending(completers.complete(params, scope), UnencodedResult::body))
}

/// Returns whether a URI is or may be readable, so that a client may subscribe to it.
pub(in crate::server) fn can_subscribe(scope: &RequestScope<'_>, uri: &str) -> bool {
    let catalog = scope.service.catalog();
    let mut templates = catalog.templates.iter();
    uri.len() <= MAX_URI_LEN
        && (catalog.resources.find(uri).is_some_and(|resource| is_visible(scope, resource.definition()))
            || scope.service.settings().fallback_reader.is_some()
            || scope.service.live_catalog().forward().is_some()
            || templates
                .any(|template| template.matches(uri).is_some() && is_visible(scope, template.definition())))
}

fn subscribe(scope: &RequestScope<'_>, params: SubscribeParams) -> Result<RequestFuture> {
    if !can_subscribe(scope, &params.uri) {
        return Err(Error::resource_not_found(params.uri));
    }
    // A request outside a session subscribes to nothing.
    let Some(session) = scope.connection.session() else { return Ok(completed(EmptyResultBody)) };
    if !session.subscribe(params.uri.clone()) {
        return Err(ProtocolError::Internal(
            "too many subscriptions in this session: unsubscribe from some first".into(),
        )
        .into());
    }
    let catalog = scope.service.live_catalog();
    catalog.subscriptions_changed();
    let Some(forward) = catalog.forward() else { return Ok(completed(EmptyResultBody)) };
    let subscribed = forward.subscribe(vec![params.uri]);
    let acknowledged = async move {
        subscribed.await;
        Ok(EmptyResultBody)
    };
    Ok(RequestFuture::pending(acknowledged, UnencodedResult::body))
}

fn unsubscribe(scope: &RequestScope<'_>, params: &SubscribeParams) -> RequestFuture {
    if let Some(session) = scope.connection.session() {
        session.unsubscribe(&params.uri);
    }
    scope.service.live_catalog().subscriptions_changed();
    completed(EmptyResultBody)
}

fn set_level(scope: &RequestScope<'_>, params: &SetLevelParams) -> RequestFuture {
    if let Some(session) = scope.connection.session() {
        session.set_log_level(params.level);
    }
    completed(EmptyResultBody)
}

pub(in crate::server) fn unknown_cursor() -> Error {
    ProtocolError::invalid("/cursor", "unknown cursor: start again without a cursor").into()
}

/// Returns one page of a list of tools, resources, templates or prompts. The encoded list is cached if it fits on one
/// page and every client sees the same.
fn list<T, R>(
    scope: &RequestScope<'_>,
    items: &CatalogList<T>,
    cursor: Option<&str>,
    result: impl Fn(Vec<&Arc<T>>, Option<String>) -> R,
) -> Result<RequestFuture>
where
    T: CatalogEntry,
    R: ResultBody + Send + 'static,
{
    let settings = scope.service.settings();
    if settings.visible.is_none() && cursor.is_none() && items.len() <= settings.page_size {
        let encode = |all: Vec<&Arc<T>>| {
            let mut out = Vec::new();
            wire::encode_result(scope.revision, &result(all, None), scope.service.identity(), &mut out);
            out
        };
        return Ok(RequestFuture::ready(Ok(UnencodedResult::Ready(
            items.encoded(scope.revision, encode).clone(),
        ))));
    }
    let page = items.page(cursor, settings.page_size, |item| is_visible(scope, item.definition()));
    let page = page.ok_or_else(unknown_cursor)?;
    Ok(completed(result(page.items, page.next_cursor)))
}

/// Declares the function that lists one kind of definition.
macro_rules! lists {
    ($( $function:ident: $items:ident => $result:ident { $field:ident } ),*) => {$(
        fn $function(scope: &RequestScope<'_>, cursor: Option<&str>) -> Result<RequestFuture> {
            let cache = scope.service.settings().cache;
            list(scope, &scope.service.catalog().$items, cursor, |items, next_cursor| $result {
                $field: items.iter().map(|item| item.definition.clone()).collect(),
                next_cursor,
                ttl_ms: Some(cache.ttl_ms),
                cache_scope: Some(cache.scope),
                meta: None,
            })
        }
    )*};
}

lists! {
    list_tools: tools => ListToolsResult { tools },
    list_resources: resources => ListResourcesResult { resources },
    list_templates: templates => ListResourceTemplatesResult { resource_templates },
    list_prompts: prompts => ListPromptsResult { prompts }
}

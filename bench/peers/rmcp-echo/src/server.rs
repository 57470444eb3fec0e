//! The server, written as in the SDK's guide: `echo`, `add` with an output schema, fifty dummies, one resource.

use std::sync::Arc;

use rmcp::{
    ErrorData, Json, RoleServer, ServerHandler,
    handler::server::{
        router::tool::{ToolRoute, ToolRouter},
        wrapper::Parameters,
    },
    model::*,
    schemars,
    service::RequestContext,
    tool, tool_handler, tool_router,
};
use serde::{Deserialize, Serialize};

#[derive(Debug, Deserialize, schemars::JsonSchema)]
pub struct EchoArguments {
    /// The message to echo
    pub message: String,
}

#[derive(Debug, Deserialize, schemars::JsonSchema)]
pub struct AddArguments {
    pub a: f64,
    pub b: f64,
}

#[derive(Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Sum {
    pub sum: f64,
}

/// Cheap to clone: the SDK clones it per session or per request.
#[derive(Clone)]
pub struct Echo {
    router: Arc<ToolRouter<Echo>>,
}

#[tool_router(router = tools)]
impl Echo {
    pub fn new() -> Self {
        let mut router = Self::tools();
        for dummy in bench_common::dummy_tools() {
            let schema = dummy.input_schema.as_object().unwrap().clone();
            let tool = Tool::new(dummy.name, dummy.description, Arc::new(schema));
            router.add_route(ToolRoute::new_dyn(tool, |_context| {
                Box::pin(async { Ok(CallToolResult::success(vec![ContentBlock::text("dummy")]).into()) })
            }));
        }
        Self { router: Arc::new(router) }
    }

    #[tool(description = "Echo the message back")]
    async fn echo(
        &self,
        Parameters(EchoArguments { message }): Parameters<EchoArguments>,
    ) -> Result<CallToolResult, ErrorData> {
        Ok(CallToolResult::success(vec![ContentBlock::text(message)]))
    }

    #[tool(description = "Add two numbers")]
    async fn add(&self, Parameters(AddArguments { a, b }): Parameters<AddArguments>) -> Json<Sum> {
        Json(Sum { sum: a + b })
    }
}

// Without `router = …` the macro would rebuild the router for every call.
#[tool_handler(router = self.router)]
impl ServerHandler for Echo {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().enable_resources().build())
            .with_server_info(Implementation::new("rmcp-echo", "3.8.0"))
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let resources = vec![Resource::new("memo://one", "one".to_string())];
        Ok(ListResourcesResult { resources, ..Default::default() })
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        Ok(ReadResourceResult::new(vec![ResourceContents::text("the memo", request.uri)]).into())
    }
}

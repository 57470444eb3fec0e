//! Middleware: layers around every request except `initialize`. The layer that is added first is the outermost.

use std::sync::Arc;

use linchpin_jsonrpc::Params;
use linchpin_protocol::Method;
use serde_json::Value;

use super::dispatch;
use super::result::UnencodedResult;
use super::scope::RequestScope;
use super::work::{RequestFuture, RequestOutcome};
use crate::server::{BoxFuture, Context};
use crate::{Error, Result};

/// MCP request as the layers of a server see it.
pub struct Request {
    method: String,
    params: String,
    cx: Context,
}

impl Request {
    pub(crate) fn new(method: &str, params: &Params<'_>, cx: Context) -> Self {
        Request { method: method.to_owned(), params: params.text().unwrap_or("{}").to_owned(), cx }
    }

    /// Returns the method of the request, such as `tools/call`.
    pub fn method(&self) -> &str {
        &self.method
    }

    /// Returns the parameters of the request as JSON.
    pub fn params(&self) -> Value {
        serde_json::from_str(&self.params).unwrap_or_default()
    }

    /// Replaces the parameters that later layers and the handler receive.
    pub fn set_params(&mut self, params: &serde_json::Map<String, Value>) {
        self.params = serde_json::to_string(params).unwrap_or_else(|_| "{}".into());
    }

    /// Returns the name of the requested tool or prompt, or the URI of the requested resource.
    pub fn target(&self) -> Option<String> {
        let key = match Method::find(&self.method)? {
            Method::CallTool | Method::GetPrompt => "name",
            Method::ReadResource => "uri",
            _ => return None,
        };
        self.params().get(key)?.as_str().map(str::to_owned)
    }

    /// Returns the context of the request, which the handler receives, too.
    pub fn context(&self) -> &Context {
        &self.cx
    }
}

/// Successful result of a request, which layers may inspect or replace.
pub struct Response(pub(crate) UnencodedResult);

impl Response {
    /// Creates the result of a custom method from JSON.
    pub fn json(value: &Value) -> Result<Self> {
        Ok(Response(UnencodedResult::Custom(serde_json::value::to_raw_value(value)?)))
    }

    /// Returns the result as JSON, encoded for the newest revision.
    pub fn to_json(&self) -> Value {
        let mut out = Vec::new();
        self.0.encode(linchpin_protocol::Revision::LATEST, b"", &mut out);
        serde_json::from_slice(&out).unwrap_or_default()
    }
}

/// Rest of the processing of a request, which a layer calls: the next layers, and finally the handler.
pub struct Next {
    index: usize,
}

impl Next {
    /// Continues with the next layer, and finally the handler.
    pub async fn run(self, request: Request) -> Result<Response> {
        let service = request.cx.service().clone();
        if let Some(layer) = service.settings().layers.get(self.index) {
            return layer.call(request, Next { index: self.index + 1 }).await;
        }
        let work = {
            let params = Params::parse(&request.params, service.settings().limits)
                .map_err(|error| Error::invalid_params("", error.to_string()))?;
            let route = request.cx.current_request();
            let connection =
                route.connection.as_ref().ok_or_else(|| Error::setup("the request has already ended"))?;
            let scope = RequestScope::from_context(&request.cx, connection, &route, &request.method);
            dispatch::start(&scope, &params)
        };
        finish(work, &request).await
    }
}

async fn finish(mut work: RequestFuture, request: &Request) -> Result<Response> {
    let RequestOutcome { result, internal_error, .. } = std::future::poll_fn(|cx| work.poll(cx)).await;
    request.cx.mailbox().leave_tool();
    match (result, internal_error) {
        (Ok(result), internal_error) => {
            // A failed tool is a result: layers see the same text as the model.
            if let Some(error) = internal_error {
                request.cx.service().report(&error, &request.method, request.cx.target());
            }
            Ok(Response(result))
        }
        // Layers see errors whose details the client does not see; an error that they return is reported.
        (Err(_), Some(internal_error)) => Err(internal_error),
        (Err(error), None) => Err(error.into()),
    }
}

/// Type-erased layer: code around the handling of each request.
pub(crate) trait Layer: Send + Sync {
    fn call(&self, request: Request, next: Next) -> BoxFuture<Result<Response>>;
}

impl<F, Fut> Layer for F
where
    F: Fn(Request, Next) -> Fut + Send + Sync,
    Fut: Future<Output = Result<Response>> + Send + 'static,
{
    fn call(&self, request: Request, next: Next) -> BoxFuture<Result<Response>> {
        Box::pin(self(request, next))
    }
}

/// Starts a request at the outermost layer, which may pass it on to the handler.
pub(crate) fn start(scope: &RequestScope<'_>, params: &Params<'_>) -> RequestFuture {
    let request = Request::new(scope.method, params, scope.context());
    let first: Arc<dyn Layer> = scope.service.settings().layers[0].clone();
    RequestFuture::pending(first.call(request, Next { index: 1 }), |response| response.0)
}

impl std::fmt::Debug for Response {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Response").field(&self.to_json()).finish()
    }
}

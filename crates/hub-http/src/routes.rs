//! Table of all HTTP routes of the hub: REST API, pages and monitoring. The first column is the permission that a route
//! requires, or `Public`.

use http::Method;
use linchpin_hub_core::hub::agents::{AgentSummary, AgentView};
use linchpin_hub_core::hub::oauth::{AuthTraceEntry, GrantStatusView, SignInView};
use linchpin_hub_core::hub::tokens::TokenView;
use linchpin_hub_core::hub::users::UserView;
use linchpin_hub_core::hub::{
    ApprovalRuleView, ApprovalView, AuditVerification, AuditView, CallView, ClientConfig, ConnectReport,
    CredentialView, LoginLink, ProbeReport, ServerRequestView, ServerView, SubscriptionView, SyncReport,
    ToolView,
};
use linchpin_hub_core::permission::Permission::{
    AgentsRead, AgentsWrite, ApprovalRulesRead, ApprovalRulesWrite, ApprovalsDecide, ApprovalsRead,
    AuditRead, CallsCancel, CallsRead, CredentialsRead, CredentialsWrite, HubRead, KeysRotate,
    LoginLinksCreate, PromptsRead, ResourcesRead, ServersConnect, ServersRead, ServersWrite, SessionEnd,
    SessionRead, TokensRead, TokensWrite, ToolsCall, ToolsRead, ToolsTrust, UsersRead, UsersWrite,
};
use linchpin_hub_core::store::Page;
use serde_json::Value;

use crate::api::agents::{self, AgentChanges, NewAgent};
use crate::api::approval_rules::{self, NewRule};
use crate::api::approvals::{self, ApproveRequest, DenyRequest};
use crate::api::calls::{self, NewCall};
use crate::api::credentials::{self, AGENT_PARAMETER, NewCredential, NewSecret};
use crate::api::keys::{self, RotateKeys, RotatedKeys};
use crate::api::resources_prompts::{self, PromptArguments, ResourceUri};
use crate::api::server_requests::{self, Reply};
use crate::api::servers::{self, NewServer, ServerChanges, TestServerRequest, TrustedTools};
use crate::api::sessions::{self, CallerView, LoginRequest};
use crate::api::sign_ins;
use crate::api::status::{self, HubStatus};
use crate::api::tokens::{self, IssuedToken, NewToken};
use crate::api::tools::{self, CallArguments, TrustToolRequest};
use crate::api::users::{self, NewPassword, NewUser};
use crate::api::{audit, document, export};
use crate::route::Access::Public;
use crate::route::{JSON, Route, delete, get, patch, post, put, route};
use crate::{events, page};

/// Maximum body size of a call, in bytes.
const MAX_CALL_BODY: usize = 4 << 20;
/// Maximum body size of a login, in bytes.
const MAX_LOGIN_BODY: usize = 4 << 10;
const JSONL: &str = "application/jsonl";
const EVENT_STREAM: &str = "text/event-stream";

/// Returns all routes of the hub.
#[rustfmt::skip]
#[expect(clippy::too_many_lines, reason = "a table")]
pub(crate) fn all_routes() -> Vec<Route> {
    vec![
        route(Public, Method::GET, "/", page::home),
        route(Public, Method::GET, "/style.css", page::style),
        route(Public, Method::GET, "/sign-in", page::log_in_with_link).query(&page::LOGIN_LINK_PARAMETERS),
        route(Public, Method::POST, "/sign-in", page::log_in).form_body::<LoginRequest>().max_body(MAX_LOGIN_BODY),
        route(Public, Method::GET, "/oauth/start/{sign_in}", page::oauth::start),
        route(Public, Method::GET, "/oauth/callback", page::oauth::callback).any_query(),
        route(Public, Method::GET, "/healthz", status::healthy),
        route(Public, Method::GET, "/readyz", status::ready),
        route(HubRead, Method::GET, "/metrics", status::metrics),

        get(Public, "/openapi.json", document).summary("Get this OpenAPI document").returns::<Value>(),
        get(HubRead, "/status", status::get).summary("Get the status of the hub").returns::<HubStatus>(),
        get(HubRead, "/events", events::stream_events).summary("Stream events (SSE), resumable with Last-Event-ID")
            .responds::<String>(200, "Event stream", EVENT_STREAM),

        get(SessionRead, "/session", sessions::get).summary("Get the identity of the caller: the user or agent of the token or session")
            .returns::<CallerView>(),
        post(Public, "/session", sessions::log_in).summary("Log in with a password; the response sets the session cookie")
            .body::<LoginRequest>().max_body(MAX_LOGIN_BODY).creates::<CallerView>(),
        delete(SessionEnd, "/session", sessions::log_out).summary("Log out").no_content(),
        post(LoginLinksCreate, "/session/links", sessions::create_login_link)
            .summary("Create a one-time login link; only for the operator on the machine of the hub")
            .creates::<LoginLink>(),

        get(ServersRead, "/servers", servers::list).summary("List servers").query(&servers::FILTERS).paged().returns::<Page<ServerView>>(),
        post(ServersWrite, "/servers", servers::add).summary("Add a remote server").body::<NewServer>().creates::<ServerView>(),
        post(ServersConnect, "/servers/test", servers::test_draft).summary("Test a server configuration without saving it")
            .body::<TestServerRequest>().returns::<ProbeReport>(),
        get(ServersRead, "/servers/{server}", servers::get).summary("Get a server").returns::<ServerView>(),
        patch(ServersWrite, "/servers/{server}", servers::update).summary("Update a server").body::<ServerChanges>().returns::<ServerView>(),
        delete(ServersWrite, "/servers/{server}", servers::remove).summary("Remove a server, its tools and its credentials").no_content(),
        post(ServersConnect, "/servers/{server}/test", servers::test).summary("Test a stored server over a new connection, which is closed afterwards")
            .returns::<ProbeReport>(),
        post(ServersConnect, "/servers/{server}/connect", servers::connect).summary("Connect to a server and sync its tools").returns::<ConnectReport>(),
        post(ServersConnect, "/servers/{server}/disconnect", servers::disconnect).summary("Close all connections to a server").returns::<ServerView>(),
        post(ServersConnect, "/servers/{server}/sync", servers::sync).summary("Sync the tools of a server: read its tool list again")
            .query(&servers::SYNC).returns::<SyncReport>(),
        post(ServersWrite, "/servers/{server}/enable", servers::enable).summary("Enable a server, so that its tools can be called").returns::<ServerView>(),
        post(ServersWrite, "/servers/{server}/disable", servers::disable)
            .summary("Disable a server, so that its tools cannot be called").returns::<ServerView>(),
        post(ToolsTrust, "/servers/{server}/trust", servers::trust).summary("Trust all new tools of a server; changed tools stay quarantined")
            .returns::<TrustedTools>(),
        get(CredentialsRead, "/servers/{server}/credential", credentials::get)
            .summary("Get the metadata of the credential of a remote server, without the secret")
            .query(&AGENT_PARAMETER).returns::<CredentialView>(),
        put(CredentialsWrite, "/servers/{server}/credential", credentials::set).summary("Store the credential of a remote server")
            .query(&AGENT_PARAMETER).body::<NewCredential>().returns::<CredentialView>(),
        delete(CredentialsWrite, "/servers/{server}/credential", credentials::delete)
            .summary("Delete the credential of a remote server").query(&AGENT_PARAMETER).no_content(),
        put(CredentialsWrite, "/servers/{server}/secrets/{variable}", credentials::set_env_secret).summary("Store an environment secret of a stdio server")
            .body::<NewSecret>().returns::<ServerView>(),
        delete(CredentialsWrite, "/servers/{server}/secrets/{variable}", credentials::delete_env_secret)
            .summary("Delete an environment secret of a stdio server")
            .no_content(),
        post(CredentialsWrite, "/servers/{server}/sign-in", sign_ins::start).summary("Start an OAuth sign-in to a server")
            .query(&AGENT_PARAMETER).creates::<SignInView>(),
        get(CredentialsRead, "/servers/{server}/sign-in", sign_ins::grant_status).summary("Get the OAuth grant status of a server")
            .query(&AGENT_PARAMETER).returns::<GrantStatusView>(),
        delete(CredentialsWrite, "/servers/{server}/sign-in", sign_ins::delete).summary("Sign out of a server: delete the OAuth grant and revoke its tokens")
            .query(&AGENT_PARAMETER).no_content(),
        get(CredentialsRead, "/servers/{server}/trace", sign_ins::trace)
            .summary("List the HTTP requests of recent OAuth sign-ins and token refreshes of a server")
            .query(&AGENT_PARAMETER).paged().returns::<Page<AuthTraceEntry>>(),
        get(CredentialsWrite, "/sign-ins/{sign_in}", sign_ins::get)
            .summary("Get the status of an OAuth sign-in that the caller has started").returns::<SignInView>(),
        get(ResourcesRead, "/servers/{server}/resources", resources_prompts::resources).summary("List the resources of a server")
            .paged().returns::<Page<Value>>(),
        get(ResourcesRead, "/servers/{server}/resource-templates", resources_prompts::templates).summary("List the resource templates of a server")
            .paged().returns::<Page<Value>>(),
        post(ResourcesRead, "/servers/{server}/resources/read", resources_prompts::read).summary("Read a resource of a server")
            .body::<ResourceUri>().returns::<Value>(),
        get(ResourcesRead, "/servers/{server}/resources/subscriptions", resources_prompts::subscriptions)
            .summary("List the caller's subscriptions to resources of a server").paged().returns::<Page<SubscriptionView>>(),
        post(ResourcesRead, "/servers/{server}/resources/subscribe", resources_prompts::subscribe)
            .summary("Subscribe to updates of a resource, which are published as `resource.updated` in the event stream")
            .body::<ResourceUri>().returns::<SubscriptionView>(),
        post(ResourcesRead, "/servers/{server}/resources/unsubscribe", resources_prompts::unsubscribe).summary("End a subscription to a resource")
            .body::<ResourceUri>().no_content(),
        get(PromptsRead, "/servers/{server}/prompts", resources_prompts::prompts).summary("List the prompts of a server")
            .paged().returns::<Page<Value>>(),
        post(PromptsRead, "/servers/{server}/prompts/{prompt}", resources_prompts::prompt).summary("Get a prompt of a server with its arguments filled in")
            .optional_body::<PromptArguments>().returns::<Value>(),

        get(ToolsRead, "/tools", tools::list).summary("List the tools of all servers")
            .query(&tools::FILTERS).paged().returns::<Page<ToolView>>(),
        get(ToolsRead, "/tools/{tool}", tools::get).summary("Get a tool, with its changes since it was trusted").returns::<ToolView>(),
        post(ToolsTrust, "/tools/{tool}/trust", tools::trust).summary("Trust a tool with the definition that the user has reviewed")
            .body::<TrustToolRequest>().returns::<ToolView>(),
        post(ToolsCall, "/tools/{tool}/call", tools::call).summary("Call a tool by its qualified name")
            .query(&calls::WAIT_PARAMETER).optional_body::<CallArguments>().max_body(MAX_CALL_BODY)
            .responds::<CallView>(200, "The call has finished", JSON).responds::<CallView>(202, "The call is pending or running", JSON),

        get(ToolsRead, "/export/{format}", export::get).summary("Export callable tools in the format of openai, anthropic or gemini")
            .query(&export::FILTERS).returns::<Vec<Value>>(),
        get(ServersRead, "/export/clients/{client}", export::client)
            .summary("Export servers as a configuration snippet for claude-desktop, claude-code, cursor or vscode, without secrets")
            .query(&export::SERVERS).returns::<ClientConfig>(),

        post(ToolsCall, "/calls", calls::create).summary("Call a tool by its qualified name, or by server and upstream name")
            .query(&calls::WAIT_PARAMETER).body::<NewCall>().max_body(MAX_CALL_BODY)
            .responds::<CallView>(200, "The call has finished", JSON).responds::<CallView>(202, "The call is pending or running", JSON),
        get(CallsRead, "/calls", calls::list).summary("List calls, newest first, without arguments and results")
            .query(&calls::FILTERS).paged().returns::<Page<CallView>>(),
        get(CallsRead, "/calls/{call}", calls::get).summary("Get a call with its arguments, status and result").returns::<CallView>(),
        post(CallsCancel, "/calls/{call}/cancel", calls::cancel).summary("Cancel a call that has not finished").returns::<CallView>(),
        get(CallsRead, "/calls/{call}/requests", server_requests::list_of_call).summary("List the open server requests of a call, oldest first")
            .paged().returns::<Page<ServerRequestView>>(),

        get(CallsRead, "/server-requests", server_requests::list).summary("List the open server requests of all calls at this hub, oldest first")
            .paged().returns::<Page<ServerRequestView>>(),
        post(ToolsCall, "/server-requests/{server_request}/reply", server_requests::reply).summary("Reply to an open server request, once")
            .body::<Reply>().no_content(),

        get(ApprovalsRead, "/approvals", approvals::list).summary("List approvals, newest first")
            .query(&approvals::FILTERS).paged().returns::<Page<ApprovalView>>(),
        get(ApprovalsRead, "/approvals/{approval}", approvals::get).summary("Get an approval with the exact arguments of its call").returns::<ApprovalView>(),
        post(ApprovalsDecide, "/approvals/{approval}/approve", approvals::approve).summary("Approve a pending call and execute it")
            .optional_body::<ApproveRequest>().max_body(MAX_CALL_BODY).returns::<ApprovalView>(),
        post(ApprovalsDecide, "/approvals/{approval}/deny", approvals::deny).summary("Deny a pending call, which is then not executed")
            .optional_body::<DenyRequest>().returns::<ApprovalView>(),

        get(ApprovalRulesRead, "/approval-rules", approval_rules::list).summary("List approval rules: approvals that cover later calls of an agent")
            .query(&approval_rules::FILTERS).paged().returns::<Page<ApprovalRuleView>>(),
        post(ApprovalRulesWrite, "/approval-rules", approval_rules::add).summary("Add an approval rule without a pending call")
            .body::<NewRule>().creates::<ApprovalRuleView>(),
        get(ApprovalRulesRead, "/approval-rules/{rule}", approval_rules::get).summary("Get an approval rule").returns::<ApprovalRuleView>(),
        delete(ApprovalRulesWrite, "/approval-rules/{rule}", approval_rules::revoke).summary("Revoke an approval rule: later calls require approval again")
            .no_content(),

        get(AgentsRead, "/agents", agents::list).summary("List agents").query(&agents::FILTERS).paged().returns::<Page<AgentSummary>>(),
        post(AgentsWrite, "/agents", agents::add).summary("Add an agent").body::<NewAgent>().creates::<AgentView>(),
        get(AgentsRead, "/agents/{agent}", agents::get).summary("Get an agent").returns::<AgentView>(),
        patch(AgentsWrite, "/agents/{agent}", agents::update).summary("Update an agent").body::<AgentChanges>().returns::<AgentView>(),
        delete(AgentsWrite, "/agents/{agent}", agents::remove).summary("Remove an agent, its tokens and its credentials").no_content(),
        get(TokensRead, "/agents/{agent}/tokens", tokens::list).summary("List the API tokens of an agent").paged().returns::<Page<TokenView>>(),
        post(TokensWrite, "/agents/{agent}/tokens", tokens::issue).summary("Issue an API token for an agent; it is shown only once")
            .body::<NewToken>().creates::<IssuedToken>(),
        delete(TokensWrite, "/agents/{agent}/tokens/{token}", tokens::revoke).summary("Revoke an API token of an agent").no_content(),

        get(TokensRead, "/tokens", tokens::list).summary("List the API tokens of the calling user and, with owner=all, of all agents")
            .query(&tokens::OWNERS).paged().returns::<Page<TokenView>>(),
        post(TokensWrite, "/tokens", tokens::issue).summary("Issue an API token for the calling user; it is shown only once")
            .body::<NewToken>().creates::<IssuedToken>(),
        delete(TokensWrite, "/tokens/{token}", tokens::revoke).summary("Revoke an API token of the calling user").no_content(),

        get(UsersRead, "/users", users::list).summary("List users").paged().returns::<Page<UserView>>(),
        post(UsersWrite, "/users", users::add).summary("Add a user without a password").body::<NewUser>().creates::<UserView>(),
        get(UsersRead, "/users/{user}", users::get).summary("Get a user").returns::<UserView>(),
        put(UsersWrite, "/users/{user}/password", users::set_password).summary("Set the password of a user and end their sessions and tokens")
            .body::<NewPassword>().returns::<UserView>(),
        delete(UsersWrite, "/users/{user}", users::remove).summary("Remove a user with their tokens and sessions").no_content(),

        get(AuditRead, "/audit", audit::list).summary("List audit entries, oldest first; a filtered page may have few entries although others follow")
            .query(&audit::FILTERS).paged().returns::<Page<AuditView>>(),
        get(AuditRead, "/audit/verify", audit::verify).summary("Verify that no audit entry or document was changed or removed").returns::<AuditVerification>(),
        get(AuditRead, "/audit/export", audit::export).summary("Export the audit as JSON lines; the last line is signed")
            .query(&audit::POSITION_PARAMETER).responds::<AuditView>(200, "Audit entries, one per line, and a signed last line", JSONL),
        post(KeysRotate, "/keys/rotate", keys::rotate).summary("Rotate the root encryption key and, with `data`, the tenant keys")
            .optional_body::<RotateKeys>().returns::<RotatedKeys>(),
    ]
}

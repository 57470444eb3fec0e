//! All routes of the hub. A route requires a user unless it is marked otherwise.

use http::Method;
use linchpin_hub_core::hub::agents::{AgentSummary, AgentView};
use linchpin_hub_core::hub::oauth::{Hop, SignInView, StandingView};
use linchpin_hub_core::hub::tokens::TokenView;
use linchpin_hub_core::hub::users::UserView;
use linchpin_hub_core::hub::{
    ApprovalView, AuditView, CallView, CredentialView, LoginLink, ServerView, Snippet, Synced, ToolView,
    Tried, Verified,
};
use linchpin_hub_core::store::Page;
use serde_json::Value;

use crate::api::agents::{self, AgentChanges, NewAgent};
use crate::api::approvals::{self, Approve, Deny};
use crate::api::calls::{self, NewCall};
use crate::api::credentials::{self, NewCredential, NewSecret, WHOSE};
use crate::api::keys::{self, RotateKeys, RotatedKeys};
use crate::api::resources_prompts::{self, PromptArguments, ResourceToRead};
use crate::api::servers::{self, NewServer, ServerChanges, ServerToTry, TrustedTools};
use crate::api::sessions::{self, Session, SignIn};
use crate::api::sign_ins;
use crate::api::status::{self, Status};
use crate::api::tokens::{self, IssuedToken, NewToken};
use crate::api::tools::{self, CallArguments, ToolSeen};
use crate::api::users::{self, NewPassword, NewUser};
use crate::api::{audit, document, export};
use crate::route::{JSON, Route, delete, get, patch, post, put, route};
use crate::{events, page};

/// Maximum body size of a call, in bytes.
const LONG: usize = 4 << 20;
/// Maximum body size of a login, in bytes.
const SHORT: usize = 4 << 10;
const LINES: &str = "application/jsonl";
const EVENTS: &str = "text/event-stream";

/// Returns all routes.
#[rustfmt::skip]
pub(crate) fn all() -> Vec<Route> {
    vec![
        route(Method::GET, "/", page::home).anybody(),
        route(Method::GET, "/style.css", page::style).anybody(),
        route(Method::GET, "/sign-in", page::sign_in_once).query(&page::ONCE).anybody(),
        route(Method::POST, "/sign-in", page::sign_in).takes_form::<SignIn>().at_most(SHORT).anybody(),
        route(Method::GET, "/oauth/start/{sign_in}", page::oauth::start).anybody(),
        route(Method::GET, "/oauth/callback", page::oauth::back).any_query().anybody(),
        route(Method::GET, "/healthz", status::healthy).anybody(),
        route(Method::GET, "/readyz", status::ready).anybody(),
        route(Method::GET, "/metrics", status::metrics),

        get("/openapi.json", document).says("Get this OpenAPI document").anybody().gives::<Value>(),
        get("/status", status::get).says("Get the status of the hub").gives::<Status>(),
        get("/events", events::watch).says("Stream events (SSE), resumable with Last-Event-ID")
            .answers::<String>(200, "Event stream", EVENTS),

        get("/session", sessions::get).says("Get the authenticated caller").known().gives::<Session>(),
        post("/session", sessions::begin).says("Log in with a password; the response sets the session cookie")
            .anybody().takes::<SignIn>().at_most(SHORT).makes::<Session>(),
        delete("/session", sessions::end).says("Log out").does(),
        post("/session/links", sessions::link).says("Create a one-time login link; only for the operator on the machine of the hub")
            .makes::<LoginLink>(),

        get("/servers", servers::list).says("List servers").query(&servers::FILTERS).paged().gives::<Page<ServerView>>(),
        post("/servers", servers::add).says("Add a remote server").takes::<NewServer>().makes::<ServerView>(),
        post("/servers/test", servers::try_out).says("Test a server configuration without saving it")
            .takes::<ServerToTry>().gives::<Tried>(),
        get("/servers/{server}", servers::get).says("Get a server").gives::<ServerView>(),
        patch("/servers/{server}", servers::change).says("Update a server").takes::<ServerChanges>().gives::<ServerView>(),
        delete("/servers/{server}", servers::remove).says("Remove a server, its tools and its credentials").does(),
        post("/servers/{server}/test", servers::test).says("Test a server with a separate connection").gives::<Tried>(),
        post("/servers/{server}/connect", servers::connect).says("Connect to a server and sync its tools").gives::<ServerView>(),
        post("/servers/{server}/disconnect", servers::disconnect).says("Close all connections to a server").gives::<ServerView>(),
        post("/servers/{server}/sync", servers::sync).says("Sync the tools of a server").query(&servers::SYNC).gives::<Synced>(),
        post("/servers/{server}/enable", servers::enable).says("Enable a server").gives::<ServerView>(),
        post("/servers/{server}/disable", servers::disable).says("Disable a server").gives::<ServerView>(),
        post("/servers/{server}/trust", servers::trust).says("Trust all new tools of a server; changed tools stay quarantined")
            .gives::<TrustedTools>(),
        get("/servers/{server}/credential", credentials::get).says("Get the metadata of a credential, without the secret")
            .query(&WHOSE).gives::<CredentialView>(),
        put("/servers/{server}/credential", credentials::set).says("Store a credential")
            .query(&WHOSE).takes::<NewCredential>().gives::<CredentialView>(),
        delete("/servers/{server}/credential", credentials::remove).says("Delete a credential").query(&WHOSE).does(),
        put("/servers/{server}/secrets/{variable}", credentials::set_variable).says("Store an environment secret of a stdio server")
            .takes::<NewSecret>().gives::<ServerView>(),
        delete("/servers/{server}/secrets/{variable}", credentials::remove_variable).says("Delete an environment secret of a stdio server")
            .does(),
        post("/servers/{server}/sign-in", sign_ins::begin).says("Start an OAuth sign-in to a server")
            .query(&WHOSE).makes::<SignInView>(),
        get("/servers/{server}/sign-in", sign_ins::standing).says("Get the OAuth grant status of a server")
            .query(&WHOSE).gives::<StandingView>(),
        delete("/servers/{server}/sign-in", sign_ins::end).says("Delete the OAuth grant and revoke its tokens")
            .query(&WHOSE).does(),
        get("/servers/{server}/trace", sign_ins::trace).says("List the HTTP trace of recent sign-ins and token refreshes")
            .query(&WHOSE).paged().gives::<Page<Hop>>(),
        get("/sign-ins/{sign_in}", sign_ins::get).says("Get a sign-in that the caller has started").gives::<SignInView>(),
        get("/servers/{server}/resources", resources_prompts::resources).says("List the resources of a server")
            .known().paged().gives::<Page<Value>>(),
        get("/servers/{server}/resource-templates", resources_prompts::templates).says("List the resource templates of a server")
            .known().paged().gives::<Page<Value>>(),
        post("/servers/{server}/resources/read", resources_prompts::read).says("Read a resource")
            .known().takes::<ResourceToRead>().gives::<Value>(),
        get("/servers/{server}/prompts", resources_prompts::prompts).says("List the prompts of a server")
            .known().paged().gives::<Page<Value>>(),
        post("/servers/{server}/prompts/{prompt}", resources_prompts::prompt).says("Get a prompt with its arguments filled in")
            .known().may_take::<PromptArguments>().gives::<Value>(),

        get("/tools", tools::list).says("List the tools of all servers")
            .known().query(&tools::FILTERS).paged().gives::<Page<ToolView>>(),
        get("/tools/{tool}", tools::get).says("Get a tool, with its changes since it was trusted").known().gives::<ToolView>(),
        post("/tools/{tool}/trust", tools::trust).says("Trust a tool in the reviewed definition")
            .takes::<ToolSeen>().gives::<ToolView>(),
        post("/tools/{tool}/call", tools::call).says("Call a tool")
            .known().query(&calls::WAIT).may_take::<CallArguments>().at_most(LONG)
            .answers::<CallView>(200, "The call has finished", JSON).answers::<CallView>(202, "The call is pending or running", JSON),

        get("/export/{format}", export::get).says("Export callable tools in the format of openai, anthropic or gemini")
            .known().query(&export::FILTERS).gives::<Vec<Value>>(),
        get("/export/clients/{client}", export::client)
            .says("Export servers as a configuration snippet for claude-desktop, claude-code, cursor or vscode, without secrets")
            .query(&export::SERVERS).gives::<Snippet>(),

        post("/calls", calls::make_any).says("Call a tool").known().query(&calls::WAIT).takes::<NewCall>().at_most(LONG)
            .answers::<CallView>(200, "The call has finished", JSON).answers::<CallView>(202, "The call is pending or running", JSON),
        get("/calls", calls::list).says("List calls, newest first, without arguments and results")
            .known().query(&calls::FILTERS).paged().gives::<Page<CallView>>(),
        get("/calls/{call}", calls::get).says("Get a call").known().gives::<CallView>(),
        post("/calls/{call}/cancel", calls::cancel).says("Cancel a call that has not finished").known().gives::<CallView>(),

        get("/approvals", approvals::list).says("List approvals, newest first")
            .query(&approvals::FILTERS).paged().gives::<Page<ApprovalView>>(),
        get("/approvals/{approval}", approvals::get).says("Get an approval with the exact arguments").gives::<ApprovalView>(),
        post("/approvals/{approval}/approve", approvals::approve).says("Approve a pending call and execute it")
            .may_take::<Approve>().at_most(LONG).gives::<ApprovalView>(),
        post("/approvals/{approval}/deny", approvals::deny).says("Deny a pending call").may_take::<Deny>().gives::<ApprovalView>(),

        get("/agents", agents::list).says("List agents").query(&agents::FILTERS).paged().gives::<Page<AgentSummary>>(),
        post("/agents", agents::add).says("Add an agent").takes::<NewAgent>().makes::<AgentView>(),
        get("/agents/{agent}", agents::get).says("Get an agent").gives::<AgentView>(),
        patch("/agents/{agent}", agents::change).says("Update an agent").takes::<AgentChanges>().gives::<AgentView>(),
        delete("/agents/{agent}", agents::remove).says("Remove an agent, its tokens and its credentials").does(),
        get("/agents/{agent}/tokens", tokens::list).says("List the tokens of an agent").paged().gives::<Page<TokenView>>(),
        post("/agents/{agent}/tokens", tokens::issue).says("Issue an agent token; it is shown only once")
            .takes::<NewToken>().makes::<IssuedToken>(),
        delete("/agents/{agent}/tokens/{token}", tokens::revoke).says("Revoke an agent token").does(),

        get("/tokens", tokens::list).says("List the tokens of the user, or of all agents, too")
            .query(&tokens::OWNERS).paged().gives::<Page<TokenView>>(),
        post("/tokens", tokens::issue).says("Issue a token for the user; it is shown only once")
            .takes::<NewToken>().makes::<IssuedToken>(),
        delete("/tokens/{token}", tokens::revoke).says("Revoke a token").does(),

        get("/users", users::list).says("List users").paged().gives::<Page<UserView>>(),
        post("/users", users::add).says("Add a user without a password").takes::<NewUser>().makes::<UserView>(),
        get("/users/{user}", users::get).says("Get a user").gives::<UserView>(),
        put("/users/{user}/password", users::set_password).says("Set the password of a user and end their sessions and tokens")
            .takes::<NewPassword>().gives::<UserView>(),
        delete("/users/{user}", users::remove).says("Remove a user with their tokens and sessions").does(),

        get("/audit", audit::list).says("List audit entries, oldest first").paged().gives::<Page<AuditView>>(),
        get("/audit/verify", audit::verify).says("Verify the integrity of the audit").gives::<Verified>(),
        get("/audit/export", audit::export).says("Export the audit as JSON lines")
            .query(&audit::AFTER).answers::<AuditView>(200, "Audit entries, one per line", LINES),
        post("/keys/rotate", keys::rotate).says("Rotate the root key, and on request the tenant keys")
            .may_take::<RotateKeys>().gives::<RotatedKeys>(),
    ]
}

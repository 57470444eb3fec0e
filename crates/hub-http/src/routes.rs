//! Every route of the hub, on one screen. Those that say nothing else are for people alone.

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
use crate::api::offers::{self, PromptArguments, ResourceToRead};
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

/// The longest body of a call, and of one who is not known yet.
const LONG: usize = 4 << 20;
const SHORT: usize = 4 << 10;
const LINES: &str = "application/jsonl";
const EVENTS: &str = "text/event-stream";

/// All of them.
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

        get("/openapi.json", document).says("This document").anybody().gives::<Value>(),
        get("/status", status::get).says("What is running").gives::<Status>(),
        get("/events", events::watch).says("What happens, as it happens; resumable by Last-Event-ID").answers::<String>(200, "Events", EVENTS),

        get("/session", sessions::get).says("Who asks").known().gives::<Session>(),
        post("/session", sessions::begin).says("Signs in with a password; the answer sets a cookie")
            .anybody().takes::<SignIn>().at_most(SHORT).makes::<Session>(),
        delete("/session", sessions::end).says("Signs out").does(),
        post("/session/links", sessions::link).says("Creates a one-time sign-in link, for the operator on the machine of the hub alone")
            .makes::<LoginLink>(),

        get("/servers", servers::list).says("Servers").query(&servers::FILTERS).paged().gives::<Page<ServerView>>(),
        post("/servers", servers::add).says("Adds a server on the network").takes::<NewServer>().makes::<ServerView>(),
        post("/servers/test", servers::try_out).says("Tries a server that is not kept").takes::<ServerToTry>().gives::<Tried>(),
        get("/servers/{server}", servers::get).says("A server").gives::<ServerView>(),
        patch("/servers/{server}", servers::change).says("Changes what is given of a server").takes::<ServerChanges>().gives::<ServerView>(),
        delete("/servers/{server}", servers::remove).says("Removes a server, its tools and its credentials").does(),
        post("/servers/{server}/test", servers::test).says("Tries a server anew").gives::<Tried>(),
        post("/servers/{server}/connect", servers::connect).says("Connects to a server and looks at its tools").gives::<ServerView>(),
        post("/servers/{server}/disconnect", servers::disconnect).says("Ends all connections to a server").gives::<ServerView>(),
        post("/servers/{server}/sync", servers::sync).says("Looks at the tools of a server").query(&servers::SYNC).gives::<Synced>(),
        post("/servers/{server}/enable", servers::enable).says("Turns a server on").gives::<ServerView>(),
        post("/servers/{server}/disable", servers::disable).says("Turns a server off").gives::<ServerView>(),
        post("/servers/{server}/trust", servers::trust).says("Trusts all tools of a server that are new, not those that have changed").gives::<TrustedTools>(),
        get("/servers/{server}/credential", credentials::get).says("What is known of a credential, without the secret")
            .query(&WHOSE).gives::<CredentialView>(),
        put("/servers/{server}/credential", credentials::set).says("Keeps a credential").query(&WHOSE).takes::<NewCredential>().gives::<CredentialView>(),
        delete("/servers/{server}/credential", credentials::remove).says("Forgets a credential").query(&WHOSE).does(),
        put("/servers/{server}/secrets/{variable}", credentials::set_variable).says("Keeps the value of a variable for a program")
            .takes::<NewSecret>().gives::<ServerView>(),
        delete("/servers/{server}/secrets/{variable}", credentials::remove_variable).says("Forgets the value of a variable of a program").does(),
        post("/servers/{server}/sign-in", sign_ins::begin).says("Begins to sign in to a server with OAuth").query(&WHOSE).makes::<SignInView>(),
        get("/servers/{server}/sign-in", sign_ins::standing).says("How it stands with a sign-in, and what to do").query(&WHOSE).gives::<StandingView>(),
        delete("/servers/{server}/sign-in", sign_ins::end).says("Forgets a sign-in, and gives its tokens back").query(&WHOSE).does(),
        get("/servers/{server}/trace", sign_ins::trace).says("The last hops of signing in and renewing").query(&WHOSE).paged().gives::<Page<Hop>>(),
        get("/sign-ins/{sign_in}", sign_ins::get).says("A sign-in that one has begun").gives::<SignInView>(),
        get("/servers/{server}/resources", offers::resources).says("Resources of a server").known().paged().gives::<Page<Value>>(),
        get("/servers/{server}/resource-templates", offers::templates).says("Patterns of resources of a server").known().paged().gives::<Page<Value>>(),
        post("/servers/{server}/resources/read", offers::read).says("Reads a resource").known().takes::<ResourceToRead>().gives::<Value>(),
        get("/servers/{server}/prompts", offers::prompts).says("Prompts of a server").known().paged().gives::<Page<Value>>(),
        post("/servers/{server}/prompts/{prompt}", offers::prompt).says("Fills in a prompt").known().may_take::<PromptArguments>().gives::<Value>(),

        get("/tools", tools::list).says("Tools of all servers").known().query(&tools::FILTERS).paged().gives::<Page<ToolView>>(),
        get("/tools/{tool}", tools::get).says("A tool, and what changed of it since somebody trusted it").known().gives::<ToolView>(),
        post("/tools/{tool}/trust", tools::trust).says("Trusts a tool, as it was looked at").takes::<ToolSeen>().gives::<ToolView>(),
        post("/tools/{tool}/call", tools::call).says("Calls a tool").known().query(&calls::WAIT).may_take::<CallArguments>().at_most(LONG)
            .answers::<CallView>(200, "It is over", JSON).answers::<CallView>(202, "It is not over yet", JSON),

        get("/export/{format}", export::get).says("Tools that can be called, as openai, anthropic or gemini want them described")
            .known().query(&export::FILTERS).gives::<Vec<Value>>(),
        get("/export/clients/{client}", export::client)
            .says("Servers, as the file of claude-desktop, claude-code, cursor or vscode names them, with nothing secret in it")
            .query(&export::SERVERS).gives::<Snippet>(),

        post("/calls", calls::make_any).says("Calls a tool").known().query(&calls::WAIT).takes::<NewCall>().at_most(LONG)
            .answers::<CallView>(200, "It is over", JSON).answers::<CallView>(202, "It is not over yet", JSON),
        get("/calls", calls::list).says("Calls, the newest first, without arguments and results")
            .known().query(&calls::FILTERS).paged().gives::<Page<CallView>>(),
        get("/calls/{call}", calls::get).says("A call").known().gives::<CallView>(),
        post("/calls/{call}/cancel", calls::cancel).says("Gives up a call that is not over").known().gives::<CallView>(),

        get("/approvals", approvals::list).says("Questions to people, the newest first").query(&approvals::FILTERS).paged().gives::<Page<ApprovalView>>(),
        get("/approvals/{approval}", approvals::get).says("A question, with the exact arguments").gives::<ApprovalView>(),
        post("/approvals/{approval}/approve", approvals::approve).says("Says yes: the call is made")
            .may_take::<Approve>().at_most(LONG).gives::<ApprovalView>(),
        post("/approvals/{approval}/deny", approvals::deny).says("Says no").may_take::<Deny>().gives::<ApprovalView>(),

        get("/agents", agents::list).says("Agents").query(&agents::FILTERS).paged().gives::<Page<AgentSummary>>(),
        post("/agents", agents::add).says("Adds an agent").takes::<NewAgent>().makes::<AgentView>(),
        get("/agents/{agent}", agents::get).says("An agent").gives::<AgentView>(),
        patch("/agents/{agent}", agents::change).says("Changes what is given of an agent").takes::<AgentChanges>().gives::<AgentView>(),
        delete("/agents/{agent}", agents::remove).says("Removes an agent, its tokens and its credentials").does(),
        get("/agents/{agent}/tokens", tokens::list).says("The tokens of an agent").paged().gives::<Page<TokenView>>(),
        post("/agents/{agent}/tokens", tokens::issue).says("Issues a token for an agent, which is shown once").takes::<NewToken>().makes::<IssuedToken>(),
        delete("/agents/{agent}/tokens/{token}", tokens::revoke).says("Takes a token of an agent back").does(),

        get("/tokens", tokens::list).says("One's own tokens, or those of agents, too").query(&tokens::OWNERS).paged().gives::<Page<TokenView>>(),
        post("/tokens", tokens::issue).says("Issues a token of one's own, which is shown once").takes::<NewToken>().makes::<IssuedToken>(),
        delete("/tokens/{token}", tokens::revoke).says("Takes a token back").does(),

        get("/users", users::list).says("People").paged().gives::<Page<UserView>>(),
        post("/users", users::add).says("Adds a person, who has no password yet").takes::<NewUser>().makes::<UserView>(),
        get("/users/{user}", users::get).says("A person").gives::<UserView>(),
        put("/users/{user}/password", users::set_password).says("Set the password of a user; sessions and tokens of the user end")
            .takes::<NewPassword>().gives::<UserView>(),
        delete("/users/{user}", users::remove).says("Removes a person, with tokens and sessions").does(),

        get("/audit", audit::list).says("Entries of the audit, the oldest first").paged().gives::<Page<AuditView>>(),
        get("/audit/verify", audit::verify).says("Checks that nothing of the audit was changed").gives::<Verified>(),
        get("/audit/export", audit::export).says("The audit, an entry on each line")
            .query(&audit::AFTER).answers::<AuditView>(200, "Entries, one on each line", LINES),
        post("/keys/rotate", keys::rotate).says("Rotates the root key, and on request the tenant keys").may_take::<RotateKeys>().gives::<RotatedKeys>(),
    ]
}

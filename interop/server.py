"""Tour server on the Python SDK 2.x, which supports every revision, with and without the handshake.

    python server.py       on stdio
    python server.py http  Streamable HTTP with sessions and resumption at /mcp, HTTP+SSE at /sse

It has the same items as server.mjs, with the same names and results. Input that a tool needs from the client is a
parameter that the SDK fills in (`Resolve`): with an input_required result in the stateless revision, with a server
request in the older ones.
"""

import sys
import warnings
from typing import Annotated

import anyio
from mcp.server.mcpserver import Context, Elicit, ElicitationResult, ListRoots, MCPServer, Resolve, Sample
from mcp.server.streamable_http import EventStore
from mcp.shared.exceptions import MCPDeprecationWarning
from mcp.types import (
    CallToolResult,
    Completion,
    CreateMessageResult,
    EmptyResult,
    ListRootsResult,
    SamplingMessage,
    SetLevelRequestParams,
    SubscribeRequestParams,
    TextContent,
    UnsubscribeRequestParams,
)
from pydantic import BaseModel

from serving import Kept, serve

# Deprecated features are tested too.
warnings.simplefilter("ignore", MCPDeprecationWarning)

LANGUAGES = ["rust", "ruby", "go"]

server = MCPServer("interop-python", version="1.0.0", log_level="WARNING")


HANDSHAKES_END = "2025-11-25"
subscribed = set()
# Number of cancelled calls of `wait` that `cancelled` has not reported yet.
cancellations = anyio.Semaphore(0)


class Events(Kept, EventStore):
    pass


class Sum(BaseModel):
    sum: float


class Person(BaseModel):
    name: str


def ask_for_name() -> Elicit[Person]:
    return Elicit("What is your name?", Person)


def ask_for_speech() -> Sample:
    question = TextContent(type="text", text="Say something")
    return Sample([SamplingMessage(role="user", content=question)], max_tokens=50)


def ask_for_roots() -> ListRoots:
    return ListRoots()


@server.tool(description="Adds two numbers")
def add(a: float, b: float) -> Sum:
    return Sum(sum=a + b)


@server.tool(description="Says the text again")
def echo(text: str) -> str:
    return text


@server.tool(description="Reports progress three times")
async def slow(context: Context) -> str:
    for step in (1, 2, 3):
        await context.report_progress(step, 3, f"step {step}")
        # Both TypeScript clients lose a progress notification that they read together with the response.
        await anyio.sleep(0.02)
    return "done"


@server.tool(description="Asks the person for a name and greets")
def ask(answer: Annotated[ElicitationResult[Person], Resolve(ask_for_name)]) -> str:
    return f"hello {answer.data.name}" if answer.action == "accept" else f"the user said {answer.action}"


@server.tool(description="Lets the client's model speak")
def sample(message: Annotated[CreateMessageResult, Resolve(ask_for_speech)]) -> str:
    content = message.content
    return content.text if isinstance(content, TextContent) else f"not text: {content.type}"


@server.tool(description="Lists the client's roots, one per line")
def folders(listed: Annotated[ListRootsResult, Resolve(ask_for_roots)]) -> str:
    return "\n".join(str(root.uri) for root in listed.roots)


@server.tool(description="Always fails")
def fail() -> CallToolResult:
    # Not raised, because the SDK would put "Error executing tool fail: " before the text.
    return CallToolResult(content=[TextContent(type="text", text="this tool always fails")], is_error=True)


@server.tool(description="Writes a log message")
async def log(context: Context) -> str:
    await context.info("a line", logger_name="tour")
    return "logged"


@server.tool(description="Tells that the status has changed")
async def touch(context: Context) -> str:
    await context.notify_resource_updated("memo://status")
    if "memo://status" in subscribed:
        await context.session.send_resource_updated("memo://status")
    return "touched"


@server.tool(description="Tells that the list of tools has changed")
async def announce(context: Context) -> str:
    await context.notify_tools_changed()
    if context.protocol_version <= HANDSHAKES_END:
        await context.session.send_tool_list_changed()
    return "announced"


@server.tool(description="Waits until it is cancelled")
async def wait(context: Context) -> str:
    try:
        await context.report_progress(1, 1, "waiting")
        await anyio.sleep_forever()
    finally:
        cancellations.release()


@server.tool(description="Waits until a call of `wait` was cancelled")
async def cancelled() -> str:
    await cancellations.acquire()
    return "a call was cancelled"


@server.completion()
async def complete(reference, argument, context):
    return Completion(values=[name for name in LANGUAGES if name.startswith(argument.value)])


async def subscribe(context, params):
    subscribed.add(params.uri)
    return EmptyResult()


async def unsubscribe(context, params):
    subscribed.discard(params.uri)
    return EmptyResult()


async def set_level(context, params):
    return EmptyResult()


# The SDK does not register methods that only the older revisions have.
for method, params, handler in [
    ("resources/subscribe", SubscribeRequestParams, subscribe),
    ("resources/unsubscribe", UnsubscribeRequestParams, unsubscribe),
    ("logging/setLevel", SetLevelRequestParams, set_level),
]:
    server._lowlevel_server.add_request_handler(method, params, handler)


@server.resource("memo://status", mime_type="text/plain")
def status() -> str:
    return "ok"


@server.resource("memo://{id}", mime_type="text/plain")
def memo(id: str) -> str:
    return f"memo {id}"


@server.prompt(description="Asks for a code review")
def review(language: str) -> str:
    return f"Review this {language} code."


if __name__ == "__main__":
    if sys.argv[1:] == ["http"]:
        serve(server.streamable_http_app(event_store=Events(), retry_interval=10), server.sse_app())
    else:
        server.run()

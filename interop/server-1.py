"""Tour server on the Python SDK 1.x, over HTTP: Streamable HTTP with sessions and resumption at /mcp, HTTP+SSE at
/sse. It has the same items as server.mjs, with the same names and results.

    python server-1.py
"""

import anyio
from mcp.server.fastmcp import Context, FastMCP
from mcp.server.streamable_http import EventStore
from mcp.types import CallToolResult, Completion, SamplingMessage, TextContent
from pydantic import AnyUrl, BaseModel

from serving import Kept, serve

LANGUAGES = ["rust", "ruby", "go"]
subscribed = set()
# Number of cancelled calls of `wait` that `cancelled` has not reported yet.
cancellations = anyio.Semaphore(0)


class Events(Kept, EventStore):
    pass


server = FastMCP("interop-python-1", log_level="WARNING", event_store=Events(), retry_interval=10)


class Sum(BaseModel):
    sum: float


class Person(BaseModel):
    name: str


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
async def ask(context: Context) -> str:
    answer = await context.elicit("What is your name?", Person)
    return f"hello {answer.data.name}" if answer.action == "accept" else f"the user said {answer.action}"


@server.tool(description="Lets the client's model speak")
async def sample(context: Context) -> str:
    question = SamplingMessage(role="user", content=TextContent(type="text", text="Say something"))
    related = context.request_id
    message = await context.session.create_message([question], max_tokens=50, related_request_id=related)
    return message.content.text


@server.tool(description="Lists the client's roots, one per line")
async def folders(context: Context) -> str:
    # Not related to a request, so over HTTP it is sent on the standalone stream.
    listed = await context.session.list_roots()
    return "\n".join(str(root.uri) for root in listed.roots)


@server.tool(description="Always fails")
def fail() -> CallToolResult:
    # Not raised, because the SDK would put "Error executing tool fail: " before the text.
    return CallToolResult(content=[TextContent(type="text", text="this tool always fails")], isError=True)


@server.tool(description="Writes a log message")
async def log(context: Context) -> str:
    await context.info("a line", logger_name="tour")
    return "logged"


@server.tool(description="Tells that the status has changed")
async def touch(context: Context) -> str:
    if "memo://status" in subscribed:
        await context.session.send_resource_updated(AnyUrl("memo://status"))
    return "touched"


@server.tool(description="Tells that the list of tools has changed")
async def announce(context: Context) -> str:
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


@server._mcp_server.set_logging_level()
async def set_level(level):
    pass


@server._mcp_server.subscribe_resource()
async def subscribe(uri):
    subscribed.add(str(uri))


@server._mcp_server.unsubscribe_resource()
async def unsubscribe(uri):
    subscribed.discard(str(uri))


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
    serve(server.streamable_http_app(), server.sse_app())

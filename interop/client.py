"""Tour client on the Python SDK 2.x: uses all features of the server given on the command line and prints a report as
one JSON object. A failed step is reported as {"error": …}.

    python client.py [--mode legacy|auto|<revision>] <command> [arguments…]  starts the server
    python client.py [--mode …] --url <url>                                  over Streamable HTTP
    python client.py [--mode …] --sse <url>                                  over HTTP+SSE

legacy starts with initialize, auto (the default) tries server/discover and falls back to initialize; a revision
without handshake is used without negotiation.
"""

import json
import os
import warnings
from contextlib import AsyncExitStack

import anyio
from mcp import Client, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.exceptions import MCPDeprecationWarning
from mcp.types import (
    CreateMessageResult,
    ElicitResult,
    Implementation,
    ListRootsResult,
    PromptReference,
    Root,
    TextContent,
)

from tour import Heard, form_content, http_headers, read_arguments, report, text, whole

# Deprecated features are tested too.
warnings.simplefilter("ignore", MCPDeprecationWarning)

HANDSHAKES_END = "2025-11-25"


async def elicit(context, params):
    return ElicitResult(action="accept", content=form_content(params.requested_schema))


async def sample(context, params):
    content = TextContent(type="text", text="sampled")
    return CreateMessageResult(role="assistant", model="interop", content=content)


async def roots(context):
    return ListRootsResult(roots=[Root(uri="file:///tmp/a", name="a")])


async def tour(client):
    """Yields the name and the coroutine of each step."""
    progress = []

    async def note(value, total, message):
        step = {"progress": whole(value), "total": whole(total), "message": message}
        progress.append({name: value for name, value in step.items() if value is not None})

    async def call(tool, show=text, on_progress=None, **arguments):
        return show(await client.call_tool(tool, arguments, progress_callback=on_progress))

    async def read(uri):
        return (await client.read_resource(uri)).contents[0].text

    async def tools():
        return sorted(tool.name for tool in (await client.list_tools()).tools)

    async def seen():
        return progress

    async def prompt():
        return (await client.get_prompt("review", {"language": "rust"})).messages[0].content.text

    yield "tools", tools()
    yield "add", call("add", lambda result: result.structured_content or text(result), a=2, b=0.5)
    yield "echo", call("echo", text="grüße")
    yield "slow", call("slow", on_progress=note)
    yield "progress", seen()
    yield "ask", call("ask")
    yield "sample", call("sample")
    yield "folders", call("folders")
    yield "fail", call("fail", lambda result: {"isError": result.is_error, "text": text(result)})
    yield "status", read("memo://status")
    yield "memo", read("memo://7")
    yield "prompt", prompt()


async def more(client, heard, tasks):
    """Tests notifications, cancellation and errors."""
    has_session = client.protocol_version <= HANDSHAKES_END

    async def watch():
        if has_session:
            await client.set_logging_level("info")
            await client.subscribe_resource("memo://status")
            return
        listened = client.listen(tools_list_changed=True, resource_subscriptions=["memo://status"])
        await tasks.enter_async_context(listened)

    async def log():
        await watch()
        meta = None if has_session else {"io.modelcontextprotocol/logLevel": "info"}
        await client.call_tool("log", {}, meta=meta)
        message = await heard.next("notifications/message")
        return {"level": message.level, "data": message.data}

    async def updated():
        await client.call_tool("touch", {})
        return str((await heard.next("notifications/resources/updated")).uri)

    async def changed():
        await client.call_tool("announce", {})
        await heard.next("notifications/tools/list_changed")
        return "tools"

    async def complete():
        reference = PromptReference(type="ref/prompt", name="review")
        argument = {"name": "language", "value": "ru"}
        return (await client.complete(reference, argument)).completion.values

    async def cancel():
        with anyio.CancelScope() as scope:

            async def waiting(value, total, message):
                scope.cancel()

            await client.call_tool("wait", {}, progress_callback=waiting)
        if not scope.cancelled_caught:
            raise RuntimeError("a cancelled call was answered")
        return text(await client.call_tool("cancelled", {}))

    async def code_of(request):
        try:
            return text(await request)
        except Exception as error:
            return error.error.code

    yield "log", log()
    yield "updated", updated()
    yield "changed", changed()
    yield "complete", complete()
    yield "cancel", cancel()
    yield "unknownTool", code_of(client.call_tool("nonsense", {}))
    yield "unknownResource", code_of(client.read_resource("memo://no/such"))


async def main():
    options = read_arguments("legacy, auto or a revision without handshake")
    if options.url:
        server = streamable_http_client(
            options.url, http_client=create_mcp_http_client(headers=http_headers())
        )
    elif options.sse:
        server = sse_client(options.sse, headers=http_headers())
    else:
        server = StdioServerParameters(
            command=options.command[0], args=options.command[1:], env=dict(os.environ)
        )
    heard = Heard()
    callbacks = {"elicitation_callback": elicit, "sampling_callback": sample, "list_roots_callback": roots}
    identity = Implementation(name="interop-python", version="1.0.0")
    settings = {"mode": options.mode or "auto", "client_info": identity, "read_timeout_seconds": 10}
    client = Client(server, message_handler=heard.told, **settings, **callbacks)
    async with client, AsyncExitStack() as tasks:
        seen = await report({"revision": client.protocol_version}, tour(client))
        if options.url or options.sse:
            await report(seen, more(client, heard, tasks))
    print(json.dumps(seen, ensure_ascii=False))


if __name__ == "__main__":
    anyio.run(main)

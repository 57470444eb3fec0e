"""A client built with the Python SDK 1.x: as client.py, over HTTP only, and always with the handshake.

    python client-1.py --url <url>  over Streamable HTTP
    python client-1.py --sse <url>  over HTTP+SSE
"""

import json
from datetime import timedelta

import anyio
from mcp import ClientSession
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.types import (
    CreateMessageResult,
    ElicitResult,
    Implementation,
    ListRootsResult,
    PromptReference,
    Root,
    TextContent,
)
from pydantic import AnyUrl

from tour import Heard, form_content, http_headers, read_arguments, report, text, whole


async def elicit(context, params):
    return ElicitResult(action="accept", content=form_content(params.requestedSchema))


async def sample(context, params):
    content = TextContent(type="text", text="sampled")
    return CreateMessageResult(role="assistant", model="interop", content=content)


async def roots(context):
    return ListRootsResult(roots=[Root(uri="file:///tmp/a", name="a")])


async def tour(client, heard):
    """Yields the name and the coroutine of each step."""
    progress = []

    async def note(value, total, message):
        step = {"progress": whole(value), "total": whole(total), "message": message}
        progress.append({name: value for name, value in step.items() if value is not None})

    async def call(tool, show=text, on_progress=None, **arguments):
        return show(await client.call_tool(tool, arguments, progress_callback=on_progress))

    async def read(uri):
        return (await client.read_resource(AnyUrl(uri))).contents[0].text

    async def tools():
        return sorted(tool.name for tool in (await client.list_tools()).tools)

    async def seen():
        return progress

    async def prompt():
        return (await client.get_prompt("review", {"language": "rust"})).messages[0].content.text

    async def log():
        await client.set_logging_level("info")
        await client.call_tool("log", {})
        message = await heard.next("notifications/message")
        return {"level": message.level, "data": message.data}

    async def updated():
        await client.subscribe_resource(AnyUrl("memo://status"))
        await client.call_tool("touch", {})
        return str((await heard.next("notifications/resources/updated")).uri)

    async def changed():
        await client.call_tool("announce", {})
        await heard.next("notifications/tools/list_changed")
        return "tools"

    async def complete():
        reference = PromptReference(type="ref/prompt", name="review")
        return (await client.complete(reference, {"name": "language", "value": "ru"})).completion.values

    async def code_of(request):
        try:
            return text(await request)
        except Exception as error:
            return error.error.code

    yield "tools", tools()
    yield "add", call("add", lambda result: result.structuredContent or text(result), a=2, b=0.5)
    yield "echo", call("echo", text="grüße")
    yield "slow", call("slow", on_progress=note)
    yield "progress", seen()
    yield "ask", call("ask")
    yield "sample", call("sample")
    yield "folders", call("folders")
    yield "fail", call("fail", lambda result: {"isError": result.isError, "text": text(result)})
    yield "status", read("memo://status")
    yield "memo", read("memo://7")
    yield "prompt", prompt()
    yield "log", log()
    yield "updated", updated()
    yield "changed", changed()
    yield "complete", complete()
    # The SDK cannot cancel a call.
    yield "unknownTool", code_of(client.call_tool("nonsense", {}))
    yield "unknownResource", code_of(client.read_resource(AnyUrl("memo://no/such")))


async def main():
    options = read_arguments("there is none")
    way = (
        streamable_http_client(
            options.url, http_client=create_mcp_http_client(headers=http_headers())
        )
        if options.url
        else sse_client(options.sse, headers=http_headers())
    )
    heard = Heard()
    async with way as streams:
        session = ClientSession(
            *streams[:2],
            read_timeout_seconds=timedelta(seconds=10),
            sampling_callback=sample,
            elicitation_callback=elicit,
            list_roots_callback=roots,
            message_handler=heard.told,
            client_info=Implementation(name="interop-python-1", version="1.0.0"),
        )
        async with session as client:
            greeting = await client.initialize()
            seen = await report({"revision": greeting.protocolVersion}, tour(client, heard))
    print(json.dumps(seen, ensure_ascii=False))


if __name__ == "__main__":
    anyio.run(main)

"""Tour client on FastMCP: as client.py, over HTTP only.

    python client-fastmcp.py [--mode legacy|auto] --url <url>  over Streamable HTTP
    python client-fastmcp.py [--mode …] --sse <url>            over HTTP+SSE
"""

import json

import anyio
from fastmcp import Client
from fastmcp.client.transports import SSETransport, StreamableHttpTransport
from mcp.types import Implementation, PromptReference

from tour import Heard, form_content, http_headers, read_arguments, report, text, whole

HANDSHAKES_END = "2025-11-25"


async def elicit(message, response_type, params, context):
    return form_content(params.requested_schema)


async def sample(messages, params, context):
    return "sampled"


async def tour(client, heard):
    """Yields the name and the coroutine of each step."""
    progress = []
    has_session = client.protocol_version <= HANDSHAKES_END

    async def note(value, total, message):
        step = {"progress": whole(value), "total": whole(total), "message": message}
        progress.append({name: value for name, value in step.items() if value is not None})

    async def call(tool, show=text, on_progress=None, meta=None, **arguments):
        return show(await client.call_tool_mcp(tool, arguments, progress_handler=on_progress, meta=meta))

    async def read(uri):
        return (await client.read_resource(uri))[0].text

    async def tools():
        return sorted(tool.name for tool in await client.list_tools())

    async def seen():
        return progress

    async def prompt():
        return (await client.get_prompt("review", {"language": "rust"})).messages[0].content.text

    async def log():
        if has_session:
            await client.set_logging_level("info")
        await call("log", meta=None if has_session else {"io.modelcontextprotocol/logLevel": "info"})
        message = await heard.next("log")
        return {"level": message.level, "data": message.data}

    async def complete():
        reference = PromptReference(type="ref/prompt", name="review")
        return (await client.complete(reference, {"name": "language", "value": "ru"})).values

    async def code_of(request):
        try:
            return text(await request)
        except Exception as error:
            return error.error.code

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
    yield "log", log()
    yield "complete", complete()
    yield "unknownTool", code_of(client.call_tool_mcp("nonsense", {}))
    yield "unknownResource", code_of(client.read_resource("memo://no/such"))


async def main():
    options = read_arguments("legacy or auto")
    transport = StreamableHttpTransport if options.url else SSETransport
    heard = Heard()
    client = Client(
        transport(options.url or options.sse, headers=http_headers()),
        mode=options.mode or "auto",
        timeout=10,
        roots=["file:///tmp/a"],
        elicitation_handler=elicit,
        sampling_handler=sample,
        log_handler=lambda message: heard.add("log", message),
        client_info=Implementation(name="interop-fastmcp", version="1.0.0"),
    )
    async with client:
        seen = await report({"revision": client.protocol_version}, tour(client, heard))
    print(json.dumps(seen, ensure_ascii=False))


if __name__ == "__main__":
    anyio.run(main)

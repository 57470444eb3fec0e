"""A client built with the Python SDK: it starts the server given on the command line, uses everything that
server.py has and prints what it saw as one JSON object. A step that fails is {"error": …} in its place.

    python client.py [--mode legacy|auto|<revision>] <command> [arguments…]

legacy opens with initialize, auto (the default) tries server/discover and falls back to initialize, a
revision without handshake is used without asking.
"""

import argparse
import json
import os

import anyio
from mcp import Client, StdioServerParameters
from mcp.types import CreateMessageResult, ElicitResult, Implementation, ListRootsResult, Root, TextContent

PARSER = argparse.ArgumentParser(description="Uses everything a server of this folder has")
PARSER.add_argument("--mode", default="auto", help="legacy, auto or a revision without handshake")
PARSER.add_argument("command")
PARSER.add_argument("arguments", nargs=argparse.REMAINDER)


async def elicit(context, params):
    return ElicitResult(action="accept", content={"name": "Ada"})


async def sample(context, params):
    content = TextContent(type="text", text="sampled")
    return CreateMessageResult(role="assistant", model="interop", content=content)


async def roots(context):
    return ListRootsResult(roots=[Root(uri="file:///tmp/a", name="a")])


def text(result):
    return "".join(block.text for block in result.content)


def whole(number):
    """The SDK reads every number as a float; the report has 1 where the server said 1."""
    return int(number) if number is not None and number == int(number) else number


async def tour(client):
    """Yields the name of each step and the coroutine that takes it."""
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


async def main():
    options = PARSER.parse_args()
    server = StdioServerParameters(command=options.command, args=options.arguments, env=dict(os.environ))
    callbacks = {"elicitation_callback": elicit, "sampling_callback": sample, "list_roots_callback": roots}
    identity = Implementation(name="interop-python", version="1.0.0")
    settings = {"mode": options.mode, "client_info": identity, "read_timeout_seconds": 10}
    async with Client(server, **settings, **callbacks) as client:
        report = {"revision": client.protocol_version}
        async for name, step in tour(client):
            try:
                report[name] = await step
            except Exception as error:  # whatever the SDK raises is what this program is to report
                report[name] = {"error": str(error)}
    print(json.dumps(report, ensure_ascii=False))


if __name__ == "__main__":
    anyio.run(main)

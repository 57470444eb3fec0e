"""Shared code of the Python clients: command line and report."""

import argparse
import os

import anyio


def http_headers():
    """Returns the header with the bearer token of the environment, if it has one."""
    token = os.environ.get("TOUR_TOKEN")
    return {"Authorization": f"Bearer {token}"} if token else {}


def form_content(schema):
    """Returns the input of the user. A form that asks for a decision is that of an approval of the gateway."""
    return {"decision": "approve"} if "decision" in schema.get("properties", {}) else {"name": "Ada"}


def read_arguments(modes):
    """Returns the mode and the server: `command`, `url` or `sse`."""
    parser = argparse.ArgumentParser(description="Uses all features of a tour server")
    parser.add_argument("--mode", help=modes)
    parser.add_argument("--url", help="URL of a Streamable HTTP server")
    parser.add_argument("--sse", help="URL of an HTTP+SSE server")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if not (options.command or options.url or options.sse):
        parser.error("there is no server")
    return options


def text(result):
    return "".join(block.text for block in result.content)


def whole(number):
    """Converts floats to integers: the SDK decodes every number as a float."""
    return int(number) if number is not None and number == int(number) else number


async def report(seen, steps):
    """Runs all steps. Exceptions of the SDK are reported."""
    async for name, step in steps:
        try:
            seen[name] = await step
        except Exception as error:
            seen[name] = {"error": str(error) or repr(error)}
    return seen


class Heard:
    """Received notifications by method, for the steps that await them."""

    def __init__(self):
        self.streams = {}

    def _stream(self, method):
        if method not in self.streams:
            self.streams[method] = anyio.create_memory_object_stream(100)
        return self.streams[method]

    async def told(self, message):
        notification = getattr(message, "root", message)
        method = getattr(notification, "method", None)
        if method is not None:
            await self.add(method, notification.params)

    async def add(self, method, params):
        await self._stream(method)[0].send(params)

    async def next(self, method):
        with anyio.fail_after(10):
            return await self._stream(method)[1].receive()

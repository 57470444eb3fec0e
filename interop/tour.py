"""What the Python clients of this folder share: their command line, and the report they print."""

import argparse

import anyio


def read_arguments(modes):
    """The mode, and where the server is: `command`, `url` or `sse`."""
    parser = argparse.ArgumentParser(description="Uses everything a server of this folder has")
    parser.add_argument("--mode", help=modes)
    parser.add_argument("--url", help="of a server that speaks Streamable HTTP")
    parser.add_argument("--sse", help="URL of a server that speaks HTTP+SSE")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if not (options.command or options.url or options.sse):
        parser.error("there is no server")
    return options


def text(result):
    return "".join(block.text for block in result.content)


def whole(number):
    """The SDK reads every number as a float; the report has 1 where the server said 1."""
    return int(number) if number is not None and number == int(number) else number


async def report(seen, steps):
    """Takes all steps. Whatever the SDK raises is what is to be reported."""
    async for name, step in steps:
        try:
            seen[name] = await step
        except Exception as error:
            seen[name] = {"error": str(error) or repr(error)}
    return seen


class Heard:
    """Notifications by their method, for whoever waits for the next one."""

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
            await self._stream(method)[0].send(notification.params)

    async def next(self, method):
        with anyio.fail_after(10):
            return await self._stream(method)[1].receive()

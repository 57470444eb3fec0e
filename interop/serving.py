"""What the Python servers of this folder share when they serve over HTTP: a port of this machine and an event
store that streams are resumed from."""

import socket

import uvicorn


class Kept:
    """Keeps every event, in order. Each SDK has a base class of its own that this one is mixed into."""

    def __init__(self):
        self.events = []

    async def store_event(self, stream_id, message):
        self.events.append((stream_id, message))
        return str(len(self.events))

    async def replay_events_after(self, last_event_id, send_callback):
        from mcp.server.streamable_http import EventMessage

        last = int(last_event_id)
        stream = self.events[last - 1][0]
        # An event without a message only says that the stream has begun.
        for number, (of, message) in enumerate(self.events[last:], start=last + 1):
            if of == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


class Announced(uvicorn.Server):
    """Prints the URL of the endpoint once it is served, which tells whoever started it that it is up."""

    async def startup(self, sockets=None):
        await super().startup(sockets)
        print(f"http://127.0.0.1:{sockets[0].getsockname()[1]}/mcp", flush=True)


def serve(streamable, legacy):
    """Serves one app with the routes of both: Streamable HTTP at /mcp, HTTP+SSE at /sse."""
    streamable.router.routes.extend(legacy.routes)
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(streamable, log_level="warning", timeout_graceful_shutdown=1)
    Announced(config).run(sockets=[listener])

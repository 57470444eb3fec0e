"""Shared code of the Python servers for HTTP: a listener on a free port, and an event store for resumption."""

import socket

import uvicorn


class Kept:
    """Stores all events, in order. A mixin, since each SDK has its own base class."""

    def __init__(self):
        self.events = []

    async def store_event(self, stream_id, message):
        self.events.append((stream_id, message))
        return str(len(self.events))

    async def replay_events_after(self, last_event_id, send_callback):
        from mcp.server.streamable_http import EventMessage

        last = int(last_event_id)
        stream = self.events[last - 1][0]
        # An event without a message only marks the start of the stream.
        for number, (of, message) in enumerate(self.events[last:], start=last + 1):
            if of == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


class Announced(uvicorn.Server):
    """Prints the URL of the endpoint when it is ready."""

    async def startup(self, sockets=None):
        await super().startup(sockets)
        print(f"http://127.0.0.1:{sockets[0].getsockname()[1]}/mcp", flush=True)


def serve(streamable, legacy):
    """Serves one app with the routes of both: Streamable HTTP at /mcp, HTTP+SSE at /sse."""
    streamable.router.routes.extend(legacy.routes)
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(streamable, log_level="warning", timeout_graceful_shutdown=1)
    Announced(config).run(sockets=[listener])

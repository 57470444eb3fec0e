"""Server on the Python SDK 2.x that requires authentication, and whose tools change.

    python guarded.py  Streamable HTTP at /mcp, for callers with a token of the form `secret-of-<name>`
"""

import os

import anyio
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import Context, MCPServer
from mcp.types import CallToolResult, TextContent
from pydantic import BaseModel

from serving import serve

HANDSHAKES_END = "2025-11-25"
BEGIN = "secret-of-"


class Verifier:
    async def verify_token(self, token):
        if not token.startswith(BEGIN):
            return None
        return AccessToken(token=token, client_id=token.removeprefix(BEGIN), scopes=[])


server = MCPServer(
    "guarded-python",
    version="1.0.0",
    log_level="WARNING",
    token_verifier=Verifier(),
    auth=AuthSettings(issuer_url="https://issuer.example", resource_server_url=None),
)


def plain(description, name=None):
    """Creates a tool that returns only text."""
    return server.tool(name=name, description=description, structured_output=False)


class Weather(BaseModel):
    place: str
    degrees: int


async def tell_of_change(context):
    await context.notify_tools_changed()
    if context.protocol_version <= HANDSHAKES_END:
        await context.session.send_tool_list_changed()


@plain("Returns the caller")
def whoami() -> str:
    return get_access_token().client_id


@plain("Has a name that is invalid for models", name="files.read/all")
def files(path: str) -> str:
    return f"contents of {path}"


@plain("Returns a text of this many characters")
def large(size: int) -> str:
    return "x" * size


@plain("Always fails")
def fail() -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text="this tool always fails")], is_error=True)


@plain("Never returns")
async def wait() -> str:
    await anyio.sleep_forever()


@plain("Ends the server")
def die() -> str:
    os._exit(1)


def forecast(place: str) -> Weather:
    return Weather(place=place, degrees=21)


server.add_tool(forecast, description="Tells the weather")


@plain("Changes the description of `forecast` without a notification")
def rewrite(description: str) -> str:
    server.remove_tool("forecast")
    server.add_tool(forecast, description=description)
    return "rewritten"


@plain("Adds a tool and sends a list change notification")
async def grow(name: str, context: Context) -> str:
    server.add_tool(whoami, name=name, description="Is new", structured_output=False)
    await tell_of_change(context)
    return "grown"


if __name__ == "__main__":
    serve(server.streamable_http_app(), server.sse_app())

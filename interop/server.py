"""A server on stdio built with the Python SDK, which speaks every revision, with and without the handshake.

It offers what server.mjs offers, under the same names and with the same answers. What a tool needs from the
client is a parameter that the SDK fills in (`Resolve`): by an input_required result in the stateless
revision, by a request of its own in the older ones.
"""

from typing import Annotated

import anyio
from mcp.server.mcpserver import Context, Elicit, ElicitationResult, ListRoots, MCPServer, Resolve, Sample
from mcp.types import CallToolResult, CreateMessageResult, ListRootsResult, SamplingMessage, TextContent
from pydantic import BaseModel

server = MCPServer("interop-python", version="1.0.0", log_level="WARNING")


class Sum(BaseModel):
    sum: float


class Person(BaseModel):
    name: str


def ask_for_name() -> Elicit[Person]:
    return Elicit("What is your name?", Person)


def ask_for_speech() -> Sample:
    question = TextContent(type="text", text="Say something")
    return Sample([SamplingMessage(role="user", content=question)], max_tokens=50)


def ask_for_roots() -> ListRoots:
    return ListRoots()


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
        # Both TypeScript clients lose progress that they read in one go with the response.
        await anyio.sleep(0.02)
    return "done"


@server.tool(description="Asks the person for a name and greets")
def ask(answer: Annotated[ElicitationResult[Person], Resolve(ask_for_name)]) -> str:
    return f"hello {answer.data.name}" if answer.action == "accept" else f"the user said {answer.action}"


@server.tool(description="Lets the client's model speak")
def sample(message: Annotated[CreateMessageResult, Resolve(ask_for_speech)]) -> str:
    content = message.content
    return content.text if isinstance(content, TextContent) else f"not text: {content.type}"


@server.tool(description="Lists the client's roots, one per line")
def folders(listed: Annotated[ListRootsResult, Resolve(ask_for_roots)]) -> str:
    return "\n".join(str(root.uri) for root in listed.roots)


@server.tool(description="Always fails")
def fail() -> CallToolResult:
    # Not raised, because the SDK would put "Error executing tool fail: " before the text.
    return CallToolResult(content=[TextContent(type="text", text="this tool always fails")], is_error=True)


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
    server.run()

"""A server with one tool that returns variables of its environment, secrets also reversed."""

import json
import os
import sys

TOOL = {"name": "show", "description": "Shows", "inputSchema": {"type": "object"}}


def result(method, params):
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "shows", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": [TOOL]}
    token, mode = os.environ.get("GITHUB_TOKEN", "nothing"), os.environ.get("MODE", "nothing")
    return {"content": [{"type": "text", "text": f"{token} {token[::-1]} {mode}"}]}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message and "method" in message:
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": result(message["method"], message.get("params", {}))}
        print(json.dumps(answer), flush=True)

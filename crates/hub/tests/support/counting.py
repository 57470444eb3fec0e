"""A server that writes the key of every call to a file before it responds, and has a child that tries to outlive it."""

import json
import os
import signal
import sys

FILE = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
TOOL = {
    "name": "count",
    "description": "Keeps a key",
    "inputSchema": {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]},
}

if os.fork() == 0:
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for stream in range(3):
        os.close(stream)
    while True:
        signal.pause()


def result(method, params):
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "counting", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "tools/call":
        key = params["arguments"]["key"]
        os.write(FILE, (key + "\n").encode())
        return {"content": [{"type": "text", "text": key}]}
    return {} if method == "ping" else None


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or "method" not in message:
        continue
    answer = {"jsonrpc": "2.0", "id": message["id"]}
    found = result(message["method"], message.get("params", {}))
    if found is None:
        answer["error"] = {"code": -32601, "message": "there is no such method"}
    else:
        answer["result"] = found
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()

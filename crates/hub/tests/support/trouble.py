"""A misbehaving server: it prints noise, crashes during a call, or never responds."""

import json
import os
import sys

FILE = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
NAMES = ["echo", "die", "hang"]


def result(method, params):
    if method == "initialize":
        info = {"name": "trouble", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in NAMES]}
    if method == "tools/call":
        os.write(FILE, (params["name"] + "\n").encode())
        if params["name"] == "die":
            sys.exit(3)
        return None if params["name"] == "hang" else {"content": [{"type": "text", "text": "done"}]}
    return {}


print("noise before anything else")
for line in sys.stdin:
    message = json.loads(line)
    found = result(message["method"], message.get("params", {})) if "method" in message and "id" in message else None
    print("noise {not json\n[]\n\n42\x07")
    if found is not None:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": found}))
    sys.stdout.flush()

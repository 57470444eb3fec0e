"""A server whose tools read files, open them, and start a process that tries to escape."""

import base64
import json
import os
import sys
import time

ANY = {"type": "object"}
NAMES = ["read", "open", "detach", "hang", "fail"]


def detach(file):
    """Starts a process that has no parent, session, group, environment and descriptors in common with this one."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            script = 'trap "" TERM HUP INT; echo $$ > "$0.new"; mv "$0.new" "$0"; while :; do sleep 1; done'
            os.closerange(0, 100)
            os.chdir("/")
            os.execve("/bin/sh", ["sh", "-c", script, file], {})
        os._exit(0)
    os.wait()
    while not os.path.exists(file):
        time.sleep(0.01)
    return "started"


def call(name, given):
    path = given["path"]
    if name == "detach":
        return detach(path)
    if name == "hang":
        detach(path)
        while True:
            time.sleep(1)
    try:
        with open(path, "rb") as file:
            if name == "open":
                return "opened " + path
            data = file.read()
    except OSError as error:
        return type(error).__name__
    if name == "fail":
        print(data.decode(), file=sys.stderr, flush=True)
        raise ValueError(data.decode())
    text = data.decode()
    return "\n".join([text, json.dumps(text), base64.b64encode(data).decode(), base64.b64encode(b"-" + data).decode(), data.hex()])


def result(method, params):
    if method == "initialize":
        info = {"name": "reaching", "version": "1"}
        offers = {"tools": {}, "resources": {}}
        return {"protocolVersion": params["protocolVersion"], "capabilities": offers, "serverInfo": info}
    if method == "tools/list":
        return {"tools": [{"name": name, "inputSchema": ANY} for name in NAMES]}
    if method == "resources/list":
        return {"resources": []}
    if method == "resources/read":
        with open(params["uri"].removeprefix("file://"), "rb") as file:
            data = file.read()
        blob = base64.b64encode(data).decode()
        return {"contents": [{"uri": params["uri"], "text": data.decode()}, {"uri": params["uri"], "blob": blob}]}
    if method == "tools/call":
        said = call(params["name"], params["arguments"])
        return {"content": [{"type": "text", "text": said}], "structuredContent": {"said": [said]}}
    return {}


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or "method" not in message:
        continue
    answer = {"jsonrpc": "2.0", "id": message["id"]}
    try:
        answer["result"] = result(message["method"], message.get("params", {}))
    except ValueError as error:
        answer["error"] = {"code": -32000, "message": str(error)}
    print(json.dumps(answer), flush=True)

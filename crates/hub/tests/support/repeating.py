"""A server that repeats its environment in all outputs, in several encodings, and may crash with it."""

import base64
import json
import os
import sys

SECRET = [value for name, value in sorted(os.environ.items()) if name.endswith(("TOKEN", "PASSWORD"))]
FORMS = [form for value in SECRET for form in (value, base64.b64encode(b"-" + value.encode()).decode(), value.encode().hex())]
WORDS = " ".join(FORMS)
ANY = {"type": "object", "properties": {"text": {"type": "string"}, "number": {"type": "integer"}}, "required": ["text"]}
OFFERS = {"tools": {}, "resources": {}, "prompts": {}}

print(WORDS, file=sys.stderr, flush=True)
if "DIE" in os.environ:
    sys.exit(WORDS)


class Refused(Exception):
    pass


def result(method, params):
    given = (params.get("arguments") or {}).get("text", "")
    said = f"{WORDS} {given} {os.environ.get('ANSWER', '')}"
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": OFFERS,
            "serverInfo": {"name": "repeating " + WORDS, "version": WORDS},
            "instructions": WORDS,
        }
    if method == "tools/list":
        names = ["show", "fail", "refuse", "die"]
        return {"tools": [{"name": name, "description": WORDS, "inputSchema": ANY} for name in names]}
    if method == "resources/list":
        return {"resources": [{"uri": "memory://a", "name": WORDS, "description": WORDS}]}
    if method == "resources/templates/list":
        return {"resourceTemplates": [{"uriTemplate": "memory://{a}", "name": WORDS}]}
    if method == "resources/read":
        if params["uri"] != "memory://a":
            raise Refused(WORDS)
        return {"contents": [{"uri": "memory://a", "text": WORDS}]}
    if method == "prompts/list":
        return {"prompts": [{"name": "ask", "description": WORDS, "arguments": [{"name": "text"}]}]}
    if method == "prompts/get":
        return {"messages": [{"role": "user", "content": {"type": "text", "text": said}}]}
    if method == "tools/call":
        if params["name"] == "refuse":
            raise Refused(said)
        if params["name"] == "die":
            sys.exit(WORDS)
        return {"content": [{"type": "text", "text": said}], "isError": params["name"] == "fail"}
    return {}


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or "method" not in message:
        continue
    answer = {"jsonrpc": "2.0", "id": message["id"]}
    try:
        answer["result"] = result(message["method"], message.get("params", {}))
    except Refused as refused:
        answer["error"] = {"code": -32000, "message": str(refused), "data": {"why": str(refused)}}
    print(json.dumps(answer), flush=True)

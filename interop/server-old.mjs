// Tour server on the TypeScript SDK of an old revision, with those items of server.mjs that the SDK supports:
//
//   node server-old.mjs 2024-11-05  HTTP+SSE at /sse
//   node server-old.mjs 2025-03-26  Streamable HTTP with sessions at /mcp

import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { listen } from "./http.mjs";

const [revision] = process.argv.slice(2);
const load = (module) => import(`sdk-${revision}/${module}.js`);
const { Server } = await load("server/index");
const types = await load("types");
const text = (value) => ({ content: [{ type: "text", text: value }] });
const object = (properties) => ({ type: "object", properties, required: Object.keys(properties) });

/** Number of cancelled calls of `wait` that `cancelled` has not reported yet. */
let cancelled = 0;
const cancellations = new EventTarget();

/** Tool handlers, called with the arguments and functions to send notifications and requests. */
const tools = {
  add: ({ a, b }) => text(JSON.stringify({ sum: a + b })),
  echo: (input) => text(input.text),
  slow: async (_, { progress }) => {
    for (const step of [1, 2, 3]) {
      await progress(step, 3);
    }
    return text("done");
  },
  sample: async (_, { ask }) => {
    const messages = [{ role: "user", content: { type: "text", text: "Say something" } }];
    const question = { method: "sampling/createMessage", params: { messages, maxTokens: 50 } };
    return text((await ask(question, types.CreateMessageResultSchema)).content.text);
  },
  folders: async (_, { ask }) => {
    const { roots } = await ask({ method: "roots/list" }, types.ListRootsResultSchema);
    return text(roots.map((root) => root.uri).join("\n"));
  },
  fail: () => ({ ...text("this tool always fails"), isError: true }),
  log: async (_, { say }) => {
    await say({ method: "notifications/message", params: { level: "info", logger: "tour", data: "a line" } });
    return text("logged");
  },
  touch: async (_, { server }) => {
    await server.sendResourceUpdated({ uri: "memo://status" });
    return text("touched");
  },
  announce: async (_, { server }) => {
    await server.sendToolListChanged();
    return text("announced");
  },
  wait: async (_, { progress, signal }) => {
    await progress(1, 1);
    await once(signal, "abort");
    cancelled += 1;
    cancellations.dispatchEvent(new Event("cancelled"));
    return text("nobody reads this");
  },
  cancelled: async () => {
    if (cancelled === 0) {
      await once(cancellations, "cancelled");
    }
    cancelled -= 1;
    return text("a call was cancelled");
  },
};
const inputs = { add: { a: { type: "number" }, b: { type: "number" } }, echo: { text: { type: "string" } } };

function createServer() {
  const capabilities = {
    completions: {},
    logging: {},
    prompts: {},
    resources: { subscribe: true },
    tools: { listChanged: true },
  };
  const server = new Server({ name: `interop-typescript-${revision}`, version: "1.0.0" }, { capabilities });
  const on = (schema, handler) => server.setRequestHandler(types[`${schema}RequestSchema`], handler);
  const missing = (what) => new types.McpError(types.ErrorCode.InvalidParams, `there is no ${what}`);

  on("ListTools", () => ({
    tools: Object.keys(tools).map((name) => ({ name, inputSchema: object(inputs[name] ?? {}) })),
  }));
  on("CallTool", ({ params }, extra) => {
    const tool = tools[params.name];
    if (tool === undefined) {
      throw missing(`tool ${params.name}`);
    }
    const say = extra.sendNotification ?? ((notification) => server.notification(notification));
    const ask = extra.sendRequest ?? ((request, schema) => server.request(request, schema));
    const progressToken = params._meta?.progressToken;
    const progress = async (progress, total) =>
      progressToken !== undefined &&
      say({ method: "notifications/progress", params: { progressToken, progress, total } });
    return tool(params.arguments ?? {}, { server, say, ask, progress, signal: extra.signal });
  });
  on("ListResources", () => ({ resources: [{ uri: "memo://status", name: "status", mimeType: "text/plain" }] }));
  on("ListResourceTemplates", () => ({ resourceTemplates: [{ uriTemplate: "memo://{id}", name: "memo" }] }));
  on("ReadResource", ({ params: { uri } }) => {
    const id = /^memo:\/\/(\w+)$/.exec(uri)?.[1];
    if (id === undefined) {
      throw missing(`resource ${uri}`);
    }
    return { contents: [{ uri, mimeType: "text/plain", text: id === "status" ? "ok" : `memo ${id}` }] };
  });
  on("Subscribe", () => ({}));
  on("Unsubscribe", () => ({}));
  on("SetLevel", () => ({}));
  on("ListPrompts", () => ({ prompts: [{ name: "review", arguments: [{ name: "language", required: true }] }] }));
  on("GetPrompt", ({ params }) => {
    const content = { type: "text", text: `Review this ${params.arguments.language} code.` };
    return { messages: [{ role: "user", content }] };
  });
  on("Complete", ({ params }) => {
    const values = ["rust", "ruby", "go"].filter((name) => name.startsWith(params.argument.value));
    return { completion: { values } };
  });
  return server;
}

const transports = new Map();

async function overSse({ SSEServerTransport }, request, response, url) {
  if (request.method === "GET" && url.pathname === "/sse") {
    const transport = new SSEServerTransport("/messages", response);
    transports.set(transport.sessionId, transport);
    await createServer().connect(transport);
  } else {
    const transport = transports.get(url.searchParams.get("sessionId"));
    await (transport?.handlePostMessage(request, response) ?? response.writeHead(404).end());
  }
}

async function streamable({ StreamableHTTPServerTransport }, request, response) {
  const id = request.headers["mcp-session-id"];
  let transport = transports.get(id);
  if (id === undefined) {
    const onsessioninitialized = (id) => transports.set(id, transport);
    transport = new StreamableHTTPServerTransport({ sessionIdGenerator: randomUUID, onsessioninitialized });
    await createServer().connect(transport);
  }
  await (transport?.handleRequest(request, response) ?? response.writeHead(404).end());
}

const serve = revision === "2024-11-05" ? overSse : streamable;
const module = await load(revision === "2024-11-05" ? "server/sse" : "server/streamableHttp");
listen((request, response) => serve(module, request, response, new URL(request.url, "http://127.0.0.1")));

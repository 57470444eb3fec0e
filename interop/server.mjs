// Tour server on the TypeScript SDK 1.x, which supports only the initialize handshake. Linchpin's client and the
// clients in this directory use all its features and compare the results; the other tour servers have the same items
// with the same names and results.
//
//   node server.mjs              on stdio
//   node server.mjs http         Streamable HTTP with sessions and resumption at /mcp, HTTP+SSE at /sse
//   node server.mjs http --json  Streamable HTTP without sessions and streams

import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { setTimeout as pause } from "node:timers/promises";
import { completable } from "@modelcontextprotocol/sdk/server/completable.js";
import { McpServer, ResourceTemplate } from "@modelcontextprotocol/sdk/server/mcp.js";
import { SSEServerTransport } from "@modelcontextprotocol/sdk/server/sse.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { SubscribeRequestSchema, UnsubscribeRequestSchema } from "@modelcontextprotocol/sdk/types.js";
import { z } from "zod";
import { Events, listen } from "./http.mjs";

const text = (value) => ({ content: [{ type: "text", text: value }] });
const languages = ["rust", "ruby", "go"];

/** Number of cancelled calls of `wait` that `cancelled` has not reported yet. */
let cancelled = 0;
const cancellations = new EventTarget();

async function slow(extra) {
  const progressToken = extra._meta?.progressToken;
  for (const step of [1, 2, 3]) {
    if (progressToken !== undefined) {
      const params = { progressToken, progress: step, total: 3, message: `step ${step}` };
      await extra.sendNotification({ method: "notifications/progress", params });
    }
    // Both TypeScript clients lose a progress notification that they read together with the response.
    await pause(20);
  }
  return text("done");
}

async function wait(extra) {
  const progressToken = extra._meta?.progressToken;
  const params = { progressToken, progress: 1, total: 1, message: "waiting" };
  await extra.sendNotification({ method: "notifications/progress", params });
  await once(extra.signal, "abort");
  cancelled += 1;
  cancellations.dispatchEvent(new Event("cancelled"));
  return text("nobody reads this");
}

async function awaitCancellation() {
  if (cancelled === 0) {
    await once(cancellations, "cancelled");
  }
  cancelled -= 1;
  return text("a call was cancelled");
}

function createServer() {
  const capabilities = { logging: {}, resources: { subscribe: true, listChanged: true } };
  const server = new McpServer({ name: "interop-typescript-1", version: "1.0.0" }, { capabilities });
  const subscribed = new Set();
  server.server.setRequestHandler(SubscribeRequestSchema, ({ params }) => {
    subscribed.add(params.uri);
    return {};
  });
  server.server.setRequestHandler(UnsubscribeRequestSchema, ({ params }) => {
    subscribed.delete(params.uri);
    return {};
  });

  server.registerTool(
    "add",
    {
      description: "Adds two numbers",
      inputSchema: { a: z.number(), b: z.number() },
      outputSchema: { sum: z.number() },
    },
    ({ a, b }) => ({ ...text(String(a + b)), structuredContent: { sum: a + b } }),
  );
  server.registerTool(
    "echo",
    { description: "Says the text again", inputSchema: { text: z.string() } },
    (input) => text(input.text),
  );
  server.registerTool("slow", { description: "Reports progress three times" }, slow);

  server.registerTool("ask", { description: "Asks the person for a name and greets" }, async (extra) => {
    const form = { type: "object", properties: { name: { type: "string" } }, required: ["name"] };
    const question = { message: "What is your name?", requestedSchema: form };
    const answer = await server.server.elicitInput(question, { relatedRequestId: extra.requestId });
    return text(
      answer.action === "accept" ? `hello ${answer.content.name}` : `the user said ${answer.action}`,
    );
  });
  server.registerTool("sample", { description: "Lets the client's model speak" }, async (extra) => {
    const messages = [{ role: "user", content: { type: "text", text: "Say something" } }];
    const options = { relatedRequestId: extra.requestId };
    const message = await server.server.createMessage({ messages, maxTokens: 50 }, options);
    return text(
      message.content.type === "text" ? message.content.text : `not text: ${message.content.type}`,
    );
  });
  // Not related to a request, so over HTTP it is sent on the standalone stream.
  server.registerTool("folders", { description: "Lists the client's roots, one per line" }, async () => {
    const { roots } = await server.server.listRoots();
    return text(roots.map((root) => root.uri).join("\n"));
  });
  server.registerTool("fail", { description: "Always fails" }, () => {
    throw new Error("this tool always fails");
  });

  server.registerTool("log", { description: "Writes a log message" }, async (extra) => {
    const params = { level: "info", logger: "tour", data: "a line" };
    await extra.sendNotification({ method: "notifications/message", params });
    return text("logged");
  });
  server.registerTool("touch", { description: "Tells that the status has changed" }, async () => {
    if (subscribed.has("memo://status")) {
      await server.server.sendResourceUpdated({ uri: "memo://status" });
    }
    return text("touched");
  });
  server.registerTool("announce", { description: "Tells that the list of tools has changed" }, () => {
    server.sendToolListChanged();
    return text("announced");
  });
  server.registerTool("wait", { description: "Waits until it is cancelled" }, wait);
  server.registerTool("cancelled", { description: "Waits until a `wait` was cancelled" }, awaitCancellation);

  const plain = { mimeType: "text/plain" };
  const contents = (uri, text) => ({ contents: [{ uri: uri.href, ...plain, text }] });
  const memos = new ResourceTemplate("memo://{id}", { list: undefined });
  server.registerResource("status", "memo://status", plain, (uri) => contents(uri, "ok"));
  server.registerResource("memo", memos, plain, (uri, { id }) => contents(uri, `memo ${id}`));
  const language = completable(z.string(), (typed) => languages.filter((name) => name.startsWith(typed)));
  server.registerPrompt(
    "review",
    { description: "Asks for a code review", argsSchema: { language } },
    ({ language }) => ({
      messages: [{ role: "user", content: { type: "text", text: `Review this ${language} code.` } }],
    }),
  );
  return server;
}

/** Serves Streamable HTTP with sessions, and HTTP+SSE. */
function withSessions() {
  const transports = new Map();

  async function greet(request, response) {
    const transport = new StreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      eventStore: new Events(),
      retryInterval: 10,
      onsessioninitialized: (id) => transports.set(id, transport),
    });
    transport.onclose = () => transports.delete(transport.sessionId);
    await createServer().connect(transport);
    await transport.handleRequest(request, response);
  }

  async function stream(response) {
    const transport = new SSEServerTransport("/messages", response);
    transports.set(transport.sessionId, transport);
    transport.onclose = () => transports.delete(transport.sessionId);
    await createServer().connect(transport);
  }

  return async (request, response) => {
    const url = new URL(request.url, "http://127.0.0.1");
    const id = request.headers["mcp-session-id"] ?? url.searchParams.get("sessionId");
    const transport = transports.get(id);
    if (url.pathname === "/sse" && request.method === "GET") {
      await stream(response);
    } else if (url.pathname === "/messages" && transport !== undefined) {
      await transport.handlePostMessage(request, response);
    } else if (url.pathname === "/mcp" && transport !== undefined) {
      await transport.handleRequest(request, response);
    } else if (url.pathname === "/mcp" && id === null) {
      await greet(request, response);
    } else {
      response.writeHead(404).end();
    }
  };
}

/** Creates a server for each request, which responds with one JSON message. */
async function alone(request, response) {
  if (request.method !== "POST") {
    response.writeHead(405).end();
    return;
  }
  const server = createServer();
  const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: undefined, enableJsonResponse: true });
  response.on("close", () => server.close());
  await server.connect(transport);
  await transport.handleRequest(request, response);
}

const [kind, option] = process.argv.slice(2);
if (kind === "http") {
  listen(option === "--json" ? alone : withSessions());
} else {
  await createServer().connect(new StdioServerTransport());
}

// Tour server on the TypeScript SDK 2.x, which supports the stateless revision and, for clients that start with
// initialize, the older ones. It has the same items as server.mjs, with the same names and results. Tools request input
// by returning inputRequired(…). The SDK sends that as an input_required result or, after a handshake, as server
// requests; in both cases it runs the tool again.
//
//   node server-modern.mjs       on stdio
//   node server-modern.mjs http  over HTTP, with sessions and resumption for clients that start with initialize

import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { setTimeout as pause } from "node:timers/promises";
import { NodeStreamableHTTPServerTransport, toNodeHandler, toWebRequest } from "@modelcontextprotocol/node";
import {
  McpServer,
  ResourceTemplate,
  completable,
  createMcpHandler,
  inputRequired,
  inputResponse,
  isLegacyRequest,
} from "@modelcontextprotocol/server";
import { serveStdio } from "@modelcontextprotocol/server/stdio";
import { z } from "zod";
import { Events, listen } from "./http.mjs";

const languages = ["rust", "ruby", "go"];

/** Number of cancelled calls of `wait` that `cancelled` has not reported yet. */
let cancelled = 0;
const cancellations = new EventTarget();

const text = (value) => ({ content: [{ type: "text", text: value }] });

/** Registers a tool that sends one input request and returns the response as text. */
function asking(question, reply) {
  return (context) => {
    const answer = inputResponse(context.mcpReq.inputResponses, "answer");
    return answer.kind === "missing"
      ? inputRequired({ inputRequests: { answer: question }, requestState: "asked" })
      : text(reply(answer));
  };
}

const question = {
  name: inputRequired.elicit({
    message: "What is your name?",
    requestedSchema: { type: "object", properties: { name: { type: "string" } }, required: ["name"] },
  }),
  speech: inputRequired.createMessage({
    messages: [{ role: "user", content: { type: "text", text: "Say something" } }],
    maxTokens: 50,
  }),
  roots: inputRequired.listRoots(),
};

const greet = ({ action, content }) =>
  action === "accept" ? `hello ${content.name}` : `the user said ${action}`;
const speak = ({ result: { content } }) =>
  content.type === "text" ? content.text : `not text: ${content.type}`;
const list = ({ roots }) => roots.map((root) => root.uri).join("\n");

async function slow(context) {
  const progressToken = context.mcpReq._meta?.progressToken;
  for (const step of [1, 2, 3]) {
    if (progressToken !== undefined) {
      const params = { progressToken, progress: step, total: 3, message: `step ${step}` };
      await context.mcpReq.notify({ method: "notifications/progress", params });
    }
    // Both TypeScript clients lose a progress notification that they read together with the response.
    await pause(20);
  }
  return text("done");
}

async function wait(context) {
  const progressToken = context.mcpReq._meta?.progressToken;
  const params = { progressToken, progress: 1, total: 1, message: "waiting" };
  await context.mcpReq.notify({ method: "notifications/progress", params });
  await once(context.mcpReq.signal, "abort");
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

/** `notify` notifies clients without a session; each session has its own server. */
function createServer({ era }, notify) {
  const capabilities = { logging: {}, resources: { subscribe: true, listChanged: true } };
  const server = new McpServer({ name: "interop-typescript-2", version: "1.0.0" }, { capabilities });
  const subscribed = new Set();
  if (era === "legacy") {
    server.server.setRequestHandler("resources/subscribe", ({ params }) => {
      subscribed.add(params.uri);
      return {};
    });
    server.server.setRequestHandler("resources/unsubscribe", ({ params }) => {
      subscribed.delete(params.uri);
      return {};
    });
  }
  server.registerTool(
    "add",
    {
      description: "Adds two numbers",
      inputSchema: z.object({ a: z.number(), b: z.number() }),
      outputSchema: z.object({ sum: z.number() }),
    },
    ({ a, b }) => ({ ...text(String(a + b)), structuredContent: { sum: a + b } }),
  );
  server.registerTool(
    "echo",
    { description: "Says the text again", inputSchema: z.object({ text: z.string() }) },
    (input) => text(input.text),
  );
  server.registerTool("slow", { description: "Reports progress three times" }, slow);
  server.registerTool("ask", { description: "Asks for a name and greets" }, asking(question.name, greet));
  server.registerTool("sample", { description: "Lets a model speak" }, asking(question.speech, speak));
  server.registerTool("folders", { description: "Lists the client's roots" }, asking(question.roots, list));
  server.registerTool("fail", { description: "Always fails" }, () => {
    throw new Error("this tool always fails");
  });
  server.registerTool("log", { description: "Writes a log message" }, async (context) => {
    await context.mcpReq.log("info", "a line", "tour");
    return text("logged");
  });
  server.registerTool("touch", { description: "Tells that the status has changed" }, async () => {
    notify?.resourceUpdated("memo://status");
    if (subscribed.has("memo://status")) {
      await server.server.sendResourceUpdated({ uri: "memo://status" });
    }
    return text("touched");
  });
  server.registerTool("announce", { description: "Tells that the list of tools has changed" }, () => {
    era === "legacy" ? server.sendToolListChanged() : notify?.toolsChanged();
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
    { description: "Asks for a code review", argsSchema: z.object({ language }) },
    ({ language }) => ({
      messages: [{ role: "user", content: { type: "text", text: `Review this ${language} code.` } }],
    }),
  );
  return server;
}

/** The SDK's handler serves clients without a session; each session has its own server. */
function overHttp() {
  const modern = createMcpHandler((context) => createServer(context, modern.notify), { legacy: "reject" });
  const serveModern = toNodeHandler(modern);
  const transports = new Map();

  async function greet() {
    const transport = new NodeStreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      eventStore: new Events(),
      retryInterval: 10,
      onsessioninitialized: (id) => transports.set(id, transport),
    });
    transport.onclose = () => transports.delete(transport.sessionId);
    await createServer({ era: "legacy" }).connect(transport);
    return transport;
  }

  return async (request, response) => {
    const chunks = [];
    for await (const chunk of request) {
      chunks.push(chunk);
    }
    const body = chunks.length === 0 ? undefined : JSON.parse(Buffer.concat(chunks).toString());
    if (!(await isLegacyRequest(await toWebRequest(request, body)))) {
      await serveModern(request, response, body);
      return;
    }
    const id = request.headers["mcp-session-id"];
    const transport = id === undefined ? await greet() : transports.get(id);
    if (transport === undefined) {
      response.writeHead(404).end();
      return;
    }
    await transport.handleRequest(request, response, body);
  };
}

if (process.argv[2] === "http") {
  listen(overHttp());
} else {
  serveStdio(createServer);
}

// Tour client on the TypeScript SDK 1.x, which starts with initialize: uses all features of the server given on the
// command line and prints a report (tour.mjs).
//
//   node client.mjs <command> [arguments…]  starts the server
//   node client.mjs --url <url>             over Streamable HTTP
//   node client.mjs --sse <url>             over HTTP+SSE
//
// With --mode 2024-11-05 or 2025-03-26 it uses the SDK of that revision.

import { answers, capabilities, httpOptions, readArguments, tour } from "./tour.mjs";

const usage = "node client.mjs [--mode <revision>] <command> [arguments…] | --url <url> | --sse <url>";
const { mode, server, url, sse } = readArguments(usage);
const sdk = mode === undefined ? "@modelcontextprotocol/sdk" : `sdk-${mode}`;
const load = (module) => import(`${sdk}/${module}.js`);
const { Client } = await load("client/index");
const types = await load("types");

async function connection() {
  if (url === undefined) {
    const { StdioClientTransport } = await load("client/stdio");
    return new StdioClientTransport(server);
  }
  if (sse) {
    const { SSEClientTransport } = await load("client/sse");
    return new SSEClientTransport(url, httpOptions);
  }
  const { StreamableHTTPClientTransport } = await load("client/streamableHttp");
  return new StreamableHTTPClientTransport(url, httpOptions);
}

const client = new Client({ name: "interop-typescript-1", version: "1.0.0" }, { capabilities });
if (types.ElicitRequestSchema !== undefined) {
  client.setRequestHandler(types.ElicitRequestSchema, ({ params }) => answers.elicitation(params));
}
client.setRequestHandler(types.CreateMessageRequestSchema, () => answers.sampling);
client.setRequestHandler(types.ListRootsRequestSchema, () => answers.roots);

const transport = await connection();
let revision = mode;
// The client does not expose the revision, but passes it to the transport.
const told = transport.setProtocolVersion?.bind(transport);
transport.setProtocolVersion = (version) => {
  revision = version;
  told?.(version);
};
await client.connect(transport, { timeout: 10_000 });
const call = (name, input, options) =>
  client.callTool({ name, arguments: input }, types.CallToolResultSchema, options);
const schemas = {
  "notifications/message": types.LoggingMessageNotificationSchema,
  "notifications/resources/updated": types.ResourceUpdatedNotificationSchema,
  "notifications/tools/list_changed": types.ToolListChangedNotificationSchema,
};
const listening = {
  on: (method, told) => client.setNotificationHandler(schemas[method], told),
  watch: async () => {
    await client.setLoggingLevel("info");
    await client.subscribeResource({ uri: "memo://status" });
  },
};
/** Sends a batch, which only one revision supports and no client sends on its own. */
async function batch() {
  const { onmessage } = transport;
  const answers = {};
  const answered = new Promise((resolve) => {
    transport.onmessage = (message, extra) => {
      if (!String(message.id).startsWith("batch")) {
        onmessage(message, extra);
        return;
      }
      answers[message.id] = message.result;
      Object.keys(answers).length === 2 && resolve(answers);
    };
  });
  const params = { name: "echo", arguments: { text: "one of two" } };
  await transport.send([
    { jsonrpc: "2.0", id: "batch-1", method: "ping" },
    { jsonrpc: "2.0", id: "batch-2", method: "tools/call", params },
  ]);
  return answered;
}

if (mode === "2025-03-26") {
  listening.steps = { batch };
}
await tour({ client, call, revision, listening: url && listening });
await transport.terminateSession?.();
await client.close();

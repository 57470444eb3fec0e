// Tour client on the TypeScript SDK 2.x: uses all features of the server given on the command line and prints a report
// (tour.mjs).
//
//   node client-modern.mjs [--mode legacy|auto|<revision>] <command> [arguments…]  starts the server
//   node client-modern.mjs [--mode …] --url <url>                                  over Streamable HTTP
//   node client-modern.mjs [--mode …] --sse <url>                                  over HTTP+SSE
//
// legacy starts with initialize, auto (the default) tries server/discover and falls back to initialize. A revision
// without handshake is required; an older one is the only one offered in initialize.

import {
  Client,
  LOG_LEVEL_META_KEY,
  SSEClientTransport,
  SUPPORTED_PROTOCOL_VERSIONS,
  StreamableHTTPClientTransport,
} from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { answers, capabilities, httpOptions, readArguments, tour } from "./tour.mjs";

/** Returns the client options for the negotiation mode. */
function opening(mode) {
  if (mode === "legacy" || mode === "auto") {
    return { versionNegotiation: { mode } };
  }
  return SUPPORTED_PROTOCOL_VERSIONS.includes(mode)
    ? { versionNegotiation: { mode: "legacy" }, supportedProtocolVersions: [mode] }
    : { versionNegotiation: { mode: { pin: mode } } };
}

function connection({ server, url, sse }) {
  if (url === undefined) {
    return new StdioClientTransport(server);
  }
  return sse
    ? new SSEClientTransport(url, httpOptions)
    : new StreamableHTTPClientTransport(url, httpOptions);
}

const usage = "node client-modern.mjs [--mode …] <command> [arguments…] | --url <url> | --sse <url>";
const { mode = "auto", ...way } = readArguments(usage);
const identity = { name: "interop-typescript-2", version: "1.0.0" };
const client = new Client(identity, { capabilities, ...opening(mode) });
client.setRequestHandler("elicitation/create", ({ params }) => answers.elicitation(params));
client.setRequestHandler("sampling/createMessage", () => answers.sampling);
client.setRequestHandler("roots/list", () => answers.roots);

const transport = connection(way);
await client.connect(transport, { timeout: 10_000 });
const revision = client.getNegotiatedProtocolVersion();
const hasSession = SUPPORTED_PROTOCOL_VERSIONS.includes(revision);
const call = (name, input, options, _meta) =>
  client.callTool({ name, arguments: input, ...(_meta && { _meta }) }, options);
let subscription;
const listening = {
  on: (method, told) => client.setNotificationHandler(method, told),
  watch: async () => {
    if (hasSession) {
      await client.setLoggingLevel("info");
      await client.subscribeResource({ uri: "memo://status" });
    } else {
      const filter = { toolsListChanged: true, resourceSubscriptions: ["memo://status"] };
      subscription = await client.listen(filter);
    }
  },
  ...(!hasSession && { logged: { [LOG_LEVEL_META_KEY]: "info" } }),
};
await tour({ client, call, revision, listening: way.url && listening });
await subscription?.close();
if (hasSession) {
  await transport.terminateSession?.();
}
await client.close();

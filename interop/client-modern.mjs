// A client built with the TypeScript SDK 2.x: it starts the server given on the command line, uses everything
// server.mjs has and prints what it saw (tour.mjs).
//
//   node client-modern.mjs [--mode legacy|auto|<revision>] <command> [arguments…]
//
// legacy opens with initialize, auto (the default) tries server/discover and falls back to initialize.
// A revision without handshake is insisted on, an older one is the only one offered in initialize.

import { Client, SUPPORTED_PROTOCOL_VERSIONS } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { answers, capabilities, readArguments, tour } from "./tour.mjs";

/** The client options that make the SDK open the conversation as the mode says. */
function opening(mode) {
  if (mode === "legacy" || mode === "auto") {
    return { versionNegotiation: { mode } };
  }
  return SUPPORTED_PROTOCOL_VERSIONS.includes(mode)
    ? { versionNegotiation: { mode: "legacy" }, supportedProtocolVersions: [mode] }
    : { versionNegotiation: { mode: { pin: mode } } };
}

const usage = "node client-modern.mjs [--mode legacy|auto|<revision>] <command> [arguments…]";
const { mode = "auto", server } = readArguments(usage);
const identity = { name: "interop-typescript-2", version: "1.0.0" };
const client = new Client(identity, { capabilities, ...opening(mode) });
client.setRequestHandler("elicitation/create", () => answers.elicitation);
client.setRequestHandler("sampling/createMessage", () => answers.sampling);
client.setRequestHandler("roots/list", () => answers.roots);

await client.connect(new StdioClientTransport(server), { timeout: 10_000 });
const call = (name, input, options) => client.callTool({ name, arguments: input }, options);
await tour({ client, call, revision: client.getNegotiatedProtocolVersion() });
await client.close();

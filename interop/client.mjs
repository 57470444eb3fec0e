// A client built with the TypeScript SDK 1.x, so one that opens with initialize: it starts the server given
// on the command line, uses everything server.mjs has and prints what it saw (tour.mjs).
//
//   node client.mjs <command> [arguments…]

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import {
  CallToolResultSchema,
  CreateMessageRequestSchema,
  ElicitRequestSchema,
  ListRootsRequestSchema,
} from "@modelcontextprotocol/sdk/types.js";
import { answers, capabilities, readArguments, tour } from "./tour.mjs";

const { server } = readArguments("node client.mjs <command> [arguments…]");
const client = new Client({ name: "interop-typescript-1", version: "1.0.0" }, { capabilities });
client.setRequestHandler(ElicitRequestSchema, () => answers.elicitation);
client.setRequestHandler(CreateMessageRequestSchema, () => answers.sampling);
client.setRequestHandler(ListRootsRequestSchema, () => answers.roots);

const transport = new StdioClientTransport(server);
let revision;
// The client keeps the revision to itself, but tells a transport that wants to know.
transport.setProtocolVersion = (version) => (revision = version);
await client.connect(transport, { timeout: 10_000 });
const call = (name, input, options) =>
  client.callTool({ name, arguments: input }, CallToolResultSchema, options);
await tour({ client, call, revision });
await client.close();

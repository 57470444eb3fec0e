// A server on stdio built with the TypeScript SDK 1.x, so one that knows the initialize handshake only.
// Linchpin's clients and the clients of this folder call everything it has and compare what comes back;
// server-modern.mjs and server.py offer the same things under the same names, with the same answers.

import { setTimeout as pause } from "node:timers/promises";
import { McpServer, ResourceTemplate } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { z } from "zod";

const server = new McpServer({ name: "interop-typescript-1", version: "1.0.0" });
const text = (value) => ({ content: [{ type: "text", text: value }] });

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

server.registerTool("slow", { description: "Reports progress three times" }, async (extra) => {
  const progressToken = extra._meta?.progressToken;
  for (const step of [1, 2, 3]) {
    if (progressToken !== undefined) {
      const params = { progressToken, progress: step, total: 3, message: `step ${step}` };
      await extra.sendNotification({ method: "notifications/progress", params });
    }
    // Both TypeScript clients lose progress that they read in one go with the response.
    await pause(20);
  }
  return text("done");
});

server.registerTool("ask", { description: "Asks the person for a name and greets" }, async () => {
  const answer = await server.server.elicitInput({
    message: "What is your name?",
    requestedSchema: { type: "object", properties: { name: { type: "string" } }, required: ["name"] },
  });
  return text(answer.action === "accept" ? `hello ${answer.content.name}` : `the user said ${answer.action}`);
});

server.registerTool("sample", { description: "Lets the client's model speak" }, async () => {
  const message = await server.server.createMessage({
    messages: [{ role: "user", content: { type: "text", text: "Say something" } }],
    maxTokens: 50,
  });
  return text(message.content.type === "text" ? message.content.text : `not text: ${message.content.type}`);
});

server.registerTool("folders", { description: "Lists the client's roots, one per line" }, async () => {
  const { roots } = await server.server.listRoots();
  return text(roots.map((root) => root.uri).join("\n"));
});

server.registerTool("fail", { description: "Always fails" }, () => {
  throw new Error("this tool always fails");
});

server.registerResource("status", "memo://status", { mimeType: "text/plain" }, (uri) => ({
  contents: [{ uri: uri.href, mimeType: "text/plain", text: "ok" }],
}));

server.registerResource(
  "memo",
  new ResourceTemplate("memo://{id}", { list: undefined }),
  { mimeType: "text/plain" },
  (uri, { id }) => ({ contents: [{ uri: uri.href, mimeType: "text/plain", text: `memo ${id}` }] }),
);

server.registerPrompt(
  "review",
  { description: "Asks for a code review", argsSchema: { language: z.string() } },
  ({ language }) => ({
    messages: [{ role: "user", content: { type: "text", text: `Review this ${language} code.` } }],
  }),
);

await server.connect(new StdioServerTransport());

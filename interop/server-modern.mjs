// A server on stdio built with the TypeScript SDK 2.x, which speaks the stateless revision and, to clients
// that open with initialize, the older ones. It offers what server.mjs offers, with the same names and
// answers. What it needs from the client it asks for by returning inputRequired(…). The SDK sends that as an
// input_required result or, after a handshake, as requests of its own; either way it runs the tool again.

import { setTimeout as pause } from "node:timers/promises";
import { McpServer, ResourceTemplate, inputRequired, inputResponse } from "@modelcontextprotocol/server";
import { serveStdio } from "@modelcontextprotocol/server/stdio";
import { z } from "zod";

const text = (value) => ({ content: [{ type: "text", text: value }] });

/** A tool that asks the client for one thing and makes text of the answer. */
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
    // Both TypeScript clients lose progress that they read in one go with the response.
    await pause(20);
  }
  return text("done");
}

function createServer() {
  const server = new McpServer({ name: "interop-typescript-2", version: "1.0.0" });
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
  const plain = { mimeType: "text/plain" };
  const contents = (uri, text) => ({ contents: [{ uri: uri.href, ...plain, text }] });
  const memos = new ResourceTemplate("memo://{id}", { list: undefined });
  server.registerResource("status", "memo://status", plain, (uri) => contents(uri, "ok"));
  server.registerResource("memo", memos, plain, (uri, { id }) => contents(uri, `memo ${id}`));
  server.registerPrompt(
    "review",
    { description: "Asks for a code review", argsSchema: z.object({ language: z.string() }) },
    ({ language }) => ({
      messages: [{ role: "user", content: { type: "text", text: `Review this ${language} code.` } }],
    }),
  );
  return server;
}

serveStdio(createServer);

// What both TypeScript clients of this folder do with a server, and the report they print: one JSON object.
// A step that fails is reported as {"error": …} in its place, so that the other steps are still seen.

/** What the clients answer when a server asks them for something. */
export const answers = {
  elicitation: { action: "accept", content: { name: "Ada" } },
  sampling: { role: "assistant", model: "interop", content: { type: "text", text: "sampled" } },
  roots: { roots: [{ uri: "file:///tmp/a", name: "a" }] },
};

export const capabilities = { elicitation: { form: {} }, sampling: {}, roots: {} };

/** Splits the command line into --mode's value and the server's command. */
export function readArguments(usage) {
  const words = process.argv.slice(2);
  const mode = words[0] === "--mode" ? words.splice(0, 2)[1] : undefined;
  const [command, ...args] = words;
  if (command === undefined || command.startsWith("--")) {
    console.error(`usage: ${usage}`);
    process.exit(2);
  }
  return { mode, server: { command, args, env: process.env } };
}

/** Runs every step. `call` is the client's way to call a tool: name, arguments, request options. */
export async function tour({ client, call, revision }) {
  const options = { timeout: 10_000 };
  const text = (result) => result.content.map((block) => block.text).join("");
  const say = async (name, input = {}) => text(await call(name, input, options));
  const read = async (uri) => (await client.readResource({ uri }, options)).contents[0].text;
  const progress = [];
  const steps = {
    tools: async () => (await client.listTools(undefined, options)).tools.map((tool) => tool.name).sort(),
    add: async () => {
      const result = await call("add", { a: 2, b: 0.5 }, options);
      return result.structuredContent ?? text(result);
    },
    echo: () => say("echo", { text: "grüße" }),
    slow: async () => text(await call("slow", {}, { ...options, onprogress: (step) => progress.push(step) })),
    progress: () => progress,
    ask: () => say("ask"),
    sample: () => say("sample"),
    folders: () => say("folders"),
    fail: async () => {
      const result = await call("fail", {}, options);
      return { isError: result.isError ?? false, text: text(result) };
    },
    status: () => read("memo://status"),
    memo: () => read("memo://7"),
    prompt: async () => {
      const prompt = { name: "review", arguments: { language: "rust" } };
      return (await client.getPrompt(prompt, options)).messages[0].content.text;
    },
  };
  const report = { revision };
  for (const [name, step] of Object.entries(steps)) {
    try {
      report[name] = await step();
    } catch (error) {
      report[name] = { error: String(error.message ?? error) };
    }
  }
  console.log(JSON.stringify(report));
}

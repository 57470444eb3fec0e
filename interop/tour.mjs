// Feature tour of both TypeScript clients, and their report: one JSON object. A failed step is reported as
// {"error": …}, and the other steps still run.

/** Responses of the clients to server requests. */
export const answers = {
  /** A form that asks for a decision is that of an approval of the gateway. */
  elicitation: ({ requestedSchema }) => {
    const content = requestedSchema?.properties?.decision ? { decision: "approve" } : { name: "Ada" };
    return { action: "accept", content };
  },
  sampling: { role: "assistant", model: "interop", content: { type: "text", text: "sampled" } },
  roots: { roots: [{ uri: "file:///tmp/a", name: "a" }] },
};

/** HTTP options with the bearer token of the environment, if it has one. */
const token = process.env.TOUR_TOKEN;
export const httpOptions = token && { requestInit: { headers: { Authorization: `Bearer ${token}` } } };

export const capabilities = { elicitation: { form: {} }, sampling: {}, roots: {} };

/** Splits the command line into the mode and the server: a command, or a URL after --url or --sse. */
export function readArguments(usage) {
  const words = process.argv.slice(2);
  const mode = words[0] === "--mode" ? words.splice(0, 2)[1] : undefined;
  const [command, ...args] = words;
  if (args.length === 1 && (command === "--url" || command === "--sse")) {
    return { mode, url: new URL(args[0]), sse: command === "--sse" };
  }
  if (command === undefined || command.startsWith("--")) {
    console.error(`usage: ${usage}`);
    process.exit(2);
  }
  return { mode, server: { command, args, env: process.env } };
}

/** Creates a promise of the first notification, with a timeout. */
function first() {
  let tell;
  const promise = new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error("no notification in time")), 10_000);
    tell = (what) => {
      clearTimeout(timer);
      resolve(what);
    };
  });
  promise.catch(() => undefined); // the awaiting step reports the error
  return { promise, tell };
}

/**
 * Steps for notifications. `on` registers a notification handler, `watch` subscribes to changes, `logged` is the
 * metadata of a call that requests log messages, and `steps` are those of the client.
 */
function more({ client, call, options, text, on, watch, logged, steps }) {
  const codeOf = async (request) => {
    try {
      return await request;
    } catch (error) {
      return error.code;
    }
  };
  const told = async (method, tool, meta) => {
    const heard = first();
    on(method, (notification) => heard.tell(notification.params));
    await call(tool, {}, options, meta);
    return heard.promise;
  };
  return {
    log: async () => {
      await watch();
      const { level, data } = await told("notifications/message", "log", logged);
      return { level, data };
    },
    updated: async () => (await told("notifications/resources/updated", "touch")).uri,
    changed: async () => {
      await told("notifications/tools/list_changed", "announce");
      return "tools";
    },
    complete: async () => {
      const argument = { name: "language", value: "ru" };
      const ref = { type: "ref/prompt", name: "review" };
      return (await client.complete({ ref, argument }, options)).completion.values;
    },
    cancel: async () => {
      const abort = new AbortController();
      const onprogress = () => abort.abort("no longer wanted");
      const outcome = call("wait", {}, { ...options, signal: abort.signal, onprogress });
      if ((await outcome.then(text, () => undefined)) !== undefined) {
        throw new Error("a cancelled call was answered");
      }
      return text(await call("cancelled", {}, options));
    },
    unknownTool: () => codeOf(call("nonsense", {}, options)),
    unknownResource: () => codeOf(client.readResource({ uri: "memo://no/such" }, options)),
    ...steps,
  };
}

/**
 * Runs every step. `call` calls a tool: name, arguments, request options, metadata. With `listening`, the steps for
 * notifications are run too.
 */
export async function tour({ client, call, revision, listening }) {
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
  if (listening !== undefined) {
    Object.assign(steps, more({ client, call, options, text, ...listening }));
  }
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

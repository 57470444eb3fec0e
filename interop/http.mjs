// Shared code of the TypeScript servers for HTTP: a listener on a free port, and an event store for resumption.

import { createServer } from "node:http";

/** Serves on a free port and prints the URL of the endpoint when it is ready. */
export function listen(handle) {
  const server = createServer((request, response) => {
    handle(request, response).catch((error) => {
      console.error(error);
      response.headersSent ? response.destroy() : response.writeHead(500).end();
    });
  });
  server.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}/mcp`));
}

/** Stores all events of one session, in order. */
export class Events {
  #events = [];

  async storeEvent(stream, message) {
    return String(this.#events.push({ stream, message }));
  }

  async getStreamIdForEventId(id) {
    return this.#events[Number(id) - 1]?.stream;
  }

  async replayEventsAfter(id, { send }) {
    const { stream } = this.#events[Number(id) - 1];
    for (let next = Number(id); next < this.#events.length; next += 1) {
      const event = this.#events[next];
      // An event without a message only marks the start of the stream.
      if (event.stream === stream && event.message.jsonrpc !== undefined) {
        await send(String(next + 1), event.message);
      }
    }
    return stream;
  }
}

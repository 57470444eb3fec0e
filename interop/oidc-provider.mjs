// Authorization server: `oidc-provider` with its built-in development pages.
//
//   node oidc-provider.mjs [seconds]  lifetime of an access token. Default: 300
//
// Prints its issuer when it is ready, and then a line for each event: `registered`, `shown login`, `shown consent`,
// `granted <kind> <token type> <scopes>`, `refused <kind> <code>`, `revoked`. Commands on standard input:
// `later <seconds>` advances its clock, `revoke` revokes all grants, and `revoke <account>` those of an account; it
// replies `done`.

import { generateKeyPairSync, randomBytes } from "node:crypto";
import { createServer } from "node:http";
import { createInterface } from "node:readline";
import Provider, { errors } from "oidc-provider";

// Keep its warnings about production use out of standard output.
console.info = console.error;

const seconds = Number(process.argv[2] ?? 300);
const day = 24 * 60 * 60;

const server = createServer();
await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
const issuer = `http://127.0.0.1:${server.address().port}`;

const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
const provider = new Provider(issuer, {
  cookies: { keys: ["only for tests"] },
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
  jwks: { keys: [{ ...privateKey.export({ format: "jwk" }), use: "sig", alg: "RS256", kid: "1" }] },
  pkce: { required: () => true },
  rotateRefreshToken: true,
  scopes: ["openid", "offline_access"],
  ttl: { AccessToken: seconds, Grant: day, IdToken: 60, Interaction: 600, RefreshToken: day, Session: day },
  features: {
    dPoP: { enabled: true, nonceSecret: randomBytes(32), requireNonce: () => true },
    registration: { enabled: true },
    revocation: { enabled: true, allowedPolicy: (_, client, token) => client.clientId === token.clientId },
    resourceIndicators: {
      enabled: true,
      // Accept the servers of this machine as resources; a token is for one of them only.
      getResourceServerInfo(_, resource) {
        if (!resource.startsWith("http://127.0.0.1:")) {
          throw new errors.InvalidTarget();
        }
        return {
          scope: "mcp:basic mcp:write",
          audience: resource,
          accessTokenFormat: "jwt",
          jwt: { sign: { alg: "RS256" } },
        };
      },
    },
  },
});

const say = (...words) => console.log(words.join(" "));
const grants = new Map();
provider.on("registration_create.success", () => say("registered"));
provider.on("registration_create.error", (_, { error }) => say("refused registration", error));
provider.on("interaction.started", (_, prompt) => say("shown", prompt.name));
provider.on("grant.success", ({ oidc, body }) => {
  grants.set(oidc.entities.Grant.jti, oidc.entities.Grant.accountId);
  say("granted", oidc.params.grant_type, body.token_type, body.scope);
});
provider.on("grant.error", ({ oidc }, { error }) => say("refused", oidc.params?.grant_type, error));
provider.on("grant.revoked", () => say("revoked"));
provider.on("server_error", (_, error) => console.error(error));

const commands = {
  later(seconds) {
    const now = Date.now;
    Date.now = () => now() + Number(seconds) * 1000;
  },
  async revoke(account) {
    for (const [grant] of [...grants].filter(([, whose]) => !account || whose === account)) {
      await provider.RefreshToken.revokeByGrantId(grant);
      await provider.Grant.adapter.destroy(grant);
    }
  },
};
createInterface({ input: process.stdin }).on("line", async (line) => {
  const [command, argument] = line.split(" ");
  await commands[command](argument);
  say("done");
});

server.on("request", provider.callback());
say(issuer);

// A session with an ACP agent, driven by the official SDK: `node acp_client.mjs CWD COMMAND…`. It initializes,
// starts a session, prompts, applies the diff that the agent offers, and loads the session once more.
import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";
import * as acp from "@agentclientprotocol/sdk";

const [cwd, program, ...args] = process.argv.slice(2);
const seen = { updates: new Set(), permissions: 0, diffs: 0 };

async function talk(work) {
  const agent = spawn(program, args, { cwd, stdio: ["pipe", "pipe", "inherit"] });
  const stream = acp.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout));
  const client = acp
    .client({ name: "conformance" })
    .onNotification(acp.methods.client.session.update, ({ params }) => {
      seen.updates.add(params.update.sessionUpdate);
    })
    .onRequest(acp.methods.client.session.requestPermission, ({ params }) => {
      seen.permissions += 1;
      seen.diffs += (params.toolCall.content ?? []).filter((one) => one.type === "diff").length;
      const option = params.options.find((one) => one.kind === "allow_once");
      return { outcome: { outcome: "selected", optionId: option.optionId } };
    });
  try {
    return await client.connectWith(stream, async (ctx) => {
      const initialized = await ctx.request(acp.methods.agent.initialize, {
        protocolVersion: acp.PROTOCOL_VERSION,
        clientCapabilities: {},
      });
      return await work(ctx, initialized);
    });
  } finally {
    agent.stdin.end();
    agent.kill();
  }
}

const sessionId = await talk(async (ctx, initialized) => {
  const { sessionId } = await ctx.request(acp.methods.agent.session.new, { cwd, mcpServers: [] });
  const prompt = [{ type: "text", text: "Write the colour of the day" }];
  const { stopReason } = await ctx.request(acp.methods.agent.session.prompt, { sessionId, prompt });
  console.log(JSON.stringify({ version: initialized.protocolVersion, stopReason }));
  return sessionId;
});
const before = seen.permissions;
seen.updates.delete("user_message_chunk");
await talk((ctx) => ctx.request(acp.methods.agent.session.load, { sessionId, cwd, mcpServers: [] }));
console.log(JSON.stringify({ updates: [...seen.updates].sort(), permissions: before, diffs: seen.diffs }));
process.exit(seen.diffs === 1 && seen.updates.has("user_message_chunk") ? 0 : 1);

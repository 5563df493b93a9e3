// The SDK for JavaScript as a client, over all that the card names; prints what it was told as JSON.
// Usage: node client_of_js.mjs URL FOLDER_OF_PACKAGES, with A2A_TOKEN set.

import { createRequire } from 'node:module';
import { randomUUID } from 'node:crypto';

const [url, packages] = process.argv.slice(2);
const sdk = createRequire(`${packages}/`)('@a2a-js/sdk/client');
const { TaskState } = createRequire(`${packages}/`)('@a2a-js/sdk');

const authorization = `Bearer ${process.env.A2A_TOKEN}`;
const fetchImpl = (address, init = {}) => {
  const headers = new Headers(init.headers);
  headers.set('authorization', authorization);
  return fetch(address, { ...init, headers });
};
const options = { fetchImpl, legacyCompat: { enabled: true } };

const request = (text, more = {}) => ({
  message: { messageId: randomUUID(), role: 1, parts: [{ content: { $case: 'text', value: text } }], ...more },
  metadata: more.taskId ? undefined : { skill: 'support-agent' },
});
const textOf = (parts) => parts.map((part) => part.content.value).join('');
const stateOf = (status) => TaskState[status.state];

async function ask(client) {
  const found = await client.sendMessage(request('Where is order A-1001?'));
  const waiting = await client.sendMessage(request('Cancel order A-1002'));
  const declined = await client.sendMessage(request('no', { taskId: waiting.id }));
  return {
    found: [stateOf(found.status), textOf(found.artifacts[0].parts)],
    waiting: stateOf(waiting.status),
    declined: [stateOf(declined.status), textOf(declined.artifacts[0].parts), declined.id === waiting.id],
  };
}

async function follow(client) {
  const kinds = [];
  const states = [];
  let text = '';
  for await (const { payload } of client.sendMessageStream(request('Where is order A-1001?'))) {
    kinds.push(payload.$case);
    if (payload.$case === 'task' || payload.$case === 'statusUpdate') states.push(stateOf(payload.value.status));
    if (payload.$case === 'artifactUpdate') {
      const piece = textOf(payload.value.artifact.parts);
      text = payload.value.append ? text + piece : piece;
    }
  }
  return { first: kinds[0], last: states.at(-1), text };
}

async function stop(client) {
  const stream = client.sendMessageStream(request('Refund order A-1001'));
  const { value: first } = await stream.next();
  const cancelled = await client.cancelTask({ id: first.payload.value.id });
  let last;
  for await (const { payload } of stream) if (payload.value.status) last = stateOf(payload.value.status);
  return [stateOf(cancelled.status), last];
}

const card = await new sdk.DefaultAgentCardResolver(options).resolve(url);
const report = {};
const bindings = { JSONRPC: sdk.JsonRpcTransportFactory, 'HTTP+JSON': sdk.RestTransportFactory };
for (const { protocolVersion: version, protocolBinding: binding, ...place } of card.supportedInterfaces) {
  const one = { ...card, supportedInterfaces: [{ ...place, protocolVersion: version, protocolBinding: binding }] };
  const client = await new sdk.ClientFactory({ transports: [new bindings[binding](options)] }).createFromAgentCard(one);
  report[`${binding} ${client.protocolVersion}`] = { ...(await ask(client)), stream: await follow(client), stopped: await stop(client) };
}
console.log(JSON.stringify(report));

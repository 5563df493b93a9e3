// A loopback proxy that gives each request a token, for kits that cannot send one; all else passes as it is.
// Usage: node authorizing_proxy.mjs URL, with MCP_TOKEN set. It prints its port, and ends when its input does.

import { createServer, request } from 'node:http';

const target = new URL(process.argv[2]);
const authorization = `Bearer ${process.env.MCP_TOKEN}`;

const proxy = createServer((asked, answer) => {
  const passed = request(
    new URL(asked.url, target),
    { method: asked.method, headers: { authorization, ...asked.headers }, setHost: false },
    (answered) => {
      answer.writeHead(answered.statusCode, answered.headers);
      answered.pipe(answer);
    },
  );
  passed.on('error', () => answer.destroy());
  answer.on('close', () => passed.destroy()); // a client that leaves has left the server too
  asked.pipe(passed);
});

proxy.listen(0, '127.0.0.1', () => console.log(proxy.address().port));
process.stdin.resume().on('end', () => process.exit(0));

/**
 * A client of one agent for browsers, without dependencies: it sends, reads and follows, and keeps nothing.
 *
 *   const client = new AmoxiClient({ agent: "support-agent" });
 *   const run = await client.send("Where is order A-1001?");
 *   let { state } = await client.open(run.conversation_id);
 *   const stream = client.follow(run.conversation_id, (event) => { state = reduce(state, event); draw(state); },
 *                                { after: state.lastEventId });
 *   stream.close();
 *
 * Every method rejects with an `AmoxiError` when the server refuses, and with `Unreachable` when no server answers.
 */

import { parseJson } from "./numbers.js";
import { hasEnded, stateOf } from "./state.js";

export { activeRuns, emptyState, hasEnded, reduce, runTouched, stateOf, waitingCalls, withOlder } from "./state.js";

const FIRST_PAUSE_MS = 300;
const LONGEST_PAUSE_MS = 8000;
const SILENCE_MS = 40000; // the server breaks silence every 15 s; more is a dead line
const HIDDEN_MS = 30000; // a browser has few lines to one server, and a page that nobody sees needs none
const MOST_RUNS = 20;

/** The server's answer to a request that it refuses; `code` is stable, `errors` names the fields at fault. */
export class AmoxiError extends Error {
  constructor(status, told) {
    super(told.detail || `the server answered ${status}`);
    this.name = "AmoxiError";
    this.status = status;
    this.code = told.code ?? null; // null: this was no answer of ours, but of something before the server
    this.errors = told.errors ?? [];
  }
}

/** No server answered; try again. */
export class Unreachable extends Error {
  constructor() {
    super("the server cannot be reached");
    this.name = "Unreachable";
  }
}

export class AmoxiClient {
  /**
   * @param {object} options
   * @param {string} options.agent the agent's name, such as `support-agent`
   * @param {string|URL} [options.base] where the server's routes begin; the default is where this file came from
   * @param {Record<string, string>} [options.headers] sent with every request, such as `Authorization`
   */
  constructor({ agent, base = new URL("..", import.meta.url), headers = {} }) {
    this.agent = agent;
    this.base = new URL(`${base}`.endsWith("/") ? base : `${base}/`, import.meta.url);
    this.headers = headers;
    this.here = `agents/${encodeURIComponent(agent)}`;
  }

  /** The agent's name, description and tools, or null when the caller may not use it. */
  async describe() {
    const { items } = await this.#ask("GET", "agents");
    return items.find((each) => each.name === this.agent) ?? null;
  }

  /**
   * Say something. The same `key` is taken once, however often it is sent.
   *
   * @param {string} text
   * @param {{conversation?: ?string, files?: string[], key?: string}} [options]
   * @returns {Promise<object>} the run; its `conversation_id` is the new or the given one
   */
  send(text, { conversation = null, files = [], key } = {}) {
    const body = { message: text };
    if (conversation) body.conversation_id = conversation;
    if (files.length) body.files = files;
    return this.#ask("POST", `${this.here}/runs`, { body, headers: key ? { "idempotency-key": key } : {} });
  }

  /** A run as it is now. */
  run(id) {
    return this.#ask("GET", `${this.here}/runs/${id}`);
  }

  /** End a run now. */
  cancel(run) {
    return this.#ask("POST", `${this.here}/runs/${run}/cancel`);
  }

  /**
   * Decide about a call that waits for it; the first decision counts.
   *
   * @param {string} run
   * @param {string} call
   * @param {{decision: "approve"|"decline", reason?: string, arguments?: object}} decision
   */
  decide(run, call, { decision, reason, arguments: edited }) {
    const body = { decision };
    if (reason) body.reason = reason;
    if (edited) body.arguments = edited;
    return this.#ask("POST", `${this.here}/runs/${run}/approvals/${call}`, { body });
  }

  /**
   * Answer a question of a call; the first answer counts.
   *
   * @param {string} run
   * @param {string} call
   * @param {any} answer a JSON value that fits the question's schema, or a text when it has none
   * @param {{k?: number, question?: string}} [options] the number of the question in its call, or its text, so that an
   *   answer that is sent twice is not taken for one to the next question of the same call
   */
  answer(run, call, answer, { k, question } = {}) {
    const body = { answer, k, question }; // JSON leaves out what is undefined
    return this.#ask("POST", `${this.here}/runs/${run}/answers/${call}`, { body });
  }

  /** Send a signal to a run, which keeps it until one of its tools waits for this name. */
  signal(run, name, payload = null) {
    return this.#ask("POST", `${this.here}/runs/${run}/signals/${encodeURIComponent(name)}`, { body: { payload } });
  }

  /** Open approvals that the caller may decide, over all agents: `{items, next_cursor}`. */
  approvals({ limit = 200, cursor } = {}) {
    return this.#ask("GET", "approvals", { query: { limit, cursor } });
  }

  /** A page of the caller's conversations, newest first: `{items, next_cursor}`. */
  conversations({ limit = 30, cursor } = {}) {
    return this.#ask("GET", `${this.here}/conversations`, { query: { limit, cursor } });
  }

  /** A page of messages, the newest without a cursor: `{items, next_cursor, last_event_id, ...}`. */
  messages(conversation, { limit = 50, cursor } = {}) {
    return this.#ask("GET", `${this.here}/conversations/${conversation}`, { query: { limit, cursor } });
  }

  /** Cancel what runs in a conversation and delete it. */
  erase(conversation) {
    return this.#ask("DELETE", `${this.here}/conversations/${conversation}`);
  }

  /**
   * A page of what is remembered of the caller, over all agents, the newest first: `{items, next_cursor}`; with `q` what
   * fits it best.
   */
  memories({ q, limit = 30, cursor } = {}) {
    return this.#ask("GET", "memories", { query: { q, limit, cursor } });
  }

  /** Forget one memory of the caller. */
  forget(id) {
    return this.#ask("DELETE", `memories/${encodeURIComponent(id)}`);
  }

  /** Forget all that is remembered of the caller. */
  forgetAll() {
    return this.#ask("DELETE", "memories");
  }

  /** The address of a message's file. */
  fileUrl(id) {
    return new URL(`files/${encodeURIComponent(id)}`, this.base).href;
  }

  /**
   * Store a file for a message.
   *
   * @param {File} file
   * @param {{onProgress?: (part: number) => void, signal?: AbortSignal}} [options] `part` is from 0 to 1
   * @returns {Promise<{id: string, name: string, media_type: string, size: number}>}
   */
  upload(file, { onProgress = () => {}, signal } = {}) {
    const form = new FormData();
    form.append("file", file, file.name);
    return new Promise((resolve, reject) => {
      const request = new XMLHttpRequest(); // `fetch` tells nothing of how far it is
      const stop = () => request.abort();
      const end = () => signal?.removeEventListener("abort", stop);
      request.upload.onprogress = ({ loaded, total }) => onProgress(total ? loaded / total : 0);
      request.onerror = () => { end(); reject(new Unreachable()); };
      request.onabort = () => { end(); reject(new DOMException("the upload was stopped", "AbortError")); };
      request.onload = () => {
        end();
        const ours = /json/.test(request.getResponseHeader("content-type") ?? "");
        const told = ours ? parsed(request.responseText) : {};
        if (request.status === 201 && told.id) resolve(told);
        else reject(new AmoxiError(request.status, told));
      };
      request.open("POST", new URL("files", this.base));
      for (const [name, value] of Object.entries(this.headers)) request.setRequestHeader(name, value);
      signal?.addEventListener("abort", stop);
      request.send(form);
    });
  }

  /** What a file is: `{name, media_type, size}`; nothing of it is loaded. */
  async fileInfo(id) {
    const answer = await this.fetch(`files/${encodeURIComponent(id)}`, { headers: { range: "bytes=0-0" } }).catch((error) => {
      if (error.status === 416) return null; // it is there, and empty
      throw error;
    });
    if (answer === null) return { name: "Empty file", media_type: "", size: 0 };
    await answer.body?.cancel();
    const [, name = ""] = /filename\*=UTF-8''([^;]*)/.exec(answer.headers.get("content-disposition") ?? "") ?? [];
    const [, size = "0"] = /\/(\d+)$/.exec(answer.headers.get("content-range") ?? "") ?? [];
    const [type] = (answer.headers.get("content-type") ?? "").split(";");
    return { name: decodeURIComponent(name) || id, media_type: type, size: Number(size) };
  }

  /** Delete a file of the caller. */
  deleteFile(id) {
    return this.#ask("DELETE", `files/${encodeURIComponent(id)}`);
  }

  /**
   * Read the newest page of a conversation as a state that `follow(..., {after: state.lastEventId})` continues.
   *
   * Of runs that go on, everything comes by the stream, from their start: also the progress of their tools, which is
   * in no message. What has ended is in the page alone, and none of its pieces are sent again.
   */
  async open(conversation, { limit = 50 } = {}) {
    const page = await this.messages(conversation, { limit });
    const runs = await this.#unfinished(page.items);
    const first = page.items.find(({ run_id }) => runs.has(run_id) && !hasEnded(runs.get(run_id)));
    if (!first) return { page, state: stateOf(page, runs) };
    const after = await this.#startOf(first.run_id);
    if (after === null) return this.open(conversation, { limit }); // it has ended meanwhile
    const at = page.items.findIndex(({ run_id }) => run_id === first.run_id);
    return { page, state: stateOf({ ...page, items: page.items.slice(0, at) }, runs, Math.min(after, page.last_event_id)) };
  }

  /**
   * Follow a conversation until `close()`: every event after `after` once and in order, through any break.
   *
   * @param {string} conversation
   * @param {(event: {id: number, type: string, data: object}) => void} onEvent
   * @param {object} [options]
   * @param {number} [options.after] the last event that is known
   * @param {(status: "open"|"lost") => void} [options.onStatus] how the line is; "lost" means that it tries again
   * @param {(error: AmoxiError) => void} [options.onGone] the conversation is not there any more; nothing is tried
   * @param {(error: AmoxiError) => void} [options.onSignedOut] the server does not know the caller any more; nothing is
   *   tried until it is followed again, and the conversation may still be there
   * @param {() => void} [options.onReset] the server's log is another one than before: open the conversation again
   * @returns {{close: () => void}}
   */
  follow(conversation, onEvent, options = {}) {
    const stream = new Following(this, `${this.here}/conversations/${conversation}/events`, onEvent, options);
    stream.start();
    return { close: () => stream.close() };
  }

  /** Ask the server; a low door for routes that have no method here. */
  async fetch(path, { query = {}, ...init } = {}) {
    const url = new URL(path, this.base);
    for (const [name, value] of Object.entries(query)) if (value != null) url.searchParams.set(name, value);
    let answer;
    try {
      answer = await fetch(url, { ...init, headers: { ...this.headers, ...init.headers }, credentials: "same-origin" });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Unreachable();
    }
    if (answer.ok) return answer;
    const ours = (answer.headers.get("content-type") ?? "").startsWith("application/problem+json");
    throw new AmoxiError(answer.status, ours ? await answer.json().catch(() => ({})) : {});
  }

  async #ask(method, path, { body, headers = {}, query } = {}) {
    const type = body === undefined ? {} : { "content-type": "application/json" };
    const text = body === undefined ? undefined : JSON.stringify(body);
    const answer = await this.fetch(path, { method, query, headers: { ...type, ...headers }, body: text });
    if (answer.status === 204) return null;
    try {
      return parseJson(await answer.text());
    } catch {
      throw new Unreachable(); // the line broke in the middle of the answer
    }
  }

  async #unfinished(messages) {
    const last = new Map(messages.map((message) => [message.run_id, message]));
    const open = [...last.values()].filter((message) => message.role === "user" || message.calls.length > 0
      || message.status !== "complete");
    const runs = await Promise.all(open.slice(-MOST_RUNS).map((message) => this.run(message.run_id)));
    return new Map(runs.map((run) => [run.id, run]));
  }

  /** The number before a run's first event, or null when its stream has nothing to say. */
  async #startOf(run) {
    const abort = new AbortController();
    try {
      const answer = await this.fetch(`${this.here}/runs/${run}/events`, { signal: abort.signal });
      if (answer.status === 204) return null;
      for await (const event of events(answer.body)) if (event) return event.id - 1;
      return null;
    } finally {
      abort.abort();
    }
  }
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return {};
  }
}

/** One reader of one log that comes back after every break, with its last number. */
class Following {
  constructor(client, path, onEvent, { after = 0, onStatus = () => {}, onGone = () => {}, onSignedOut = () => {}, onReset = () => {} }) {
    Object.assign(this, { client, path, onEvent, after, onStatus, onGone, onSignedOut, onReset });
    this.closed = false;
    this.asleep = false;
    this.pause = FIRST_PAUSE_MS;
    this.wake = () => {};
    this.hurry = () => this.wake(); // the network is back: do not wait any longer
    this.look = () => this.#seen();
  }

  async start() {
    addEventListener("online", this.hurry);
    document.addEventListener("visibilitychange", this.look);
    this.#seen();
    while (!this.closed) {
      if (this.asleep) {
        await new Promise((resolve) => (this.wake = resolve));
        continue;
      }
      try {
        await this.#read();
      } catch (error) {
        if (this.closed) break;
        if (error.code === "not_found" || error.code === "forbidden" || error.code === "not_authenticated") {
          this.close();
          if (error.code === "not_authenticated") this.onSignedOut(error);
          else this.onGone(error);
          break;
        }
      }
      if (this.closed) break;
      if (this.asleep) continue;
      this.onStatus("lost");
      await this.#rest();
    }
  }

  close() {
    this.closed = true;
    this.abort?.abort();
    this.wake();
    clearTimeout(this.unseen);
    removeEventListener("online", this.hurry);
    document.removeEventListener("visibilitychange", this.look);
  }

  #seen() {
    clearTimeout(this.unseen);
    if (document.hidden) {
      this.unseen = setTimeout(() => {
        this.asleep = true;
        this.abort?.abort();
      }, HIDDEN_MS);
      return;
    }
    this.asleep = false;
    this.wake();
  }

  async #read() {
    this.abort = new AbortController();
    let silence;
    const alive = () => {
      clearTimeout(silence);
      silence = setTimeout(() => this.abort.abort(), SILENCE_MS);
    };
    try {
      alive();
      const query = { after: this.after };
      const answer = await this.client.fetch(this.path, { query, signal: this.abort.signal, headers: { accept: "text/event-stream" } });
      if (this.closed) return;
      this.onStatus("open");
      let first = true;
      for await (const event of events(answer.body, alive)) {
        if (this.closed) return;
        this.pause = FIRST_PAUSE_MS;
        if (first && event.id <= this.after) {
          this.close();
          return this.onReset();
        }
        first = false;
        this.after = event.id;
        this.onEvent(event);
      }
    } finally {
      clearTimeout(silence);
      this.abort.abort();
    }
  }

  #rest() {
    const pause = this.pause * (0.75 + Math.random() / 2);
    this.pause = Math.min(this.pause * 2, LONGEST_PAUSE_MS);
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, pause);
      this.wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}

/** The events of a body; what a break has cut in the middle is none. */
async function* events(body, alive = () => {}) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      alive();
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) {
        const event = eventOf(block);
        if (event) yield event;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function eventOf(block) {
  const fields = {};
  for (const line of block.split("\n")) {
    const colon = line.indexOf(": ");
    if (colon > 0) fields[line.slice(0, colon)] = line.slice(colon + 2);
  }
  return fields.data === undefined ? null : { id: Number(fields.id), type: fields.event, data: parseJson(fields.data) };
}

/** What one mounted page knows and does: its conversation, the line to the server, the list of conversations. */

import { Unreachable, activeRuns, emptyState, reduce, withOlder } from "./client.js";

const GONE = "The conversation is not there any more; this is a new one.";

export class Session {
  /** @param {import("./client.js").AmoxiClient} client @param {() => void} onChange called after every change */
  constructor(client, onChange) {
    this.client = client;
    this.onChange = onChange;
    this.agent = null; // what the server tells of it
    this.state = emptyState();
    this.conversation = null;
    this.list = { items: [], next_cursor: null };
    this.line = "open"; // or "lost"
    this.opening = false;
    this.loadingOlder = false;
    this.sending = false;
    this.problem = ""; // of the last thing that was tried
    this.draft = null; // what is on its way, with the key that keeps it from being taken twice
    this.stream = null;
    this.closed = false;
    this.storageKey = `amoxi:${client.base.pathname}${client.agent}`;
  }

  /** Find out about the agent first: its answer makes a new visitor known. */
  async start() {
    const known = recall(this.storageKey);
    if (known) this.#change({ conversation: known, opening: true });
    await this.#untilReached(async () => {
      this.agent = await this.client.describe();
      if (this.agent === null) this.problem = `There is no agent ${this.client.agent}, or you may not use it.`;
    });
    this.#change({});
    if (this.closed) return;
    if (known && this.conversation === known) await this.open(known);
    await this.refreshList();
  }

  /** Show another conversation. */
  async open(conversation, notice = "") {
    this.#leave();
    this.#change({ conversation, opening: true, problem: notice });
    remember(this.storageKey, conversation);
    try {
      const opened = await this.#untilReached(() => this.client.open(conversation), () => this.conversation === conversation);
      if (this.conversation !== conversation || !opened) return;
      this.#change({ state: opened.state, opening: false });
      this.#follow();
    } catch (error) {
      if (this.conversation === conversation) this.startAnew(error.code === "not_found" ? GONE : error.message);
    }
  }

  startAnew(notice = "") {
    this.#leave();
    remember(this.storageKey, null);
    this.#change({ conversation: null, opening: false, line: "open", problem: notice });
  }

  /** Send a message; true when the server has it. What could not be sent may be sent again, and is taken once. */
  async say(text) {
    if (this.sending) return false;
    if (this.draft?.text !== text || this.draft.conversation !== this.conversation) {
      this.draft = { text, conversation: this.conversation, key: newKey() };
    }
    const draft = this.draft;
    this.#change({ sending: true });
    const run = await this.#try("The message was not sent", () => this.client.send(text, draft));
    this.#change({ sending: false });
    if (!run) return false;
    if (this.draft === draft) this.draft = null;
    if (this.conversation !== draft.conversation) return true; // another one was chosen meanwhile
    if (run.conversation_id !== this.conversation) {
      remember(this.storageKey, run.conversation_id);
      this.#change({ conversation: run.conversation_id, state: emptyState() });
      this.#follow();
      this.refreshList();
    }
    return true;
  }

  async cancel() {
    const [run] = activeRuns(this.state);
    if (run) await this.#try("That was not stopped", () => this.client.cancel(run.id));
  }

  /** Decide about a call; returns the error of a refusal that names fields, for the form to show. */
  async decide(run, call, decision) {
    this.#change({ problem: "" });
    try {
      await this.client.decide(run, call, decision);
      return null;
    } catch (error) {
      if (!error.errors?.length) this.#change({ problem: `That was not decided: ${error.message}` });
      return error;
    }
  }

  async loadOlder() {
    const { conversation, state } = this;
    if (!state.older || this.loadingOlder) return;
    this.#change({ loadingOlder: true });
    const page = await this.#try("The older messages did not come", () =>
      this.client.messages(conversation, { cursor: state.older }));
    const still = page && this.conversation === conversation && this.state.older === state.older;
    this.#change({ loadingOlder: false, ...(still ? { state: withOlder(this.state, page) } : {}) });
  }

  async refreshList() {
    const list = await this.client.conversations().catch(() => null); // the next one comes with the next message
    if (list) this.#change({ list });
  }

  async loadMoreConversations() {
    const { next_cursor: cursor } = this.list;
    const page = await this.#try("The list did not come", () => this.client.conversations({ cursor }));
    if (!page || this.list.next_cursor !== cursor) return;
    this.#change({ list: { items: [...this.list.items, ...page.items], next_cursor: page.next_cursor } });
  }

  async erase(conversation) {
    const done = await this.#try("That was not deleted", async () => {
      await this.client.erase(conversation).catch((error) => {
        if (error.code !== "not_found") throw error;
      });
      return true;
    });
    if (!done) return;
    this.#change({ list: { ...this.list, items: this.list.items.filter(({ id }) => id !== conversation) } });
    if (conversation === this.conversation) this.startAnew();
  }

  close() {
    this.closed = true;
    this.stream?.close();
  }

  #follow() {
    const { conversation } = this;
    this.stream = this.client.follow(conversation, (event) => this.#take(event), {
      after: this.state.lastEventId,
      onStatus: (line) => this.line !== line && this.#change({ line }),
      onGone: (error) => this.startAnew(error.code === "not_found" ? GONE : error.message),
      onReset: () => this.open(conversation),
    });
  }

  #take(event) {
    const state = reduce(this.state, event);
    if (state.gap) return this.open(this.conversation);
    this.#change({ state });
    if (event.type === "run.queued" || event.type === "run.completed") this.refreshList();
  }

  #leave() {
    this.stream?.close();
    this.stream = null;
    this.draft = null;
    this.state = emptyState();
  }

  async #try(what, action) {
    this.#change({ problem: "" });
    try {
      return await action();
    } catch (error) {
      this.#change({ problem: `${what}: ${error.message}` });
      return null;
    }
  }

  /** Do it again while no server answers, or one that is not ours. */
  async #untilReached(action, wanted = () => true) {
    for (let pause = 500; wanted() && !this.closed; pause = Math.min(pause * 2, 8000)) {
      try {
        const result = await action();
        if (this.line === "lost") this.#change({ line: "open" });
        return result;
      } catch (error) {
        const again = error instanceof Unreachable || error.code === null || error.status === 503;
        if (!again) {
          this.#change({ problem: error.message });
          throw error;
        }
        this.#change({ line: "lost" });
        await new Promise((resolve) => setTimeout(resolve, pause));
      }
    }
    return null;
  }

  #change(what) {
    Object.assign(this, what);
    this.onChange();
  }
}

function newKey() {
  return [...crypto.getRandomValues(new Uint32Array(4))].map((part) => part.toString(16)).join("-");
}

function recall(key) {
  try {
    return localStorage.getItem(key);
  } catch {
    return null; // a browser that keeps nothing
  }
}

function remember(key, value) {
  try {
    if (value === null) localStorage.removeItem(key);
    else localStorage.setItem(key, value);
  } catch {
    // a browser that keeps nothing
  }
}

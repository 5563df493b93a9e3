/** What one mounted page knows and does: its conversation, the line to the server, the list of conversations. */

import { Address } from "./address.js";
import { Attachments } from "./attachments.js";
import { Unreachable, activeRuns, emptyState, reduce, runTouched, waitingCalls, withOlder } from "./client.js";

const GONE = "The conversation is not there any more; this is a new one.";

export class Session {
  /**
   * @param {import("./client.js").AmoxiClient} client
   * @param {() => void} onChange called after every change
   * @param {{address?: boolean}} [options] whether the page's address tells the conversation
   */
  constructor(client, onChange, { address = true } = {}) {
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
    this.others = new Set(); // calls about which this person may not decide
    this.attachments = new Attachments(client, onChange, (problem) => this.#change({ problem }));
    this.address = new Address(`amoxi:${client.base.pathname}${client.agent}`, address);
  }

  /** Find out about the agent first: its answer makes a new visitor known. */
  async start() {
    const known = this.address.first();
    if (known) this.#change({ conversation: known, opening: true });
    this.address.watch((conversation) => {
      if (conversation === this.conversation) return;
      if (conversation) this.open(conversation);
      else this.startAnew();
    });
    try {
      await this.#untilReached(async () => {
        this.agent = await this.client.describe();
        if (this.agent === null) this.problem = `There is no agent ${this.client.agent}, or you may not use it.`;
      });
    } catch (error) {
      this.#change({ opening: false });
      throw error;
    }
    this.#change({});
    if (this.closed) return;
    if (known && this.conversation === known) await this.open(known);
    await this.refreshList();
  }

  /** Show another conversation; `step` is for one that the person chose, and Back comes back from it. */
  async open(conversation, { step = false } = {}) {
    this.#leave();
    this.#change({ conversation, opening: true, problem: "" });
    this.address.show(conversation, { step });
    try {
      const opened = await this.#untilReached(() => this.client.open(conversation), () => this.conversation === conversation);
      if (this.conversation !== conversation || !opened) return;
      this.#change({ state: opened.state, opening: false });
      this.#follow();
      this.#whoDecides();
    } catch (error) {
      if (this.conversation !== conversation) return;
      if (error.code === "not_authenticated") this.#change({ opening: false, problem: error.message });
      else this.startAnew({ notice: error.code === "not_found" ? GONE : error.message });
    }
  }

  startAnew({ notice = "", step = false } = {}) {
    this.#leave();
    this.address.show(null, { step });
    this.#change({ conversation: null, opening: false, line: "open", problem: notice });
  }

  /** Whether the agent has the framework's tools for memories; one of the app's own may remember in other ways. */
  get remembers() {
    return this.agent?.tools.some(({ name }) => name === "remember") ?? false;
  }

  /** Send a message; true when the server has it. What could not be sent may be sent again, and is taken once. */
  async say(text) {
    if (this.sending || this.attachments.uploading) return false;
    const files = this.attachments.ids;
    const same = this.draft?.text === text && this.draft.conversation === this.conversation && `${this.draft.files}` === `${files}`;
    if (!same) this.draft = { text, conversation: this.conversation, files, key: newKey() };
    const draft = this.draft;
    this.#change({ sending: true });
    const run = await this.#try("The message was not sent", () => this.client.send(text, draft));
    this.#change({ sending: false });
    if (!run) return false;
    this.attachments.sent(files);
    if (this.draft === draft) this.draft = null;
    if (this.conversation !== draft.conversation) return true; // another one was chosen meanwhile
    if (run.conversation_id !== this.conversation) {
      this.address.show(run.conversation_id);
      this.#change({ conversation: run.conversation_id, state: emptyState() });
      this.#follow();
      this.refreshList();
    } else if (!this.stream && !this.opening) {
      this.open(this.conversation); // the line was given up when nobody was signed in
    }
    return true;
  }

  async cancel() {
    const [run] = activeRuns(this.state);
    if (run) await this.#try("That was not stopped", () => this.client.cancel(run.id));
  }

  /** Decide about a call; returns the error of a refusal that names fields, for the form to show. */
  async decide(run, call, decision) {
    const { conversation } = this;
    this.#change({ problem: "" });
    try {
      await this.client.decide(run, call, decision);
      return null;
    } catch (error) {
      if (error.code === "not_approver") {
        this.#isForOthers(run, call);
      } else if (error.code === "not_found") {
        this.#lookAgain(conversation, `That was not decided: ${error.message}`);
      } else if (!error.errors?.length) {
        this.#change({ problem: `That was not decided: ${error.message}` });
      }
      return error;
    }
  }

  /** Answer the question of a call; returns the error of a refusal that names fields, for the form to show. */
  async answer(run, call, answer) {
    const { conversation } = this;
    this.#change({ problem: "" });
    try {
      await this.client.answer(run, call.call_id, answer, { k: call.k });
      return null;
    } catch (error) {
      const stale = error.code === "not_found" || error.status === 409; // what is shown is not what the server has
      if (stale) this.#lookAgain(conversation, `That was not answered: ${error.message}`);
      else if (!error.errors?.length) this.#change({ problem: `That was not answered: ${error.message}` });
      return error;
    }
  }

  /** Find out which of the calls that wait are for somebody else to decide; what is not known may be tried. */
  async #whoDecides() {
    const waiting = waitingCalls(this.state).filter(({ call }) => !this.others.has(call));
    if (!waiting.length) return;
    const mine = await this.client.approvals().catch(() => null);
    if (!mine || mine.next_cursor) return;
    const known = new Set(mine.items.map((approval) => approval.call_id));
    for (const { run, call } of waiting) if (!known.has(call)) this.#isForOthers(run, call);
  }

  #isForOthers(run, call) {
    this.others.add(call);
    this.#change({ state: runTouched(this.state, run) });
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

  /** The person goes on: what went wrong before is read. */
  goOn() {
    if (this.problem) this.#change({ problem: "" });
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
    this.address.close();
    this.attachments.close();
    this.stream?.close();
  }

  #follow() {
    const { conversation } = this;
    this.stream = this.client.follow(conversation, (event) => this.#take(event), {
      after: this.state.lastEventId,
      onStatus: (line) => this.#lineIs(line),
      onGone: (error) => this.startAnew({ notice: error.code === "not_found" ? GONE : error.message }),
      onSignedOut: (error) => {
        this.stream = null;
        this.#change({ line: "open", problem: error.message });
      },
      onReset: () => this.open(conversation),
    });
  }

  #lineIs(line) {
    if (this.line === line) return;
    this.#change(line === "open" ? { line, problem: "" } : { line }); // what could not be done then can be done now
  }

  #take(event) {
    const state = reduce(this.state, event);
    if (state.gap) return this.open(this.conversation);
    this.#change({ state });
    if (event.type === "approval.requested") this.#whoDecides();
    if (event.type === "run.queued" || event.type === "run.completed") this.refreshList();
  }

  #leave() {
    this.stream?.close();
    this.stream = null;
    this.draft = null;
    this.state = emptyState();
  }

  async #try(what, action) {
    const { conversation } = this;
    this.#change({ problem: "" });
    try {
      return await action();
    } catch (error) {
      if (conversation && error.code === "not_found") this.#lost(conversation);
      else this.#change({ problem: `${what}: ${error.message}` });
      return null;
    }
  }

  /** The server knows no more of what is shown here: of the whole conversation, or of a part of it. */
  async #lookAgain(conversation, problem) {
    if (this.conversation !== conversation) return;
    await this.open(conversation);
    if (this.conversation === conversation) this.#change({ problem });
    else this.refreshList();
  }

  /** Somebody deleted it, or this browser lost its cookie; what is in the box to write in stays there. */
  #lost(conversation) {
    if (this.conversation !== conversation) return;
    this.startAnew({ notice: GONE });
    this.refreshList();
  }

  /** Do it again while no server answers, or one that is not ours. */
  async #untilReached(action, wanted = () => true) {
    for (let pause = 500; wanted() && !this.closed; pause = Math.min(pause * 2, 8000)) {
      try {
        const result = await action();
        this.#lineIs("open");
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

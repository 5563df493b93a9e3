/** Which conversation a tab shows: its address says it, and what this browser had last, where the address says nothing. */

const ID = /^#(conv_\w+)$/;

let taken = false; // a page has one address; of several chats on it, the first has it

export class Address {
  /** @param {string} key the name in the browser's storage @param {boolean} wanted whether the page's address is used */
  constructor(key, wanted) {
    this.key = key;
    this.own = wanted && !taken;
    if (this.own) taken = true;
  }

  /** The conversation to begin with, or null. */
  first() {
    if (!this.own) return recall(this.key);
    const known = history.state?.amoxi ? this.#here() : this.#here() ?? recall(this.key); // a tab that had none has none
    this.#write(known, false);
    return known;
  }

  /** Call back with the conversation, or null, when the person goes back or forward. */
  watch(onMove) {
    this.moved = () => {
      const conversation = this.#here();
      if (conversation || (!location.hash && history.state?.amoxi)) onMove(conversation); // else it is a mark of the app's
    };
    if (this.own) addEventListener("popstate", this.moved);
  }

  /** Remember what is shown; with `step`, Back comes back to what was shown before. */
  show(conversation, { step = false } = {}) {
    remember(this.key, conversation);
    if (this.own) this.#write(conversation, step);
  }

  #write(conversation, step) {
    const same = this.#here() === conversation;
    const url = `${location.pathname}${location.search}${conversation ? `#${conversation}` : same ? location.hash : ""}`;
    const state = { ...history.state, amoxi: true };
    if (step && !same) history.pushState(state, "", url);
    else history.replaceState(state, "", url);
  }

  close() {
    if (!this.own) return;
    taken = false;
    this.own = false;
    removeEventListener("popstate", this.moved);
  }

  #here() {
    return ID.exec(location.hash)?.[1] ?? null;
  }
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

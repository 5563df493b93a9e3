/** What is remembered of the person, over all agents: a list to look at, to search, and to delete from. */

import { html, useEffect, useId, useRef, useState } from "./view.js";
import { visible } from "./visible.js";

const PAUSE_MS = 250; // a search waits until the person has stopped typing

/**
 * @param {object} props
 * @param {import("./client.js").AmoxiClient} props.client
 * @param {() => void} props.onClose
 */
export function Memories({ client, onClose }) {
  const [wanted, setWanted] = useState("");
  const [list, setList] = useState(null); // null: it has not come yet
  const [problem, setProblem] = useState("");
  const [told, setTold] = useState("");
  const [sure, setSure] = useState(false); // whether the question about all of them is shown
  const dialog = useRef(null);
  const asked = useRef(0);
  const gone = useRef(new Set()); // ids that were forgotten here: an answer that was under way may still have them
  const id = useId();
  const q = wanted.trim();
  const more = q ? null : list?.next_cursor; // a search has one page

  useEffect(() => dialog.current.showModal(), []);
  useEffect(() => {
    const due = setTimeout(() => load(), list === null ? 0 : PAUSE_MS);
    return () => clearTimeout(due);
  }, [wanted]);
  useEffect(() => {
    if (more && list.items.length === 0) load(more); // all that was shown is forgotten
  }, [list]);

  async function attempt(action) {
    try {
      const result = await action();
      setProblem("");
      return result;
    } catch (error) {
      setProblem(error.message);
      return null;
    }
  }

  async function load(cursor = null) {
    const number = ++asked.current;
    const page = await attempt(() => client.memories({ q: q || undefined, cursor }));
    if (!page || number !== asked.current) return; // another one was asked for meanwhile
    const items = page.items.filter((each) => !gone.current.has(each.id));
    setList((now) => ({ items: cursor ? [...now.items, ...items] : items, next_cursor: page.next_cursor }));
  }

  async function forget(memory) {
    const done = await attempt(async () => {
      await client.forget(memory.id).catch((error) => {
        if (error.code !== "not_found") throw error;
      });
      return true;
    });
    if (!done) return;
    gone.current.add(memory.id);
    setList((now) => ({ ...now, items: now.items.filter((each) => each.id !== memory.id) }));
    setTold("Forgotten.");
    dialog.current?.querySelector("[data-focus]")?.focus(); // the button that had it is gone
  }

  async function forgetAll() {
    if (!(await attempt(async () => (await client.forgetAll(), true)))) return;
    asked.current++; // an answer that is under way has what is gone
    setList({ items: [], next_cursor: null });
    setSure(false);
    setTold("All of it is forgotten.");
    dialog.current?.querySelector("[data-focus]")?.focus();
  }

  return html`<dialog class="memories" ref=${dialog} onClose=${onClose} aria-labelledby=${`${id}-title`}>
    <h2 id=${`${id}-title`} tabindex="-1" data-focus="">What is remembered of you</h2>
    <div class="field"><label for=${id}>Search</label>
      <input id=${id} type="text" autocomplete="off" maxlength="1000" value=${wanted} onInput=${(event) => setWanted(event.target.value)} /></div>
    <p class="visually-hidden" role="status">${told}</p>
    <p class="problem" role="alert">${problem && html`<span aria-hidden="true">! </span>${visible(problem)}`}</p>
    ${list?.items.length === 0 && !more && html`<p class="none">${q ? "Nothing fits." : "Nothing yet."}</p>`}
    <ul>${list?.items.map((each) => html`<li key=${each.id}>
      <div><p>${visible(each.text)}</p><small>${each.key && html`${visible(each.key)} · `}<time datetime=${each.updated_at}>${new Date(each.updated_at).toLocaleDateString()}</time></small></div>
      <button type="button" class="quiet delete" aria-label=${`Forget: ${visible(each.text).slice(0, 80)}`} onClick=${() => forget(each)}><span aria-hidden="true">✕</span></button>
    </li>`)}</ul>
    ${more && html`<button type="button" class="more" onClick=${() => load(more)}>Show more</button>`}
    ${sure && html`<p class="question">Forget all of it? It cannot be brought back.</p>`}
    <div class="buttons">
      ${sure
        ? html`<button type="button" onClick=${() => setSure(false)}>Keep</button><button type="button" class="danger" onClick=${forgetAll}>Forget all</button>`
        : html`<button type="button" class="primary" onClick=${() => dialog.current.close()}>Close</button>
          ${list?.items.length > 0 && !q && html`<button type="button" class="quiet" onClick=${() => setSure(true)}>Forget all…</button>`}`}
    </div>
  </dialog>`;
}

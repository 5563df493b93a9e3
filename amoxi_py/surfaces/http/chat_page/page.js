/**
 * The chat page, for this server's `/chat/{agent}` and for an app's own pages:
 *
 *   <script type="module" src="/chat/page.js"></script>
 *   <div data-amoxi-chat="support-agent" data-title="Support"></div>
 *
 * or, from a module of the app's own, `mountChat(element, { agent: "support-agent", title: "Support" })`.
 */

import { AmoxiClient } from "./client.js";
import { Announcer, Composer, Log, statusOf } from "./conversation.js";
import { markdownFor } from "./markdown.js";
import { Memories } from "./memories.js";
import { Session } from "./session.js";
import { visible } from "./visible.js";
import { html, render, useEffect, useRef, useState } from "./view.js";

const STYLE = new URL("page.css", import.meta.url).href;

/**
 * Show the chat of an agent in an element, and fill it.
 *
 * @param {HTMLElement} element
 * @param {object} options
 * @param {string} options.agent the agent's name
 * @param {string|URL} [options.base] where the server's routes begin; the default is where this file came from
 * @param {string} [options.title] the heading; the default is made of the agent's name
 * @param {string} [options.hint] what the empty box to write in says
 * @param {boolean} [options.address] whether the page's address tells the conversation, `#conv_...`, and Back goes to
 *   the one before; the default is yes for the first chat of a page
 * @param {Record<string, string>} [options.headers] sent with every request, such as `Authorization`
 * @returns {{unmount: () => void}}
 */
export function mountChat(element, { agent, base, title, hint = "Write a message", address = true, headers }) {
  addStyle();
  const session = new Session(new AmoxiClient({ agent, base, headers }), draw, { address });
  const markdown = markdownFor(new URL("files/", session.client.base).href);
  element.classList.add("amoxi-chat");
  let due = null; // one drawing for all events that came together
  function draw() {
    due ??= setTimeout(drawNow);
  }
  function drawNow() {
    due = null;
    render(html`<${Chat} session=${session} version=${{}} markdown=${markdown} title=${title ?? titleOf(agent)} hint=${hint} />`, element);
  }
  drawNow();
  session.start().catch(() => {}); // what went wrong is shown
  return {
    unmount() {
      session.close();
      clearTimeout(due);
      due = -1;
      render(null, element);
      element.classList.remove("amoxi-chat");
    },
  };
}

function Chat({ session, markdown, title, hint }) {
  const [drawer, setDrawer] = useState(false); // on a narrow screen the list lies over the conversation
  const menu = useRef(null);
  function closeDrawer() {
    setDrawer(false);
    menu.current?.focus();
  }
  return html`<div class=${`chat ${drawer ? "with-drawer" : ""}`} onKeyDown=${(event) => event.key === "Escape" && drawer && closeDrawer()}>
    <${Conversations} session=${session} open=${drawer} onClose=${closeDrawer} />
    ${drawer && html`<div class="scrim" onClick=${closeDrawer}></div>`}
    <main class="main" aria-label=${title}>
      <header class="top">
        <button type="button" class="menu" ref=${menu} aria-expanded=${drawer ? "true" : "false"} onClick=${() => setDrawer(!drawer)}>
          <span aria-hidden="true">☰</span><span class="visually-hidden">Conversations</span></button>
        <h1>${title}</h1>
        <button type="button" class="new" onClick=${() => session.startAnew({ step: true })}>New<span class="wide-only"> conversation</span></button>
      </header>
      <${Log} session=${session} markdown=${markdown} />
      <div class="foot">
        <div class="lines">
          <p class=${`status ${session.line}`} role="status">${statusOf(session)}</p>
          <p class="problem" role="alert">${session.problem && html`<span aria-hidden="true">! </span>${visible(session.problem)}`}</p>
        </div>
        <${Composer} session=${session} hint=${hint} />
      </div>
      <${Announcer} session=${session} />
    </main>
  </div>`;
}

function Conversations({ session, open, onClose }) {
  const [doomed, setDoomed] = useState(null);
  const [remembered, setRemembered] = useState(false); // whether what is remembered is shown
  const { items, next_cursor: more } = session.list;
  const nav = useRef(null);
  useEffect(() => {
    if (open) {
      session.refreshList();
      nav.current.querySelector("button")?.focus();
    }
  }, [open]);
  function choose(id) {
    if (id !== session.conversation) session.open(id, { step: true });
    if (open) onClose();
  }
  return html`<nav class="side" aria-label="Conversations" ref=${nav}>
    <div class="side-top"><h2>Conversations</h2><button type="button" class="quiet close" onClick=${onClose}>Close</button></div>
    ${items.length === 0 && html`<p class="none">Nothing yet.</p>`}
    <ul>${items.map((each) => html`<li key=${each.id} class=${each.id === session.conversation ? "current" : ""}>
      <button type="button" class="choose" aria-current=${each.id === session.conversation ? "true" : undefined} onClick=${() => choose(each.id)}>
        <span class="title">${titleIn(each)}</span><time datetime=${each.updated_at}>${when(each.updated_at)}</time></button>
      <button type="button" class="quiet delete" aria-label=${`Delete: ${titleIn(each)}`} onClick=${() => setDoomed(each)}><span aria-hidden="true">✕</span></button>
    </li>`)}</ul>
    ${more && html`<button type="button" class="more" onClick=${() => session.loadMoreConversations()}>Show more</button>`}
    ${session.remembers && html`<div class="side-foot"><button type="button" class="quiet" onClick=${() => setRemembered(true)}>What is remembered</button></div>`}
    ${remembered && html`<${Memories} client=${session.client} onClose=${() => setRemembered(false)} />`}
    ${doomed && html`<${DeleteDialog} conversation=${doomed} onClose=${() => setDoomed(null)} onDelete=${() => { session.erase(doomed.id); setDoomed(null); }} />`}
  </nav>`;
}

function DeleteDialog({ conversation, onClose, onDelete }) {
  const dialog = useRef(null);
  useEffect(() => dialog.current.showModal(), []);
  return html`<dialog ref=${dialog} onClose=${onClose} aria-labelledby="amoxi-delete-title">
    <h2 id="amoxi-delete-title">Delete this conversation?</h2>
    <p class="title">${titleIn(conversation)}</p>
    <p>What runs in it is stopped. It cannot be brought back.</p>
    <div class="buttons">
      <button type="button" onClick=${() => dialog.current.close()}>Keep</button>
      <button type="button" class="danger" onClick=${onDelete}>Delete</button>
    </div>
  </dialog>`;
}

function titleIn({ title }) {
  return visible(title || "Untitled");
}

function when(text) {
  const time = new Date(text);
  const today = time.toDateString() === new Date().toDateString();
  return today ? time.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" }) : time.toLocaleDateString([], { day: "numeric", month: "short" });
}

function titleOf(agent) {
  const words = agent.replaceAll("-", " ");
  return words.charAt(0).toUpperCase() + words.slice(1);
}

function addStyle() {
  if ([...document.styleSheets].some((sheet) => sheet.href === STYLE)) return;
  const link = document.createElement("link");
  Object.assign(link, { rel: "stylesheet", href: STYLE });
  document.head.append(link);
}

for (const element of document.querySelectorAll("[data-amoxi-chat]")) {
  const { amoxiChat: agent, title, hint, address } = element.dataset;
  mountChat(element, { agent, title, hint, address: address !== "false" });
}

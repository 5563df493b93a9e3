/** The conversation as it is shown: its runs, what is said to a screen reader, and the place to write. */

import { AttachButton, AttachmentList, sizeText } from "./attachments.js";
import { CallCard } from "./calls.js";
import { activeRuns, hasEnded } from "./client.js";
import { toolTitle, visible } from "./visible.js";
import { Component, html, useEffect, useId, useLayoutEffect, useRef, useState } from "./view.js";

const NEAR_END = 80;
const SHORTEST_PAUSE_MS = 50;
const WORDS = {
  queued: "Waiting for its turn…",
  running: "Working…",
  waiting: "Waiting for a decision.",
};

/** What the status line says of a session. */
export function statusOf({ state, line, opening }) {
  if (line === "lost") return "Connection lost, trying again…";
  if (opening) return "Opening the conversation…";
  const [going] = activeRuns(state);
  if (going?.status === "waiting" && !waitsForSomebody(going)) return WORDS.running; // for an agent, a time or a signal
  if (going?.status === "waiting" && !waitsForSomebody(going, (call) => !call.question)) return "Waiting for your answer.";
  if (going) return going.status === "running" && going.attempt > 1 ? "Going on after an interruption…" : WORDS[going.status];
  return "";
}

function waitsForSomebody(run, fits = () => true) {
  return run.messages.some((message) => message.calls.some((call) => call.status === "waiting" && fits(call)));
}

/** All runs of a session, with a way to the messages before them; it stays at the end while the person is there. */
export function Log({ session, markdown }) {
  const { state } = session;
  const box = useRef(null);
  const atEnd = useRef(true);
  const before = useRef({ height: 0, first: null });
  const [behind, setBehind] = useState(false);
  const first = state.runs[0]?.messages[0]?.id;

  useLayoutEffect(() => {
    const log = box.current;
    const grownAbove = before.current.first !== null && first !== before.current.first && !atEnd.current;
    if (atEnd.current) log.scrollTop = log.scrollHeight;
    else if (grownAbove) log.scrollTop += log.scrollHeight - before.current.height;
    before.current = { height: log.scrollHeight, first: first ?? null };
  }, [state, session.opening]);
  useEffect(() => {
    atEnd.current = true;
    setBehind(false);
  }, [session.conversation]);

  useEffect(() => {
    const grown = new ResizeObserver(() => {
      if (atEnd.current && box.current) box.current.scrollTop = box.current.scrollHeight;
    });
    grown.observe(box.current.firstElementChild);
    grown.observe(box.current);
    return () => grown.disconnect();
  }, []);

  function look() {
    const log = box.current;
    atEnd.current = log.scrollHeight - log.scrollTop - log.clientHeight < NEAR_END;
    setBehind(!atEnd.current);
  }
  function toEnd() {
    atEnd.current = true;
    box.current.scrollTo({ top: box.current.scrollHeight });
    setBehind(false);
  }

  return html`<div class="log-frame">
    <div class="log" role="log" aria-live="off" aria-label="Conversation" aria-busy=${session.opening ? "true" : "false"} tabindex="0" ref=${box} onScroll=${look}>
      <div class="messages">
        ${state.older && html`<button type="button" class="older" disabled=${session.loadingOlder} onClick=${() => { atEnd.current = false; session.loadOlder(); }}>
          ${session.loadingOlder ? "Loading…" : "Show older messages"}</button>`}
        ${!state.runs.length && !session.opening && html`<${Welcome} session=${session} />`}
        ${state.runs.map((run) => html`<${RunView} key=${run.id} run=${run} session=${session} markdown=${markdown} />`)}
      </div>
    </div>
    ${behind && html`<button type="button" class="to-end" onClick=${toEnd}>↓ Newest</button>`}
  </div>`;
}

function Welcome({ session }) {
  const { agent } = session;
  if (!agent) return null;
  return html`<div class="welcome">
    <h2>${visible(agent.description || "Ask me something.")}</h2>
    ${agent.tools.length > 0 && html`<p>What I can do:</p>
      <ul>${agent.tools.map((tool) => html`<li key=${tool.name}><strong>${toolTitle(tool.name)}</strong>
        <span>${visible(tool.description.split("\n")[0])}${tool.needs_approval ? " You are asked first." : ""}</span></li>`)}</ul>`}
  </div>`;
}

/** One run; it is drawn again only when something of it has changed. */
class RunView extends Component {
  shouldComponentUpdate(next) {
    return next.run !== this.props.run;
  }

  render({ run, session, markdown }) {
    const active = !hasEnded(run);
    return html`<div class="run">
      ${run.messages.map((message) => html`<${MessageView} key=${message.id} message=${message} markdown=${markdown}
        client=${session.client} />${message.calls.map((call) => html`<${CallCard} key=${call.call_id} call=${call} active=${active} others=${session.others.has(call.call_id)}
          onDecide=${(decision) => session.decide(run.id, call.call_id, decision)}
          onAnswer=${(answer) => session.answer(run.id, call, answer)} />`)}`)}
      ${active && run.status === "running" && html`<p class="thinking" aria-hidden="true"><span></span><span></span><span></span></p>`}
      ${run.status === "failed" && html`<p class="run-end failed"><span aria-hidden="true">! </span>${visible(run.error?.message ?? "Something went wrong.")}</p>`}
      ${run.status === "cancelled" && html`<p class="run-end"><span aria-hidden="true">■ </span>Stopped.</p>`}
    </div>`;
  }
}

class MessageView extends Component {
  shouldComponentUpdate(next) {
    return next.message !== this.props.message;
  }

  render({ message, markdown, client }) {
    const { role, text, status, files } = message;
    if (!text && !files.length) return null;
    const mine = role === "user";
    return html`<article class=${`message ${role} ${status}`} aria-label=${mine ? "You" : "Agent"} data-message=${message.id}>
      ${mine ? text && html`<div class="text plain">${text}</div>` : html`<${Markdown} text=${text} growing=${status === "growing"} markdown=${markdown} />`}
      ${files.map((id) => html`<${FileView} key=${id} id=${id} client=${client} />`)}
      ${status === "stopped" && html`<p class="note">stopped here</p>`}
    </article>`;
  }
}

/** A text as it grows: drawn whole each time, so the longer that takes, the seldomer it is done. */
class Markdown extends Component {
  drawn = null;
  safe = "";
  begun = null;
  next = 0;
  due = null;
  keep = (element) => (this.element = element);

  render({ text, growing, markdown }) {
    const now = performance.now();
    if (text !== this.drawn && (!growing || now >= this.next)) {
      this.safe = markdown(text);
      this.drawn = text;
      this.begun = now;
    } else if (text !== this.drawn) {
      this.due ??= setTimeout(() => {
        this.due = null;
        this.setState({});
      }, this.next - now);
    }
    return html`<div class="text" ref=${this.keep} dangerouslySetInnerHTML=${{ __html: this.safe }}></div>`;
  }

  componentDidMount() {
    this.componentDidUpdate();
  }

  componentDidUpdate() {
    if (this.begun === null) return;
    this.element.getBoundingClientRect(); // the layout is a part of the price
    const end = performance.now();
    this.next = end + Math.max(SHORTEST_PAUSE_MS, 4 * (end - this.begun));
    this.begun = null;
  }

  componentWillUnmount() {
    clearTimeout(this.due);
  }
}

/** A picture where the file is one that the browser can show, else a link that downloads it. */
function FileView({ id, client }) {
  const [tries, setTries] = useState(0);
  const [info, setInfo] = useState(undefined);
  const [problem, setProblem] = useState(null);
  const [shown, setShown] = useState(true);
  useEffect(() => {
    const tell = (found, what) => { setInfo(found); setProblem(what); };
    client.fileInfo(id).then((found) => tell(found, null),
      (error) => (error.status === 404 ? tell(null, null) : tell(undefined, error.message)));
  }, [id, tries]);
  if (problem !== null) return html`<p class="file">A file that could not be loaded: ${problem}. <button type="button" class="quiet"
    onClick=${() => setTries(tries + 1)}>Load the file</button></p>`;
  if (info === null) return html`<p class="file">A file that is not there any more.</p>`;
  if (info === undefined) return html`<p class="file">A file…</p>`;
  const name = visible(info.name);
  const picture = shown && info.media_type.startsWith("image/");
  return html`<p class="file"><a href=${client.fileUrl(id)} target="_blank" rel="noopener">
    ${picture ? html`<img src=${client.fileUrl(id)} alt=${name} loading="lazy" onError=${() => setShown(false)} />` : name}</a>
    <small> ${sizeText(info.size)}</small></p>`;
}

/** Tells a screen reader what came: finished answers, questions for a decision, ends; never single words. */
export function Announcer({ session }) {
  const told = useRef({ conversation: null, seen: null });
  const [text, setText] = useState("");
  useEffect(() => {
    if (session.opening) told.current = { conversation: session.conversation, seen: null };
    if (session.opening) return;
    const { conversation, seen } = told.current;
    const news = newsOf(session.state);
    const begun = seen !== null && (conversation === session.conversation || conversation === null);
    // What was there when it was opened is no news, but for what still waits for the person.
    const fresh = news.filter(([id]) => (begun ? !seen.has(id) : id.startsWith("ask-")));
    told.current = { conversation: session.conversation, seen: new Set([...(begun ? seen : []), ...news.map(([id]) => id)]) };
    if (fresh.length) setText(fresh.map(([, words]) => words).join(" "));
  }, [session.state, session.conversation, session.opening]);
  return html`<p class="visually-hidden" aria-live="polite" data-announcer="">${text || null}</p>`;
}

function newsOf(state) {
  const news = [];
  for (const run of state.runs.slice(-3)) {
    for (const message of run.messages) {
      if (message.role === "assistant" && message.status !== "growing" && message.text) news.push([message.id, message.text]);
      for (const call of message.calls) {
        const tool = toolTitle(call.tool);
        if (call.status === "waiting" && call.question) news.push([`ask-${call.call_id}-${call.question}`, `${tool} asks: ${visible(call.question)}`]);
        else if (call.status === "waiting") news.push([`ask-${call.call_id}`, `Your decision is needed: ${tool}.`]);
        if (call.progress.length) news.push([`${call.call_id}-${call.progress.length}`, visible(call.progress.at(-1))]);
      }
    }
    if (run.status === "failed") news.push([`end-${run.id}`, visible(run.error?.message ?? "Something went wrong.")]);
    if (run.status === "cancelled") news.push([`end-${run.id}`, "Stopped."]);
  }
  return news;
}

/** Where the person writes; Enter sends, Shift and Enter begin a new line. */
export function Composer({ session, hint }) {
  const id = useId();
  const box = useRef(null);
  const [text, setText] = useState("");
  const busy = activeRuns(session.state).length > 0;
  const { attachments } = session;
  const ready = !attachments.uploading && (text.trim() !== "" || attachments.items.length > 0);

  useEffect(() => {
    if (matchMedia("(hover: hover)").matches) box.current.focus({ preventScroll: true }); // elsewhere it opens a keyboard
  }, [session.conversation]);

  async function submit(event) {
    event?.preventDefault();
    const message = text.trim();
    if (!ready || session.sending) return;
    const sent = await session.say(message);
    if (sent) setText((now) => (now.trim() === message ? "" : now));
    box.current?.focus();
  }
  function key(event) {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    submit();
  }

  function take(event, data) {
    if (!data?.files.length) return;
    event.preventDefault();
    attachments.add([...data.files]);
  }
  const toBox = () => box.current?.focus();

  return html`<form onSubmit=${submit} onDragOver=${(event) => event.dataTransfer.types.includes("Files") && event.preventDefault()}
      onDrop=${(event) => take(event, event.dataTransfer)} onPaste=${(event) => take(event, event.clipboardData)}>
    <${AttachmentList} attachments=${attachments} onRemoved=${toBox} />
    <div class="composer">
    <${AttachButton} attachments=${attachments} onChosen=${toBox} />
    <label class="visually-hidden" for=${id}>Message</label>
    <textarea id=${id} ref=${box} rows="1" placeholder=${hint} autocomplete="off" enterkeyhint="send" value=${text}
      onInput=${(event) => { setText(event.target.value); session.goOn(); }} onKeyDown=${key}></textarea>
    ${busy && html`<button type="button" class="stop" onClick=${async () => { await session.cancel(); box.current?.focus(); }}>Stop</button>`}
    <button type="submit" class="primary" aria-disabled=${session.sending || !ready ? "true" : "false"}>Send</button>
    </div>
  </form>`;
}

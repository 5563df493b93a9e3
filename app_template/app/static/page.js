// A plain page for one agent: it posts messages and shows the conversation's event stream, which is the whole truth.
// A reload reads the stream from its start; a lost connection goes on after the last event that was shown.

const agent = location.pathname.split("/").filter(Boolean).pop();
const base = `${document.body.dataset.agents}/${agent}`;
const log = document.querySelector("#log");
const status = document.querySelector("#status");
const problem = document.querySelector("#error");
const input = document.querySelector("#message");
const sendButton = document.querySelector("#send");
const cancel = document.querySelector("#cancel");
const storageKey = `conversation:${agent}`;
const pause = 2000;

let conversation = localStorage.getItem(storageKey);
let source = null; // the open stream
let lastEventId = 0; // of the last event that is shown
let shown = new Map(); // elements by the id of their message or call
let runs = new Map(); // what to say of each run that has not ended, oldest first
let ended = ""; // what to say of the last one that has
let lost = false; // whether the connection is
let unsent = null; // the message that is on its way, with the key that keeps it from being taken twice

document.title = agent;
for (const link of document.querySelectorAll("nav a")) {
  if (link.pathname === location.pathname) link.setAttribute("aria-current", "page");
}

// -- talking to the server

async function send(method, path, body, headers = {}) {
  if (body !== undefined) headers = { ...headers, "content-type": "application/json" };
  const answer = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  const isProblem = (answer.headers.get("content-type") || "").startsWith("application/problem+json");
  if (!answer.ok) {
    const told = isProblem ? await answer.json() : {};
    const error = new Error(told.detail || `the server answered ${answer.status}`);
    error.code = told.code;
    throw error;
  }
  return answer.json();
}

async function tell(what, action) {
  problem.textContent = "";
  try {
    return await action();
  } catch (error) {
    const reason = error instanceof TypeError ? "the server cannot be reached" : error.message;
    problem.textContent = `${what}: ${reason}`;
  }
}

// -- the stream

function follow() {
  const stream = new EventSource(`${base}/conversations/${conversation}/events?after=${lastEventId}`);
  source?.close();
  source = stream;
  for (const [type, show] of Object.entries(listeners)) {
    stream.addEventListener(type, (event) => {
      if (stream !== source) return;
      lastEventId = event.lastEventId;
      const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 80;
      show(JSON.parse(event.data));
      if (atEnd) log.scrollTop = log.scrollHeight;
    });
  }
  stream.addEventListener("open", () => {
    if (stream === source) showStatus({ lost: false });
  });
  stream.addEventListener("error", () => {
    if (stream !== source) return;
    showStatus({ lost: true });
    // The browser tries again by itself when the connection broke, but not after an answer that is no stream.
    if (stream.readyState === EventSource.CLOSED) setTimeout(() => stream === source && followAgain(), pause);
  });
}

async function followAgain() {
  const stream = source;
  let gone = false;
  try {
    await send("GET", `${base}/conversations/${conversation}?limit=1`);
  } catch (error) {
    gone = error.code === "not_found" || error.code === "forbidden";
  }
  if (stream !== source) return;
  if (!gone) return follow();
  startAnew();
  problem.textContent = "The conversation is not there any more; this is a new one.";
}

function startAnew() {
  source?.close();
  source = conversation = unsent = null;
  localStorage.removeItem(storageKey);
  lastEventId = 0;
  shown = new Map();
  runs = new Map();
  log.replaceChildren();
  problem.textContent = "";
  showStatus({ lost: false, text: "" });
}

// -- what is shown

function showStatus(now) {
  lost = now.lost ?? lost;
  ended = now.text ?? ended;
  const [going] = runs.values();
  status.textContent = lost ? "Connection lost, trying again..." : (going ?? ended);
  cancel.hidden = runs.size === 0;
}

function goesOn(runId, text) {
  runs.set(runId, text);
  showStatus({ text: "" });
}

function hasEnded(runId, text) {
  runs.delete(runId);
  showStatus({ text });
}

function element(id, className) {
  if (!shown.has(id)) {
    const made = document.createElement("div");
    made.className = className;
    log.append(made);
    shown.set(id, made);
  }
  return shown.get(id);
}

function remove(id) {
  shown.get(id)?.remove();
  shown.delete(id);
}

function paragraph(id, name, text) {
  const parent = element(id, "call");
  let line = parent.querySelector(`[data-name="${name}"]`);
  if (!line) {
    line = document.createElement("p");
    line.dataset.name = name;
    parent.append(line);
  }
  line.textContent = text;
}

function removeButtons(callId) {
  shown.get(callId)?.querySelectorAll("button").forEach((button) => button.remove());
}

function askApproval({ call_id, run_id }) {
  removeButtons(call_id);
  for (const [decision, label] of [["approve", "Approve"], ["decline", "Decline"]]) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = label;
    button.addEventListener("click", () =>
      tell("That was not decided", () => send("POST", `${base}/runs/${run_id}/approvals/${call_id}`, { decision })));
    element(call_id, "call").append(button);
  }
}

function showDecision({ call_id, decision, reason, arguments: edited }) {
  removeButtons(call_id);
  let text = { approve: "Approved", decline: "Declined" }[decision] ?? "Expired";
  if (edited) text += ` with other arguments: ${JSON.stringify(edited)}`;
  if (reason) text += ` (${reason})`;
  paragraph(call_id, "decision", `${text}.`);
}

const listeners = {
  "run.queued": ({ run_id }) => goesOn(run_id, "Waiting for its turn..."),
  "run.started": ({ run_id }) => goesOn(run_id, "Working..."),
  "run.resumed": ({ run_id }) => goesOn(run_id, "Going on after an interruption..."),
  "run.waiting": ({ run_id }) => goesOn(run_id, "Waiting for a decision."),
  "run.completed": ({ run_id }) => hasEnded(run_id, ""),
  "run.cancelled": ({ run_id }) => hasEnded(run_id, "Stopped."),
  "run.failed": ({ run_id, error }) => hasEnded(run_id, error ? error.message : "Something went wrong."),
  "message.delta": ({ message_id, offset, text }) => {
    const message = element(message_id, "message assistant");
    message.textContent = [...message.textContent].slice(0, offset).join("") + text; // offsets count whole characters
  },
  "message.completed": ({ message }) => {
    if (!message.text) return remove(message.id);
    const made = element(message.id, `message ${message.role}`);
    made.textContent = message.text;
    made.classList.toggle("stopped", message.status === "stopped");
  },
  "message.discarded": ({ message_id }) => remove(message_id),
  "tool.called": ({ call_id, tool, arguments: given }) => paragraph(call_id, "call", `${tool} ${JSON.stringify(given)}`),
  "tool.progress": ({ call_id, text }) => paragraph(call_id, "progress", text),
  "tool.completed": ({ call_id, result, is_error }) => {
    removeButtons(call_id);
    const text = typeof result === "string" ? result : JSON.stringify(result);
    paragraph(call_id, "result", (is_error ? "Not done: " : "Done: ") + text);
  },
  "approval.requested": askApproval,
  "approval.decided": showDecision,
};

// -- what the person does

function newKey() {
  return [...crypto.getRandomValues(new Uint32Array(4))].map((part) => part.toString(16)).join("-");
}

document.querySelector("#new").addEventListener("click", startAnew);

cancel.addEventListener("click", () => {
  const [run] = runs.keys();
  if (run) tell("That was not stopped", () => send("POST", `${base}/runs/${run}/cancel`));
});

document.querySelector("#form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const message = input.value.trim();
  if (!message || sendButton.disabled) return;
  if (unsent?.message !== message) unsent = { message, key: newKey() };
  const body = conversation ? { message, conversation_id: conversation } : { message };
  const sending = unsent;
  sendButton.disabled = true;
  const started = await tell("The message was not sent", () =>
    send("POST", `${base}/runs`, body, { "idempotency-key": sending.key }));
  sendButton.disabled = false;
  if (!started || sending !== unsent) return; // it stays in the box; or a new conversation was begun meanwhile
  unsent = null;
  if (input.value.trim() === message) input.value = "";
  if (started.conversation_id !== conversation) {
    conversation = started.conversation_id;
    localStorage.setItem(storageKey, conversation);
    follow();
  }
});

if (conversation) follow();
input.focus();

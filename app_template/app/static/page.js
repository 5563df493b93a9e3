// A plain page for one agent: it posts messages and shows the conversation's event stream, which is the whole truth.

const agent = location.pathname.split("/").filter(Boolean).pop();
const base = `/agents/${agent}`;
const log = document.querySelector("#log");
const status = document.querySelector("#status");
const input = document.querySelector("#message");
const cancel = document.querySelector("#cancel");
const storageKey = `conversation:${agent}`;

let conversation = localStorage.getItem(storageKey);
let source = null;
let run = null;
let shown = new Map();

document.title = agent;
for (const link of document.querySelectorAll("nav a")) {
  if (link.pathname === location.pathname) link.setAttribute("aria-current", "page");
}

async function send(method, path, body) {
  const headers = body === undefined ? {} : { "content-type": "application/json" };
  const answer = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  const content = answer.status === 204 ? null : await answer.json();
  if (!answer.ok) throw new Error(content.detail || content.title || `error ${answer.status}`);
  return content;
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

function paragraph(parent, name, text) {
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
  const card = element(call_id, "call");
  removeButtons(call_id);
  for (const [decision, label] of [["approve", "Approve"], ["decline", "Decline"]]) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = label;
    button.addEventListener("click", async () => {
      try {
        await send("POST", `${base}/runs/${run_id}/approvals/${call_id}`, { decision });
      } catch (error) {
        status.textContent = error.message;
      }
    });
    card.append(button);
  }
}

function setRun(runId, text) {
  run = runId;
  cancel.hidden = runId === null;
  status.textContent = text;
}

const listeners = {
  "run.queued": ({ run_id }) => setRun(run_id, "Waiting for its turn..."),
  "run.started": ({ run_id }) => setRun(run_id, "Working..."),
  "run.resumed": ({ run_id }) => setRun(run_id, "Going on after an interruption..."),
  "run.waiting": ({ run_id }) => setRun(run_id, "Waiting for a decision."),
  "run.completed": () => setRun(null, ""),
  "run.cancelled": () => setRun(null, "Stopped."),
  "run.failed": ({ error }) => setRun(null, error ? error.message : "Something went wrong."),
  "message.delta": ({ message_id, offset, text }) => {
    const message = element(message_id, "message assistant");
    message.textContent = message.textContent.slice(0, offset) + text;
  },
  "message.completed": ({ message }) => {
    if (!message.text) return shown.get(message.id)?.remove();
    const made = element(message.id, `message ${message.role}`);
    made.textContent = message.text;
    made.classList.toggle("stopped", message.status === "stopped");
  },
  "message.discarded": ({ message_id }) => {
    shown.get(message_id)?.remove();
    shown.delete(message_id);
  },
  "tool.called": ({ call_id, tool, arguments: given }) =>
    paragraph(element(call_id, "call"), "call", `${tool} ${JSON.stringify(given)}`),
  "tool.progress": ({ call_id, text }) => paragraph(element(call_id, "call"), "progress", text),
  "tool.completed": ({ call_id, result, is_error }) => {
    removeButtons(call_id);
    const text = typeof result === "string" ? result : JSON.stringify(result);
    paragraph(element(call_id, "call"), "result", (is_error ? "Not done: " : "Done: ") + text);
  },
  "approval.requested": askApproval,
  "approval.decided": ({ call_id, decision }) => {
    removeButtons(call_id);
    paragraph(element(call_id, "call"), "decision", { approve: "Approved.", decline: "Declined." }[decision] || "Expired.");
  },
};

function follow() {
  source?.close();
  source = new EventSource(`${base}/conversations/${conversation}/events?after=0`);
  for (const [type, show] of Object.entries(listeners)) {
    source.addEventListener(type, (event) => {
      show(JSON.parse(event.data));
      log.scrollTop = log.scrollHeight;
    });
  }
  source.addEventListener("error", () => {
    if (source.readyState !== EventSource.CLOSED) status.textContent = "Connection lost, trying again...";
    else startAnew();
  });
}

function startAnew() {
  source?.close();
  source = null;
  conversation = null;
  localStorage.removeItem(storageKey);
  shown = new Map();
  log.replaceChildren();
  setRun(null, "");
}

document.querySelector("#new").addEventListener("click", startAnew);

cancel.addEventListener("click", async () => {
  if (run) await send("POST", `${base}/runs/${run}/cancel`).catch((error) => (status.textContent = error.message));
});

document.querySelector("#form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const message = input.value.trim();
  if (!message) return;
  try {
    const body = conversation ? { message, conversation_id: conversation } : { message };
    const started = await send("POST", `${base}/runs`, body);
    input.value = "";
    if (started.conversation_id !== conversation) {
      conversation = started.conversation_id;
      localStorage.setItem(storageKey, conversation);
      follow();
    }
  } catch (error) {
    status.textContent = error.message;
  }
});

if (conversation) follow();
input.focus();

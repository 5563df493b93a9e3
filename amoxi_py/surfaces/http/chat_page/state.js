/**
 * What is shown of a conversation, as a pure function of what the server told: the newest page of its messages, then
 * its events, each once. A state is never changed; a part that did not change is the same object as before.
 *
 * @typedef {{call_id: string, tool: string, arguments: object, status: string, result: any, progress: string[],
 *   expires_at?: string, decision?: string, by?: string, reason?: string, edited_arguments?: object, question?: string,
 *   k?: number, schema?: ?object, answered?: {question: string, answer: any}[]}} Call
 *   a waiting call with a `question` waits for its answer, one without for a decision; `k` is the question's number
 * @typedef {{id: string, role: "user"|"assistant", text: string, length: number, files: string[], calls: Call[],
 *   status: "growing"|"complete"|"stopped", created_at?: string}} Message
 * @typedef {{id: string, status: string, attempt: number, error: ?{code: string, message: string},
 *   messages: Message[]}} Run
 * @typedef {{lastEventId: number, runs: Run[], older: ?string, gap: boolean}} State
 *   `older` is the cursor of the messages before these; `gap` is true when a piece of a text is missing, which only a
 *   server that lost its log can bring about: open the conversation again.
 */

const ENDED = new Set(["completed", "failed", "cancelled"]);

/** @returns {State} nothing said yet */
export function emptyState() {
  return { lastEventId: 0, runs: [], older: null, gap: false };
}

/** @returns {boolean} whether nothing more comes of a run */
export function hasEnded(run) {
  return ENDED.has(run.status);
}

/** @returns {Run[]} the runs that have not ended, oldest first */
export function activeRuns(state) {
  return state.runs.filter((run) => !hasEnded(run));
}

/**
 * Make a state of the newest page of a conversation.
 *
 * @param {object} page what `messages()` gave
 * @param {Map<string, object>} runs those runs of the page that may not have ended, as `run()` gives them
 * @param {number} [after] the event before the first one that will be reduced into it
 */
export function stateOf(page, runs = new Map(), after = page.last_event_id) {
  return { ...emptyState(), lastEventId: after, older: page.next_cursor, runs: groups(page.items, runs) };
}

/** Put an older page of the same conversation before what is shown. */
export function withOlder(state, page) {
  const shown = new Set(state.runs.flatMap((run) => run.messages.map((message) => message.id)));
  const older = groups(page.items.filter((message) => !shown.has(message.id)));
  const known = new Map(state.runs.map((run) => [run.id, run]));
  const parts = new Map(older.map((run) => [run.id, run]));
  const before = older.filter((run) => !known.has(run.id));
  const rest = state.runs.map((run) =>
    parts.has(run.id) ? { ...run, messages: [...parts.get(run.id).messages, ...run.messages] } : run,
  );
  return { ...state, older: page.next_cursor, runs: [...before, ...rest] };
}

/** The same state with a run that counts as changed: something that is shown with it, and is not of the log, has. */
export function runTouched(state, id) {
  return { ...state, runs: state.runs.map((run) => (run.id === id ? { ...run } : run)) };
}

/** @returns {{run: string, call: string}[]} the calls that wait for a decision */
export function waitingCalls(state) {
  return activeRuns(state).flatMap((run) =>
    run.messages.flatMap((message) =>
      message.calls.filter((call) => call.status === "waiting" && !call.question).map((call) => ({ run: run.id, call: call.call_id }))));
}

/**
 * Return the state after an event. One that is in it already changes nothing, and so does one of an unknown type.
 *
 * @param {State} state
 * @param {{id: number, type: string, data: object}} event
 * @returns {State}
 */
export function reduce(state, event) {
  if (event.id <= state.lastEventId) return state;
  const change = CHANGES[event.type];
  if (!change) return { ...state, lastEventId: event.id };
  const at = state.runs.findLastIndex((run) => run.id === event.data.run_id);
  const before = at < 0 ? newRun(event.data.run_id, "queued") : state.runs[at];
  const after = change(before, event.data);
  if (after === GAP) return { ...state, gap: true };
  const runs = at < 0 ? [...state.runs, after] : state.runs.with(at, after);
  return { ...state, lastEventId: event.id, runs };
}

const GAP = Symbol("a piece of a text is missing");

const CHANGES = {
  "run.queued": (run) => ({ ...run, status: "queued" }),
  "run.started": (run) => ({ ...run, status: "running", attempt: 1 }),
  "run.resumed": (run, data) => ({ ...run, status: "running", attempt: data.attempt ?? run.attempt }),
  "run.waiting": (run) => ({ ...run, status: "waiting" }),
  "run.completed": (run) => ({ ...run, status: "completed" }),
  "run.failed": (run, data) => ({ ...run, status: "failed", error: data.error ?? null }),
  "run.cancelled": (run) => ({ ...run, status: "cancelled" }),
  "message.delta": grow,
  "message.completed": complete,
  "message.discarded": (run, data) => ({
    ...run,
    messages: run.messages.filter((message) => message.id !== data.message_id || message.status !== "growing"),
  }),
  "tool.called": (run, data) => changeCall(run, data, (call) => call),
  "tool.progress": (run, data) =>
    changeCall(run, data, (call) => ({ ...call, status: "started", progress: [...call.progress, data.text] })),
  "tool.completed": (run, data) =>
    changeCall(run, data, (call) => ({ ...call, status: data.status ?? (data.is_error ? "failed" : "done"), result: data.result })),
  "approval.requested": (run, data) =>
    changeCall(run, data, (call) => ({ ...call, status: "waiting", expires_at: data.expires_at ?? undefined })),
  "approval.decided": (run, data) =>
    changeCall(run, data, (call) => ({
      ...call,
      status: data.decision === "approve" ? "open" : "declined",
      decision: data.decision,
      by: data.by,
      reason: data.reason ?? undefined,
      edited_arguments: data.arguments,
    })),
  "question.asked": (run, data) =>
    changeCall(run, data, (call) => ({
      ...call,
      status: "waiting",
      question: data.question,
      k: data.k,
      schema: data.schema,
      expires_at: data.expires_at ?? undefined,
    })),
  "question.answered": (run, data) =>
    changeCall(run, data, (call) => ({
      ...call,
      status: "started",
      question: undefined,
      expires_at: undefined,
      answered: [...(call.answered ?? []), { question: call.question ?? "", answer: data.answer }],
    })),
  "question.closed": (run, data) =>
    changeCall(run, data, (call) =>
      call.question && call.k === data.k ? { ...call, status: "started", question: undefined, expires_at: undefined } : call),
};

function newRun(id, status) {
  return { id, status, attempt: 0, error: null, messages: [] };
}

function groups(messages, runs = new Map()) {
  const found = new Map();
  for (const message of messages) {
    if (!found.has(message.run_id)) found.set(message.run_id, newRun(message.run_id, "completed"));
    found.get(message.run_id).messages.push(asMessage(message));
  }
  for (const [id, run] of runs) {
    if (!found.has(id)) continue;
    const expiry = new Map(run.waiting_for.map((each) => [each.call_id, each.expires_at]));
    const group = found.get(id);
    Object.assign(group, { status: run.status, attempt: run.attempt, error: run.error });
    group.messages = group.messages.map((message) => ({
      ...message,
      calls: message.calls.map((call) => ({ ...call, expires_at: expiry.get(call.call_id) ?? undefined })),
    }));
  }
  return [...found.values()];
}

function asMessage(message, known = new Map()) {
  const calls = (message.calls ?? []).map((call) => known.get(call.call_id) ?? asCall(call));
  return { ...message, files: message.files ?? [], calls, length: 0 };
}

function asCall({ approval, question: asked, ...call }) {
  const decided = { decision: approval?.decision, by: approval?.by, reason: approval?.reason ?? undefined };
  const told = asked?.by ? { answered: [{ question: asked.question, answer: asked.answer }] } : {};
  const open = asked && !asked.by ? { question: asked.question, k: asked.k, schema: asked.schema } : {};
  return { ...call, ...decided, ...told, ...open, progress: [] };
}

function grow(run, { message_id, offset, text }) {
  const at = run.messages.findIndex((message) => message.id === message_id);
  const before = at < 0 ? newReply(message_id) : run.messages[at];
  if (before.status !== "growing") return run;
  if (offset > before.length) return GAP;
  const kept = offset === before.length ? before.text : [...before.text].slice(0, offset).join("");
  const after = { ...before, text: kept + text, length: offset + [...text].length }; // offsets count whole characters
  return { ...run, messages: at < 0 ? [...run.messages, after] : run.messages.with(at, after) };
}

function newReply(id) {
  return { id, role: "assistant", text: "", length: 0, files: [], calls: [], status: "growing" };
}

function complete(run, { message }) {
  const at = run.messages.findIndex((each) => each.id === message.id);
  const known = new Map(at < 0 ? [] : run.messages[at].calls.map((call) => [call.call_id, call]));
  const after = asMessage(message, known);
  return { ...run, messages: at < 0 ? [...run.messages, after] : run.messages.with(at, after) };
}

function changeCall(run, data, change) {
  const place = run.messages.findLastIndex((message) => message.calls.some((call) => call.call_id === data.call_id));
  if (place < 0) {
    const call = { call_id: data.call_id, tool: data.tool ?? "", arguments: data.arguments ?? {}, status: "open" };
    const reply = { ...newReply(`calls-of-${data.call_id}`), status: "complete" };
    return { ...run, messages: [...run.messages, { ...reply, calls: [change({ ...call, progress: [] })] }] };
  }
  const message = run.messages[place];
  const calls = message.calls.map((call) => (call.call_id === data.call_id ? change(call) : call));
  return { ...run, messages: run.messages.with(place, { ...message, calls }) };
}

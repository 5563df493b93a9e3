/** The part of a call that asks a person: approve, decline with a reason, or approve with other arguments. */

import { ArgumentsForm } from "./arguments.js";
import { isRounded } from "./numbers.js";
import { html, useEffect, useId, useRef, useState } from "./view.js";

/**
 * @param {object} props
 * @param {import("./state.js").Call} props.call
 * @param {boolean} props.others whether it is known that this person may not decide
 * @param {(decision: object) => Promise<?Error>} props.onDecide
 */
export function Approval({ call, others, onDecide }) {
  const [mode, setMode] = useState("ask"); // or "decline", "edit"
  const [sending, setSending] = useState(false);
  const box = useRef(null);
  const shown = useRef("ask");

  useEffect(() => {
    if (shown.current === mode) return; // focus moves when the person moves, not when the card appears
    shown.current = mode;
    box.current?.querySelector("[data-focus]")?.focus();
  }, [mode]);

  async function decide(decision) {
    const card = box.current?.closest(".call");
    setSending(true);
    const refusal = await onDecide(decision);
    setSending(false);
    if (!refusal || refusal.code === "not_approver") card?.focus(); // the button that had it goes away
    return refusal;
  }

  if (others) return html`<div class="approval"><p class="question" role="status">Waits for somebody else's decision.</p></div>`;
  const rounded = isRounded(call.arguments);
  return html`<div class="approval" ref=${box}>
    <p class="question">This needs your decision before it is done.${call.expires_at && html` <span class="expires">Until ${new Date(call.expires_at).toLocaleString()}.</span>`}</p>
    ${mode === "ask" && html`<div class="buttons">
      <button type="button" class="primary" data-focus="" disabled=${sending} onClick=${() => decide({ decision: "approve" })}>Approve</button>
      <button type="button" disabled=${sending} onClick=${() => setMode("decline")}>Decline</button>
      ${!rounded && html`<button type="button" class="quiet" disabled=${sending} onClick=${() => setMode("edit")}>Edit</button>`}
    </div>`}
    ${rounded && html`<p class="none">The arguments cannot be edited here: this browser would change a large number in them. Approved as they are, they stay exact.</p>`}
    ${mode === "decline" && html`<${DeclineForm} sending=${sending} onClose=${() => setMode("ask")}
      onSubmit=${(reason) => decide({ decision: "decline", reason })} />`}
    ${mode === "edit" && html`<${ArgumentsForm} value=${call.arguments} onClose=${() => setMode("ask")}
      onSubmit=${(edited) => decide({ decision: "approve", arguments: edited })} />`}
  </div>`;
}

function DeclineForm({ sending, onSubmit, onClose }) {
  const id = useId();
  const [reason, setReason] = useState("");
  function submit(event) {
    event.preventDefault();
    onSubmit(reason.trim());
  }
  return html`<form class="decline" onSubmit=${submit} aria-label="Decline">
    <div class="field"><label for=${id}>Reason <small>optional; the agent is told</small></label>
      <input id=${id} data-focus="" type="text" autocomplete="off" maxlength="2000" value=${reason}
        onInput=${(event) => setReason(event.target.value)} /></div>
    <div class="buttons">
      <button type="submit" class="primary" disabled=${sending}>Decline it</button>
      <button type="button" class="quiet" onClick=${onClose}>Back</button>
    </div>
  </form>`;
}

/** A call of a tool as a card: what it does with what, how far it is, what came of it. All of it is shown as text. */

import { Approval } from "./approval.js";
import { isNumber, isRounded } from "./numbers.js";
import { Answered, Question } from "./question.js";
import { html } from "./view.js";
import { toolTitle, visible } from "./visible.js";

// a sign and a word each, so that nothing depends on colour
const WORDS = {
  open: ["…", "Starting"],
  waiting: ["?", "Needs your decision"],
  started: ["…", "Working"],
  done: ["✓", "Done"],
  failed: ["!", "Failed"],
  declined: ["✕", "Declined"],
  stopped: ["■", "Stopped"],
  unknown: ["?", "Outcome unknown"],
};
const ASKS = ["?", "Asks you"];
const OPEN_RESULT = 240; // a short result is shown, a long one is opened by who wants it

/**
 * @param {object} props
 * @param {import("./state.js").Call} props.call
 * @param {boolean} props.active whether its run goes on
 * @param {boolean} props.others whether the decision is known to be somebody else's
 * @param {(decision: object) => Promise<?Error>} props.onDecide
 * @param {(answer: any) => Promise<?Error>} props.onAnswer
 */
export function CallCard({ call, active, others, onDecide, onAnswer }) {
  const settled = !active && ["open", "waiting", "started"].includes(call.status);
  const status = settled ? "stopped" : call.status;
  const asks = status === "waiting" && call.question;
  const [sign, word] = asks ? ASKS : status === "waiting" && others ? ["…", "Waits"] : WORDS[status] ?? ["", status];
  const label = call.tool ? toolTitle(call.tool) : "Tool";
  return html`<section class=${`call ${status}`} tabindex="-1" aria-label=${`${label}: ${word}`} data-call=${call.call_id}>
    <header><h3>${label}</h3><span class="state"><span class="sign" aria-hidden="true">${sign}</span> ${word}</span></header>
    <${Arguments} value=${call.arguments} />
    ${call.edited_arguments && html`<div class="edited"><p>Approved with other arguments:</p><${Arguments} value=${call.edited_arguments} /></div>`}
    ${call.decision && html`<p class="decision">${call.decision === "approve" ? "Approved" : "Declined"}${call.reason ? `: ${visible(call.reason)}` : "."}</p>`}
    ${call.progress.length > 0 && html`<ul class="progress">${call.progress.map((line, at) => html`<li key=${at}>${visible(line)}</li>`)}</ul>`}
    ${call.answered && html`<${Answered} questions=${call.answered} />`}
    ${asks && html`<${Question} key=${call.k ?? call.question} call=${call} onAnswer=${onAnswer} />`}
    ${status === "waiting" && !asks && html`<${Approval} call=${call} others=${others} onDecide=${onDecide} />`}
    ${call.result != null && html`<${Result} value=${call.result} failed=${!["done"].includes(status)} />`}
  </section>`;
}

function Arguments({ value }) {
  const entries = Object.entries(value ?? {});
  if (!entries.length) return html`<p class="none">no arguments</p>`;
  return html`<dl class="arguments">${entries.map(([name, each]) => html`<div key=${name}><dt>${visible(name)}</dt>
    <dd>${each !== null && typeof each === "object" && !isNumber(each) ? html`<pre tabindex="0">${textOf(each)}</pre>` : textOf(each)}</dd></div>`)}</dl>
    <${Rounded} value=${value} />`;
}

function Result({ value, failed }) {
  const text = textOf(value);
  if (failed) return html`<p class="result">${text}</p>`;
  return html`<details class="result" open=${text.length <= OPEN_RESULT && !text.includes("\n")}>
    <summary>Result</summary><pre tabindex="0">${text}</pre><${Rounded} value=${value} /></details>`;
}

function Rounded({ value }) {
  return isRounded(value) && html`<p class="none">Large numbers are rounded here: this browser cannot show them whole.</p>`;
}

function textOf(value) {
  return visible(typeof value === "string" ? value : JSON.stringify(value, null, 2));
}

/** The part of a call that asks a person something: a form made of the JSON Schema of the answer, or one line of text. */

import { numberOf, parseJson } from "./numbers.js";
import { visible } from "./visible.js";
import { html, useId, useState } from "./view.js";

const MOST_BUTTONS = 4; // more choices are a list

/** What is to be filled in: one field without a name for a plain answer, or the fields of an object. */
function fieldsOf(schema) {
  if (!schema) return [{ name: "", kind: "long", required: true }];
  const whole = resolved(schema, schema);
  if (whole.type !== "object" || !Object.keys(whole.properties ?? {}).length) return [fieldOf("", whole, true)];
  const required = new Set(whole.required ?? []);
  return Object.entries(whole.properties).map(([name, each]) => fieldOf(name, resolved(each, schema), required.has(name)));
}

/** What a part of a schema refers to; of a value that may be null, what it is else. */
function resolved(part, schema) {
  const found = part.$ref ? { ...schema.$defs?.[part.$ref.split("/").pop()], ...part } : part;
  const others = (found.anyOf ?? []).filter((each) => each.type !== "null");
  return others.length === 1 ? { ...found, ...resolved(others[0], schema) } : found;
}

function fieldOf(name, part, required) {
  const field = { name, required, hint: part.description ?? "", initial: part.default };
  if (Array.isArray(part.enum) && part.enum.every((each) => typeof each === "string")) return { ...field, kind: "choice", choices: part.enum };
  if (part.type === "boolean") return { ...field, kind: "choice", choices: [true, false] };
  if (part.type === "string") return { ...field, kind: "text" };
  return { ...field, kind: part.type === "integer" || part.type === "number" ? "number" : "json" };
}

function wordOf(choice) {
  if (typeof choice !== "boolean") return visible(choice);
  return choice ? "Yes" : "No";
}

function textOf({ kind, initial }) {
  if (initial === undefined || initial === null) return kind === "choice" ? null : "";
  if (kind === "choice") return initial;
  return kind === "json" || typeof initial !== "string" ? JSON.stringify(initial) : initial;
}

/** Return the value of a field, or undefined when it is left out; throw with a sentence for the person. */
function valueOf({ kind, required }, text) {
  if (text === null || (kind !== "choice" && text.trim() === "")) {
    if (required) throw new Error(kind === "choice" ? "Choose one." : "This is needed.");
    return undefined;
  }
  if (kind === "choice" || kind === "text" || kind === "long") return text;
  if (kind === "number") return numberOf(text.trim());
  try {
    return parseJson(text);
  } catch (error) {
    throw new Error(`This is no JSON: ${error.message}.`);
  }
}

/**
 * @param {object} props
 * @param {import("./state.js").Call} props.call
 * @param {(answer: any) => Promise<?Error>} props.onAnswer gives the server's refusal, whose fields are shown
 */
export function Question({ call, onAnswer }) {
  const id = useId();
  const fields = fieldsOf(call.schema);
  const [texts, setTexts] = useState(() => Object.fromEntries(fields.map((field) => [field.name, textOf(field)])));
  const [errors, setErrors] = useState({});
  const [sending, setSending] = useState(false);
  const single = fields.length === 1 && fields[0].name === "";
  const buttons = single && fields[0].kind === "choice" && fields[0].choices.length <= MOST_BUTTONS;

  async function send(answer, from) {
    const card = from.closest(".call");
    setSending(true);
    const refusal = await onAnswer(answer);
    setSending(false);
    if (!refusal) card?.focus(); // what had it goes away
    const problems = {};
    for (const { field, message } of refusal?.errors ?? []) {
      const name = field.replace(/^answer\.?/, "").split(".")[0];
      const own = Object.hasOwn(texts, name);
      problems[own ? name : ""] = visible(own ? message : `${field}: ${message}`);
    }
    setErrors(problems);
  }

  function submit(event) {
    event.preventDefault();
    const problems = {};
    const answer = {};
    for (const field of fields) {
      try {
        const value = valueOf(field, texts[field.name]);
        if (value !== undefined) answer[field.name] = value;
      } catch (error) {
        problems[field.name] = error.message;
      }
    }
    setErrors(problems);
    if (!Object.keys(problems).length && !sending) send(single ? answer[""] : answer, event.target);
  }

  const describe = (name) => (errors[name] ? { "aria-invalid": "true", "aria-describedby": `${id}-${name}-error` } : {});
  const problem = (name) => errors[name] && html`<p class="field-error" id=${`${id}-${name}-error`} role="alert">${errors[name]}</p>`;

  function field(one) {
    const { name, kind, choices, hint, required } = one;
    const own = { id: `${id}-${name}`, disabled: sending, ...describe(name) };
    const set = (value) => setTexts({ ...texts, [name]: value });
    const label = html`${visible(name || "Answer")}${kind === "json" && html` <small>JSON</small>`}${!required && html` <small>optional</small>`}
      ${hint && html` <small>${visible(hint)}</small>`}`;
    if (kind === "choice") {
      return html`<div class="field"><label for=${own.id}>${label}</label>
        <select ...${own} onChange=${(event) => set(choices[event.target.selectedIndex - 1] ?? null)}>
          <option selected=${texts[name] === null}></option>
          ${choices.map((choice) => html`<option key=${String(choice)} selected=${texts[name] === choice}>${wordOf(choice)}</option>`)}</select>${problem(name)}</div>`;
    }
    const onInput = (event) => set(event.target.value);
    return html`<div class="field"><label for=${own.id}>${label}</label>
      ${kind === "json" || kind === "long"
        ? html`<textarea rows=${kind === "json" ? 4 : 2} class=${kind} ...${own} value=${texts[name]} onInput=${onInput}></textarea>`
        : html`<input type="text" autocomplete="off" inputmode=${kind === "number" ? "decimal" : "text"} ...${own} value=${texts[name]} onInput=${onInput} />`}
      ${problem(name)}</div>`;
  }

  return html`<form class="ask" noValidate onSubmit=${submit} aria-label="Answer">
    <p class="question">${visible(call.question)}${call.expires_at && html` <span class="expires">Until ${new Date(call.expires_at).toLocaleString()}.</span>`}</p>
    ${buttons
      ? html`${problem("")}<div class="buttons">${fields[0].choices.map((choice) => html`<button type="button" key=${String(choice)} disabled=${sending}
          onClick=${(event) => send(choice, event.target)}>${wordOf(choice)}</button>`)}</div>`
      : html`${fields.map(field)}${!Object.hasOwn(texts, "") && problem("")}
        <div class="buttons"><button type="submit" class="primary" disabled=${sending}>Answer</button></div>`}
  </form>`;
}

/** What was asked and answered before. */
export function Answered({ questions }) {
  return html`<dl class="arguments answered">${questions.map(({ question, answer }, at) => html`<div key=${at}><dt>${visible(question)}</dt>
    <dd>${visible(typeof answer === "string" ? answer : typeof answer === "boolean" ? wordOf(answer) : JSON.stringify(answer, null, 2))}</dd></div>`)}</dl>`;
}

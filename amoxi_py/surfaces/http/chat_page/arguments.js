/** The form in which a person changes a call's arguments: a field for each, or all of them as JSON. */

import { html, useId, useState } from "./view.js";

/** What kind of field a value is edited in; what is no plain value is edited as JSON. */
function kindOf(value) {
  if (typeof value === "string") return "text";
  if (typeof value === "number") return "number";
  return typeof value === "boolean" ? "switch" : "json";
}

function textOf(value) {
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}

/** Return the value of a field; throw with a sentence for the person when it is none. */
function valueOf(kind, text) {
  if (kind === "text" || kind === "switch") return text;
  if (kind === "number") {
    if (text.trim() === "" || !Number.isFinite(Number(text))) throw new Error("This must be a number.");
    return Number(text);
  }
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`This is no JSON: ${error.message}.`);
  }
}

/**
 * @param {object} props
 * @param {object} props.value the arguments as they are
 * @param {(edited: object) => Promise<?Error>} props.onSubmit gives the server's refusal, whose fields are shown
 * @param {() => void} props.onClose
 */
export function ArgumentsForm({ value, onSubmit, onClose }) {
  const id = useId();
  const fields = Object.entries(value).map(([name, each]) => ({ name, kind: kindOf(each) }));
  const [whole, setWhole] = useState(fields.length === 0);
  const [texts, setTexts] = useState(() =>
    Object.fromEntries(fields.map(({ name, kind }) => [name, kind === "switch" ? value[name] : textOf(value[name])])));
  const [json, setJson] = useState(() => JSON.stringify(value, null, 2));
  const [errors, setErrors] = useState({});
  const [sending, setSending] = useState(false);

  function read() {
    const problems = {};
    let edited = {};
    if (whole) {
      try {
        edited = valueOf("json", json);
        if (edited === null || typeof edited !== "object" || Array.isArray(edited)) throw new Error("This must be a JSON object.");
      } catch (error) {
        problems[""] = error.message;
      }
    } else {
      for (const { name, kind } of fields) {
        try {
          edited[name] = valueOf(kind, texts[name]);
        } catch (error) {
          problems[name] = error.message;
        }
      }
    }
    setErrors(problems);
    return Object.keys(problems).length ? null : edited;
  }

  function change() {
    const edited = read();
    if (edited === null) return;
    if (whole) setTexts(Object.fromEntries(Object.entries(edited).map(([name, each]) => [name, typeof each === "boolean" ? each : textOf(each)])));
    else setJson(JSON.stringify(edited, null, 2));
    setWhole(!whole);
  }

  async function submit(event) {
    event.preventDefault();
    const edited = read();
    if (edited === null || sending) return;
    setSending(true);
    const refusal = await onSubmit(edited);
    setSending(false);
    const problems = {};
    for (const { field, message } of refusal?.errors ?? []) {
      const name = field.replace(/^arguments\./, "").split(".")[0];
      problems[!whole && name in texts ? name : ""] = whole || !(name in texts) ? `${field}: ${message}` : message;
    }
    setErrors(problems);
  }

  const describe = (name) => (errors[name] ? { "aria-invalid": "true", "aria-describedby": `${id}-${name}-error` } : {});
  const problem = (name) => errors[name] && html`<p class="field-error" id=${`${id}-${name}-error`} role="alert">${errors[name]}</p>`;

  function field({ name, kind }, index) {
    const set = (each) => setTexts({ ...texts, [name]: each });
    const own = { id: `${id}-${name}`, name, ...describe(name), ...(index === 0 ? { "data-focus": "" } : {}) };
    if (kind === "switch") {
      return html`<div class="field"><label class="switch"><input type="checkbox" ...${own} checked=${texts[name]}
        onChange=${(event) => set(event.target.checked)} /> ${name}</label>${problem(name)}</div>`;
    }
    const long = kind === "json" || `${texts[name]}`.includes("\n") || `${texts[name]}`.length > 80;
    const onInput = (event) => set(event.target.value);
    return html`<div class="field"><label for=${own.id}>${name}${kind === "json" && html` <small>JSON</small>`}</label>
      ${long
        ? html`<textarea rows="4" class=${kind} spellcheck=${kind === "text"} ...${own} value=${texts[name]} onInput=${onInput}></textarea>`
        : html`<input type="text" inputmode=${kind === "number" ? "decimal" : "text"} autocomplete="off" ...${own} value=${texts[name]} onInput=${onInput} />`}
      ${problem(name)}</div>`;
  }

  return html`<form class="edit" noValidate onSubmit=${submit} aria-label="Edit before approving">
    ${whole
      ? html`<div class="field"><label for=${`${id}-json`}>Arguments <small>JSON</small></label>
          <textarea id=${`${id}-json`} data-focus="" rows="6" class="json" spellcheck="false" ...${describe("")} value=${json}
            onInput=${(event) => setJson(event.target.value)}></textarea></div>`
      : fields.map(field)}
    ${problem("")}
    <div class="buttons">
      <button type="submit" class="primary" disabled=${sending}>Approve with these</button>
      <button type="button" onClick=${change}>${whole ? "Edit as fields" : "Edit as JSON"}</button>
      <button type="button" class="quiet" onClick=${onClose}>Back</button>
    </div>
  </form>`;
}

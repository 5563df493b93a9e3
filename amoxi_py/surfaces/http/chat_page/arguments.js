/** The form in which a person changes a call's arguments: a field for each, or all of them as JSON. */

import { isNumber, isRounded, numberOf, parseJson } from "./numbers.js";
import { visible } from "./visible.js";
import { html, useId, useState } from "./view.js";

/** What kind of field a value is edited in; what is no plain value is edited as JSON. */
function kindOf(value) {
  if (typeof value === "string") return "text";
  if (isNumber(value)) return "number";
  return typeof value === "boolean" ? "switch" : "json";
}

function textOf(value) {
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}

/** What the fields of an object show: texts, and whether a switch is on. */
function textsOf(values) {
  return Object.fromEntries(Object.entries(values).map(([name, each]) => [name, typeof each === "boolean" ? each : textOf(each)]));
}

/** Return the value of a field; throw with a sentence for the person when it is none. */
function valueOf(kind, text) {
  if (kind === "text" || kind === "switch") return text;
  if (kind === "number") return numberOf(text.trim());
  let value;
  try {
    value = parseJson(text);
  } catch (error) {
    throw new Error(`This is no JSON: ${error.message}.`);
  }
  if (isRounded(value)) throw new Error("This browser cannot keep a number as large as one of these.");
  return value;
}

/**
 * @param {object} props
 * @param {object} props.value the arguments as they are
 * @param {(edited: object) => Promise<?Error>} props.onSubmit gives the server's refusal, whose fields are shown
 * @param {() => void} props.onClose
 */
export function ArgumentsForm({ value, onSubmit, onClose }) {
  const id = useId();
  const [before, setBefore] = useState(value);
  const fields = Object.entries(before).map(([name, each]) => ({ name, kind: kindOf(each) }));
  const [whole, setWhole] = useState(fields.length === 0);
  const [texts, setTexts] = useState(() => textsOf(value));
  const [json, setJson] = useState(() => JSON.stringify(value, null, 2));
  const [errors, setErrors] = useState({});
  const [sending, setSending] = useState(false);

  function read() {
    const problems = {};
    let edited = null;
    if (whole) {
      try {
        edited = valueOf("json", json);
        if (edited === null || typeof edited !== "object" || Array.isArray(edited)) throw new Error("This must be a JSON object.");
      } catch (error) {
        problems[""] = error.message;
      }
    } else {
      const entries = [];
      for (const { name, kind } of fields) {
        try {
          entries.push([name, valueOf(kind, texts[name])]);
        } catch (error) {
          problems[name] = error.message;
        }
      }
      edited = Object.fromEntries(entries);
    }
    setErrors(problems);
    return Object.keys(problems).length ? null : edited;
  }

  function change() {
    const edited = read();
    if (edited === null) return;
    if (whole) {
      setBefore(edited);
      setTexts(textsOf(edited));
    } else {
      setJson(JSON.stringify(edited, null, 2));
    }
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
      const own = !whole && Object.hasOwn(texts, name);
      problems[own ? name : ""] = visible(own ? message : `${field}: ${message}`);
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
        onChange=${(event) => set(event.target.checked)} /> ${visible(name)}</label>${problem(name)}</div>`;
    }
    const long = kind === "json" || `${texts[name]}`.includes("\n") || `${texts[name]}`.length > 80;
    const onInput = (event) => set(event.target.value);
    const plain = visible(texts[name]);
    return html`<div class="field"><label for=${own.id}>${visible(name)}${kind === "json" && html` <small>JSON</small>`}</label>
      ${long
        ? html`<textarea rows="4" class=${kind} spellcheck=${kind === "text"} ...${own} value=${texts[name]} onInput=${onInput}></textarea>`
        : html`<input type="text" inputmode=${kind === "number" ? "decimal" : "text"} autocomplete="off" ...${own} value=${texts[name]} onInput=${onInput} />`}
      ${plain !== texts[name].replaceAll("\r\n", "\n") && html`<p class="none">With hidden signs: ${plain}</p>`}${problem(name)}</div>`;
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

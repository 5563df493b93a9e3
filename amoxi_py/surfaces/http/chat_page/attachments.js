/** Files that go with the next message: each is uploaded as soon as it is chosen, and can be taken away again. */

import { html, useRef } from "./view.js";
import { visible } from "./visible.js";

/**
 * @typedef {{key: number, name: string, size: number, part: number, id: ?string, abort: AbortController}} Attachment
 *   `part` is how much of it is uploaded, from 0 to 1; `id` is there when the server has it
 */
export class Attachments {
  /**
   * @param {import("./client.js").AmoxiClient} client
   * @param {() => void} onChange called after every change
   * @param {(problem: string) => void} onProblem told what could not be uploaded, and why
   */
  constructor(client, onChange, onProblem) {
    Object.assign(this, { client, onChange, onProblem });
    /** @type {Attachment[]} */
    this.items = [];
    this.told = ""; // for a screen reader
    this.last = 0;
  }

  get uploading() {
    return this.items.some(({ id }) => id === null);
  }

  get ids() {
    return this.items.map(({ id }) => id);
  }

  /** @param {Iterable<File>} files */
  add(files) {
    this.onProblem("");
    for (const file of files) this.#upload(file);
  }

  /** Take one away; the server forgets it. */
  remove(attachment) {
    attachment.abort.abort();
    if (attachment.id) this.client.deleteFile(attachment.id).catch(() => {}); // it may be gone, and takes only space
    this.#drop(attachment, `${visible(attachment.name)} removed.`);
  }

  /** They are sent: the next message begins without any. */
  sent(ids) {
    this.items = this.items.filter(({ id }) => !ids.includes(id));
    this.onChange();
  }

  close() {
    for (const { abort } of this.items) abort.abort();
  }

  async #upload(file) {
    const attachment = { key: ++this.last, name: file.name, size: file.size, part: 0, id: null, abort: new AbortController() };
    this.items = [...this.items, attachment];
    this.onChange();
    try {
      const { id } = await this.client.upload(file, {
        signal: attachment.abort.signal,
        onProgress: (part) => {
          attachment.part = part;
          this.onChange();
        },
      });
      Object.assign(attachment, { id, part: 1 });
      this.told = `${visible(file.name)} uploaded.`;
      this.onChange();
    } catch (error) {
      if (attachment.abort.signal.aborted) return;
      this.#drop(attachment, "");
      this.onProblem(`${visible(file.name)} was not uploaded: ${error.message}`);
    }
  }

  #drop(attachment, told) {
    this.items = this.items.filter((each) => each !== attachment);
    this.told = told;
    this.onChange();
  }
}

/** The files that are chosen, with their progress. */
export function AttachmentList({ attachments, onRemoved }) {
  return html`<div class="attachments">
    ${attachments.items.length > 0 && html`<ul aria-label="Files to send">${attachments.items.map((each) => html`<li key=${each.key}>
      <span class="name">${visible(each.name)}</span> <small>${sizeText(each.size)}</small>
      ${each.id === null && html`<progress max="1" value=${each.part} aria-label=${`Uploading ${visible(each.name)}`}></progress>`}
      <button type="button" class="quiet" aria-label=${`Remove ${visible(each.name)}`}
        onClick=${() => { attachments.remove(each); onRemoved(); }}><span aria-hidden="true">✕</span></button></li>`)}</ul>`}
    <p class="visually-hidden" aria-live="polite">${attachments.told || null}</p>
  </div>`;
}

/** The button that chooses files. */
export function AttachButton({ attachments, onChosen }) {
  const input = useRef(null);
  function take() {
    attachments.add([...input.current.files]);
    input.current.value = ""; // the same file may be chosen again
    onChosen();
  }
  return html`<input type="file" multiple hidden tabindex="-1" ref=${input} onChange=${take} />
    <button type="button" class="attach" aria-label="Attach files" title="Attach files" onClick=${() => input.current.click()}>
      <span aria-hidden="true">+</span></button>`;
}

/** A size as people read it. */
export function sizeText(bytes) {
  if (bytes < 1000) return `${bytes} B`;
  const units = ["kB", "MB", "GB"];
  const power = Math.min(Math.floor(Math.log10(bytes) / 3), units.length);
  return `${(bytes / 1000 ** power).toLocaleString([], { maximumFractionDigits: 1 })} ${units[power - 1]}`;
}

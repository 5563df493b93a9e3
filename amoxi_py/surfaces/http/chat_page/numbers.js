/**
 * JSON whose numbers stay as they were written: `9007199254740993` and `1.0` are no numbers of JavaScript.
 *
 * A number that JavaScript would write in another way is a `Number` with the text it came as in `source`; it
 * calculates like any other, and `JSON.stringify` writes the text. A browser without this gives the nearest number.
 */

const NUMBER = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/;

let sources = false;
JSON.parse("1", (_, value, context) => {
  sources = context?.source === "1" && typeof JSON.rawJSON === "function";
  return value;
});

/** A number and the text it came as. */
export class WrittenNumber extends Number {
  constructor(source) {
    super(source);
    this.source = source;
  }

  toString() {
    return this.source;
  }

  toJSON() {
    return JSON.rawJSON(this.source);
  }
}

export function parseJson(text) {
  return sources ? JSON.parse(text, keep) : JSON.parse(text);
}

/** Whether a value is a number, as written or not. */
export function isNumber(value) {
  return typeof value === "number" || value instanceof WrittenNumber;
}

/** The number that a text is; throws when it is none in JSON, or one that this browser would change. */
export function numberOf(text) {
  if (!NUMBER.test(text)) throw new Error("This must be a number, such as 12 or -0.5.");
  if (!Number.isFinite(Number(text))) throw new Error("This number is too large.");
  const value = parseJson(text);
  if (isRounded(value)) throw new Error("This browser cannot keep a number as large as this.");
  return value;
}

/** Whether a value that came from the server holds a number that this browser could not keep. */
export function isRounded(value) {
  if (typeof value === "number") return !isKept(value);
  if (value === null || typeof value !== "object" || value instanceof WrittenNumber) return false;
  return Object.values(value).some(isRounded);
}

function keep(_, value, context) {
  if (typeof value !== "number" || context.source === undefined) return value;
  return isKept(value) && String(value) === context.source ? value : new WrittenNumber(context.source);
}

function isKept(value) {
  return Number.isFinite(value) && (!Number.isInteger(value) || Number.isSafeInteger(value));
}

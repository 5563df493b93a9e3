/** Text of models, tools and people with its hidden signs shown as their numbers, the same ones as in the terminal. */

const HIDDEN = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]/gu;

/** The text with control signs, and those that turn the direction around, as `\x07` or `\u202e`. */
export function visible(text) {
  return text.replaceAll("\r\n", "\n").replace(HIDDEN, (sign) => {
    const number = sign.charCodeAt(0);
    return number < 0x100 ? `\\x${number.toString(16).padStart(2, "0")}` : `\\u${number.toString(16).padStart(4, "0")}`;
  });
}

/** A tool's name as words. */
export function toolTitle(name) {
  return visible(name.replaceAll("_", " "));
}

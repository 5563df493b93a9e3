/**
 * From a model's Markdown to HTML that can do nothing: raw HTML is shown as text, only a few elements are left, links
 * go to the web or to mail, and pictures come from this server's files only (a foreign picture tells its address).
 */

import DOMPurify from "./vendor/dompurify.js";
import { Marked } from "./vendor/marked.js";

const LINK = /^(?:https?:|mailto:|[/#?.]|[^:]*$)/i;
const OPTIONS = {
  ALLOWED_TAGS: ["a", "blockquote", "br", "code", "del", "div", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "img",
    "li", "ol", "p", "pre", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul"],
  ALLOWED_ATTR: ["align", "alt", "href", "rel", "role", "src", "start", "tabindex", "target", "title"],
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
};

/** @param {string} files where the addresses of this server's files begin */
export function markdownFor(files) {
  const marked = new Marked({
    gfm: true,
    breaks: true,
    renderer: {
      html: ({ text, block }) => (block ? `<p>${escape(text)}</p>` : escape(text)),
      code: ({ text }) => `<pre tabindex="0"><code>${escape(text)}</code></pre>`,
      checkbox: ({ checked }) => (checked ? "☑ " : "☐ "),
      image({ href, text }) {
        const own = address(href).startsWith(files);
        return own ? `<img src="${escape(href)}" alt="${escape(text)}">` : link(href, escape(text || href));
      },
      link({ href, tokens }) {
        return link(href, this.parser.parseInline(tokens));
      },
      heading({ depth, tokens }) {
        const level = Math.min(depth + 2, 6); // the page's own are above
        return `<h${level}>${this.parser.parseInline(tokens)}</h${level}>`;
      },
    },
  });
  return (text) => DOMPurify.sanitize(marked.parse(text).replaceAll("<table>", '<div tabindex="0"><table>')
    .replaceAll("</table>", "</table></div>"), OPTIONS);
}

function link(href, html) {
  if (!LINK.test(href.trim())) return html;
  return `<a href="${escape(href)}" target="_blank" rel="noopener noreferrer nofollow">${html}</a>`;
}

function address(href) {
  try {
    return new URL(href, location.href).href;
  } catch {
    return "";
  }
}

function escape(text) {
  return text.replace(/[&<>"']/g, (sign) => `&#${sign.charCodeAt(0)};`);
}

// @ts-check
// Links to the docs. Their address comes from the server.

import { el } from "./dom.js";

let address = "";

/** @param {string} base the address of the docs, with a slash at its end */
export function setDocs(base) {
  address = base;
}

/**
 * A link to a page of the docs, null where none is known.
 * @param {string|undefined} path below the address
 * @param {string} text
 * @param {string} [label] for a screen reader, where the text alone says too little
 */
export const docsLink = (path, text, label) => (path && address ? el("a", { class: "docs", href: address + path,
  target: "_blank", rel: "noopener noreferrer", "aria-label": label ?? null, title: label ?? null }, text) : null);

/** A small sign that leads to what a reason means. @param {{reason?: string, docs?: string}} row */
export const aboutReason = (row) => docsLink(row.docs, "", `What ${row.reason} means`);

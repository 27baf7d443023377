// @ts-check
// Tables as files: CSV for spreadsheets, and JSON.

import { el } from "../app/dom.js";

/**
 * A table as CSV (RFC 4180). A cell that a spreadsheet would run as a formula begins with an apostrophe: names and
 * messages come from the cluster.
 * @param {Record<string, any>[]} objects the first has the names of the columns, unless columns are given
 * @param {string[]} columns
 */
export const csv = (objects, columns) => [columns, ...objects.map((o) => columns.map((column) => o[column]))]
  .map((cells) => cells.map(cell).join(",") + "\r\n").join("");

/** @param {any} value */
function cell(value) {
  const text = value === undefined || value === null ? "" : typeof value === "object" ? JSON.stringify(value) :
    String(value);
  const safe = typeof value === "string" && /^[=+\-@\t\r]/.test(text) ? "'" + text : text;
  return /[",\r\n]/.test(safe) ? '"' + safe.replaceAll('"', '""') + '"' : safe;
}

/**
 * The buttons that save a table.
 * @param {string} name of the files
 * @param {string[]} columns of the CSV; JSON has all fields
 * @param {() => Record<string, any>[]} objects what the table shows now
 */
export function saveButtons(name, columns, objects) {
  /** @param {string} type @param {string} media @param {() => string} text */
  const button = (type, media, text) => el("button", { type: "button", class: "quiet save", "aria-label":
    `Save the table ${name} as ${type}`, click: () => save(`${name}.${type.toLowerCase()}`, media, text()) }, type);
  return el("div", { class: "saves" }, button("CSV", "text/csv", () => csv(objects(), columns)),
    button("JSON", "application/json", () => JSON.stringify(objects(), null, 2) + "\n"));
}

/** @param {string} name @param {string} media @param {string} text */
function save(name, media, text) {
  const url = URL.createObjectURL(new Blob([text], { type: media }));
  el("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

// @ts-check
// The contents of the tables' columns.

import { aboutReason } from "../app/docs.js";
import { el, setText, sign } from "../app/dom.js";
import { ageElement, byClaim, kindWord, knownName, setAge, severityWord, size } from "../app/format.js";
import { rowHash } from "../app/route.js";
import { fillText } from "./table.js";

/**
 * The name that people know stands first: that of the claim, where there is one. The other name is below it.
 * @param {HTMLElement} cell @param {RowRecord} r
 */
function fillName(cell, { row }) {
  const hash = rowHash(row);
  /** @param {string} name @param {string} text */
  const link = (name, text) => el(hash ? "a" : "span", { href: hash || null, tabindex: hash ? -1 : null, class: name },
    text);
  // A volume is named by its driver and its handle, and the driver has a column.
  const own = row.kind === "volume" && row.driver ? row.name.replace(row.driver + "/", "") : row.name;
  const other = row.pv ?? (row.node === row.name ? "" : row.node);
  const below = byClaim(row) ? el("span", { class: "name" }, own) : other;
  cell.replaceChildren(el("span", { class: "kind" }, kindWord(row.kind)), el("span", { class: "names" },
    el("span", { class: "line" }, ...(byClaim(row) ? [link("known", row.claim ?? "")] :
      [row.namespace ? el("span", { class: "namespace" }, row.namespace + "/") : "", link("name", own)])),
    below ? el("span", { class: "line below" }, below) : ""));
  cell.title = [knownName(row), byClaim(row) ? own : other].filter(Boolean).join("\n");
}

/** @param {HTMLElement} cell @param {RowRecord} r */
function fillSeverity(cell, { row }) {
  cell.replaceChildren(sign(row.severity), el("span", { class: "hidden" }, severityWord(row.severity)));
  cell.title = severityWord(row.severity);
}

/** @param {HTMLElement} cell @param {RowRecord} r */
function fillReason(cell, { row }) {
  cell.replaceChildren(row.reason ?? "", aboutReason(row) ?? "");
}

/** @param {HTMLElement} cell @param {RowRecord} r */
function fillAge(cell, { since }) {
  const time = cell.firstChild;
  if (time instanceof HTMLTimeElement) setAge(time, since);
  else cell.replaceChildren(ageElement(since));
}

/** @param {HTMLElement} cell @param {RowRecord} r */
function fillPhase(cell, { row }) {
  fillText(cell, row.terminating ? [row.phase, "terminating"].filter(Boolean).join(", ") : row.phase);
}

/** @type {Record<string, Column>} */
const COLUMNS = {
  severity: { key: "severity", title: "Severity", fill: fillSeverity },
  name: { key: "name", title: "Object", fill: fillName },
  reason: { key: "reason", title: "Reason", fill: fillReason },
  text: { key: "text", title: "Why", fill: (cell, { row }) => fillText(cell, row.text), plain: true },
  driver: { key: "driver", title: "Driver", fill: (cell, { row }) => fillText(cell, row.driver) },
  age: { key: "age", title: "Waits for", fill: fillAge },
  phase: { key: "phase", title: "Phase", fill: fillPhase },
  policy: { key: "policy", title: "Policy", fill: (cell, { row }) => fillText(cell, row.policy) },
  size: { key: "size", title: "Size", fill: (cell, { row }) => setText(cell, size(row.bytes)) },
};

/** @type {Record<string, Column[]>} the columns of each view */
export const OF_VIEW = {
  waiting: [COLUMNS.severity, COLUMNS.name, COLUMNS.reason, COLUMNS.driver, COLUMNS.text, COLUMNS.age],
  volumes: [COLUMNS.severity, COLUMNS.name, COLUMNS.phase, COLUMNS.policy, COLUMNS.driver, COLUMNS.size, COLUMNS.reason,
    COLUMNS.age],
  leaks: [{ ...COLUMNS.name, title: "Volume" }, COLUMNS.driver, COLUMNS.text, COLUMNS.size,
    { ...COLUMNS.age, title: "Seen for" }],
};

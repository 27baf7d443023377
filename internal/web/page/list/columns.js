// @ts-check
// The contents of the tables' columns.

import { el, setText, sign } from "../app/dom.js";
import { ageElement, kindWord, setAge, severityWord, size } from "../app/format.js";
import { rowHash } from "../app/route.js";
import { fillText } from "./table.js";

/** @param {HTMLElement} cell @param {RowRecord} r */
function fillName(cell, { row }) {
  const hash = rowHash(row);
  // A volume is named by its driver and its handle, and the driver has a column.
  const text = row.kind === "volume" && row.driver ? row.name.replace(row.driver + "/", "") : row.name;
  const name = hash ? el("a", { href: hash, tabindex: -1, class: "name" }, text) : el("span", { class: "name" }, text);
  cell.replaceChildren(el("span", { class: "kind" }, kindWord(row.kind)),
    el("span", { class: "names" }, row.namespace ? el("span", { class: "namespace" }, row.namespace + "/") : "", name));
  cell.title = (row.namespace ? row.namespace + "/" : "") + text;
}

/** @param {HTMLElement} cell @param {RowRecord} r */
function fillSeverity(cell, { row }) {
  cell.replaceChildren(sign(row.severity), el("span", { class: "hidden" }, severityWord(row.severity)));
  cell.title = severityWord(row.severity);
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
  reason: { key: "reason", title: "Reason", fill: (cell, { row }) => fillText(cell, row.reason) },
  text: { key: "text", title: "Why", fill: (cell, { row }) => fillText(cell, row.text), plain: true },
  driver: { key: "driver", title: "Driver", fill: (cell, { row }) => fillText(cell, row.driver) },
  age: { key: "age", title: "Waits for", fill: fillAge },
  phase: { key: "phase", title: "Phase", fill: fillPhase },
  bound: { key: "bound", title: "Bound to", fill: (cell, { row }) => fillText(cell, row.claim ?? row.pv ?? row.node) },
  policy: { key: "policy", title: "Policy", fill: (cell, { row }) => fillText(cell, row.policy) },
  size: { key: "size", title: "Size", fill: (cell, { row }) => setText(cell, size(row.bytes)) },
};

/** @type {Record<string, Column[]>} the columns of each view */
export const OF_VIEW = {
  waiting: [COLUMNS.severity, COLUMNS.name, COLUMNS.reason, COLUMNS.text, COLUMNS.driver, COLUMNS.age],
  volumes: [COLUMNS.severity, COLUMNS.name, COLUMNS.phase, COLUMNS.bound, COLUMNS.policy, COLUMNS.driver, COLUMNS.size,
    COLUMNS.reason, COLUMNS.age],
  leaks: [{ ...COLUMNS.name, title: "Volume" }, COLUMNS.driver, COLUMNS.text, COLUMNS.size,
    { ...COLUMNS.age, title: "Seen for" }],
};

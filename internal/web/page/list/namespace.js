// @ts-check
// The overview of one namespace, by pure functions: its rows say what waits there, and for how long.

import { valueOf, VIEWS } from "./query.js";

/** view.AgeSteps, in milliseconds. */
const AGE_STEPS = [60, 600, 3600, 24 * 3600, 7 * 24 * 3600].map((seconds) => seconds * 1000);

/** @param {Row} row @returns {string} "" for none */
export const namespaceOf = (row) => valueOf(row, "namespace") ?? "";

/**
 * The drivers with objects in a namespace, with the counts of these objects. What is of the whole driver stays, and
 * what rows do not tell is left out.
 * @param {DriverSummary[]} drivers
 * @param {RowRecord[]} records
 * @param {string} namespace
 * @param {number} now
 * @returns {DriverSummary[]}
 */
export function driversIn(drivers, records, namespace, now) {
  /** @type {Map<string, RowRecord[]>} */
  const of = new Map(drivers.map(({ driver }) => [driver, []]));
  for (const r of records) if (namespaceOf(r.row) === namespace) of.get(r.row.driver ?? "")?.push(r);
  return drivers.filter(({ driver }) => of.get(driver)?.length).map((d) => count(d, of.get(d.driver) ?? [], now));
}

/** @param {DriverSummary} d @param {RowRecord[]} records @param {number} now @returns {DriverSummary} */
function count(d, records, now) {
  const of = (/** @type {string} */ kind) => records.filter(({ row }) => row.kind === kind);
  const waits = records.filter(({ row }) => VIEWS.waiting(row));
  /** @type {Record<string, number>} */
  const waiting = {};
  for (const { row } of waits) waiting[row.reason ?? ""] = (waiting[row.reason ?? ""] ?? 0) + 1;
  const ages = [...AGE_STEPS, 0].map(() => 0);
  for (const { since } of waits) {
    if (Number.isNaN(since)) continue;
    const step = AGE_STEPS.findIndex((end) => now - since < end);
    ages[step < 0 ? AGE_STEPS.length : step]++;
  }
  return { ...d, pvs: of("pv").length, protected: undefined, unprotected: undefined, inFlight: of("inflight").length,
    terminating: of("pv").filter(({ row }) => row.terminating).length, waiting, ages,
    attention: waits.filter(({ row }) => row.severity === "attention").length,
    bytes: waits.filter(({ row }) => row.kind === "pv" && row.policy === "Delete")
      .reduce((sum, { row }) => sum + (row.bytes ?? 0), 0) };
}

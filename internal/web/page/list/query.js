// @ts-check
// Selects and sorts the rows of a table, by pure functions.

import { knownName } from "../app/format.js";

/** @type {Record<string, (row: Row) => boolean>} which rows a view has */
export const VIEWS = {
  waiting: (row) => row.waits && row.kind !== "volume",
  volumes: (row) => row.kind === "pv" || row.kind === "claim",
  leaks: (row) => row.kind === "volume",
};

/**
 * The records that stand for a volume each: without the claims whose PV is among them, or that have none.
 * @param {RowRecord[]} records
 */
export function volumes(records) {
  const pvs = new Set(records.map(({ row }) => (row.kind === "pv" ? row.name : "")));
  return records.filter(({ row }) => row.kind !== "claim" || row.pv && !pvs.has(row.pv));
}

/** What can be filtered by. */
export const FACETS = ["kind", "namespace", "driver", "severity", "reason"];

/** A PV is of the namespace of its claim. @param {Row} row @param {string} facet @returns {string|undefined} */
export const valueOf = (row, facet) => (facet === "namespace" ? row.namespace ?? row.claim?.split("/")[0] :
  /** @type {any} */ (row)[facet]);

const RANK = { attention: 2, waits: 1, none: 0 };

/** @type {Record<string, (r: RowRecord) => string|number>} what a column sorts by */
const KEYS = {
  name: (r) => knownName(r.row).toLowerCase(),
  kind: (r) => r.row.kind,
  driver: (r) => r.row.driver ?? "",
  reason: (r) => r.row.reason ?? "",
  text: (r) => r.row.text ?? "",
  phase: (r) => (r.row.terminating ? "terminating" : (r.row.phase ?? "").toLowerCase()),
  policy: (r) => r.row.policy ?? "",
  size: (r) => r.row.bytes ?? 0,
  severity: (r) => RANK[/** @type {keyof RANK} */ (r.row.severity)] ?? 0,
  // Ascending puts the youngest first. A row without a time counts as youngest.
  age: (r) => (Number.isNaN(r.since) ? -Infinity : -r.since),
};

/**
 * The records that a query selects, sorted.
 * @param {Iterable<RowRecord>} records
 * @param {string} view
 * @param {URLSearchParams} query
 */
export function select(records, view, query) {
  const keep = filter(view, query, "");
  const chosen = [];
  for (const r of records) if (keep(r)) chosen.push(r);
  return sort(chosen, order(view, query));
}

/**
 * How many rows each value of a facet would leave, with all other filters as they are, the most frequent first.
 * @param {Iterable<RowRecord>} records
 * @param {string} view
 * @param {URLSearchParams} query
 * @returns {Record<string, [value: string, count: number][]>}
 */
export function facets(records, view, query) {
  const all = FACETS.map((facet) => ({ facet, keep: filter(view, query, facet), counts: new Map() }));
  for (const r of records) {
    for (const { facet, keep, counts } of all) {
      const value = valueOf(r.row, facet);
      if (value && keep(r)) counts.set(value, (counts.get(value) ?? 0) + 1);
    }
  }
  return Object.fromEntries(all.map(({ facet, counts }) => [facet,
    [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1))]));
}

/**
 * @param {string} view
 * @param {URLSearchParams} query
 * @param {string} but a facet that does not filter
 * @returns {(r: RowRecord) => boolean}
 */
function filter(view, query, but) {
  const inView = VIEWS[view];
  const words = (query.get("q") ?? "").toLowerCase().split(/\s+/).filter(Boolean);
  const wanted = FACETS.filter((facet) => facet !== but && query.get(facet)).map((facet) => [facet, query.get(facet)]);
  return (r) => inView(r.row) && wanted.every(([facet, value]) => valueOf(r.row, facet ?? "") === value) &&
    words.every((word) => r.text.includes(word));
}

/**
 * The column that a query sorts by: "sort" is its key, with "-" ahead for descending. By default what needs a person
 * comes first, then what waits longest; leaks by size.
 * @param {string} view
 * @param {URLSearchParams} query
 */
export function order(view, query) {
  const sort = query.get("sort") ?? "";
  const key = sort.replace(/^-/, "");
  if (key in KEYS) return { key, descending: sort.startsWith("-") };
  return { key: { waiting: "severity", leaks: "size" }[view] ?? "name", descending: view !== "volumes" };
}

/**
 * Sorts in place. Rows that are equal stand by age, the oldest first, then by id: so their order never depends on the
 * order of the updates.
 * @param {RowRecord[]} records
 * @param {{key: string, descending: boolean}} by
 */
function sort(records, { key, descending }) {
  const of = KEYS[key];
  const sign = descending ? -1 : 1;
  const keyed = records.map((r) => ({ r, k: of(r), a: KEYS.age(r) }));
  keyed.sort((x, y) => sign * compare(x.k, y.k) || -compare(x.a, y.a) || compare(x.r.id, y.r.id));
  return keyed.map(({ r }) => r);
}

/** @param {string|number} a @param {string|number} b */
const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);

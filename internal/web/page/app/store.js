// @ts-check
// The rows of all tables, as the stream of lists has them.

/** @param {Row} row @returns {RowRecord} */
export function record(row) {
  const text = [row.namespace, row.name, row.reason, row.text, row.driver, row.claim, row.pv, row.node, row.phase]
    .filter(Boolean).join(" ").toLowerCase();
  return { row, id: row.id, text, since: row.since ? Date.parse(row.since) : NaN };
}

export class Store {
  /** @type {Map<string, RowRecord>} */
  records = new Map();
  /** Whether the server has read all that it can: else rows are missing. */
  complete = false;
  /** Whether the server could not read all kinds that have rows: missing rows then show nothing. */
  partial = false;
  /** Whether it could not read something, such as reports of leaks. */
  unread = false;

  /**
   * Applies an event "rows": view.Rows.
   * @param {{reset?: boolean, set?: Row[], remove?: string[]}} rows
   */
  apply(rows) {
    if (rows.reset) this.records.clear();
    for (const row of rows.set ?? []) this.records.set(row.id, record(row));
    for (const id of rows.remove ?? []) this.records.delete(id);
  }
}

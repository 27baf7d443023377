// @ts-check
// The first view: a row for each driver, and what changed in the last hour.

import { docsLink } from "../app/docs.js";
import { el, sign, svg } from "../app/dom.js";
import { ageElement, clock, knownName, kindWord, millis, number, plural, size } from "../app/format.js";
import { listHash, rowHash } from "../app/route.js";
import { saveButtons } from "./export.js";
import { driversIn, namespaceOf } from "./namespace.js";
import { Notices } from "./notices.js";

/** The intervals of view.AgeSteps in words. */
const AGES = ["under 1m", "1m to 10m", "10m to 1h", "1h to 1d", "1d to 7d", "over 7d"];

/** @type {Record<string, string>} */
const CHANGES = { began: "Waits", reason: "Waits for another reason", ended: "No longer waits", gone: "Gone" };

const UNKNOWN = "unknown";

const FIELDS = ["driver", "role", "pvs", "protected", "unprotected", "terminating", "inFlight", "fill", "waiting",
  "attention", "bytes", "ages", "brake", "leader", "version", "admission"];

export class Overview {
  title = "Overview";
  #last = "";
  /** @type {DriverSummary[]} */
  #drivers = [];

  /** @type {Summary|null} */
  #summary = null;

  /**
   * @param {URLSearchParams} query with the namespace, none for all
   * @param {import("../app/store.js").Store} store
   * @param {Summary|null} summary null until it has come
   */
  constructor(query, store, summary) {
    this.query = query;
    this.store = store;
    this.namespaces = /** @type {HTMLSelectElement} */ (el("select", { change: () => this.#choose() }));
    this.notices = new Notices("overview");
    this.count = el("p", { class: "count" }, "Reading the cluster…");
    this.body = el("tbody", {});
    this.table = el("div", { class: "drivers-table", tabindex: 0, role: "region", "aria-label": "Drivers" },
      el("table", {}, el("thead", {}, el("tr", { "aria-label": "Columns" },
        ...COLUMNS.map(([title]) => el("th", { scope: "col" }, title)))),
        this.body));
    this.empty = el("p", { class: "empty" }, "No PV belongs to a driver. ");
    this.changes = el("ol", { class: "timeline" });
    this.note = el("p", { class: "by" }, "The fill of the log, brake, leader and version are those of the driver in " +
      "all namespaces.");
    this.none = el("p", { class: "empty" }, "Nothing began to wait, or ended, in the last hour.");
    this.element = el("article", { class: "overview" },
      el("div", { class: "list-head" }, el("h1", {}, this.title), this.count,
        el("div", { class: "tools" }, el("label", {}, el("span", { class: "hidden" }, "Filter by namespace"),
          this.namespaces)),
        saveButtons("drivers", FIELDS, () => this.#drivers.map(known))),
      this.notices.element, this.table, this.note, this.empty,
      el("section", { class: "panel", "aria-labelledby": "changes-title" },
        el("h2", { id: "changes-title" }, "Changed in the last hour"), this.none, this.changes));
    this.summarize(summary);
  }

  close() {}

  /** @param {Summary|null} summary */
  summarize(summary) {
    this.#summary = summary;
    this.notices.show(summary);
    this.update();
  }

  /** Shows the summary, and of a namespace the rows of the store. */
  update() {
    const summary = this.#summary;
    if (!summary?.drivers) return;
    const records = [...this.store.records.values()];
    const namespace = this.query.get("namespace") ?? "";
    this.#offer(new Set(records.map(({ row }) => namespaceOf(row)).filter(Boolean)), namespace);
    const drivers = namespace ? driversIn(summary.drivers, records, namespace, Date.now()) : summary.drivers;
    const changes = (summary.changes ?? []).filter(({ row }) => !namespace || namespaceOf(row) === namespace)
      .reverse();
    const text = JSON.stringify([drivers, changes, namespace, this.store.partial]);
    if (text === this.#last) return;
    this.#last = text;
    this.#drivers = drivers;
    this.table.hidden = !drivers.length;
    this.note.hidden = !namespace || !drivers.length;
    this.empty.hidden = drivers.length > 0;
    const known = this.store.partial ? " that could be read" : "";
    this.empty.replaceChildren(namespace ? `No object${known} in namespace ${namespace} belongs to a driver.` :
      `No PV${known} belongs to a driver. `,
    namespace ? "" : docsLink("how-to/install.md", "Install csi-reclaimer beside a driver") ?? "");
    const sum = (/** @type {(d: DriverSummary) => number} */ of) => drivers.reduce((n, d) => n + of(d), 0);
    const attention = sum((d) => d.attention);
    this.count.textContent = plural(drivers.length, "driver") + "; " +
      plural(sum(waiting), "of their objects waits", "of their objects wait") +
      (attention ? ` · ${plural(attention, "needs", "need")} action` : "");
    this.body.replaceChildren(...drivers.map((d) => el("tr", { "aria-label": d.driver },
      ...COLUMNS.map(([title, fill], i) => el(i ? "td" : "th", { "data-title": title, scope: i ? null : "row" },
        ...[fill(d, namespace)].flat())))));
    this.none.hidden = changes.length > 0;
    this.changes.replaceChildren(...changes.map(change));
  }

  /**
   * The chosen namespace is offered also if it has no row any more.
   * @param {Set<string>} found @param {string} chosen
   */
  #offer(found, chosen) {
    const names = [...new Set([...found, ...(chosen ? [chosen] : [])])].sort();
    if (names.join() === [...this.namespaces.options].slice(1).map(({ value }) => value).join() &&
      this.namespaces.options.length) return;
    this.namespaces.replaceChildren(el("option", { value: "" }, "All namespaces"),
      ...names.map((name) => el("option", { value: name }, name)));
    this.namespaces.value = chosen;
  }

  #choose() {
    const { value } = this.namespaces;
    if (value) this.query.set("namespace", value);
    else this.query.delete("namespace");
    history.replaceState(history.state, "", listHash("overview", this.query));
    this.update();
  }
}

/** @param {DriverSummary} d */
const waiting = (d) => Object.values(d.waiting ?? {}).reduce((a, b) => a + b, 0);

/** A driver without what is not known. @param {DriverSummary} d */
const known = (d) => (d.inFlightKnown ? d : { ...d, inFlight: undefined });

/** @type {[string, (d: DriverSummary, namespace: string) => Child|Child[]][]} */
const COLUMNS = [
  ["Driver", (d, namespace) => [el("a", { href: link("volumes", d.driver, namespace) }, d.driver),
    el("span", { class: "by" }, (d.role ? "role " + d.role + ", " : "") + plural(d.pvs, "PV"))]],
  ["Protected", (d) => (d.protected === undefined ? "all namespaces only" : [number(d.protected),
    el("span", { class: d.unprotected ? "by attention" : "by" }, number(d.unprotected ?? 0) + " unprotected")])],
  ["In flight", (d) => (d.inFlightKnown ? [number(d.inFlight), el("span", { class: "by" }, d.fill === undefined ?
    "no log" : `log ${Math.ceil(d.fill * 100)} % full`)] : UNKNOWN)],
  ["Waiting, by reason", (d, namespace) => (waiting(d) ? el("ul", {}, ...Object.entries(d.waiting ?? {})
    .sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).map(([reason, n]) => el("li", {},
      reason ? el("a", { href: link("waiting", d.driver, namespace, reason) }, reason) : "other",
      " " + number(n)))) : "none")],
  ["For", (d) => histogram(d.ages)],
  ["At stake", (d) => (d.bytes ? size(d.bytes) : "none")],
  ["Brake", (d) => (d.brake === "on" ? [sign("attention"), " on"] : d.brake ?? UNKNOWN)],
  ["Leader", (d) => d.leader ?? UNKNOWN],
  ["Version", (d) => d.version ?? UNKNOWN],
];

/** @param {string} view @param {string} driver @param {string} namespace @param {string} [reason] */
const link = (view, driver, namespace, reason) => listHash(view, new URLSearchParams({ driver,
  ...(namespace ? { namespace } : {}), ...(reason ? { reason } : {}) }));

/** The ages of what waits, as bars. @param {number[]} ages */
function histogram(ages) {
  const most = Math.max(...ages);
  if (!most) return "none";
  const words = ages.map((n, i) => (n ? `${n} ${AGES[i]}` : "")).filter(Boolean).join(", ");
  return svg("svg", { class: "ages", viewBox: "0 0 84 28", width: 84, height: 28, role: "img", "aria-label": words },
    svg("title", {}, words), ...ages.map((n, i) => svg("rect", { x: i * 14 + 1, width: 12, rx: 1.5,
      height: n ? Math.max(4, (24 * n) / most) : 1.5, y: 27 - (n ? Math.max(4, (24 * n) / most) : 1.5) })));
}

/** @param {NonNullable<Summary["changes"]>[number]} c */
function change({ time, kind, row }) {
  const hash = rowHash(row);
  const at = millis(time);
  const waits = kind === "began" || kind === "reason";
  return el("li", { class: "entry " + (waits && row.severity === "attention" ? "warning" : "change") },
    el("p", { class: "entry-head" }, el("span", { class: "type" }, CHANGES[kind] ?? kind),
      kindWord(row.kind) + " ", hash ? el("a", { href: hash }, knownName(row)) : knownName(row),
      waits && row.reason ? el("strong", {}, row.reason) : null, ageElement(at, (a) => a + " ago"),
      el("span", { class: "clock" }, clock(at))),
    waits && row.text ? el("p", {}, row.text) : null);
}

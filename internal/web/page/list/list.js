// @ts-check
// The views that are lists: waiting objects, all volumes, suspected leaks. Each is a toolbar above a table. The address
// holds filter and order.

import { command } from "../app/command.js";
import { docsLink } from "../app/docs.js";
import { announce, el, setText } from "../app/dom.js";
import { kindWord, number, plural, severityWord, size } from "../app/format.js";
import { listHash, rowHash } from "../app/route.js";
import { OF_VIEW } from "./columns.js";
import { Notices } from "./notices.js";
import { saveButtons } from "./export.js";
import { facets, order, select, VIEWS, volumes } from "./query.js";
import { Table } from "./table.js";

/**
 * The words of an empty view: unread where some kinds are not read.
 * @type {Record<string, {title: string, label: string, empty: string, unread: string}>}
 */
const WORDS = {
  waiting: { title: "Waiting", label: "Waiting objects", empty: "Nothing waits.",
    unread: "Nothing that could be read waits." },
  volumes: { title: "Volumes", label: "PVs and claims", empty: "There are no PVs and no claims.",
    unread: "There are no PVs and no claims that could be read." },
  leaks: { title: "Suspected leaks", label: "Suspected leaks", empty: "No leak is reported.",
    unread: "No report that could be read has a leak." },
};

/** The facets that have a menu; the reason has chips. */
const MENUS = { kind: "All kinds", namespace: "All namespaces", driver: "All drivers", severity: "All severities" };

/** The fields that CSV has. */
const EXPORTED = ["kind", "namespace", "name", "claim", "pv", "node", "driver", "phase", "terminating", "policy",
  "bytes", "severity", "reason", "since", "text"];

/** How long typing may pause before what is found is said. */
const ANNOUNCE_MS = 700;

export class ListView {
  #announcing = 0;

  /**
   * @param {string} view
   * @param {URLSearchParams} query
   * @param {import("../app/store.js").Store} store
   * @param {Summary|null} summary null until it has come
   */
  constructor(view, query, store, summary) {
    this.view = view;
    this.query = query;
    this.store = store;
    /** @type {RowRecord[]} */
    this.chosen = [];
    this.words = WORDS[view];
    this.title = this.words.title;
    this.count = el("p", { class: "count" });
    this.search = this.#searchBox();
    this.menus = new Map(Object.entries(MENUS).filter(([facet]) => view !== "leaks" || facet === "driver")
      .map(([facet, all]) => [facet, this.#menu(facet, all)]));
    this.sorting = this.#sortMenu();
    this.chips = el("div", { class: "chips", role: "group", "aria-label": "Filter by reason" });
    this.notices = new Notices(view);
    this.table = new Table({ label: this.words.label, className: "view-" + view, columns: OF_VIEW[view],
      sort: (key) => this.#sort(key), open: (r) => { if (rowHash(r.row)) location.hash = rowHash(r.row); } });
    this.empty = el("p", { class: "empty" });
    this.hint = el("p", { class: "hint" });
    this.element = el("div", { class: "list" },
      el("div", { class: "list-head" }, el("h1", {}, this.words.title), this.count), this.notices.element,
      el("div", { class: "tools", role: "search" }, this.search, ...this.menus.values(), this.sorting,
        saveButtons(view, EXPORTED, () => this.chosen.map(({ row }) => row))),
      this.chips, this.table.element, this.empty, this.hint);
    this.summarize(summary);
  }

  close() {
    clearTimeout(this.#announcing);
    this.table.close();
  }

  /** @param {Summary|null} summary */
  summarize(summary) {
    this.notices.show(summary);
    this.hint.replaceChildren(...hint(this.view, summary));
  }

  /**
   * Shows the rows of the store.
   * @param {boolean} [fromTop] what is filtered or sorted by changed
   */
  update(fromTop = false) {
    const all = [...this.store.records.values()].filter((r) => VIEWS[this.view](r.row));
    const chosen = this.chosen = select(all, this.view, this.query);
    const by = order(this.view, this.query);
    this.table.sorted(by.key, by.descending);
    this.table.show(chosen, fromTop);
    this.#showFacets(facets(all, this.view, this.query));
    this.#showCount(chosen, all.length);
    this.element.classList.toggle("none", chosen.length === 0);
  }

  /** @param {RowRecord[]} chosen @param {number} all */
  #showCount(chosen, all) {
    const each = volumes(chosen);
    const bytes = each.reduce((sum, { row }) => sum + (row.bytes ?? 0), 0);
    const fewer = each.length < chosen.length ? ` ${chosen.length === 1 ? "object" : "objects"}, ` +
      plural(each.length, "volume") : "";
    const total = this.view === "waiting" ? "" : fewer + (bytes ? ", " + size(bytes) : "");
    const of = chosen.length === all ? "" : " of " + number(all);
    const action = this.view === "waiting" ? chosen.filter(({ row }) => row.severity === "attention").length : 0;
    setText(this.count, !this.store.complete && !all ? "" :
      number(chosen.length) + of + total + (action ? ` · ${plural(action, "needs", "need")} action` : ""));
    setText(this.empty, all ? "Nothing matches the search and the filters." : !this.store.complete ?
      "Reading the cluster…" : this.#lacks() ? this.words.unread : this.words.empty);
  }

  /** Whether rows of this view may be missing. */
  #lacks() {
    return this.view === "leaks" ? this.store.unread : this.store.partial;
  }

  /** @param {ReturnType<typeof facets>} counts */
  #showFacets(counts) {
    for (const [facet, menu] of this.menus) {
      const select = /** @type {HTMLSelectElement} */ (menu.querySelector("select"));
      fillMenu(select, withChosen(counts[facet], this.query.get(facet) ?? ""), this.query.get(facet) ?? "", facet);
    }
    if (this.view !== "leaks") this.#showChips(counts.reason);
  }

  /** @param {[string, number][]} counts */
  #showChips(counts) {
    const chosen = this.query.get("reason") ?? "";
    const old = new Map([...this.chips.children].map((chip) => [chip.getAttribute("data-reason"), chip]));
    const focused = document.activeElement;
    const chips = withChosen(counts, chosen).map(([reason, n]) => {
      const chip = old.get(reason) ?? el("button", { type: "button", class: "chip", "data-reason": reason,
        click: () => this.#set("reason", this.query.get("reason") === reason ? "" : reason) },
      el("span", {}, reason), el("span", { class: "n" }));
      setText(/** @type {Element} */ (chip.lastElementChild), number(n));
      chip.setAttribute("aria-pressed", String(reason === chosen));
      return chip;
    });
    if (chips.length !== this.chips.children.length || chips.some((chip, i) => chip !== this.chips.children[i])) {
      this.chips.replaceChildren(...chips);
      if (focused instanceof HTMLElement && this.chips.contains(focused)) focused.focus();
    }
  }

  #searchBox() {
    const input = /** @type {HTMLInputElement} */ (el("input", { type: "search", id: "search", placeholder: "Search",
      "aria-keyshortcuts": "/", autocomplete: "off", spellcheck: "false", value: this.query.get("q") ?? "",
      input: () => this.#set("q", input.value),
      keydown: (/** @type {KeyboardEvent} */ e) => {
        if (e.key === "ArrowDown" || e.key === "Enter") {
          e.preventDefault();
          this.table.focus();
        }
      } }));
    return el("label", { class: "search" }, el("span", { class: "hidden" }, "Search names, reasons, drivers, nodes"),
      input, el("kbd", { "aria-hidden": "true" }, "/"));
  }

  /** @param {string} facet @param {string} all */
  #menu(facet, all) {
    return el("label", {}, el("span", { class: "hidden" }, "Filter by " + facet),
      el("select", { change: (e) => this.#set(facet, e.target.value) }, el("option", { value: "" }, all)));
  }

  /** The headers of the columns are not seen on narrow screens. */
  #sortMenu() {
    const select = /** @type {HTMLSelectElement} */ (el("select", { change: () => this.#set("sort", select.value) }));
    for (const { key, title, plain } of OF_VIEW[this.view]) {
      if (plain) continue;
      for (const sign of firstDescending(key) ? ["-", ""] : ["", "-"]) {
        select.append(el("option", { value: sign + key }, "Sort by " + title.toLowerCase() + (sign ? " ↓" : " ↑")));
      }
    }
    const by = order(this.view, this.query);
    select.value = (by.descending ? "-" : "") + by.key;
    return el("label", { class: "sorting" }, el("span", { class: "hidden" }, "Sort"), select);
  }

  /** @param {string} key */
  #sort(key) {
    const by = order(this.view, this.query);
    const descending = by.key === key ? !by.descending : firstDescending(key);
    this.#set("sort", (descending ? "-" : "") + key);
    /** @type {HTMLSelectElement} */ (this.sorting.querySelector("select")).value = (descending ? "-" : "") + key;
  }

  /**
   * Changes the query. It replaces the address: the back button leaves the list, and does not undo each letter.
   * @param {string} name @param {string} value
   */
  #set(name, value) {
    if (value) this.query.set(name, value);
    else this.query.delete(name);
    history.replaceState(history.state, "", listHash(this.view, this.query));
    this.update(true);
    clearTimeout(this.#announcing);
    this.#announcing = setTimeout(() => announce(this.count.textContent + " shown"), ANNOUNCE_MS);
  }
}

/**
 * What to switch on, so that an empty view has something to show.
 * @param {string} view @param {Summary|null} summary
 * @returns {(Node|string)[]}
 */
function hint(view, summary) {
  const links = (/** @type {Record<string, string>} */ pages) => Object.entries(pages)
    .flatMap(([path, text]) => [docsLink("how-to/" + path, text) ?? "", " "]);
  if (view === "waiting") {
    return ["Pods, locks and fences appear here where volume-guard is to hold, lock and fence. ", ...links({
      "pod-safety.md": "Hold pods", "single-node.md": "Lock claims", "node-fencing.md": "Fence nodes" })];
  }
  if (view !== "leaks") return links({ "install.md": "Install csi-reclaimer" });
  const checked = new Set(summary?.leaks?.map(({ driver }) => driver));
  const drivers = summary?.drivers?.map(({ driver }) => driver).filter((driver) => !checked.has(driver)) ?? [];
  return [...(drivers.length ? [`There is no report for ${drivers.join(", ")}. The leak check is off by default. To ` +
    "switch it on, run csi-reclaimer with ", command("--leak-check-interval=1h")] : []), ...links({
    "find-leaks.md": "Find leaked volumes" })];
}

/** @param {string} key @returns {boolean} whether the first click sorts with the largest ahead */
const firstDescending = (key) => ["age", "size", "severity"].includes(key);

/**
 * What is chosen is offered, also where no row has it any more.
 * @param {[string, number][]} counts @param {string} chosen @returns {[string, number][]}
 */
function withChosen(counts, chosen) {
  return !chosen || counts.some(([value]) => value === chosen) ? counts : [...counts, [chosen, 0]];
}

/**
 * Has a menu offer the values, with how many rows each would leave.
 * @param {HTMLSelectElement} select
 * @param {[string, number][]} counts
 * @param {string} chosen
 * @param {string} facet
 */
function fillMenu(select, counts, chosen, facet) {
  const words = facet === "kind" ? kindWord : facet === "severity" ? severityWord : String;
  const sorted = counts.toSorted(([a], [b]) => (a < b ? -1 : 1));
  while (select.options.length > sorted.length + 1) select.options[select.options.length - 1].remove();
  sorted.forEach(([value, n], i) => {
    const option = select.options[i + 1] ?? select.appendChild(document.createElement("option"));
    if (option.value !== value) option.value = value;
    setText(option, `${words(value)} (${number(n)})`);
  });
  if (select.value !== chosen) select.value = chosen;
}

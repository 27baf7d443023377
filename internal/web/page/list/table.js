// @ts-check
// A grid of which only the rows in sight are in the document, so that tens of thousands scroll without delay. Rows are
// positioned by their index; a screen reader learns their number and index from aria-rowcount and aria-rowindex.
//
// One row is the active one: the grid's one stop of the Tab key. It stays in the document wherever the grid is scrolled
// to, so that focus is never lost.

import { el, setText } from "../app/dom.js";

/** Rows beyond the edges of the sight that are there already when they are scrolled to. */
const OVERSCAN = 8;
/** How many rows are printed. */
const PRINTED = 1000;

export class Table {
  /** @type {RowRecord[]} */
  #records = [];
  /** @type {Map<string, number>} the index of each record */
  #index = new Map();
  /** @type {Map<string, {element: HTMLElement, record: RowRecord|null}>} the rows in the document, by id */
  #rows = new Map();
  /** @type {HTMLElement[]} rows that left the sight, for others to use */
  #spare = [];
  #active = "";
  /** Where the active row was, for when it goes. */
  #activeIndex = 0;
  #hover = "";
  #height = 0;
  #printing = false;
  #frame = 0;

  /**
   * @param {{label: string, className: string, columns: Column[], sort: (key: string) => void,
   *   open: (r: RowRecord) => void}} options
   */
  constructor({ label, className, columns, sort, open }) {
    this.columns = columns;
    this.open = open;
    this.heads = new Map(columns.map((column) => [column.key, el("div", { role: "columnheader", class: "cell c-" +
      column.key }, column.plain ? el("span", {}, column.title) :
      el("button", { type: "button", click: () => sort(column.key) }, el("span", {}, column.title)))]));
    this.head = el("div", { class: "head", role: "row", "aria-rowindex": 1 }, ...this.heads.values());
    this.body = el("div", { class: "rows", role: "rowgroup" });
    this.element = el("div", { class: "grid " + className, role: "grid", "aria-label": label, "aria-readonly": "true",
      scroll: () => this.#later(), keydown: (/** @type {KeyboardEvent} */ e) => this.#key(e),
      focusin: (/** @type {FocusEvent} */ e) => this.#focused(e) },
    el("div", { role: "rowgroup", class: "heads" }, this.head), this.body);
    this.element.addEventListener("pointermove", (e) => { this.#hover = idOf(e.target); });
    this.element.addEventListener("pointerleave", () => { this.#hover = ""; });
    this.body.addEventListener("click", (e) => this.#click(e));
    this.observer = new ResizeObserver(() => { this.#measure(); this.#draw(); });
    this.observer.observe(this.element);
    this.print = () => this.#print(true);
    this.printed = () => this.#print(false);
    addEventListener("beforeprint", this.print);
    addEventListener("afterprint", this.printed);
  }

  /** Takes the table out of service. */
  close() {
    this.observer.disconnect();
    cancelAnimationFrame(this.#frame);
    removeEventListener("beforeprint", this.print);
    removeEventListener("afterprint", this.printed);
  }

  /**
   * Shows these records. What is looked at stays where it is on the screen: the row with the focus, else that below the
   * pointer, else the first one in sight, unless the table is at its top.
   * @param {RowRecord[]} records
   * @param {boolean} [fromTop] the order is another one: the table goes to its top
   */
  show(records, fromTop = false) {
    if (this.#height === 0) this.#measure();
    const anchor = fromTop ? "" : this.#anchor();
    const offset = anchor ? (this.#index.get(anchor) ?? 0) * this.#height - this.element.scrollTop : 0;
    const hadFocus = this.#rows.get(this.#active)?.element.contains(document.activeElement) ?? false;
    this.#records = records;
    this.#index = new Map(records.map((r, i) => [r.id, i]));
    const at = this.#index.get(this.#active);
    const gone = at === undefined;
    if (gone) this.#active = records[Math.min(this.#activeIndex, records.length - 1)]?.id ?? "";
    this.#activeIndex = this.#index.get(this.#active) ?? 0;
    this.element.setAttribute("aria-rowcount", String(records.length + 1));
    this.body.style.height = records.length * this.#height + "px";
    const index = this.#index.get(anchor);
    if (fromTop) this.element.scrollTop = 0;
    else if (index !== undefined) this.element.scrollTop = index * this.#height - offset;
    this.#draw();
    if (hadFocus && gone) this.#rows.get(this.#active)?.element.focus({ preventScroll: true });
  }

  /**
   * Says which column the records are sorted by.
   * @param {string} key
   * @param {boolean} descending
   */
  sorted(key, descending) {
    for (const [other, head] of this.heads) {
      if (other === key) head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    }
  }

  /** What restore takes. */
  position() {
    return { active: this.#active, top: this.element.scrollTop };
  }

  /**
   * Brings back where a person was, with the focus on the row that was opened.
   * @param {{active: string, top: number}} position
   */
  restore({ active, top }) {
    this.element.scrollTop = top;
    if (!this.#index.has(active)) return;
    this.#activate(active);
    this.#focus(false);
  }

  /** Puts the focus on the active row. */
  focus() {
    this.#focus(true);
  }

  #anchor() {
    if (this.#rows.get(this.#active)?.element.contains(document.activeElement) && this.#inSight(this.#active)) {
      return this.#active;
    }
    if (this.#hover && this.#inSight(this.#hover)) return this.#hover;
    const top = this.element.scrollTop;
    return top > 0 ? (this.#records[Math.ceil(top / this.#height)]?.id ?? "") : "";
  }

  /** @param {string} id */
  #inSight(id) {
    const i = this.#index.get(id);
    if (i === undefined) return false;
    const top = i * this.#height - this.element.scrollTop;
    return top > -this.#height && top < this.#room();
  }

  /** The height in which rows are seen. */
  #room() {
    return this.element.clientHeight - this.head.offsetHeight;
  }

  #measure() {
    const height = parseFloat(getComputedStyle(this.element).getPropertyValue("--row")) || 44;
    if (height === this.#height) return;
    const first = this.#height ? this.element.scrollTop / this.#height : 0;
    this.#height = height;
    this.body.style.height = this.#records.length * height + "px";
    this.element.scrollTop = first * height;
  }

  #later() {
    if (!this.#frame) {
      this.#frame = requestAnimationFrame(() => {
        this.#frame = 0;
        this.#draw();
      });
    }
  }

  /** Has the rows in sight in the document, in their order, and no others but the active one. */
  #draw() {
    const { from, to } = this.#range();
    const ids = this.#records.slice(from, to).map((r) => r.id);
    const active = this.#index.get(this.#active);
    if (active !== undefined && active < from) ids.unshift(this.#active);
    if (active !== undefined && active >= to) ids.push(this.#active);
    const wanted = new Set(ids);
    for (const [id, { element }] of this.#rows) {
      if (wanted.has(id)) continue;
      this.#rows.delete(id);
      element.remove();
      this.#spare.push(element);
    }
    this.#spare.length = Math.min(this.#spare.length, 60);
    const focused = this.#rows.get(this.#active)?.element;
    const hadFocus = focused === document.activeElement;
    let next = this.body.firstElementChild;
    for (const id of ids) {
      const element = this.#place(id);
      if (element === next) next = next.nextElementSibling;
      else this.body.insertBefore(element, next);
    }
    // A row that is moved among its siblings loses the focus.
    if (hadFocus && focused !== document.activeElement) focused?.focus({ preventScroll: true });
  }

  #range() {
    if (this.#printing) return { from: 0, to: PRINTED };
    const top = this.element.scrollTop;
    return { from: Math.max(0, Math.floor(top / this.#height) - OVERSCAN),
      to: Math.ceil((top + this.element.clientHeight) / this.#height) + OVERSCAN };
  }

  /**
   * Returns the row of a record, filled.
   * @param {string} id
   */
  #place(id) {
    const i = this.#index.get(id) ?? 0;
    const record = this.#records[i];
    let row = this.#rows.get(id);
    if (!row) {
      row = { element: this.#spare.pop() ?? this.#newRow(), record: null };
      row.element.dataset.id = id;
      this.#rows.set(id, row);
    }
    if (row.record !== record) {
      row.element.className = "row " + record.row.severity;
      this.columns.forEach((column, c) => column.fill(/** @type {HTMLElement} */ (row.element.children[c]), record));
      row.record = record;
    }
    row.element.style.transform = this.#printing ? "" : `translateY(${i * this.#height}px)`;
    setAttribute(row.element, "aria-rowindex", String(i + 2));
    const stop = id === this.#active ? "0" : "-1";
    setAttribute(row.element, "tabindex", stop);
    // The link of the name leads where the row does.
    for (const link of row.element.querySelectorAll("a.docs")) setAttribute(link, "tabindex", stop);
    return row.element;
  }

  #newRow() {
    return el("div", { role: "row" }, ...this.columns.map((column) =>
      el("div", { role: "gridcell", class: "cell c-" + column.key })));
  }

  /** @param {string} id */
  #activate(id) {
    this.#active = id;
    this.#activeIndex = this.#index.get(id) ?? 0;
    this.#draw();
  }

  /** @param {boolean} scroll whether the row may be scrolled into sight */
  #focus(scroll) {
    if (scroll) this.#reveal();
    this.#rows.get(this.#active)?.element.focus({ preventScroll: true });
  }

  /** Scrolls as little as shows the active row. */
  #reveal() {
    const top = this.#activeIndex * this.#height;
    const room = this.#room();
    if (top < this.element.scrollTop) this.element.scrollTop = top;
    else if (top + this.#height > this.element.scrollTop + room) this.element.scrollTop = top + this.#height - room;
    this.#draw();
  }

  /** @param {KeyboardEvent} e */
  #key(e) {
    if (e.altKey || e.ctrlKey || e.metaKey || !idOf(e.target)) return;
    const last = this.#records.length - 1;
    const page = Math.max(1, Math.floor(this.#room() / this.#height) - 1);
    const i = this.#activeIndex;
    /** @type {Record<string, number>} */
    const targets = { ArrowDown: i + 1, ArrowUp: i - 1, PageDown: i + page, PageUp: i - page, Home: 0, End: last };
    if (e.key === "Enter") {
      if (e.target instanceof Element && e.target.closest("a")) return; // the browser follows the link
      e.preventDefault();
      this.open(this.#records[i]);
    } else if (e.key in targets) {
      e.preventDefault();
      this.#activate(this.#records[Math.min(Math.max(targets[e.key], 0), last)].id);
      this.#focus(true);
    }
  }

  /** @param {FocusEvent} e */
  #focused(e) {
    const id = idOf(e.target);
    if (!id) return;
    if (id !== this.#active) this.#activate(id);
    // The Tab key moves to the active row, even outside the visible part.
    if (!this.#inSight(id)) this.#reveal();
  }

  /** @param {MouseEvent} e */
  #click(e) {
    const id = idOf(e.target);
    if (!id || e.defaultPrevented || e.button !== 0 || e.ctrlKey || e.metaKey || e.shiftKey) return;
    if (e.target instanceof Element && e.target.closest("a")) {
      this.#activate(id);
      return;
    }
    // A person who selects text does not want to leave.
    if (!getSelection()?.isCollapsed) return;
    this.#activate(id);
    this.open(this.#records[this.#activeIndex]);
  }

  /** @param {boolean} on */
  #print(on) {
    this.#printing = on;
    this.element.classList.toggle("printing", on);
    this.#draw();
  }
}

/** @param {EventTarget|null} target @returns {string} the id of the row that an event is in */
function idOf(target) {
  const row = target instanceof Element ? target.closest(".row") : null;
  return row instanceof HTMLElement ? row.dataset.id ?? "" : "";
}

/** @param {Element} element @param {string} name @param {string} value */
function setAttribute(element, name, value) {
  if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

/**
 * Has a cell show a text, in full where the pointer rests on it.
 * @param {HTMLElement} cell
 * @param {string|undefined} text
 */
export function fillText(cell, text = "") {
  setText(cell, text);
  if (text) cell.title = text;
  else cell.removeAttribute("title");
}

// @ts-check
// The life of an object: Events and changes seen by the watch, the latest first. It grows while it is open.

import { announce, el } from "../app/dom.js";
import { ageElement, clock, millis, moment, number } from "../app/format.js";

/** @type {Record<string, string>} */
const TYPES = { Normal: "Event", Warning: "Warning", Change: "Change" };

export class Timeline {
  /** @type {Map<string, {entry: Entry, element: HTMLElement}>} */
  #entries = new Map();
  #filled = false;

  constructor() {
    this.list = el("ol", { class: "timeline", reversed: true });
    this.empty = el("p", { class: "empty" }, "No entries yet. Events are kept for an hour by default; " +
      "new entries appear here.");
    this.element = el("section", { class: "panel", "aria-labelledby": "timeline-title" },
      el("h2", { id: "timeline-title" }, "Timeline"), this.empty, this.list);
  }

  /** @param {Entry[]|null} entries event "timeline" */
  add(entries) {
    const fresh = [];
    for (const entry of entries ?? []) {
      const known = this.#entries.get(entry.id);
      if (known && JSON.stringify(known.entry) === JSON.stringify(entry)) continue;
      known?.element.remove();
      const element = item(entry);
      this.#entries.set(entry.id, { entry, element });
      this.#insert(entry, element);
      fresh.push(entry);
    }
    this.empty.hidden = this.#entries.size > 0;
    if (this.#filled && fresh.length) {
      const { reason, text } = fresh[fresh.length - 1];
      announce("New in the timeline: " + (reason ? reason + ": " : "") + text);
    }
    this.#filled = true;
  }

  /**
   * Says of which time changes are missing: the server reports those that it sees while the page is connected.
   * @param {number} from @param {number} to
   */
  miss(from, to) {
    this.add([{ id: "missed/" + from, time: new Date(to).toISOString(), source: "page", type: "Change",
      reason: "NotConnected",
      text: `The page was not connected from ${moment(from)} to ${moment(to)}. Changes of that time are missing.` }]);
  }

  /** @param {Entry} entry @param {HTMLElement} element */
  #insert(entry, element) {
    const time = millis(entry.time);
    let next = this.list.firstElementChild;
    while (next instanceof HTMLElement && Number(next.dataset.time) > time) next = next.nextElementSibling;
    this.list.insertBefore(element, next);
  }
}

/** @param {Entry} entry */
function item(entry) {
  const time = millis(entry.time);
  return el("li", { class: "entry " + entry.type.toLowerCase(), "data-time": time },
    el("p", { class: "entry-head" }, el("span", { class: "type" }, TYPES[entry.type] ?? entry.type),
      entry.reason ? el("strong", {}, entry.reason) : null,
      entry.count && entry.count > 1 ? el("span", { class: "times" }, "× " + number(entry.count)) : null,
      ageElement(time, (a) => a + " ago"),
      el("span", { class: "clock", title: moment(time) }, clock(time))),
    el("p", {}, entry.text),
    el("p", { class: "by" }, entry.about ? `on ${entry.about}, by ${entry.source}` : entry.source));
}

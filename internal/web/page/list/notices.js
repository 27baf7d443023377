// @ts-check
// The notices above a table: warnings that need a person's attention, and the reports of the leak checks.

import { command, withCommands } from "../app/command.js";
import { el, sign } from "../app/dom.js";
import { plural, size } from "../app/format.js";

/** How many are seen without a click: above a table none, because the rows are to be seen. */
const SHOWN = { overview: 2, waiting: 0 };

export class Notices {
  #last = "";

  /** @param {string} view */
  constructor(view) {
    this.view = view;
    this.element = el("div", { class: "notices" });
  }

  /** @param {Summary|null} summary null until it has come */
  show(summary) {
    const text = JSON.stringify(summary && [summary.warnings, summary.leaks]);
    if (text === this.#last) return;
    this.#last = text;
    this.element.replaceChildren();
    if (!summary) return;
    if (this.view === "leaks") this.#leaks(summary.leaks ?? []);
    else if (this.view !== "volumes") this.#warnings(summary.warnings ?? []);
  }

  /** @param {string[]} warnings */
  #warnings(warnings) {
    const items = warnings.map((text) => el("li", {}, sign("attention"), el("div", {}, ...withCommands(text))));
    if (!items.length) return;
    const shown = SHOWN[/** @type {keyof typeof SHOWN} */ (this.view)];
    if (shown) {
      this.element.append(el("ul", { class: "warnings", "aria-label": "Warnings" }, ...items.slice(0, shown)));
    }
    if (items.length > shown) {
      this.element.append(el("details", {}, el("summary", {}, sign("attention"),
        plural(items.length - shown, (shown ? "more " : "") + "warning")),
      el("ul", { class: "warnings" }, ...items.slice(shown))));
    }
  }

  /** @param {NonNullable<Summary["leaks"]>} leaks */
  #leaks(leaks) {
    if (!leaks.length) return;
    const bytes = leaks.reduce((sum, leak) => sum + leak.bytes, 0);
    const suspected = leaks.reduce((sum, leak) => sum + leak.suspected, 0);
    this.element.append(
      el("p", { class: "total" }, el("strong", {}, plural(suspected, "volume")), bytes ? `, ${size(bytes)}` : "",
        ` that nothing in the cluster accounts for, at ${plural(leaks.length, "driver")}.`),
      el("ul", { class: "drivers", "aria-label": "Leak checks" }, ...leaks.map((leak) => el("li", {},
        el("span", { class: "driver" }, leak.driver), el("span", {}, leak.headline),
        leak.suspected ? command("kubectl reclaim leaks --driver=" + leak.driver) : null))));
  }
}

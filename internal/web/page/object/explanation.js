// @ts-check
// The explanation of an object, as kubectl reclaim explain prints it.

import { withCommands } from "../app/command.js";
import { aboutReason } from "../app/docs.js";
import { el, sign } from "../app/dom.js";
import { ageElement, millis } from "../app/format.js";

/**
 * A list of sections. Each is built again only if what it shows has changed: a copy button keeps the focus, and a
 * marked text its mark, while an age in another section counts on.
 */
export class ExplanationView {
  /** @type {Map<string, {text: string, element: HTMLElement}>} */
  #sections = new Map();

  constructor() {
    this.element = el("div", { class: "explanation" });
  }

  /**
   * @param {Explanation|undefined|null} e
   * @param {string} [docs] the page of the docs about its reason
   */
  show(e, docs) {
    const wanted = e ? sections(e, 2, docs) : [];
    const names = new Set(wanted.map(({ name }) => name));
    for (const [name, { element }] of this.#sections) {
      if (names.has(name)) continue;
      element.remove();
      this.#sections.delete(name);
    }
    let next = this.element.firstElementChild;
    for (const { name, data, build } of wanted) {
      const text = JSON.stringify(data);
      let section = this.#sections.get(name);
      if (section?.text !== text) {
        const element = build();
        if (section?.element instanceof HTMLDetailsElement) element.toggleAttribute("open", section.element.open);
        if (section && next === section.element) next = element;
        section?.element.replaceWith(element);
        section = { text, element };
        this.#sections.set(name, section);
      }
      if (next === section.element) next = next.nextElementSibling;
      else this.element.insertBefore(section.element, next);
    }
  }
}

/**
 * @param {Explanation} e
 * @param {number} level of the headings
 * @param {string} [docs] the page of the docs about its reason
 * @returns {{name: string, data: any, build: () => HTMLElement}[]} those that have something to show
 */
function sections(e, level, docs) {
  /** @type {[string, any, (data: any) => (Node|string)[]][]} */
  const all = [
    ["Decision", e.decision, () => decision(e, docs)],
    ["Waits for", (e.waitsFor ?? []).filter((text) => !says(e.headline, text)), (data) => [list(data)]],
    ["You can", e.advice, () => [el("ul", { class: "advice" }, ...(e.advice ?? []).map((text) =>
      el("li", {}, ...withCommands(text))))]],
    ["No evidence", e.missing, () => [facts((e.missing ?? []).map((m) => ({ name: m.evidence, text: m.text })))]],
    ["Risks of a force deletion", e.risks, () => [list(e.risks, "risks")]],
    ["Not read", e.unread, () => [list(e.unread, "unread")]],
    ["Finalizers", e.finalizers, () => [el("ul", { class: "finalizers" }, ...(e.finalizers ?? []).map(finalizer))]],
    ["In flight", e.inFlight, () => (e.inFlight ?? []).map(inFlight)],
    ["Facts", e.facts, () => [facts(e.facts ?? [])]],
    // The timeline has those of the object itself.
    ["Latest Events", level > 2 && e.events, () => [list(e.events, "events")]],
  ];
  const found = all.filter(([, data]) => data && (!Array.isArray(data) || data.length)).map(([name, data, build]) => ({
    name, data: name === "Decision" ? [data, e.headline, docs] : data,
    build: () => el("section", { class: "panel" }, el("h" + level, {}, name), ...build(data)),
  }));
  for (const [name, other] of Object.entries({ "Its PV": e.pv, "Its holder": e.holder })) {
    if (other) found.push({ name, data: other, build: () => nested(name, other, level) });
  }
  return found;
}

/** @param {string} name @param {Explanation} other @param {number} level */
function nested(name, other, level) {
  return el("details", { class: "panel nested" },
    el("summary", {}, el("span", { class: "nested-name" }, name + ": " + other.object), el("p", {}, other.headline)),
    ...sections(other, Math.min(level + 1, 6)).map(({ build }) => build()));
}

/** @param {Explanation} e @param {string} [docs] */
function decision(e, docs) {
  const d = /** @type {NonNullable<Explanation["decision"]>} */ (e.decision);
  return [
    el("p", { class: "decision" }, d.action ? el("span", { class: "action" }, d.action) : null,
      el("strong", { class: "reason" }, d.reason), aboutReason({ reason: d.reason, docs })),
    says(e.headline, d.text) ? "" : el("p", {}, d.text),
    el("p", { class: "by" }, "by " + d.by),
  ];
}

/** @param {string} headline @param {string} text @returns {boolean} whether the headline has the text already */
const says = (headline, text) => headline.includes(text.replace(/\.$/, ""));

/** @param {string[]} [lines] @param {string} [className] */
const list = (lines = [], className = "") =>
  el("ul", { class: className || null }, ...lines.map((line) => el("li", {}, line)));

/** @param {{name: string, text: string}[]} all */
const facts = (all) => el("dl", {}, ...all.flatMap(({ name, text }, i) => [
  el("dt", {}, name === all[i - 1]?.name ? el("span", { class: "hidden" }, name) : name), el("dd", {}, text)]));

/** @param {Finalizer} f */
function finalizer(f) {
  const [severity, text] = f.stuck ? ["attention", "No program removes it: " + f.stuck] :
    f.owner ? ["waits", `${f.owner} removes it ${f.when ?? ""}`] : ["attention", "Its owner is unknown."];
  return el("li", {}, sign(severity), el("div", {}, el("code", {}, f.name), el("p", {}, text),
    f.addedBy ? el("p", { class: "by" }, "added by " + f.addedBy) : null));
}

/** @param {InFlight} entry */
function inFlight(entry) {
  return el("p", {}, "Volume ", el("code", {}, entry.volume), ` of ${entry.driver} for claim ${entry.claim}, begun `,
    ageElement(millis(entry.since), (a) => a + " ago"), ", in Lease ", el("code", {}, entry.lease), ".");
}

// @ts-check
// How current the page is, in words: in the header, and where something is wrong or missing in a banner below it.

import { byId, el, sign } from "./dom.js";
import { ageElement, clock, millis, plural } from "./format.js";

export class Status {
  #last = "";

  constructor() {
    // Screen readers announce changes here, but not the age beside it, which counts each second.
    this.word = el("span", { role: "status", "aria-live": "polite", id: "status" });
    byId("link").append(this.word);
  }

  /**
   * @param {State|null} state the latest, null where none has come
   * @param {Link} link
   */
  show(state, link) {
    const text = JSON.stringify([state, link]);
    if (text === this.#last) return;
    this.#last = text;
    if (state) {
      byId("cluster").textContent = state.cluster;
      byId("cluster").title = `Cluster ${state.cluster}, ${state.version}`;
    }
    const { word, severity, banner } = judge(state, link);
    this.word.className = "state " + severity;
    this.word.replaceChildren(sign(severity), word);
    byId("banner").replaceChildren(...[banner, unread(state)].filter((part) => part !== null));
  }
}

/**
 * @param {State|null} state
 * @param {Link} link
 * @returns {{word: string, severity: string, banner: HTMLElement|null}}
 */
function judge(state, link) {
  if (link.refused) {
    return lost("Disconnected", `The server answers: ${link.refused}. If kubectl reclaim web was restarted, open the ` +
      "new address that it printed. ", link.lost, state);
  }
  if (!Number.isNaN(link.lost)) {
    return lost("Reconnecting", "kubectl reclaim web does not answer. The page connects again by itself as soon as " +
      "it does. ", link.lost, state);
  }
  if (!state) return { word: "Connecting", severity: "waits", banner: null };
  if (!state.connected) {
    return lost("API server lost", "The API server does not answer" + (state.problem ? `: ${state.problem}. ` : ". "),
      millis(state.since), state);
  }
  if (!state.synced) {
    return { word: "Reading", severity: "waits",
      banner: notice("waits", "The cluster is being read. Tables are complete when that is done.") };
  }
  return { word: "Live", severity: "none", banner: null };
}

/**
 * Says what is lost, and how old the page is.
 * @param {string} word @param {string} text @param {number} since @param {State|null} state
 */
function lost(word, text, since, state) {
  const age = Number.isNaN(since) || !state ? [] :
    [`The page shows the cluster as of ${clock(since)}, `, ageElement(since, (a) => a + " ago"), "."];
  return { word, severity: "attention", banner: notice("attention", text, ...age) };
}

/** @param {string} severity @param {...(Node|string)} words */
function notice(severity, ...words) {
  return el("div", { class: "banner " + severity }, sign(severity), el("p", {}, ...words));
}

/** @param {State|null} state */
function unread(state) {
  const lines = state?.unread ?? [];
  if (!lines.length) return null;
  return el("details", { class: "banner unread" },
    el("summary", {}, sign("attention"), plural(lines.length, "kind of object is", "kinds of objects are") +
      " not read, so parts of the page are missing"),
    el("ul", {}, ...lines.map((line) => el("li", {}, line))));
}

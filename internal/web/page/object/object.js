// @ts-check
// The page of one object: its headline, the picture, the explanation and the timeline.

import { announce, el, setText, sign } from "../app/dom.js";
import { ageElement, clock, kindWord, millis, severityWord, size } from "../app/format.js";
import { objectHash } from "../app/route.js";
import { ExplanationView } from "./explanation.js";
import { Picture } from "./graph.js";
import { Timeline } from "./timeline.js";

export class ObjectView {
  #headline = "";
  #facts = "";
  /** @type {ObjectState|null} The last state that had something to show: a new stream may not be able to read it. */
  #last = null;

  /**
   * @param {Route} route
   * @param {{hash: string, title: string}} from the list to go back to
   */
  constructor(route, from) {
    this.route = route;
    this.title = `${kindWord(route.kind)} ${route.namespace ? route.namespace + "/" : ""}${route.name}`;
    this.state = el("p", { class: "object-state" });
    this.headline = el("p", { class: "headline" }, "Reading…");
    this.asOf = el("p", { class: "by as-of" });
    this.picture = new Picture();
    this.explanation = new ExplanationView();
    this.timeline = new Timeline();
    this.element = el("article", { class: "object" },
      el("p", { class: "back" }, el("a", { href: from.hash, id: "back" }, "← " + from.title)),
      el("h1", {}, el("span", { class: "kind" }, kindWord(route.kind)), " ",
        el("span", { class: "object-name" }, route.namespace ? route.namespace + "/" : "", route.name)),
      this.state, this.headline,
      el("div", { class: "columns" }, this.picture.element,
        el("div", { class: "why" }, this.explanation.element, this.asOf), this.timeline.element));
    this.picture.element.hidden = true;
  }

  close() {
    this.picture.close();
  }

  /** @param {ObjectState} object */
  show(object) {
    if (object.explanation || object.exists) this.#last = object;
    else if (object.unread && this.#last) object = { ...this.#last, unread: object.unread };
    const headline = object.unread ? `${this.title} could not be read: ${object.unread}` :
      object.explanation?.headline ?? object.text ?? (object.exists ? "Nothing is known about it." :
        `${this.title} does not exist, or is gone.`);
    const first = this.#headline === "";
    if (this.#headline !== headline && (first || withoutAges(this.#headline) !== withoutAges(headline))) {
      announce(headline);
    }
    this.#headline = headline;
    setText(this.headline, headline);
    this.element.classList.toggle("gone", !object.exists && !object.unread);
    this.#showState(object);
    this.picture.show(object.graph);
    this.explanation.show(object.explanation, object.docs);
    setText(this.asOf, object.explanation ? `Explained at ${clock(Date.now())}, and again at each change.` : "");
  }

  /** @param {ObjectState} o */
  #showState(o) {
    const text = JSON.stringify({ ...o, explanation: Boolean(o.explanation), graph: null });
    if (text === this.#facts) return;
    this.#facts = text;
    const [namespace, name] = (o.claim ?? "").split("/");
    const links = [{ kind: "claim", namespace, name }, { kind: "pv", name: o.pv ?? "" },
      { kind: "node", name: o.node ?? "" }].filter((link) => objectHash(link) && objectHash(link) !== objectHash(o));
    // The facts of an explanation say the rest.
    const alone = !o.explanation;
    const seen = o.explanation || o.phase;
    const lastState = seen ? ": shown in its last state" : "";
    /** @param {...Child} words */
    const pill = (...words) => el("span", { class: "pill" }, ...words);
    this.state.replaceChildren(...[
      o.unread ? pill("Could not be read" + lastState) :
        !o.exists && pill(seen ? "Gone" + lastState : "Does not exist"),
      o.severity !== "none" && el("span", { class: "pill " + o.severity }, sign(o.severity),
        severityWord(o.severity) + (o.since ? " for" : ""), o.since && ageElement(millis(o.since))),
      alone && o.phase && pill(o.phase),
      alone && o.terminating && pill("Terminating for", ageElement(millis(o.terminating))),
      alone && o.policy && pill("Policy " + o.policy), o.bytes && pill(size(o.bytes)),
      alone && o.driver && pill(o.driver), ...links.map((link) => el("a", { class: "pill", href: objectHash(link) },
        `${kindWord(link.kind)} ${link.namespace ? link.namespace + "/" : ""}${link.name}`)),
    ].filter((part) => part instanceof Node));
  }
}

/** @param {string} text */
const withoutAges = (text) => text.replace(/\b(\d+[ydhms])+\b/g, "");

// @ts-check
// The picture of the holds between objects. An arrow that holds is solid with a full head, any other dashed with an
// open head.

import { el, sign, svg } from "../app/dom.js";
import { kindWord, severityWord } from "../app/format.js";
import { objectHash } from "../app/route.js";
import { GAP_X, layout } from "./layout.js";

const PAD = 12;
const MARGIN = 6;
/**
 * The boxes of a wide page and of a phone: their width, and what fits into a line of it, of names, which are set in a
 * monospaced font, and of details.
 */
const WIDE = { width: 220, name: 25, detail: 31, smallest: 0 };
const SLIM = { width: 156, name: 16, detail: 21, smallest: 0.8 };
/** Below this width, a page has slim boxes, is as high as they need, and scrolls before they get too small to read. */
const NARROW = 480;
/** The part of the window's height that a picture may take on a wide page, and the least height. */
const HIGH = 0.68;
const LEAST_HEIGHT = 360;
const LINES = 3;
/** How many boxes side by side are tried: the arrangement that is drawn largest wins. */
const BESIDE = 6;
const ZOOM = 1.3;
const LARGEST = 3;
/** How many neighbours of one kind with the same edges are drawn one by one. */
const MOST = 5;

export class Picture {
  #last = "";
  #room = "";
  /** The scale, 0 for the one at which the picture fits. */
  #zoom = 0;
  #fitting = 1;
  #width = 0;
  /** @type {{nodes: GraphNode[], edges: Edge[]}} */
  #graph = { nodes: [], edges: [] };

  constructor() {
    this.scroller = el("div", { class: "picture", role: "region", "aria-label": "Picture of the relations. Plus " +
      "and minus zoom, 0 fits it to the page.", "aria-keyshortcuts": "+ - 0", tabindex: 0,
    keydown: (/** @type {KeyboardEvent} */ e) => this.#key(e) });
    this.words = el("ul", {});
    /** @param {string} text @param {string} label @param {() => void} click */
    const button = (text, label, click) => el("button", { type: "button", class: "quiet", "aria-label": label, title:
      label, click }, text);
    this.element = el("section", { class: "panel", "aria-labelledby": "picture-title" },
      el("div", { class: "picture-head" }, el("h2", { id: "picture-title" }, "Relations"),
        button("−", "Zoom out (-)", () => this.#scale(1 / ZOOM)), button("+", "Zoom in (+)", () => this.#scale(ZOOM)),
        button("Fit", "Fit to the page (0)", () => this.#scale(0))), this.scroller,
      el("p", { class: "legend" }, line(true), " keeps it from going", line(false), " is related",
        el("span", { class: "other" }, "⊢ finalizer")),
      el("details", { class: "words" }, el("summary", {}, "The picture in words"), this.words));
    this.observer = new ResizeObserver(() => this.#fit());
    this.observer.observe(this.scroller);
  }

  close() {
    this.observer.disconnect();
  }

  /** @param {{nodes: GraphNode[]|null, edges: Edge[]|null}|undefined} graph */
  show(graph) {
    const text = JSON.stringify(graph);
    if (text === this.#last) return;
    this.#last = text;
    this.#graph = condense(graph?.nodes ?? [], graph?.edges ?? []);
    this.element.hidden = this.#graph.nodes.length === 0;
    this.words.replaceChildren(...sentences(this.#graph).map((s) => el("li", {}, s)));
    this.#room = "";
    this.#fit();
  }

  /** @param {KeyboardEvent} e */
  #key(e) {
    const factor = { "+": ZOOM, "=": ZOOM, "-": 1 / ZOOM, 0: 0 }[e.key];
    if (factor === undefined || e.altKey || e.ctrlKey || e.metaKey) return;
    e.preventDefault();
    this.#scale(factor);
  }

  /** @param {number} factor 0 to fit */
  #scale(factor) {
    const now = this.#zoom || this.#fitting;
    this.#zoom = factor && Math.min(LARGEST, Math.max(Math.min(0.3, this.#fitting), now * factor));
    this.#apply();
  }

  /** Draws the picture anew where the room has changed, in the arrangement that is the largest in it. */
  #fit() {
    const width = this.scroller.clientWidth - 16;
    const room = `${width} ${innerHeight}`;
    if (width <= 0 || room === this.#room) return;
    this.#room = room;
    const size = width < NARROW ? SLIM : WIDE;
    const height = size === SLIM ? Infinity : Math.max(LEAST_HEIGHT, innerHeight * HIGH);
    const faces = new Map(this.#graph.nodes.map((node) => [node.id, face(node, size)]));
    // What only is related, such as a node, stands above: so the objects that hold each other stay together.
    const ways = this.#graph.edges.map((e) => (e.holds ? e : { ...e, from: e.to, to: e.from }));
    let best = { scale: 0, placed: /** @type {PlacedGraph|null} */ (null) };
    for (let beside = 1; beside <= BESIDE; beside++) {
      const placed = layout([...faces].map(([id, { h }]) => ({ id, w: size.width, h })), ways,
        beside * (size.width + GAP_X) - GAP_X);
      const scale = Math.min(1, width / (placed.width + 2 * MARGIN), height / (placed.height + 2 * MARGIN));
      if (scale > best.scale) best = { scale, placed };
    }
    if (!best.placed) return;
    this.#fitting = Math.max(best.scale, size.smallest);
    const focused = document.activeElement?.closest("[data-node]")?.getAttribute("data-node");
    const picture = drawn(this.#graph, faces, best.placed, size.width, width / this.#fitting);
    this.#width = picture.width;
    this.scroller.replaceChildren(picture.element);
    this.#apply();
    const again = focused && this.scroller.querySelector(`[data-node="${CSS.escape(focused)}"]`);
    if (again instanceof SVGElement) again.focus();
  }

  /** Sets the scale, with the box that has the focus or else the object of the page in the middle. */
  #apply() {
    const image = this.scroller.firstElementChild;
    if (!(image instanceof SVGElement)) return;
    image.style.width = Math.floor(this.#width * (this.#zoom || this.#fitting)) + "px";
    const center = (this.scroller.contains(document.activeElement) && document.activeElement?.closest("[data-node]")) ||
      this.scroller.querySelector(".subject");
    if (!center) return;
    const at = center.getBoundingClientRect();
    const room = this.scroller.getBoundingClientRect();
    this.scroller.scrollLeft += (at.left + at.right - room.left - room.right) / 2;
    this.scroller.scrollTop += (at.top + at.bottom - room.top - room.bottom) / 2;
  }
}

/** An arrow for the legend. @param {boolean} holds */
function line(holds) {
  return svg("svg", { class: "edge " + (holds ? "holds" : "other"), viewBox: "0 0 40 12", width: 40, height: 12,
    "aria-hidden": "true", focusable: "false" },
  svg("path", { class: "line", d: "M1 6H30" }),
  svg("path", { class: "tip", d: "M30 1.5 39 6 30 10.5" + (holds ? "Z" : "") }));
}

/**
 * @param {{nodes: GraphNode[], edges: Edge[]}} graph
 * @param {Map<string, {element: SVGElement, h: number}>} faces
 * @param {PlacedGraph} placed
 * @param {number} w the width of a box
 * @param {number} room the width that the picture may take
 */
function drawn({ nodes, edges }, faces, { width, height, boxes, lines }, w, room) {
  const at = (/** @type {GraphNode} */ n) => /** @type {{x: number, y: number}} */ (boxes.get(n.id));
  const subject = nodes.find((n) => n.subject);
  const middle = subject ? at(subject).x + w / 2 : width / 2;
  // The object of the page stands in the middle, where the picture does not shrink for that.
  const half = Math.max(middle, width - middle) + MARGIN;
  const [left, whole] = 2 * half <= room ? [middle - half, 2 * half] : [-MARGIN, width + 2 * MARGIN];
  const element = svg("svg", { viewBox: `${left} ${-MARGIN} ${whole} ${height + 2 * MARGIN}`, role: "group",
    "aria-labelledby": "picture-title" });
  edges.forEach((edge, i) => element.append(arrow(edge, lines[i], boxes)));
  // In the order in which they are read: from above, from the left.
  for (const node of nodes.toSorted((a, b) => at(a).y - at(b).y || at(a).x - at(b).x)) {
    const { x, y } = at(node);
    const box = /** @type {SVGElement} */ (faces.get(node.id)?.element);
    box.setAttribute("transform", `translate(${x} ${y})`);
    element.append(box);
  }
  // Labels are above the boxes' lines, so that no line crosses them.
  edges.forEach((edge, i) => element.append(label(edge, lines[i], lines, i)));
  return { element, width: whole };
}

/** @param {GraphNode} node @param {typeof WIDE} size */
function face(node, size) {
  const most = size === SLIM ? LINES + 1 : LINES;
  const name = wrap(shorten(node.label || node.name, size.name * most), size.name, most);
  const finalizers = node.finalizers ?? [];
  const details = [...(node.details ?? []).map((text) => ({ text, severity: "" })),
    ...finalizers.map(({ name: text, severity }) => ({ text: "⊢\u00a0" + text, severity }))]
    .flatMap(({ text, severity }) => wrap(text, size.detail, LINES).map((part) => ({ text: part, severity })));
  const h = 34 + name.length * 17 + details.length * 16;
  const hash = node.open && !node.subject ? objectHash(node) : "";
  const whole = nameOf(node);
  const kept = finalizers.map((f) => `kept by finalizer ${f.name}${f.text ? ": " + f.text : ""}`);
  const words = [kindWord(node.kind), whole, ...(node.details ?? []),
    node.severity !== "none" ? severityWord(node.severity) : "", node.subject ? "shown on this page" : "", ...kept];
  const mark = sign(node.severity);
  for (const [key, value] of Object.entries({ x: size.width - PAD - 16, y: 8, width: 16, height: 16 })) {
    mark.setAttribute(key, String(value));
  }
  const element = svg(hash ? "a" : "g", { class: ["box", node.severity, node.subject && "subject", hash && "open"]
    .filter(Boolean).join(" "), "data-node": node.id, "aria-label": words.filter(Boolean).join(", "),
  href: hash || null, role: hash ? null : "img" },
  svg("title", {}, [whole, ...(node.details ?? []), ...kept].join("\n")),
  svg("rect", { width: size.width, height: h, rx: 8 }),
  svg("text", { class: "kind", x: PAD, y: 21 }, kindWord(node.kind) + (node.subject ? " · shown here" : "")),
  ...name.map((text, i) => svg("text", { class: "label", x: PAD, y: 40 + i * 17 }, text)),
  ...details.map(({ text, severity }, i) => svg("text", { class: "detail " + severity, x: PAD,
    y: 40 + name.length * 17 + i * 16 }, text)));
  if (node.severity !== "none") element.append(mark);
  return { element, h };
}

/**
 * @param {Edge} edge
 * @param {Point[]} points
 * @param {Map<string, Point>} boxes
 */
function arrow(edge, points, boxes) {
  if (!points.length) return svg("g");
  const up = (boxes.get(edge.from)?.y ?? 0) > (boxes.get(edge.to)?.y ?? 0);
  const end = up ? points[0] : points[points.length - 1];
  const back = up ? 9 : -9;
  const trimmed = points.map((p) => (p === end ? { x: p.x, y: p.y + back } : p));
  return svg("g", { class: "edge " + (edge.holds ? "holds" : "other"), "aria-hidden": "true" },
    svg("path", { class: "line", d: curve(trimmed) }),
    svg("path", { class: "tip", d: `M${end.x - 5} ${end.y + back}L${end.x} ${end.y}L${end.x + 5} ${end.y + back}` +
      (edge.holds ? "Z" : "") }));
}

/** A line that leaves and reaches each point vertically. @param {Point[]} points */
function curve(points) {
  let d = `M${points[0].x} ${points[0].y}`;
  for (let i = 1; i < points.length; i++) {
    const a = points[i - 1];
    const b = points[i];
    const mid = (a.y + b.y) / 2;
    d += a.x === b.x ? `L${b.x} ${b.y}` : `C${a.x} ${mid} ${b.x} ${mid} ${b.x} ${b.y}`;
  }
  return d;
}

/**
 * The label stands where the arrows of its box are apart: at the end that fewer share.
 * @param {Edge} edge
 * @param {Point[]} points
 * @param {Point[][]} lines
 * @param {number} i
 */
function label(edge, points, lines, i) {
  if (!points.length) return svg("g");
  /** @param {(line: Point[]) => Point|undefined} end */
  const near = (end) => lines.filter((line, k) => k !== i && line.length && end(line)?.y === end(points)?.y &&
    Math.abs((end(line)?.x ?? 0) - (end(points)?.x ?? 0)) < 110).length;
  const atSource = near((line) => line[0]) <= near((line) => line[line.length - 1]);
  const [a, b] = atSource ? points : [points[points.length - 1], points[points.length - 2]];
  const t = 0.42;
  // The point of the curve at t: its control points are level with the middle.
  const bend = 3 * t * t - 2 * t * t * t;
  const mid = (a.y + b.y) / 2;
  const y = (1 - t) ** 3 * a.y + 3 * (1 - t) ** 2 * t * mid + 3 * (1 - t) * t * t * mid + t ** 3 * b.y;
  return svg("text", { class: "verb " + (edge.holds ? "holds" : "other"), x: a.x + (b.x - a.x) * bend, y: y + 4,
    "aria-hidden": "true" }, edge.label);
}

/**
 * Draws a crowd of alike neighbours as one: nodes of one kind with the same edges and severity, of which there are more
 * than MOST.
 * @param {GraphNode[]} nodes @param {Edge[]} edges
 */
function condense(nodes, edges) {
  const known = new Set(nodes.map((n) => n.id));
  edges = edges.filter((e) => known.has(e.from) && known.has(e.to) && e.from !== e.to);
  /** @param {GraphNode} n */
  const looks = (n) => JSON.stringify([n.kind, n.severity, edges.filter((e) => e.from === n.id || e.to === n.id)
    .map((e) => [e.from === n.id ? "" : e.from, e.to === n.id ? "" : e.to, e.label])]);
  const dropped = new Set();
  /** @type {Map<string, number>} */
  const more = new Map();
  for (const group of Map.groupBy(nodes.filter((n) => !n.subject), looks).values()) {
    if (group.length <= MOST) continue;
    more.set(group[MOST - 1].id, group.length - MOST + 1);
    group.slice(MOST).forEach((n) => dropped.add(n.id));
  }
  return {
    nodes: nodes.filter((n) => !dropped.has(n.id)).map((n) => (more.has(n.id) ? { ...n, open: false, details: [],
      finalizers: [], name: `${more.get(n.id)} more`, namespace: "", label: `and ${more.get(n.id)} more` } : n)),
    edges: edges.filter((e) => !dropped.has(e.from) && !dropped.has(e.to)),
  };
}

/** The name of a node in words, without its kind. @param {GraphNode} n */
function nameOf(n) {
  if (n.kind === "volume") return n.label;
  return ["claim", "pod"].includes(n.kind) && n.namespace ? n.namespace + "/" + n.name : n.name;
}

/** The picture as sentences. @param {{nodes: GraphNode[], edges: Edge[]}} graph */
function sentences({ nodes, edges }) {
  const names = new Map(nodes.map((n) => [n.id, kindWord(n.kind) + " " + nameOf(n)]));
  return [...edges.map((e) => `${names.get(e.from)} ${e.label} ${names.get(e.to)}` +
    (e.holds ? ", and keeps it from going." : ".")),
  ...nodes.flatMap((n) => (n.finalizers ?? []).map((f) => `Finalizer ${f.name} keeps ${names.get(n.id)}` +
    (f.text ? `: ${f.text}.` : ".")))];
}

/**
 * Breaks a text into lines: at spaces, else after a sign, where the rest then still fits. The last line may be cut.
 * @param {string} text @param {number} width @param {number} most
 */
function wrap(text, width, most) {
  const lines = [];
  let left = text;
  while (left.length > width && lines.length < most - 1) {
    const space = left.lastIndexOf(" ", width);
    const sign = Math.max(...["-", ".", "/", ":"].map((c) => left.lastIndexOf(c, width - 1))) + 1;
    const fits = sign > 1 && left.length - sign <= width * (most - lines.length - 1);
    const head = left.slice(0, space > 0 ? space + 1 : fits ? sign : width);
    lines.push(head.trimEnd());
    left = left.slice(head.length);
  }
  return [...lines, left.length > width ? left.slice(0, width - 1) + "…" : left];
}

/** Leaves out the middle of a long text. @param {string} text @param {number} most */
function shorten(text, most) {
  if (text.length <= most) return text;
  const head = Math.ceil((most - 1) / 2);
  return text.slice(0, head) + "…" + text.slice(text.length - (most - 1 - head));
}

// @ts-check
// The picture of the holds between objects. An arrow that holds is solid with a full head, any other dashed with an
// open head.

import { el, sign, svg } from "../app/dom.js";
import { kindWord, severityWord } from "../app/format.js";
import { objectHash } from "../app/route.js";
import { GAP_X, layout } from "./layout.js";

const WIDTH = 220;
const PAD = 12;
const MARGIN = 6;
/** What fits into a line of a box: of names, which are set in a monospaced font, and of details. */
const NAME_CHARACTERS = 25;
const DETAIL_CHARACTERS = 31;
const LINES = 3;
/** The picture shrinks to fit, but not below what can be read: then it scrolls. */
const SMALLEST = 0.86;
/** How many boxes side by side are always accepted, however narrow the page is. */
const BESIDE = 2;
/** How many neighbours of one kind with the same edges are drawn one by one. */
const MOST = 5;

export class Picture {
  #last = "";
  #width = 0;
  #room = 0;
  /** @type {{nodes: GraphNode[], edges: Edge[]}} */
  #graph = { nodes: [], edges: [] };

  constructor() {
    this.scroller = el("div", { class: "picture", role: "region", "aria-label": "Picture of the relations",
      tabindex: 0 });
    this.words = el("ul", {});
    this.element = el("section", { class: "panel", "aria-labelledby": "picture-title" },
      el("h2", { id: "picture-title" }, "Relations"), this.scroller,
      el("p", { class: "legend" }, line(true), " keeps it from going", line(false), " is related"),
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
    const first = !this.scroller.firstElementChild;
    this.#draw();
    this.#fit();
    const subject = this.scroller.querySelector(".subject");
    if (!first || !subject) return;
    const at = subject.getBoundingClientRect();
    const room = this.scroller.getBoundingClientRect();
    this.scroller.scrollLeft += (at.left + at.right - room.left - room.right) / 2;
  }

  #draw() {
    const focused = document.activeElement?.closest("[data-node]")?.getAttribute("data-node");
    const picture = drawn(this.#graph, this.#room);
    this.#width = picture.width;
    this.scroller.replaceChildren(picture.element);
    if (!focused) return;
    const again = this.scroller.querySelector(`[data-node="${CSS.escape(focused)}"]`);
    if (again instanceof SVGElement) again.focus();
  }

  /** Fits the picture to the page: in whole boxes side by side, so that it is not drawn anew at each pixel. */
  #fit() {
    const width = this.scroller.clientWidth - 16;
    if (width <= 0) return;
    const beside = Math.max(BESIDE, Math.floor((width / SMALLEST + GAP_X) / (WIDTH + GAP_X)));
    const room = beside * (WIDTH + GAP_X);
    if (room !== this.#room) {
      this.#room = room;
      this.#draw();
    }
    const image = /** @type {SVGElement} */ (this.scroller.firstElementChild);
    image.style.width = Math.floor(this.#width * Math.min(1, Math.max(SMALLEST, width / this.#width))) + "px";
  }
}

/** An arrow for the legend. @param {boolean} holds */
function line(holds) {
  return svg("svg", { class: "edge " + (holds ? "holds" : "other"), viewBox: "0 0 40 12", width: 40, height: 12,
    "aria-hidden": "true", focusable: "false" },
  svg("path", { class: "line", d: "M1 6H30" }),
  svg("path", { class: "tip", d: "M30 1.5 39 6 30 10.5" + (holds ? "Z" : "") }));
}

/** @param {{nodes: GraphNode[], edges: Edge[]}} graph @param {number} room */
function drawn({ nodes, edges }, room) {
  const faces = new Map(nodes.map((node) => [node.id, face(node)]));
  const { width, height, boxes, lines } = layout([...faces].map(([id, { h }]) => ({ id, w: WIDTH, h })), edges, room);
  const element = svg("svg", { viewBox: `${-MARGIN} ${-MARGIN} ${width + 2 * MARGIN} ${height + 2 * MARGIN}`,
    role: "group", "aria-labelledby": "picture-title" });
  edges.forEach((edge, i) => element.append(arrow(edge, lines[i], boxes)));
  // In the order in which they are read: from above, from the left.
  const at = (/** @type {GraphNode} */ n) => /** @type {{x: number, y: number}} */ (boxes.get(n.id));
  for (const node of nodes.toSorted((a, b) => at(a).y - at(b).y || at(a).x - at(b).x)) {
    const { x, y } = at(node);
    const box = /** @type {SVGElement} */ (faces.get(node.id)?.element);
    box.setAttribute("transform", `translate(${x} ${y})`);
    element.append(box);
  }
  // Labels are above the boxes' lines, so that no line crosses them.
  edges.forEach((edge, i) => element.append(label(edge, lines[i], lines, i)));
  return { element, width: width + 2 * MARGIN };
}

/** @param {GraphNode} node */
function face(node) {
  const name = wrap(shorten(node.label || node.name, NAME_CHARACTERS * LINES), NAME_CHARACTERS, LINES);
  const details = (node.details ?? []).flatMap((d) => wrap(d, DETAIL_CHARACTERS, LINES)).slice(0, LINES);
  const h = 34 + name.length * 17 + details.length * 16;
  const hash = node.open && !node.subject ? objectHash(node) : "";
  const whole = nameOf(node);
  const words = [kindWord(node.kind), whole, ...(node.details ?? []),
    node.severity !== "none" ? severityWord(node.severity) : "", node.subject ? "shown on this page" : ""];
  const mark = sign(node.severity);
  for (const [key, value] of Object.entries({ x: WIDTH - PAD - 16, y: 8, width: 16, height: 16 })) {
    mark.setAttribute(key, String(value));
  }
  const element = svg(hash ? "a" : "g", { class: ["box", node.severity, node.subject && "subject", hash && "open"]
    .filter(Boolean).join(" "), "data-node": node.id, "aria-label": words.filter(Boolean).join(", "),
  href: hash || null, role: hash ? null : "img" },
  svg("title", {}, [whole, ...(node.details ?? [])].join("\n")),
  svg("rect", { width: WIDTH, height: h, rx: 8 }),
  svg("text", { class: "kind", x: PAD, y: 21 }, kindWord(node.kind) + (node.subject ? " · shown here" : "")),
  ...name.map((text, i) => svg("text", { class: "label", x: PAD, y: 40 + i * 17 }, text)),
  ...details.map((text, i) => svg("text", { class: "detail", x: PAD, y: 40 + name.length * 17 + i * 16 }, text)));
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
      name: `${more.get(n.id)} more`, namespace: "", label: `and ${more.get(n.id)} more` } : n)),
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
  return edges.map((e) => `${names.get(e.from)} ${e.label} ${names.get(e.to)}` +
    (e.holds ? ", and keeps it from going." : "."));
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

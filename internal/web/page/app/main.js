// @ts-check
// Starts the page: follows the address, keeps the streams, and passes their events to the view.

import { setDocs } from "./docs.js";
import { announce, byId, el, setText } from "./dom.js";
import { countAges, number } from "./format.js";
import { listHash, LISTS, objectPath, parse } from "./route.js";
import { Status } from "./status.js";
import { Store } from "./store.js";
import { Stream } from "./stream.js";
import { ListView } from "../list/list.js";
import { Overview } from "../list/overview.js";
import { VIEWS, volumes } from "../list/query.js";
import { ObjectView } from "../object/object.js";

const TITLES = { overview: "Overview", waiting: "Waiting", volumes: "Volumes", leaks: "Leaks" };
/** After which time in the background a page lets go of its connections: browsers allow six, for all tabs. */
const HIDDEN_MS = 20_000;

const store = new Store();
const status = new Status();
/** @type {Summary|null} */
let summary = null;
/** @type {State|null} */
let state = null;
/** @type {Overview|ListView|ObjectView|null} */
let view = null;
/** @type {Stream|null} the stream of the object that is shown */
let objectStream = null;
/** The list that was seen last, and where in it. */
let lastList = { hash: "#/overview", title: TITLES.overview };
/** @type {Map<string, {active: string, top: number}>} */
const positions = new Map();

const lists = new Stream("api/list", {
  state: takeState,
  summary: (data) => {
    summary = data;
    if (view && "summarize" in view) view.summarize(summary);
  },
  rows: (data) => {
    store.apply(data);
    if (view && "update" in view) view.update();
    showNavigation();
  },
}, showStatus);

/** @param {State} data */
function takeState(data) {
  state = data;
  setDocs(data.docs);
  showTitle();
  const partial = Boolean(data.partial);
  const unread = Boolean(data.unread?.length);
  if (store.complete !== data.synced || store.partial !== partial || store.unread !== unread) {
    store.complete = data.synced;
    store.partial = partial;
    store.unread = unread;
    if (view && "update" in view) view.update();
    showNavigation();
  }
  showStatus();
}

function showStatus() {
  const links = [lists.link, ...(objectStream ? [objectStream.link] : [])];
  const lost = links.find((link) => !Number.isNaN(link.lost));
  status.show(state, lost ?? lists.link);
}

/** Shows the view that the address names. */
function follow() {
  const route = parse(location.hash);
  const back = leave();
  if (route.view === "object") openObject(route);
  else if (route.view === "unknown") openUnknown();
  else if (route.view === "overview") openOverview(route.query, back);
  else openList(route.view, route.query, back);
  showTitle();
  showNavigation();
  showStatus();
}

/** Tabs and bookmarks of several clusters differ by their title. */
function showTitle() {
  const title = [view?.title ?? "Not found", state?.cluster, "kubectl reclaim"].filter(Boolean).join(" · ");
  if (document.title !== title) document.title = title;
}

/** @returns {boolean} whether the view that is left was an object */
function leave() {
  const wasObject = view instanceof ObjectView;
  if (view instanceof Overview) lastList = { hash: listHash("overview", view.query), title: TITLES.overview };
  if (view instanceof ListView) {
    lastList = { hash: listHash(view.view, view.query), title: TITLES[/** @type {keyof TITLES} */ (view.view)] };
    positions.set(lastList.hash, view.table.position());
  }
  view?.close();
  view = null;
  objectStream?.close();
  objectStream = null;
  return wasObject;
}

/** @param {URLSearchParams} query @param {boolean} back */
function openOverview(query, back) {
  view = new Overview(query, store, summary);
  byId("main").replaceChildren(view.element);
  byId("main").className = "main-object";
  if (back) byId("main").focus({ preventScroll: true });
}

/** @param {string} name @param {URLSearchParams} query @param {boolean} back */
function openList(name, query, back) {
  const list = new ListView(name, query, store, summary);
  view = list;
  byId("main").replaceChildren(list.element);
  byId("main").className = "main-list";
  list.update(true);
  const position = positions.get(listHash(name, query));
  if (back && position) list.table.restore(position);
  else if (back) byId("main").focus({ preventScroll: true });
}

/** @param {Route} route */
function openObject(route) {
  const object = new ObjectView(route, lastList);
  view = object;
  objectStream = new Stream(objectPath(route), {
    state: takeState,
    object: (data) => object.show(data),
    timeline: (data) => object.timeline.add(data),
  }, showStatus, (heard) => object.timeline.miss(heard, Date.now()));
  if (!document.hidden) objectStream.open();
  byId("main").replaceChildren(object.element);
  byId("main").className = "main-object";
  byId("main").scrollTop = 0;
  byId("main").focus({ preventScroll: true });
}

function openUnknown() {
  byId("main").className = "main-object";
  byId("main").replaceChildren(el("article", { class: "object" }, el("h1", {}, "There is no such page"),
    el("p", {}, el("a", { href: "#/waiting" }, "Show waiting objects"))));
}

/** The links to the lists, with how many rows each has. */
function showNavigation() {
  const nav = byId("nav");
  if (!nav.children.length) {
    nav.append(...LISTS.map((name) => el("a", { href: listHash(name), "data-view": name },
      el("span", {}, TITLES[/** @type {keyof TITLES} */ (name)]), el("span", { class: "n" }))));
  }
  const rows = [...store.records.values()];
  for (const link of nav.querySelectorAll("a")) {
    const name = link.dataset.view ?? "";
    const its = rows.filter((r) => VIEWS[name]?.(r.row));
    const n = (name === "volumes" ? volumes(its) : its).length;
    setText(/** @type {Element} */ (link.lastElementChild), VIEWS[name] && (store.complete || n) ? number(n) :
      "");
    if (view instanceof ListView ? view.view === name : view instanceof Overview && name === "overview") {
      link.setAttribute("aria-current", "page");
    } else {
      link.removeAttribute("aria-current");
    }
  }
}

/** @param {KeyboardEvent} e */
function key(e) {
  if (e.altKey || e.ctrlKey || e.metaKey || e.defaultPrevented) return;
  const typing = e.target instanceof HTMLInputElement || e.target instanceof HTMLSelectElement;
  const search = document.getElementById("search");
  if (e.key === "/" && !typing && search instanceof HTMLInputElement) {
    e.preventDefault();
    search.focus();
    search.select();
  } else if (e.key === "Escape" && !typing && view instanceof ObjectView) {
    document.getElementById("back")?.click();
  }
}

let hidden = 0;

/** Tabs that nobody looks at hold no connection. */
function visibility() {
  clearTimeout(hidden);
  if (document.hidden) {
    hidden = setTimeout(() => {
      lists.close();
      objectStream?.close();
    }, HIDDEN_MS);
  } else {
    lists.open();
    objectStream?.open();
  }
}

byId("skip").addEventListener("click", (e) => {
  e.preventDefault();
  byId("main").focus();
});
addEventListener("hashchange", follow);
addEventListener("keydown", key);
document.addEventListener("visibilitychange", visibility);
setInterval(() => {
  countAges();
  lists.check();
  objectStream?.check();
}, 1000);
follow();
visibility();
announce("");

// @ts-check
// Views by the hash of the address: links, bookmarks and the back button work, and the server sees nothing of it.

export const LISTS = ["overview", "waiting", "volumes", "leaks"];
const OBJECTS = ["pv", "claim", "pod", "node"];
const NAMESPACED = ["claim", "pod"];

/**
 * Reads a hash such as "#/volumes?q=data" or "#/claim/shop/data". The view is "unknown" for another one.
 * @param {string} hash
 * @returns {Route}
 */
export function parse(hash) {
  const [path, query] = split(hash.replace(/^#\/?/, ""), "?");
  const parts = path.split("/").map(decode);
  /** @type {Route} */
  const route = { view: "unknown", kind: "", namespace: "", name: "", query: new URLSearchParams(query) };
  const [first] = parts;
  if (path === "") return { ...route, view: "overview" };
  if (LISTS.includes(first) && parts.length === 1) return { ...route, view: first };
  const namespaced = NAMESPACED.includes(first);
  const valid = parts.every((part) => part !== "" && !part.includes("/"));
  if (!OBJECTS.includes(first) || parts.length !== (namespaced ? 3 : 2) || !valid) return route;
  const [namespace, name] = namespaced ? parts.slice(1) : ["", parts[1]];
  return { ...route, view: "object", kind: first, namespace, name };
}

/** @param {string} text @param {string} at */
function split(text, at) {
  const i = text.indexOf(at);
  return i < 0 ? [text, ""] : [text.slice(0, i), text.slice(i + 1)];
}

/** @param {string} part */
function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return "";
  }
}

/**
 * The hash of an object's page, "" where there is none.
 * @param {{kind: string, namespace?: string, name: string}} ref
 */
export function objectHash(ref) {
  if (!OBJECTS.includes(ref.kind) || !ref.name) return "";
  if (!NAMESPACED.includes(ref.kind)) return "#/" + ref.kind + "/" + encodeURIComponent(ref.name);
  if (!ref.namespace) return "";
  return "#/" + [ref.kind, encodeURIComponent(ref.namespace), encodeURIComponent(ref.name)].join("/");
}

/**
 * The hash of the page that says most about a row, "" where there is none.
 * @param {Row} row
 */
export function rowHash(row) {
  switch (row.kind) {
    case "fence":
      return objectHash({ kind: "node", name: row.node || row.name });
    case "inflight": {
      const [namespace, name] = split(row.claim ?? "", "/");
      return objectHash({ kind: "claim", namespace, name });
    }
    case "volume":
      return row.pv ? objectHash({ kind: "pv", name: row.pv }) : "";
    default:
      return objectHash(row);
  }
}

/**
 * The path of an object's stream below the page's address.
 * @param {Route} route
 */
export function objectPath(route) {
  return "api/object/" + [route.kind, route.namespace || "-", route.name].map(encodeURIComponent).join("/");
}

/**
 * The hash of a list.
 * @param {string} view
 * @param {URLSearchParams} [query]
 */
export function listHash(view, query) {
  const text = query?.toString();
  return "#/" + view + (text ? "?" + text : "");
}

// @ts-check
// Words for kinds, ages, sizes and times.

/** @type {Record<string, string>} */
const KINDS = {
  pv: "PV", claim: "Claim", pod: "Pod", node: "Node", fence: "Fence", volume: "Volume", inflight: "In flight",
  attachment: "Attachment", lock: "Lock",
};

/** @param {string} kind */
export const kindWord = (kind) => KINDS[kind] ?? kind;

/** @param {Row} row @returns {boolean} whether people know the object by its claim: a UUID says nothing to them */
export const byClaim = (row) => Boolean(row.claim) && ["pv", "inflight"].includes(row.kind);

/** @param {Row} row @returns {string} the name by which people know the object */
export const knownName = (row) => (byClaim(row) ? row.claim ?? "" :
  (row.namespace ? row.namespace + "/" : "") + row.name);

/** @type {Record<string, string>} */
const SEVERITIES = { attention: "Needs action", waits: "Waits", none: "Nothing to do" };

/** @param {string} severity */
export const severityWord = (severity) => SEVERITIES[severity] ?? severity;

/** @param {string|null|undefined} time RFC 3339; @returns {number} milliseconds, NaN for none */
export const millis = (time) => (time ? Date.parse(time) : NaN);

/**
 * A span of time as kubectl writes it.
 * @param {number} ms
 */
export function age(ms) {
  if (Number.isNaN(ms)) return "";
  const s = Math.max(0, Math.floor(ms / 1000));
  if (s < 120) return s + "s";
  const m = Math.floor(s / 60);
  if (m < 10) return m + "m" + rest(s % 60, "s");
  if (m < 180) return m + "m";
  const h = Math.floor(m / 60);
  if (h < 8) return h + "h" + rest(m % 60, "m");
  if (h < 48) return h + "h";
  const d = Math.floor(h / 24);
  if (d < 8) return d + "d" + rest(h % 24, "h");
  if (d < 730) return d + "d";
  return Math.floor(d / 365) + "y" + rest(Math.floor(d % 365), "d");
}

/** @param {number} n @param {string} unit */
const rest = (n, unit) => (n ? n + unit : "");

/**
 * An element with the age of a moment, which counts on by itself. Empty for no time.
 * @param {number} since in milliseconds
 * @param {(age: string) => string} [words]
 */
export function ageElement(since, words = (a) => a) {
  const time = document.createElement("time");
  setAge(time, since, words);
  return time;
}

/** @type {WeakMap<Element, {since: number, words: (age: string) => string}>} */
const ages = new WeakMap();

/**
 * Has an element of ageElement show another moment.
 * @param {HTMLTimeElement} time
 * @param {number} since
 * @param {(age: string) => string} [words]
 */
export function setAge(time, since, words = (a) => a) {
  ages.set(time, { since, words });
  time.dataset.age = "";
  if (Number.isNaN(since)) {
    time.removeAttribute("datetime");
    time.removeAttribute("title");
  } else {
    time.dateTime = new Date(since).toISOString();
    time.title = moment(since);
  }
  count(time, Date.now());
}

/** @param {Element} time @param {number} now */
function count(time, now) {
  const entry = ages.get(time);
  if (!entry) return;
  const text = Number.isNaN(entry.since) ? "" : entry.words(age(now - entry.since));
  if (time.textContent !== text) time.textContent = text;
}

/** Counts all ages in the document on. */
export function countAges() {
  const now = Date.now();
  for (const time of document.querySelectorAll("time[data-age]")) count(time, now);
}

const clockFormat = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit",
  hourCycle: "h23" });
const momentFormat = new Intl.DateTimeFormat(undefined, { year: "numeric", month: "short", day: "numeric",
  hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23", timeZoneName: "short" });

/** @param {number} ms @returns {string} the time of day */
export const clock = (ms) => clockFormat.format(ms);

/** @param {number} ms @returns {string} day and time */
export const moment = (ms) => momentFormat.format(ms);

/**
 * A size with the unit that leaves one to four digits. Empty for 0, which is not known.
 * @param {number} [bytes]
 */
export function size(bytes) {
  if (!bytes) return "";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  let n = bytes;
  for (; n >= 1024 && unit < units.length - 1; unit++) n /= 1024;
  return number(Math.round(n * 10) / 10) + " " + units[unit];
}

const numberFormat = new Intl.NumberFormat("en");

/** @param {number} n */
export const number = (n) => numberFormat.format(n);

/** @param {number} n @param {string} one @param {string} [many] */
export const plural = (n, one, many = one + "s") => number(n) + " " + (n === 1 ? one : many);

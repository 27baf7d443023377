// @ts-check
// Builds elements. Text is set as text and never parsed as HTML: names and messages come from the cluster, where others
// choose them.

const SVG = "http://www.w3.org/2000/svg";

/**
 * @param {Element} element
 * @param {Record<string, Attribute>} attributes a function listens to the event of that name
 * @param {Child[]} children
 */
function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, String(value));
  }
  for (const child of children) {
    if (child !== null && child !== undefined && child !== false) {
      element.append(child instanceof Node ? child : String(child));
    }
  }
  return element;
}

/**
 * Builds an HTML element.
 * @param {string} tag
 * @param {Record<string, Attribute>} [attributes]
 * @param {...Child} children
 * @returns {HTMLElement}
 */
export function el(tag, attributes = {}, ...children) {
  return /** @type {HTMLElement} */ (fill(document.createElement(tag), attributes, children));
}

/**
 * Builds an SVG element.
 * @param {string} tag
 * @param {Record<string, Attribute>} [attributes]
 * @param {...Child} children
 * @returns {SVGElement}
 */
export function svg(tag, attributes = {}, ...children) {
  return /** @type {SVGElement} */ (fill(document.createElementNS(SVG, tag), attributes, children));
}

/**
 * Returns the element of index.html with that id.
 * @param {string} id
 * @returns {HTMLElement}
 */
export function byId(id) {
  const element = document.getElementById(id);
  if (!element) throw new Error("no element #" + id);
  return element;
}

/**
 * Sets the text of an element, where it differs: an unchanged text keeps its selection, and is not read out again.
 * @param {Element} element
 * @param {string} text
 */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/**
 * Has a screen reader say a text when it is done with what it says.
 * @param {string} text
 */
export function announce(text) {
  byId("announce").textContent = text;
}

/** @type {Record<string, string>} the outlines of the signs, drawn in a square of 16 */
const SIGNS = {
  attention: "M8 1.8 15 14H1ZM8 6v4M8 11.6v.6",
  waits: "M8 1.5a6.5 6.5 0 1 1 0 13 6.5 6.5 0 0 1 0-13ZM8 4.5V8l2.4 1.6",
  none: "M3.5 8.4 6.6 11.5 12.5 5",
};

/**
 * The sign of a severity: its shape differs, not only its colour. The word beside it, or a hidden one, says the same.
 * @param {string} severity
 */
export function sign(severity) {
  return svg("svg", { class: "sign " + severity, viewBox: "0 0 16 16", "aria-hidden": "true", focusable: "false" },
    svg("path", { d: SIGNS[severity] ?? SIGNS.none }));
}

// @ts-check
// Commands in sentences: each has a button that copies it.

import { announce, el } from "./dom.js";
import { parts, pasteable } from "./commands.js";
import { objectHash } from "./route.js";

/** @param {string} text @returns {HTMLElement[]} the words of a sentence, and its commands */
export const withCommands = (text) =>
  parts(text).flatMap((part) => (part.command ? [command(part.text), ...page(part.text)] : el("span", {}, part.text)));

/** The page that says the same as a command. @param {string} command */
function page(command) {
  const name = /^kubectl reclaim explain pv\/(\S+)$/.exec(command)?.[1];
  return name ? [el("a", { href: objectHash({ kind: "pv", name }) }, "Open PV " + name)] : [];
}

/** @param {string} text */
export function command(text) {
  const code = el("code", { tabindex: 0 }, text);
  if (!pasteable(text)) return el("span", { class: "command" }, code);
  const button = el("button", { type: "button", class: "copy", "aria-label": "Copy the command " + text,
    click: () => copy(text, code, button) }, "Copy");
  return el("span", { class: "command" }, code, button);
}

/** @param {string} text @param {HTMLElement} code @param {HTMLElement} button */
async function copy(text, code, button) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
    announce("Copied the command");
  } catch {
    // The clipboard may be forbidden: then the person presses the keys.
    getSelection()?.selectAllChildren(code);
    button.textContent = "Marked";
    announce("The command is selected. Press Control C to copy it.");
  }
  setTimeout(() => { button.textContent = "Copy"; }, 2000);
}

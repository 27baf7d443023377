// @ts-check
// Commands in sentences. Pure functions.

/**
 * Splits advice into its words and its commands. A command begins with "kubectl " and ends where the sentence goes on:
 * outside of quotes at a comma, semicolon or colon before a space, at a bracket, or at a period that ends it.
 * @param {string} advice
 * @returns {Part[]}
 */
export function parts(advice) {
  const found = [];
  let at = 0;
  for (const { index } of advice.matchAll(/(?<![\w/-])kubectl [a-z]/g)) {
    if (index < at) continue;
    const end = endOf(advice, index);
    if (index > at) found.push({ text: advice.slice(at, index), command: false });
    found.push({ text: advice.slice(index, end), command: true });
    // The sign after a command does not begin the next line.
    at = end + (/^[,;:.]\s*/.exec(advice.slice(end))?.[0].length ?? 0);
  }
  if (at < advice.length) found.push({ text: advice.slice(at), command: false });
  return found;
}

/** @param {string} text @param {number} from @returns {number} the end of the command that begins there */
function endOf(text, from) {
  let quote = "";
  for (let i = from; i < text.length; i++) {
    const c = text[i];
    if (quote) {
      if (c === quote) quote = "";
    } else if (c === "'" || c === '"') {
      quote = c;
    } else if (/^([,;:.](\s|$)|\s*\()/.test(text.slice(i))) {
      return i;
    }
  }
  return text.length;
}

/**
 * Whether a command can be pasted as it is. A line break would run what stands before it.
 * @param {string} command
 */
export const pasteable = (command) => !/[\u0000-\u001f\u007f\u0085\u2028\u2029]/.test(command);

// @ts-check
// Streams of server-sent events that reconnect by themselves.

/** How long after a refusal the stream is asked for again. A lost connection the browser itself retries. */
const RETRY_MS = 2000;

export class Stream {
  /** @type {EventSource|null} */
  #source = null;
  #timer = 0;
  /** @type {Link} */
  link = { lost: NaN, refused: "" };

  /**
   * @param {string} path below the page's address
   * @param {Record<string, (data: any) => void>} handlers by the name of the event
   * @param {() => void} changed is called when the link changes
   */
  constructor(path, handlers, changed) {
    this.path = path;
    this.handlers = handlers;
    this.changed = changed;
  }

  open() {
    if (this.#source) return;
    clearTimeout(this.#timer);
    const source = new EventSource(this.path);
    this.#source = source;
    source.onopen = () => this.#set({ lost: NaN, refused: "" });
    source.onerror = async () => {
      const lost = Number.isNaN(this.link.lost) ? Date.now() : this.link.lost;
      if (source.readyState !== EventSource.CLOSED) {
        this.#set({ lost, refused: "" });
        return;
      }
      this.#drop();
      this.#timer = setTimeout(() => this.open(), RETRY_MS);
      this.#set({ lost, refused: this.link.refused });
      const refused = await answer(this.path);
      if (!this.#source) this.#set({ lost, refused });
    };
    for (const [name, handle] of Object.entries(this.handlers)) {
      source.addEventListener(name, (e) => {
        if (this.#source === source) handle(JSON.parse(e.data));
      });
    }
  }

  close() {
    clearTimeout(this.#timer);
    this.#drop();
  }

  #drop() {
    this.#source?.close();
    this.#source = null;
  }

  /** @param {Link} link */
  #set(link) {
    this.link = link;
    this.changed();
  }
}

/**
 * What the server answers in place of a stream: an EventSource does not say.
 * @param {string} path
 */
async function answer(path) {
  const stop = new AbortController();
  try {
    const response = await fetch(path, { signal: stop.signal });
    if (response.ok) return "";
    return (await response.text()).trim().replace(/^\{"error":"(.*)"\}$/, "$1") || response.statusText;
  } catch {
    return "";
  } finally {
    stop.abort();
  }
}

// @ts-check
// Streams of server-sent events that reconnect by themselves.

/** How long after a refusal the stream is asked for again. A lost connection the browser itself retries. */
const RETRY_MS = 2000;
/** How long the server may be silent: it sends an event every 15 seconds at least. */
const SILENT_MS = 45_000;

export class Stream {
  /** @type {EventSource|null} */
  #source = null;
  #timer = 0;
  /** When the stream was asked for. */
  #asked = 0;
  /** When the server was last heard, NaN for never. It stays when the stream is closed: what it sent is that old. */
  #heard = NaN;
  /** @type {Link} */
  link = { lost: NaN, refused: "" };

  /**
   * @param {string} path below the page's address
   * @param {Record<string, (data: any) => void>} handlers by the name of the event
   * @param {() => void} changed is called when the link changes
   * @param {(heard: number) => void} again is called when the stream is open again, with when it was last heard before
   */
  constructor(path, handlers, changed, again = () => {}) {
    this.path = path;
    this.handlers = handlers;
    this.changed = changed;
    this.again = again;
  }

  open() {
    if (this.#source) return;
    clearTimeout(this.#timer);
    const source = new EventSource(this.path);
    this.#source = source;
    this.#asked = Date.now();
    if (!Number.isNaN(this.#heard)) this.#set({ lost: this.#heard, refused: this.link.refused });
    source.onopen = () => {
      const heard = this.#heard;
      this.#heard = Date.now();
      this.#set({ lost: NaN, refused: "" });
      if (!Number.isNaN(heard)) this.again(heard);
    };
    source.onerror = async () => {
      const lost = [this.#heard, this.link.lost, Date.now()].find((time) => !Number.isNaN(time)) ?? NaN;
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
    for (const name of ["alive", ...Object.keys(this.handlers)]) {
      source.addEventListener(name, (e) => {
        if (this.#source !== source) return;
        this.#heard = Date.now();
        this.handlers[name]?.(JSON.parse(e.data));
      });
    }
  }

  /** Opens the stream anew where the server is silent: the browser does not notice a connection that ends so. */
  check() {
    if (!this.#source || Date.now() - Math.max(this.#asked, this.#heard || 0) <= SILENT_MS) return;
    this.#drop();
    this.open();
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

// @ts-check
// A layered layout, as pure functions: every arrow points down.

export const GAP_X = 28;
const GAP_Y = 64;
const SWEEPS = 12;

/**
 * Places boxes and arrows. Arrows whose ends are not among the boxes must not be there.
 * @param {Box[]} boxes
 * @param {Edge[]} arrows
 * @param {number} room the width that is wanted; the picture is wider where its boxes cannot be moved up
 * @returns {PlacedGraph}
 */
export function layout(boxes, arrows, room) {
  /** @type {Map<string, LayerItem>} */
  const items = new Map(boxes.map((b) => [b.id, { ...b, layer: 0, x: 0, above: [], below: [] }]));
  const turned = backArrows(boxes, arrows);
  const ways = arrows.map((a, i) => (turned.has(i) ? [a.to, a.from] : [a.from, a.to]));
  setLayers(items, ways);
  fold(items, ways, room);
  const layers = split(items);
  const chains = ways.map(([from, to], i) => chain(items.get(from), items.get(to), layers, i));
  sortLayers(layers);
  placeX(layers);
  return draw(layers, boxes, chains);
}

/**
 * The arrows that close a circle, by their index. Without them, arrows point one way.
 * @param {Box[]} boxes @param {Edge[]} arrows @returns {Set<number>}
 */
function backArrows(boxes, arrows) {
  const back = new Set();
  /** @type {Map<string, "open"|"done">} */
  const state = new Map();
  /** @param {string} id */
  const visit = (id) => {
    state.set(id, "open");
    arrows.forEach((a, i) => {
      if (a.from !== id) return;
      if (state.get(a.to) === "open") back.add(i);
      else if (!state.has(a.to)) visit(a.to);
    });
    state.set(id, "done");
  };
  for (const { id } of boxes) if (!state.has(id)) visit(id);
  return back;
}

/**
 * Puts each item one layer above the highest that it points to: what is held last of all stands at the bottom.
 * @param {Map<string, LayerItem>} items @param {string[][]} ways
 */
function setLayers(items, ways) {
  /** @type {Map<string, number>} */
  const depths = new Map();
  /** @param {string} id @returns {number} */
  const depth = (id) => {
    const known = depths.get(id);
    if (known !== undefined) return known;
    depths.set(id, 0);
    const below = ways.filter(([from, to]) => from === id && to !== id).map(([, to]) => depth(to) + 1);
    const d = Math.max(0, ...below);
    depths.set(id, d);
    return d;
  };
  for (const id of items.keys()) depth(id);
  const last = Math.max(0, ...depths.values());
  for (const [id, item] of items) item.layer = last - (depths.get(id) ?? 0);
}

/**
 * Moves boxes that nothing points to up, from layers that are wider than the room: into a new layer on top, if need be.
 * @param {Map<string, LayerItem>} items @param {string[][]} ways @param {number} room
 */
function fold(items, ways, room) {
  const held = new Set(ways.map(([, to]) => to));
  const lowest = Math.max(0, ...[...items.values()].map((item) => item.layer));
  for (let layer = lowest; layer >= 0; layer--) {
    const here = [...items.values()].filter((item) => item.layer === layer);
    const free = here.filter((item) => !held.has(item.id));
    let width = sum(here.map((item) => item.w + GAP_X)) - GAP_X;
    const up = [];
    while (width > room && free.length && here.length - up.length > 1) {
      const item = /** @type {LayerItem} */ (free.shift());
      up.push(item);
      width -= item.w + GAP_X;
    }
    if (!up.length) continue;
    if (layer === 0) {
      for (const item of items.values()) item.layer++;
      layer++;
    }
    for (const item of up) item.layer = layer - 1;
  }
}

/** @param {Map<string, LayerItem>} items @returns {LayerItem[][]} */
function split(items) {
  /** @type {LayerItem[][]} */
  const layers = [];
  for (const item of items.values()) (layers[item.layer] ??= []).push(item);
  return Array.from(layers, (layer) => layer ?? []);
}

/**
 * Links two items through all layers between them.
 * @param {LayerItem|undefined} from @param {LayerItem|undefined} to @param {LayerItem[][]} layers @param {number} arrow
 * @returns {LayerItem[]}
 */
function chain(from, to, layers, arrow) {
  if (!from || !to) return [];
  const all = [from];
  for (let layer = from.layer + 1; layer < to.layer; layer++) {
    const item = { id: `${arrow}:${layer}`, w: 12, h: 0, layer, x: 0, above: [], below: [] };
    layers[layer].push(item);
    all.push(item);
  }
  all.push(to);
  for (let i = 1; i < all.length; i++) {
    all[i - 1].below.push(all[i]);
    all[i].above.push(all[i - 1]);
  }
  return all;
}

/** Sorts each layer so that few arrows cross. @param {LayerItem[][]} layers */
function sortLayers(layers) {
  let best = layers.map((layer) => [...layer]);
  let least = crossings(layers);
  for (let sweep = 0; sweep < SWEEPS && least > 0; sweep++) {
    const down = sweep % 2 === 0;
    const order = down ? layers.keys() : [...layers.keys()].reverse();
    for (const l of order) {
      const place = new Map((layers[down ? l - 1 : l + 1] ?? []).map((item, i) => [item, i]));
      const mean = new Map(layers[l].map((item, i) => {
        const near = (down ? item.above : item.below).map((other) => place.get(other) ?? 0);
        return [item, near.length ? sum(near) / near.length : i];
      }));
      layers[l].sort((a, b) => (mean.get(a) ?? 0) - (mean.get(b) ?? 0));
    }
    const now = crossings(layers);
    if (now < least) {
      least = now;
      best = layers.map((layer) => [...layer]);
    }
  }
  layers.forEach((layer, i) => layer.splice(0, layer.length, ...best[i]));
}

/** @param {LayerItem[][]} layers @returns {number} how many arrows cross */
function crossings(layers) {
  let n = 0;
  for (let l = 1; l < layers.length; l++) {
    const place = new Map(layers[l].map((item, i) => [item, i]));
    const ends = layers[l - 1].flatMap((item) => item.below.map((b) => place.get(b) ?? 0).sort((a, b) => a - b));
    for (let i = 0; i < ends.length; i++) for (let j = i + 1; j < ends.length; j++) if (ends[i] > ends[j]) n++;
  }
  return n;
}

/** Moves items to below and above what they are linked with, in their order. @param {LayerItem[][]} layers */
function placeX(layers) {
  for (const layer of layers) {
    let x = 0;
    for (const item of layer) {
      item.x = x;
      x += item.w + GAP_X;
    }
  }
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const down = sweep % 2 === 0;
    const order = down ? layers.keys() : [...layers.keys()].reverse();
    for (const l of order) {
      const wanted = layers[l].map((item) => {
        const near = down ? item.above : item.below;
        const all = near.length ? near : down ? item.below : item.above;
        return all.length ? sum(all.map(center)) / all.length - item.w / 2 : item.x;
      });
      spread(layers[l], wanted);
    }
  }
  const left = Math.min(...layers.flat().map((item) => item.x));
  for (const item of layers.flat()) item.x -= left;
}

/**
 * Places the items of a layer as near to where they want to be as their order and gaps allow: the least sum of squares,
 * by pooling neighbours that would meet.
 * @param {LayerItem[]} layer @param {number[]} wanted
 */
function spread(layer, wanted) {
  let offset = 0;
  /** @type {{sum: number, n: number}[]} */
  const pools = [];
  const offsets = layer.map((item) => {
    const at = offset;
    offset += item.w + GAP_X;
    return at;
  });
  layer.forEach((_, i) => {
    pools.push({ sum: wanted[i] - offsets[i], n: 1 });
    while (pools.length > 1 && mean(pools[pools.length - 2]) > mean(pools[pools.length - 1])) {
      const last = /** @type {{sum: number, n: number}} */ (pools.pop());
      pools[pools.length - 1].sum += last.sum;
      pools[pools.length - 1].n += last.n;
    }
  });
  let i = 0;
  for (const pool of pools) for (let k = 0; k < pool.n; k++, i++) layer[i].x = mean(pool) + offsets[i];
}

/** @param {{sum: number, n: number}} pool */
const mean = (pool) => pool.sum / pool.n;
/** @param {number[]} all */
const sum = (all) => all.reduce((a, b) => a + b, 0);
/** @param {LayerItem} item */
const center = (item) => item.x + item.w / 2;

/**
 * @param {LayerItem[][]} layers @param {Box[]} boxes @param {LayerItem[][]} chains
 * @returns {PlacedGraph}
 */
function draw(layers, boxes, chains) {
  /** @type {number[]} */
  const tops = [];
  let height = 0;
  layers.forEach((layer, l) => {
    tops[l] = height;
    height += Math.max(0, ...layer.map((item) => item.h)) + (l < layers.length - 1 ? GAP_Y : 0);
  });
  const real = new Map(layers.flat().map((item) => [item.id, item]));
  const ports = portsOf(chains);
  const lines = chains.map((items, i) => items.map((item, k) => {
    const last = k === items.length - 1;
    const x = last || k === 0 ? item.x + ports(i, last) : center(item);
    const bottom = tops[item.layer] + (k === 0 ? item.h : 0);
    return { x, y: bottom };
  }).flatMap((point, k) => {
    const item = items[k];
    // A long arrow is straight where it passes the boxes of a layer.
    if (item.h > 0) return [point];
    const h = Math.max(0, ...layers[item.layer].map((other) => other.h));
    return [point, { x: point.x, y: point.y + h }];
  }));
  return {
    width: Math.max(0, ...layers.flat().map((item) => item.x + item.w)), height, lines,
    boxes: new Map(boxes.map(({ id }) => {
      const item = /** @type {LayerItem} */ (real.get(id));
      return [id, { x: item.x, y: tops[item.layer] }];
    })),
  };
}

/**
 * Where arrows leave and reach a box: beside each other, in the order of their other ends.
 * @param {LayerItem[][]} chains
 * @returns {(arrow: number, atTarget: boolean) => number} the distance from the box's left edge
 */
function portsOf(chains) {
  /** @type {Map<string, number>} */
  const found = new Map();
  for (const atTarget of [false, true]) {
    const groups = Map.groupBy(chains.keys(), (i) => chains[i].at(atTarget ? -1 : 0));
    for (const [item, arrows] of groups) {
      if (!item) continue;
      /** @param {number} i */
      const other = (i) => center(chains[i][atTarget ? chains[i].length - 2 : 1]);
      arrows.sort((a, b) => other(a) - other(b));
      const step = Math.min(36, (item.w - 24) / arrows.length);
      arrows.forEach((i, k) => found.set(`${i}:${atTarget}`, item.w / 2 + (k - (arrows.length - 1) / 2) * step));
    }
  }
  return (arrow, atTarget) => found.get(`${arrow}:${atTarget}`) ?? 0;
}

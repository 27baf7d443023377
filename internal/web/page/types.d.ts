// The types of the page's modules, for checks by hand and for editors: see docs/development.md. No program has this file.
// The server sends the JSON of internal/web/view and internal/explain.

/** view.Row. */
interface Row {
  id: string;
  kind: string;
  namespace?: string;
  name: string;
  driver?: string;
  phase?: string;
  terminating?: string;
  waits: boolean;
  reason?: string;
  text?: string;
  /** The page of the docs about the reason. */
  docs?: string;
  severity: string;
  since?: string;
  policy?: string;
  claim?: string;
  pv?: string;
  node?: string;
  bytes?: number;
}

/** view.State. */
interface State {
  cluster: string;
  version: string;
  docs: string;
  synced: boolean;
  partial?: boolean;
  connected: boolean;
  since?: string;
  problem?: string;
  unread?: string[];
}

/** view.Summary, what is shown of it. */
interface Summary {
  drivers: DriverSummary[];
  changes: { time: string; kind: string; row: Row }[] | null;
  warnings?: string[];
  leaks?: { driver: string; headline: string; suspected: number; bytes: number }[];
}

/** view.DriverSummary: what is missing is unknown. */
interface DriverSummary {
  driver: string;
  role: string;
  pvs: number;
  protected?: number;
  unprotected?: number;
  terminating: number;
  inFlight: number;
  inFlightKnown: boolean;
  fill?: number;
  waiting?: Record<string, number>;
  attention: number;
  bytes: number;
  ages: number[];
  brake?: string;
  leader?: string;
  version?: string;
}

/** explain.Explanation. */
interface Explanation {
  object: string;
  headline: string;
  facts?: { name: string; text: string }[];
  finalizers?: Finalizer[];
  decision?: { by: string; action?: string; reason: string; text: string };
  inFlight?: InFlight[];
  waitsFor?: string[];
  missing?: { evidence: string; text: string }[];
  risks?: string[];
  advice?: string[];
  events?: string[];
  unread?: string[];
  pv?: Explanation;
  holder?: Explanation;
}

interface Finalizer {
  name: string;
  owner?: string;
  when?: string;
  stuck?: string;
  addedBy?: string;
}

interface InFlight {
  volume: string;
  driver: string;
  claim: string;
  since: string;
  lease: string;
}

/** view.Object. */
interface ObjectState extends Row {
  exists: boolean;
  /** Why it could not be read: then the rest is its last state, and it may exist. */
  unread?: string;
  explanation?: Explanation;
  graph: Graph;
}

interface Graph {
  nodes: GraphNode[];
  edges: Edge[];
}

/** view.Node. */
interface GraphNode {
  id: string;
  kind: string;
  namespace?: string;
  name: string;
  label: string;
  details?: string[];
  finalizers?: { name: string; text?: string; severity: string }[];
  severity: string;
  subject?: boolean;
  open?: boolean;
}

/** view.Edge. */
interface Edge {
  from: string;
  to: string;
  label: string;
  holds?: boolean;
}

/** view.Entry. */
interface Entry {
  id: string;
  time: string;
  source: string;
  type: string;
  reason?: string;
  text: string;
  about?: string;
  count?: number;
}

/** A row with what is computed once: the text that a search looks at, and the time in milliseconds. */
interface RowRecord {
  row: Row;
  id: string;
  text: string;
  since: number;
}

/** What the address names. */
interface Route {
  view: string;
  kind: string;
  namespace: string;
  name: string;
  query: URLSearchParams;
}

/**
 * How the connection is: since when it is lost, NaN where it is not. refused is what the server answers instead of the
 * stream, empty where it does not answer.
 */
interface Link {
  lost: number;
  refused: string;
}

/** A column of a table. fill writes a cell, which may have been filled for another row before. */
interface Column {
  key: string;
  title: string;
  fill: (cell: HTMLElement, r: RowRecord) => void;
  /** The table is not sorted by the column. */
  plain?: boolean;
}

interface Point {
  x: number;
  y: number;
}

interface Box {
  id: string;
  w: number;
  h: number;
}

/** A box in a layer, or a point where a long arrow crosses one. */
interface LayerItem extends Box {
  layer: number;
  x: number;
  above: LayerItem[];
  below: LayerItem[];
}

/** Boxes have their top left corner. Lines stand in the order of the arrows; each goes down. */
interface PlacedGraph {
  width: number;
  height: number;
  boxes: Map<string, Point>;
  lines: Point[][];
}

/** A part of advice. */
interface Part {
  text: string;
  command: boolean;
}

type Attribute = string | number | boolean | null | undefined | ((e: any) => void);
type Child = Node | string | number | null | undefined | false;

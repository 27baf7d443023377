// What a dashboard of ours may be: Grafana's published types, as JSON has them. A field that Grafana does not know and a
// value of the wrong type do not compile.
import type * as grafana from "@grafana/schema";
import type * as timeseries from "@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen";

// Plain is T as JSON has it: a value of an enum is its text or number.
type Plain<T> = T extends string
  ? `${T}`
  : T extends number
    ? `${T}` extends `${infer N extends number}` ? N : T
    : T extends boolean | null | undefined
      ? T
      : T extends object
        ? { [K in keyof T]: Plain<T[K]> }
        : T;

// Target is a query of Prometheus. Its data source is a plugin, of which the schema has only what all queries share.
interface Target extends grafana.DataQuery {
  datasource: { type: "prometheus"; uid: string };
  expr: string;
  legendFormat: string;
}

type TimeSeries = Omit<grafana.Panel, "type" | "options" | "fieldConfig" | "targets"> & {
  type: "timeseries";
  options: timeseries.Options;
  fieldConfig: grafana.FieldConfigSource<timeseries.FieldConfig>;
  targets: Target[];
};

export type Dashboard = Plain<Omit<grafana.Dashboard, "panels"> & { panels: Array<TimeSeries | grafana.RowPanel> }>;

// What must not compile, so that this file is known to check.
const ref = { type: "prometheus", uid: "p" } as const;
const legend = { displayMode: "list", placement: "bottom", calcs: [], showLegend: true } as const;
const tooltip = { mode: "multi", sort: "none" } as const;
const target = { refId: "A", expr: "up", legendFormat: "a", datasource: ref };
const panel = { type: "timeseries", targets: [target], options: { legend, tooltip },
  fieldConfig: { defaults: {}, overrides: [] } } as const;
type Panel = NonNullable<Dashboard["panels"]>[number];

export const sound: Dashboard = { schemaVersion: 39, panels: [{ ...panel, targets: [target],
  options: { legend: { ...legend, calcs: [] }, tooltip }, fieldConfig: { defaults: {}, overrides: [] } }] };
// @ts-expect-error a field that Grafana does not know
export const unknownField: Dashboard = { schemaVersion: 39, panels: [], colour: "red" };
// @ts-expect-error a wrong type
export const wrongType: Dashboard = { schemaVersion: "39", panels: [] };
// @ts-expect-error a value that is none of the enum
export const wrongEnum: Dashboard["graphTooltip"] = 7;
// @ts-expect-error a field that a panel does not know
export const unknownOption: Panel["options"] = { legend: { ...legend, calcs: [] }, tooltip, stacked: true };
// @ts-expect-error a legend that is drawn nowhere
export const wrongPlacement: timeseries.Options["legend"] = { ...legend, calcs: [], placement: "left" };
// @ts-expect-error a query without its expression
export const noQuery: Target = { refId: "A", legendFormat: "a", datasource: ref };

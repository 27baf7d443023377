#!/bin/sh
# Holds the dashboard against Grafana's published schema, which is in the npm package @grafana/schema. Needs npm.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
work=$root/.build/grafana
mkdir -p "$work"
cp "$here/package.json" "$here/schema.ts" "$work/"
cd "$work"
npm install --no-package-lock --ignore-scripts --no-audit --no-fund --loglevel=error
{
	echo 'import type { Dashboard } from "./schema";'
	echo 'export const dashboard: Dashboard ='
	cat "$root/deploy/dashboard/csi-reclaimer.json"
} >dashboard.ts
node_modules/.bin/tsc --noEmit --strict --skipLibCheck --module esnext --moduleResolution bundler --target esnext \
	schema.ts dashboard.ts
echo "deploy/dashboard/csi-reclaimer.json is what Grafana's schema allows"

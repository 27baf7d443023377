// Package watch keeps watch caches of what the page shows, and makes facts of them: those of package explain, and those of
// internal/web/view. It is an [explain.Source], so that the same functions decide on what it has as on live reads.
//
// What the caller may not read is missing from the facts, and does not stop the rest. The package decides nothing and
// writes nothing to the cluster.
package watch

// Package watch keeps watch caches of the objects that the page shows, and turns them into the facts of package
// explain and of internal/web/view. Its Cluster is an [explain.Source], so the same functions decide on cached objects
// as on live reads. Load fills the caches once, for a list that ends.
//
// Kinds that the caller may not read are missing from the facts, and do not stop the rest. The package decides nothing
// and writes nothing to the cluster.
package watch

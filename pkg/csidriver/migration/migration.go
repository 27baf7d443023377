// Package migration marks calls about volumes of the in-tree plugin that a CSI driver replaces. The mark sets the
// label migrated of csi_sidecar_operations_seconds; the caller decides about it.
//
// Stability: for the programs of this repository. It may change with each release.
package migration

import "context"

type key struct{}

// Mark returns a context that sets the label of driver calls.
func Mark(ctx context.Context, migrated bool) context.Context {
	return context.WithValue(ctx, key{}, migrated)
}

// Marked returns the label's value, which is false without Mark.
func Marked(ctx context.Context) bool {
	migrated, _ := ctx.Value(key{}).(bool)
	return migrated
}

// Package migration marks the calls of a CSI driver that are about a volume of the in-tree plugin which the driver took
// over from, for the label migrated of csi_sidecar_operations_seconds. It leaves it to others to find that out.
package migration

import "context"

type key struct{}

// Mark returns a context in which calls of a driver count as about such a volume, or not.
func Mark(ctx context.Context, migrated bool) context.Context {
	return context.WithValue(ctx, key{}, migrated)
}

// Marked reports which they are; without Mark they are not.
func Marked(ctx context.Context) bool {
	migrated, _ := ctx.Value(key{}).(bool)
	return migrated
}

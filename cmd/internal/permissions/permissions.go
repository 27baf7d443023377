// Package permissions says what a program is not allowed to do.
package permissions

import (
	"context"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/access"
)

// LookAgain is how often something that is lacking is looked for again.
const LookAgain = 30 * time.Second

// Asker tells which of its rights a controller lacks.
type Asker interface {
	MissingPermissions(ctx context.Context) ([]access.Permission, error)
}

// Missing returns what any of them lacks, each right once.
func Missing(ctx context.Context, of []Asker) ([]access.Permission, error) {
	var all []access.Permission
	for _, a := range of {
		missing, err := a.MissingPermissions(ctx)
		if err != nil {
			return nil, err
		}
		for _, right := range missing {
			if !slices.ContainsFunc(all, func(r access.Permission) bool {
				return r.Verb == right.Verb && r.Group == right.Group && r.Resource == right.Resource && r.Namespace == right.Namespace && r.Name == right.Name
			}) {
				all = append(all, right)
			}
		}
	}
	return all, nil
}

// Watch logs what they lack, and has it reported, at the beginning and at each change. It looks again for
// as long as something is lacking, and until ctx ends.
func Watch(ctx context.Context, of []Asker, report func(missing []access.Permission)) {
	var before []access.Permission
	for {
		missing, err := Missing(ctx, of)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			klog.FromContext(ctx).Info("Preflight: what this program may do cannot be found out; it is looked at again", "err", err)
		case len(missing) == 0:
			report(nil)
			if len(before) > 0 {
				klog.FromContext(ctx).Info("Preflight: all rights are granted now")
			}
			return
		default:
			if !slices.Equal(missing, before) {
				say(ctx, missing)
				report(missing)
			}
			before = missing
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(LookAgain):
		}
	}
}

func say(ctx context.Context, missing []access.Permission) {
	for _, right := range missing {
		klog.FromContext(ctx).Info("Preflight: "+right.String(), "noDeletionWithout", right.Unsafe)
	}
}

// Unsafe returns in words those without which no deletion is safe.
func Unsafe(missing []access.Permission) (words []string) {
	for _, right := range missing {
		if right.Unsafe {
			words = append(words, right.String())
		}
	}
	return words
}

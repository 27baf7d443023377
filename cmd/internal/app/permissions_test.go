package app

import (
	"context"
	"slices"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
)

// lacks are missing permissions.
type lacks []permission.Permission

func (l lacks) MissingPermissions(context.Context) ([]permission.Permission, error) { return l, nil }

func TestMissingPermissions(t *testing.T) {
	get := permission.Permission{Verb: "get", Resource: "persistentvolumes", Without: "this", Unsafe: true}
	other := get
	other.Without = "that"
	named := get
	named.Name = "one"
	missing, err := MissingPermissions(t.Context(), []PermissionChecker{lacks{get}, lacks{other, named}, lacks{}})
	if err != nil || !slices.Equal(missing, []permission.Permission{get, named}) {
		t.Errorf("%v, %+v", err, missing)
	}
	tell := get
	tell.Verb, tell.Unsafe = "patch", false
	if words := BlockingPermissions([]permission.Permission{tell, get}); !slices.Equal(words, []string{get.String()}) {
		t.Errorf("not safe without %q", words)
	}
}

func TestWatchPermissions(t *testing.T) {
	right := permission.Permission{Verb: "get", Resource: "persistentvolumes"}
	for name, l := range map[string]lacks{"nothing": nil, "a right": {right}} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var reported [][]permission.Permission
			watchPermissions(ctx, []PermissionChecker{l}, func(missing []permission.Permission) {
				reported = append(reported, missing)
				cancel() // no second check follows
			})
			if len(reported) != 1 || !slices.Equal(reported[0], l) {
				t.Errorf("reported %+v", reported)
			}
		})
	}
}

package preflight

import (
	"context"
	"slices"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
)

// lacks are rights that are not granted.
type lacks []reclaim.Right

func (l lacks) Missing(context.Context) ([]reclaim.Right, error) { return l, nil }

func TestWhatIsMissingIsSaidOnce(t *testing.T) {
	get := reclaim.Right{Verb: "get", Resource: "persistentvolumes", Without: "this", Unsafe: true}
	other := get
	other.Without = "that"
	named := get
	named.Name = "one"
	missing, err := Missing(t.Context(), []Asker{lacks{get}, lacks{other, named}, lacks{}})
	if err != nil || !slices.Equal(missing, []reclaim.Right{get, named}) {
		t.Errorf("%v, %+v", err, missing)
	}
	tell := get
	tell.Verb, tell.Unsafe = "patch", false
	if words := Unsafe([]reclaim.Right{tell, get}); !slices.Equal(words, []string{get.String()}) {
		t.Errorf("not safe without %q", words)
	}
}

func TestWhatIsMissingIsReported(t *testing.T) {
	right := reclaim.Right{Verb: "get", Resource: "persistentvolumes"}
	for name, l := range map[string]lacks{"nothing": nil, "a right": {right}} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var reported [][]reclaim.Right
			Watch(ctx, []Asker{l}, func(missing []reclaim.Right) {
				reported = append(reported, missing)
				cancel() // it is not looked at again
			})
			if len(reported) != 1 || !slices.Equal(reported[0], l) {
				t.Errorf("reported %+v", reported)
			}
		})
	}
}

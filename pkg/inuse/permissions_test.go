package inuse_test

import (
	"slices"
	"testing"

	"k8s.io/client-go/tools/record"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/controllers"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pv"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pvc"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
)

func TestPermissions(t *testing.T) {
	full := inuse.Config{Mode: inuse.ModeFull}
	dry := inuse.Config{Mode: inuse.ModeFull, Settings: controllers.Settings{DryRun: true,
		Events: record.NewFakeRecorder(1)}}
	telling := inuse.Config{Mode: inuse.ModeFull,
		Settings: controllers.Settings{Events: record.NewFakeRecorder(1)}}
	for sentence, c := range map[string]struct {
		cfg         inuse.Config
		claims, pvs []string
	}{
		"off": {inuse.Config{}, nil, nil},
		"full": {full, []string{"list", "watch", "patch", "list pods", "watch pods"},
			[]string{"list", "watch", "patch"}},
		"a dry run": {dry, []string{"list", "watch", "list pods", "watch pods"}, []string{"list", "watch"}},
		"with Events": {telling, []string{"list", "watch", "patch", "create events", "patch events", "list pods",
			"watch pods"}, []string{"list", "watch", "patch", "create events", "patch events"}},
	} {
		names := func(resource string, rights []permission.Permission) (all []string) {
			for _, r := range rights {
				name := r.Verb + " " + r.Resource
				if r.Resource == resource {
					name = r.Verb
				}
				all = append(all, name)
				if r.Without == "" || r.Unsafe != (r.Verb == "list" || r.Verb == "watch") {
					t.Errorf("%s: %s: %q, unsafe %v", sentence, name, r.Without, r.Unsafe)
				}
			}
			return all
		}
		if got := names("persistentvolumeclaims", pvc.Config{Config: c.cfg}.Permissions()); !slices.Equal(got, c.claims) {
			t.Errorf("%s: of claims %q, want %q", sentence, got, c.claims)
		}
		if got := names("persistentvolumes", pv.Permissions(c.cfg)); !slices.Equal(got, c.pvs) {
			t.Errorf("%s: of PVs %q, want %q", sentence, got, c.pvs)
		}
	}
}

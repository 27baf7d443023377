package protect_test

import (
	"slices"
	"testing"

	"k8s.io/client-go/tools/record"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/protect"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/protect/pv"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/protect/pvc"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
)

func TestWhatIsAskedOfRBAC(t *testing.T) {
	full := protect.Config{Mode: protect.ModeFull}
	dry := protect.Config{Mode: protect.ModeFull, DryRun: true, Events: record.NewFakeRecorder(1)}
	telling := protect.Config{Mode: protect.ModeFull, Events: record.NewFakeRecorder(1)}
	for sentence, c := range map[string]struct {
		cfg         protect.Config
		claims, pvs []string
	}{
		"off":         {protect.Config{}, nil, nil},
		"full":        {full, []string{"list", "watch", "patch", "list pods", "watch pods"}, []string{"list", "watch", "patch"}},
		"a dry run":   {dry, []string{"list", "watch", "list pods", "watch pods"}, []string{"list", "watch"}},
		"with Events": {telling, []string{"list", "watch", "patch", "create events", "patch events", "list pods", "watch pods"}, []string{"list", "watch", "patch", "create events", "patch events"}},
	} {
		names := func(resource string, rights []reclaim.Right) (all []string) {
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
		if got := names("persistentvolumeclaims", pvc.Config{Config: c.cfg}.Rights()); !slices.Equal(got, c.claims) {
			t.Errorf("%s: of claims %q, want %q", sentence, got, c.claims)
		}
		if got := names("persistentvolumes", pv.Rights(c.cfg)); !slices.Equal(got, c.pvs) {
			t.Errorf("%s: of PVs %q, want %q", sentence, got, c.pvs)
		}
	}
}

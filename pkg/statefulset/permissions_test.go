package statefulset

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/tools/record"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/controllers"
)

func TestPermissions(t *testing.T) {
	reads := []string{"get persistentvolumeclaims", "get pods", "get statefulsets", "list persistentvolumeclaims",
		"list pods", "list statefulsets", "watch persistentvolumeclaims", "watch pods", "watch statefulsets"}
	writes := []string{"delete persistentvolumeclaims", "delete pods", "patch persistentvolumeclaims",
		"patch statefulsets"}
	recorder := record.NewFakeRecorder(1)
	for sentence, c := range map[string]struct {
		cfg  Config
		want []string
	}{
		"by default": {Config{}, slices.Concat(reads, writes)},
		"with Events": {Config{Settings: controllers.Settings{Events: recorder}},
			slices.Concat(reads, writes, []string{"create events", "patch events"})},
		"a dry run": {Config{Settings: controllers.Settings{Events: recorder, DryRun: true}}, reads},
	} {
		var got []string
		for _, p := range c.cfg.permissions() {
			got = append(got, p.Verb+" "+p.Resource)
			if p.Without == "" || p.Unsafe != slices.Contains(reads, p.Verb+" "+p.Resource) {
				t.Errorf("%s: %s of %s: %q, unsafe %v", sentence, p.Verb, p.Resource, p.Without, p.Unsafe)
			}
			if (p.Group == "apps") != (p.Resource == "statefulsets") || strings.Contains(p.Verb, "*") {
				t.Errorf("%s: group %q of %s", sentence, p.Group, p.Resource)
			}
		}
		slices.Sort(got)
		slices.Sort(c.want)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", sentence, got, c.want)
		}
	}
}

package request

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func cleanUp(f *Facts) { f.CleanUp = true }

// TestCleanUp: what was half-made must be found again when the node is gone, and when the source is
// being deleted, which stays only for as long as somebody may be copying it.
func TestCleanUp(t *testing.T) {
	deleting := cloned(func(source *v1.PersistentVolumeClaim, _ *v1.PersistentVolume) {
		source.DeletionTimestamp = &metav1.Time{}
	})
	restoring := restored(func(s *Snapshot) { s.Deleting = true })
	refusals(t, map[string]struct {
		f    Facts
		want Reason
	}{
		"the selected node is gone: another one, for a volume that is to be used": {facts(zones, late, selected("gone")),
			ReasonNodeUnfit},
		"the selected node is gone: no matter, for one that is to be deleted": {facts(zones, late, selected("gone"),
			cleanUp), ""},
		"no node is selected any more":                            {facts(zones, late, cleanUp), ""},
		"a source that is being deleted is none for a new volume": {facts(deleting), ReasonSourceDeleting},
		"it is for one that was begun": {facts(deleting,
			func(f *Facts) { f.Begun = true }), ""},
		"and for one that is to be deleted": {facts(deleting, cleanUp), ""},
		"so is a snapshot":                  {facts(restoring, cleanUp), ""},
		"which is none for a new volume":    {facts(restoring), ReasonSourceDeleting},
		"snapshots that nobody reads": {facts(restored(),
			func(f *Facts) { f.Source.Unserved = true }), ReasonSourceUnserved},
	})
	f := facts(zones, late, selected("n-a"), cleanUp)
	need, err := Needs(f)
	if err != nil || need.Nodes || need.SelectedNode != "" {
		t.Errorf("Needs = %+v, %v, want no node", need, err)
	}
	o, err := NewPlan(f)
	if err != nil || o.Request.AccessibilityRequirements != nil || o.MayReschedule {
		t.Errorf("NewPlan = %+v, %v, want no place", o.Request, err)
	}
	if !f.Driver.Plugin[csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS] {
		t.Error("the facts were changed")
	}
}

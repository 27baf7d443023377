package podsafety

import (
	"testing"

	"k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/kubetest"
)

func TestConditionListReadsWatchCache(t *testing.T) {
	s := kubetest.NewServer(t, map[string]string{"/pods": `{"kind":"PodList","apiVersion":"v1"}`})
	for node, cached := range map[string]bool{"": false, "node-1": true} {
		if err := api(t, s.Config()).eachPod(t.Context(), "", node, func(*v1.Pod) {}); err != nil {
			t.Error(err)
		}
		if s.Has("fieldSelector=spec.nodeName%3Dnode-1", "resourceVersion=0") != cached ||
			s.Has("resourceVersion") != cached {
			t.Errorf("node %q: asked for %s", node, s.Last())
		}
	}
}

// TestMissingObjectNeedsAPIServerAnswer checks that the 404 of a proxy that cannot find the API server is no evidence.
func TestMissingObjectNeedsAPIServerAnswer(t *testing.T) {
	kubetest.Absence(t, func(config *rest.Config, fails bool) {
		a := api(t, config)
		for what, read := range map[string]func() (found bool, err error){
			"pod":       func() (bool, error) { _, found, err := a.readPod(t.Context(), "ns", "db-0"); return found, err },
			"node":      func() (bool, error) { node, err := a.readNode(t.Context(), "node-1"); return node.Found, err },
			"Lease":     func() (bool, error) { lease, err := a.readLease(t.Context(), "node-1"); return lease.Found, err },
			"volume":    func() (bool, error) { v, err := a.readVolume(t.Context(), "ns", "data"); return v.name != "", err },
			"NodeFence": func() (bool, error) { f, err := a.readFence(t.Context(), "node-1", "uid-1"); return f.InForce, err },
		} {
			if found, err := read(); found || (err != nil) != fails {
				t.Errorf("%s: found %v, error %v", what, found, err)
			}
		}
	})
}

package inflight

import (
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

func TestApartName(t *testing.T) {
	names := map[string]bool{}
	for _, node := range []string{"", "n1", "n2", "a-very-long-name.of.a.node.example.com"} {
		name := volume.ApartName("pvc-0f0c", node)
		if names[name] || volumeOfPV(name) != "pvc-0f0c" {
			t.Errorf("of node %q: %q, volume %q", node, name, volumeOfPV(name))
		}
		names[name] = true
	}
	for _, own := range []string{"pvc-0f0c", "pvc-0f0c-apart", "disk-apart-xyz"} {
		if volumeOfPV(own) != own {
			t.Errorf("%q is taken for the name of volume %q", own, volumeOfPV(own))
		}
	}
}

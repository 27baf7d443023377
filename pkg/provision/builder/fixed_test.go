package builder

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"
)

func TestFixedDriverGetsRequests(t *testing.T) {
	clones := func(claim *v1.PersistentVolumeClaim) {
		claim.Spec.DataSource = &v1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "source"}
	}
	clone := csi.ControllerServiceCapability_RPC_CLONE_VOLUME
	for name, c := range map[string]struct {
		driver  Fixed
		changes []func(*v1.PersistentVolumeClaim)
		refused bool
	}{
		"an empty volume":         {driver: Fixed{Driver: driverName}},
		"a clone, without clones": {Fixed{Driver: driverName}, []func(*v1.PersistentVolumeClaim){clones}, true},
		"without a name":          {refused: true},
	} {
		built, err := NewForClient(fake.NewClientset(), c.driver, Config{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := built.Build(t.Context(), want(c.changes...)); (err != nil) != c.refused {
			t.Errorf("%s: %v", name, err)
		}
	}
	able := Fixed{Driver: driverName, Controller: []csi.ControllerServiceCapability_RPC_Type{clone}, Topology: true}
	if !able.Has(clone) || !able.Offers(topologyService) || (Fixed{}).Has(clone) || (Fixed{}).Offers(topologyService) {
		t.Error("a capability is not the configured one")
	}
}

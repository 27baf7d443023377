package volumes

import (
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

// sidecar adds a Lease with the label of csi-reclaimer.
func (f *StatusFacts) sidecar(name, who string, renewed time.Duration) {
	var w ClusterFacts
	w.lease(name, who, renewed)
	w.Leases.Value[0].Labels = map[string]string{objects.DriverLabel: driver}
	f.Sidecars = explain.Found(append(f.Sidecars.Value, w.Leases.Value[0]))
}

func TestLeadersOfDriver(t *testing.T) {
	const own, beside = "disk-csi-example-com", "disk-csi-example-com-reclaimer"
	in := func(namespace, name, who string, labels map[string]string, since time.Duration) coordinationv1.Lease {
		var w ClusterFacts
		w.lease(name, who, since)
		l := w.Leases.Value[0]
		l.Namespace, l.Labels = namespace, labels
		return l
	}
	labeled := map[string]string{objects.DriverLabel: driver}
	for name, c := range map[string]struct {
		leases []coordinationv1.Lease
		want   []string
	}{
		"none":              {nil, nil},
		"one":               {[]coordinationv1.Lease{in("a", own, "x", nil, 0)}, []string{"a/x"}},
		"too old":           {[]coordinationv1.Lease{in("a", own, "x", nil, time.Minute)}, nil},
		"of another driver": {[]coordinationv1.Lease{in("a", "other", "x", labeled, 0)}, nil},
		"a provisioner, and a companion": {[]coordinationv1.Lease{in("a", own, "p", nil, 0), in("a", beside, "x", nil, 0)},
			[]string{"a/x"}},
		"a provisioner that took over, and a companion": {[]coordinationv1.Lease{in("a", own, "p", labeled, 0),
			in("a", beside, "x", labeled, 0)}, []string{"a/x"}},
		"two namespaces": {[]coordinationv1.Lease{in("a", own, "x", nil, 0), in("b", own, "y", nil, 0)},
			[]string{"a/x", "b/y"}},
		"another name in another namespace": {[]coordinationv1.Lease{in("a", own, "x", nil, 0), in("b", beside, "y", nil, 0)},
			[]string{"a/x", "b/y"}},
		"two namespaces, and a label": {[]coordinationv1.Lease{in("a", own, "x", nil, 0), in("b", own, "y", labeled, 0)},
			[]string{"b/y"}},
		"a label of another driver": {[]coordinationv1.Lease{in("a", own, "x", nil, 0),
			in("b", own, "y", map[string]string{objects.DriverLabel: "disk-csi.example.com"}, 0)}, []string{"a/x", "b/y"}},
		"two labels": {[]coordinationv1.Lease{in("a", own, "x", labeled, 0), in("b", own, "y", labeled, 0)},
			[]string{"a/x", "b/y"}},
	} {
		w := ClusterFacts{Now: now(), Leases: explain.Found(c.leases)}
		if got := w.LeadersOf(driver); !slices.Equal(got, c.want) {
			t.Errorf("%s: leaders %q, want %q", name, got, c.want)
		}
	}
}

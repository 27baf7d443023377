package provision

import (
	"context"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/internal/caches"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// everyKindOfClaim calls visit with claims in every relevant state, and with irrelevant fields set.
func everyKindOfClaim(visit func(*v1.PersistentVolumeClaim)) {
	class, now := "fast", metav1.Now()
	for bits := range 1 << 8 {
		is := func(n int) bool { return bits>>n&1 > 0 }
		c := &v1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns", Name: "data", UID: "u1", ResourceVersion: "7", Labels: map[string]string{"a": "b"},
				Annotations: map[string]string{"theirs": "kept"}, Finalizers: []string{"kubernetes.io/pvc-protection"},
				ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "somebody"}},
			},
			Spec:   v1.PersistentVolumeClaimSpec{AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}},
			Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound},
		}
		if is(0) {
			c.Spec.VolumeName = "pvc-u1"
		}
		if is(1) {
			c.Finalizers = append(c.Finalizers, request.CloningFinalizer)
		}
		if is(2) {
			c.DeletionTimestamp = &now
		}
		switch {
		case is(3) && is(4):
			c.Annotations[volume.AnnProvisioner] = driverName
		case is(3):
			c.Annotations[volume.AnnProvisionerBeta] = "another.example.com"
		case is(4):
			c.Annotations[v1.BetaStorageClassAnnotation] = class
		}
		if is(5) {
			c.Spec.StorageClassName = &class
		}
		if is(6) {
			c.Spec.DataSource = &v1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "source"}
		}
		if is(7) {
			c.Annotations[volume.AnnSelectedNode] = "n1"
		}
		visit(c)
	}
}

func TestKeptFieldsOfAClaimSuffice(t *testing.T) {
	for name, cfg := range map[string]Config{"for the whole cluster": {}, "on a node": onNode("n1")} {
		t.Run(name, func(t *testing.T) { checkKept(t, newWorld(t).start(cfg).provisioner) })
	}
}

func checkKept(t *testing.T, p *Controller) {
	t.Helper()
	partly := 0
	everyKindOfClaim(func(c *v1.PersistentVolumeClaim) {
		kept, keep, err := caches.RecordClaim(c, true)
		if err != nil || p.claimOf(kept) != p.claimOf(c) ||
			caches.IsTerminatingSource(kept) != caches.IsTerminatingSource(c) ||
			p.classOf(kept) != p.classOf(c) {
			t.Errorf("%v: of %+v is kept %+v", err, c, kept)
		}
		if len(kept.ManagedFields) > 0 || kept == c {
			t.Errorf("the managed fields are kept, or the object itself: %+v", kept)
		}
		if keep {
			if !caches.Whole(kept) || len(kept.Annotations) != len(c.Annotations) || kept.Status.Phase != c.Status.Phase ||
				len(kept.Finalizers) != len(c.Finalizers) || len(kept.Spec.AccessModes) != 1 {
				t.Errorf("%+v is not kept whole: %+v", c, kept)
			}
			return
		}
		if shown, keep, err := caches.RecordClaim(c, false); err != nil || keep || len(shown.Annotations) > 0 ||
			shown.UID != c.UID || shown.Spec.VolumeName != c.Spec.VolumeName || caches.Whole(shown) {
			t.Errorf("%v, keep %v: a Follower receives %+v of %+v", err, keep, shown, c)
		}
		partly++
		if caches.Whole(kept) || len(kept.Finalizers) > 0 || kept.Spec.VolumeName == "" || len(kept.Labels) > 0 ||
			kept.Annotations["theirs"] != "" {
			t.Errorf("too much is kept of %+v: %+v", c, kept)
		}
	})
	if partly == 0 || partly == 1<<8 {
		t.Errorf("%d claims are kept in part", partly)
	}
}

func TestOnlyUnboundClaimsAreKeptWhole(t *testing.T) {
	w := newWorld(t)
	p := w.start(Config{}).provisioner
	find := p.claims.WholeByUID
	w.makeClaim(func(c *v1.PersistentVolumeClaim) {
		c.Annotations[volume.AnnProvisioner], c.Labels = "another.example.com", map[string]string{"a": "b"}
	})
	w.wait("it is found", func() bool { return find("u1") != nil })
	if find("u1").Labels["a"] != "b" {
		t.Errorf("it is not whole: %+v", find("u1"))
	}
	w.update(func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName = "static" })
	w.wait("it is found no more", func() bool { return find("u1") == nil })
	if kept := p.claims.Of("ns", "data", "u1"); kept == nil || kept.Spec.VolumeName != "static" {
		t.Errorf("what is decided from was lost: %+v", kept)
	}
	w.deleteClaim()
	w.wait("nothing is left of it", func() bool {
		_, found := p.claims.Get("ns/data")
		return !found && find("u1") == nil
	})
}

func TestClaimBoundFromTheStartTakesNoMemory(t *testing.T) {
	w := newWorld(t)
	w.makeClaim(func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName = "pvc-u1" })
	w.makeClaim(func(c *v1.PersistentVolumeClaim) {
		c.Name, c.UID, c.Annotations[volume.AnnProvisioner] = "waits", "u2", "another.example.com"
	})
	p := w.start(Config{}).provisioner
	var kept []string
	p.claims.Each(func(c *v1.PersistentVolumeClaim) { kept = append(kept, c.Name) })
	if !slices.Equal(kept, []string{"waits"}) {
		t.Errorf("kept are %q", kept)
	}
}

// askedFor counts the requests that are built.
type askedFor struct {
	plainOrders
	n int
}

func (o *askedFor) Build(ctx context.Context, want request.Options) (*inflight.Request, error) {
	o.n++
	return o.plainOrders.Build(ctx, want)
}

func TestPartialClaimIsNotBuilt(t *testing.T) {
	w := newWorld(t)
	orders := &askedFor{}
	p, err := NewForClient(w.client, driverName, &process{world: w}, orders,
		Config{Log: &processLog{}})
	w.must(err)
	claim := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data", UID: "u1"}}
	try := func(claim *v1.PersistentVolumeClaim) error {
		work := &run{Controller: p, claim: claim, track: &track{}, wanted: &storagev1.StorageClass{}}
		return work.buildRequest(t.Context())
	}
	if err := try(claim); err != nil || orders.n != 1 {
		t.Fatalf("of a whole claim: %v, built %d times", err, orders.n)
	}
	claim.Spec.VolumeName = "another"
	part, _, err := caches.RecordClaim(claim, true)
	w.must(err)
	if err := try(part); err == nil || orders.n != 1 {
		t.Errorf("of a part: %v, built %d times", err, orders.n)
	}
}

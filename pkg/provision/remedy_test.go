package provision

import (
	"slices"
	"sync/atomic"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/provision"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// plainFacts returns the facts of a claim with a valid plan.
func plainFacts() request.Facts {
	class := "fast"
	return request.Facts{
		Claim: &v1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data", UID: "u1",
				Annotations: map[string]string{volume.AnnProvisioner: driverName}},
			Spec: v1.PersistentVolumeClaimSpec{StorageClassName: &class,
				AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
				Resources: v1.VolumeResourceRequirements{
					Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Mi")},
				}},
		},
		Class: &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: driverName},
		Driver: request.Driver{Name: driverName,
			Plugin: map[csi.PluginCapability_Service_Type]bool{csi.PluginCapability_Service_CONTROLLER_SERVICE: true},
			Controller: map[csi.ControllerServiceCapability_RPC_Type]bool{
				csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME: true,
			}},
	}
}

// refusal returns the error of NewPlan after a change of the facts.
func refusal(t *testing.T, wrong func(*request.Facts), want request.Remediation) error {
	t.Helper()
	f := plainFacts()
	wrong(&f)
	_, err := request.NewPlan(f)
	if err == nil || request.RemediationOf(err) != want {
		t.Fatalf("%v, want an error whose remedy is %v", err, want)
	}
	return err
}

func invalid(f *request.Facts) { f.Claim.Spec.Resources.Requests = nil }

func foreign(f *request.Facts) { f.Driver.Name = "another.example.com" }

func nodeless(f *request.Facts) {
	f.Driver.Plugin[csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS] = true
	f.Claim.Annotations[volume.AnnSelectedNode] = "gone"
}

// refusing makes requests fail with err until end is called, and counts the failures.
func (w *world) refusing(err error) (refused *atomic.Int64, end func()) {
	refused, over := &atomic.Int64{}, &atomic.Bool{}
	w.orders.refuse = func(request.Options) error {
		if over.Load() {
			return nil
		}
		refused.Add(1)
		return err
	}
	return refused, func() { over.Store(true) }
}

func TestRefusedClaimOpensNoEntry(t *testing.T) {
	w := newWorld(t)
	refused, end := w.refusing(refusal(t, invalid, request.RemediationChange))
	w.start(Config{})
	w.makeClaim()
	w.wait("it was refused again and again", func() bool { return refused.Load() > 5 })
	if len(w.recorded()) > 0 {
		t.Errorf("records: %q", w.recorded())
	}
	end()
	w.wait("it is provisioned", w.provisioned)
}

func TestForeignClaimIsIgnored(t *testing.T) {
	w := newWorld(t)
	refused, _ := w.refusing(refusal(t, foreign, request.RemediationIgnore))
	events := &told{}
	w.start(Config{Events: events})
	w.makeClaim()
	w.wait("it was looked at", func() bool { return refused.Load() > 0 })
	w.deleteClaim()
	w.wait("it is gone", w.gone)
	if got := events.with(""); len(w.recorded()) > 0 || len(got) > 0 {
		t.Errorf("records: %q, Events %q", w.recorded(), got)
	}
}

// TestPopulatorClaimGetsOneEvent checks that the owner gets one Event, even if the claim changes, and that no node
// selects itself for the claim.
func TestPopulatorClaimGetsOneEvent(t *testing.T) {
	for name, cfg := range map[string]Config{"for the whole cluster": {}, "on a node": onNode("n1")} {
		t.Run(name, func(t *testing.T) { checkPopulated(newWorld(t), cfg) })
	}
}

func checkPopulated(w *world, cfg Config) {
	populated := refusal(w.t, func(f *request.Facts) {
		group := "example.com"
		f.Claim.Spec.DataSourceRef = &v1.TypedObjectReference{APIGroup: &group, Kind: "Backup", Name: "monday"}
	}, request.RemediationIgnore)
	refused, _ := w.refusing(populated)
	events := &told{}
	cfg.Events = events
	w.start(cfg)
	w.makeClaim()
	w.wait("it was looked at", func() bool { return refused.Load() > 0 })
	before := refused.Load()
	w.update(func(claim *v1.PersistentVolumeClaim) { claim.Labels = map[string]string{"changed": "true"} })
	w.wait("it was looked at again", func() bool { return refused.Load() > before })
	got := events.with("") // before the end of the claim, which the second look may meet
	w.deleteClaim()
	w.wait("it is gone", w.gone)
	if len(w.recorded()) > 0 || len(got) != 1 ||
		!events.on("", "Normal "+string(provision.ReasonLeftToPopulator)+" ", `Backup "monday"`) {
		w.t.Errorf("records: %q, Events %q", w.recorded(), got)
	}
}

func TestUnfitNodeIsDeselected(t *testing.T) {
	w := newWorld(t)
	w.makeNodes("unfit")
	w.refusing(refusal(t, nodeless, request.RemediationReschedule))
	w.start(Config{})
	w.makeClaim(selecting("unfit"))
	w.wait("the node is not selected any more", func() bool {
		_, selected := w.claim().Annotations[volume.AnnSelectedNode]
		return !selected
	})
	if w.count("create volume") > 0 {
		t.Errorf("records: %q", w.recorded())
	}
}

// TestUnfitVolumeIsDeletedWithoutItsSecret: the Secret may never come back once claim and namespace are gone.
func TestUnfitVolumeIsDeletedWithoutItsSecret(t *testing.T) {
	w := newWorld(t)
	w.orders.spoil = func() error { return errLost }
	w.fail["delete volume"] = class(errclass.Uncertain)
	events := &told{}
	w.start(Config{Events: events})
	w.makeClaim()
	w.wait("a deletion is in doubt", func() bool { return w.count("delete volume") > 0 })
	w.losesSecret("delete volume")
	w.deleteClaim()
	w.waitEvent(events, provision.ReasonSecretGone)
	w.set(func() { w.fail["delete volume"] = nil })
	w.wait("the volume is deleted, and nothing in flight", func() bool { return w.settled() && len(w.onDisk()) == 0 })
	// A driver may answer so without having found the volume.
	w.wait("a Warning names the volume", func() bool {
		return events.on("", "Warning "+string(provision.ReasonSecretGone),
			`answered without Secret ns/secret that volume "vol-pvc-u1"`)
	})
}

func TestTwoClaimsWithOneName(t *testing.T) {
	w := newWorld(t)
	w.orders.characters = 2
	events := &told{}
	w.start(Config{Events: events})
	w.makeClaim(func(c *v1.PersistentVolumeClaim) { c.UID = "u1-first" })
	w.wait("the first is provisioned", w.provisioned)
	w.makeClaim(named("second", "u1-second"))
	taken := "Warning " + string(provision.ReasonNameTaken) + " " + provision.ReasonNameTaken.Sentence()
	w.wait("it is told", func() bool { return slices.Contains(events.with(""), taken) })
	w.deleteNamed("second")
	w.wait("the second is gone", func() bool { return w.claimNamed("second") == nil })
	if w.count("delete volume") > 0 || len(w.onDisk()) != 1 {
		t.Errorf("WRONG DELETE: volumes %v, records %q", w.onDisk(), w.recorded())
	}
}

// TestTwoClaimsWithOneNameAtOnce deletes the second claim while the first may be about to store the PV of their common
// volume.
func TestTwoClaimsWithOneNameAtOnce(t *testing.T) {
	for range 20 {
		w := newWorld(t)
		w.orders.characters = 2
		p := w.start(Config{})
		w.makeClaim(named("second", "u1-second"))
		w.makeClaim(func(c *v1.PersistentVolumeClaim) { c.UID = "u1-first" })
		w.wait("the driver was asked", func() bool { return w.count("create volume") > 0 })
		w.deleteNamed("second")
		w.wait("one of them has the PV", func() bool { return w.pv() != nil })
		w.wait("nothing is in flight", w.settled)
		if len(w.onDisk()) != 1 {
			t.Fatalf("WRONG DELETE: volumes %v, records %q", w.onDisk(), w.recorded())
		}
		p.stop()
	}
}

func TestClaimStaysWhileItIsCloned(t *testing.T) {
	w := newWorld(t)
	w.failing(true, class(errclass.Uncertain))
	w.start(Config{})
	w.makeClaim(func(c *v1.PersistentVolumeClaim) {
		c.Name, c.UID, c.Spec.VolumeName = "source", "u-source", "pv-source"
	})
	w.makeClaim(cloning)
	w.waitUnseen()
	if source := w.claimNamed("source"); !slices.Contains(source.Finalizers, request.CloningFinalizer) {
		t.Fatalf("the source is not held: %+v", source)
	}
	w.deleteNamed("source")
	n := w.count("create volume")
	w.wait("the driver was asked again", func() bool { return w.count("create volume") > n+1 })
	if w.count("free source") > 0 {
		t.Error("the source was let go while it is cloned")
	}
	w.failing(false, nil)
	w.wait("the clone has its PV", func() bool { return w.pv() != nil })
	w.update(func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName = "pvc-u1" })
	w.wait("the source is gone", w.sourceGone)
	if w.count("hold source") != 1 {
		t.Errorf("the source was held %d times", w.count("hold source"))
	}
}

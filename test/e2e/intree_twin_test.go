//go:build unix

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/intree"
	"github.com/csi-reclaimer/csi-reclaimer/test/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/daemon"
	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

func notFound(err error) bool { return apierrors.IsNotFound(err) }

// underWay is a deletion that stands still: the twin is made, and the controller manager is paused
// before it has looked at it.
type underWay struct {
	*inTree
	folder
}

// standstill brings a deletion to where it stands still. Volume-guard runs then.
func (s *inTree) standstill(g *daemon.Daemon) underWay {
	s.t.Helper()
	f := s.folder()
	s.waitGuarded(f)
	s.must(g.Terminate())
	s.pvFirst(f)
	s.waitPV(f.Volume, "released", isReleased)
	s.must(s.plane.ControllerManager.Pause())
	s.must(g.Restart())
	u := underWay{s, f}
	u.waitTwin("made", func(twin *v1.PersistentVolume) bool {
		return twin != nil && policyOf(twin) == v1.PersistentVolumeReclaimRetain
	})
	return u
}

func policyOf(pv *v1.PersistentVolume) v1.PersistentVolumeReclaimPolicy {
	return pv.Spec.PersistentVolumeReclaimPolicy
}

// waitTwin waits until the twin is as wanted; want gets nil where there is none.
func (u underWay) waitTwin(what string, want func(*v1.PersistentVolume) bool) {
	u.t.Helper()
	u.eventually("the twin is "+what, func() bool {
		twin, err := u.client.CoreV1().PersistentVolumes().Get(u.ctx, intree.TwinName(u.Name), metav1.GetOptions{})
		if err != nil {
			return notFound(err) && want(nil)
		}
		return want(twin)
	})
}

// goOn has the controller manager work again.
func (u underWay) goOn() {
	u.t.Helper()
	u.must(u.plane.ControllerManager.Resume())
}

// release marks the twin as the controller manager would.
func (u underWay) release() {
	u.t.Helper()
	_, err := u.client.CoreV1().PersistentVolumes().Patch(u.ctx, intree.TwinName(u.Name), types.MergePatchType,
		[]byte(`{"status":{"phase":"Released"}}`), metav1.PatchOptions{}, "status")
	u.must(err)
}

func (u underWay) expectKept() {
	u.t.Helper()
	u.must(u.WaitGone(u.soon()))
	u.expectNoTwin()
	u.expectFolder(u.folder, true)
}

// TestATwinOnItsWay meets what people do meanwhile.
func TestATwinOnItsWay(t *testing.T) {
	t.Parallel()
	s := newInTree(t, controlplane.V1_30)
	g := s.guard("--leader-election=false")
	for name, play := range map[string]func(underWay){
		"nothing happens": func(u underWay) {
			u.goOn()
			u.expectReclaimed(u.folder)
		},
		"turned to Retain before it is armed": func(u underWay) {
			u.must(u.SetPolicy(u.ctx, v1.PersistentVolumeReclaimRetain))
			u.waitTwin("going", func(twin *v1.PersistentVolume) bool { return twin == nil || twin.DeletionTimestamp != nil })
			u.goOn()
			u.expectKept()
		},
		"turned to Retain after it is armed": func(u underWay) {
			u.release()
			u.waitTwin("armed", func(twin *v1.PersistentVolume) bool {
				return twin != nil && policyOf(twin) == v1.PersistentVolumeReclaimDelete
			})
			u.must(u.SetPolicy(u.ctx, v1.PersistentVolumeReclaimRetain))
			// Until it is going, a controller manager that saw it armed would delete: it reads no policy again.
			u.waitTwin("disarmed and going", func(twin *v1.PersistentVolume) bool { return twin == nil || twin.DeletionTimestamp != nil })
			u.goOn()
			u.expectKept()
		},
		"the PV is bound to a new claim": func(u underWay) {
			_, err := u.client.CoreV1().PersistentVolumes().Patch(u.ctx, u.Name, types.JSONPatchType,
				[]byte(`[{"op":"remove","path":"/spec/claimRef/uid"},{"op":"remove","path":"/spec/claimRef/resourceVersion"}]`), metav1.PatchOptions{})
			u.must(err)
			again := u.claim(u.className, func(spec *storage.ClaimSpec) {
				spec.Name = u.ClaimName
				spec.Change = func(claim *v1.PersistentVolumeClaim) { claim.Spec.VolumeName = u.Name }
			})
			u.goOn()
			vol, err := again.WaitBound(u.soon())
			u.must(err)
			if vol.Name != u.Name {
				u.t.Errorf("the claim got PV %s, want %s", vol.Name, u.Name)
			}
			u.expectNoTwin()
			u.expectFolder(u.folder, true)
			u.deleteClaim(again)
			u.expectReclaimed(u.folder)
		},
		"the claim is restored, and the PV bound to it again": func(u underWay) {
			again := u.claim(u.className, func(spec *storage.ClaimSpec) {
				spec.Name = u.ClaimName
				spec.Change = func(claim *v1.PersistentVolumeClaim) { claim.Spec.VolumeName = u.Name }
			})
			u.goOn()
			u.waitEvent(u.Volume, string(intree.ReasonClaimNamesPV), string(again.UID))
			u.expectNoTwin()
			u.expectFolder(u.folder, true)
			u.bindAsTold(u.Volume, u.events(u.Volume, string(intree.ReasonClaimNamesPV))[0].Message)
			vol, err := again.WaitBound(u.soon())
			u.must(err)
			if vol.Name != u.Name {
				u.t.Errorf("the claim got PV %s, want %s", vol.Name, u.Name)
			}
			u.expectFolder(u.folder, true)
			u.deleteClaim(again)
			u.expectReclaimed(u.folder)
		},
		"the claim is made again under its name": func(u underWay) {
			again := u.claim(u.className, func(spec *storage.ClaimSpec) { spec.Name = u.ClaimName })
			u.goOn()
			u.expectReclaimed(u.folder)
			vol, err := again.WaitBound(u.soon())
			u.must(err)
			if vol.Name == u.Name {
				u.t.Errorf("the new claim has the old PV %s", vol.Name)
			}
		},
		"killed, and started again": func(u underWay) {
			g.Kill()
			u.goOn()
			u.must(g.Restart())
			u.expectReclaimed(u.folder)
		},
	} {
		t.Run(name, func(t *testing.T) {
			u := s.on(t).standstill(g)
			defer func() { _ = u.plane.ControllerManager.Resume() }()
			play(u)
		})
	}
}

// TestTwinsOfStrangePVs: names and plugins that are not as usual.
func TestTwinsOfStrangePVs(t *testing.T) {
	t.Parallel()
	s := newInTree(t, controlplane.V1_30)
	s.guard("--leader-election=false")
	t.Run("a name at the limit", func(t *testing.T) {
		s := s.on(t)
		f := s.made(strings.Repeat("long.", 50)+"end", newPath())
		s.waitGuarded(f)
		s.pvFirst(f)
		s.expectReclaimed(f)
	})
	t.Run("a plugin that fails, and recovers", func(t *testing.T) {
		s := s.on(t)
		f := s.made("stuck", newPath())
		s.waitGuarded(f)
		// What is to be deleted lies in a file where a folder was, which not even root can delete.
		parent := filepath.Dir(f.path)
		s.must(os.Rename(parent, parent+".aside"))
		s.must(os.WriteFile(parent, nil, 0o600))
		s.pvFirst(f)
		s.waitEvent(f.Volume, string(intree.ReasonVolumeFailedDelete), "not a directory")
		s.must(os.Remove(parent))
		s.must(os.Rename(parent+".aside", parent))
		s.expectReclaimed(f)
	})
	t.Run("a plugin that does not exist", func(t *testing.T) { s.on(t).expectPluginGone() })
}

// expectPluginGone has a PV be deleted whose plugin is not in Kubernetes any more.
func (s *inTree) expectPluginGone() {
	s.t.Helper()
	vol := s.make(storage.Spec{Name: "gluster", Handle: "none", Change: func(pv *v1.PersistentVolume) {
		pv.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": "kubernetes.io/glusterfs"}
		pv.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{Glusterfs: &v1.GlusterfsPersistentVolumeSource{EndpointsName: "none", Path: "none"}}
	}})
	f := folder{Volume: vol}
	s.waitGuarded(f)
	s.pvFirst(f)
	s.waitEvent(vol, string(intree.ReasonPluginGone), "turn its reclaim policy to Retain")
	s.must(vol.SetPolicy(s.ctx, v1.PersistentVolumeReclaimRetain))
	s.must(vol.WaitGone(s.soon()))
	s.expectNoTwin()
}

// TestVolumeGuardKilledAtEachWrite of a twin's life, right after the API server has made it.
func TestVolumeGuardKilledAtEachWrite(t *testing.T) {
	t.Parallel()
	s := newInTree(t, controlplane.V1_30)
	account, err := clientcmd.BuildConfigFromFlags("", s.kube)
	s.must(err)
	for name, pvFirst := range map[string]bool{"PV first": true, "claim first": false} {
		t.Run(name, func(t *testing.T) {
			s := s.on(t)
			for k := 1; ; k++ {
				if crashed := s.crashAt(account, k, pvFirst); !crashed {
					if k < 5 {
						s.t.Errorf("a twin's life has only %d writes", k-1)
					}
					return
				}
			}
		})
	}
}

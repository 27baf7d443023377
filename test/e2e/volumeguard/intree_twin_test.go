//go:build unix

package volumeguard

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/intree"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/faults/proxy"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
)

func notFound(err error) bool { return apierrors.IsNotFound(err) }

// twinInProgress is a deletion that stands still: the twin is made, and the controller manager is paused
// before it has looked at it.
type twinInProgress struct {
	*inTreeEnvironment
	folder
}

// pauseTwin brings a deletion to where it stands still. Volume-guard runs then.
func (env *inTreeEnvironment) pauseTwin(g *program.Program) twinInProgress {
	env.T.Helper()
	f := env.folder()
	env.waitGuarded(f)
	env.Must(g.Terminate())
	env.DeletePVFirst(f.Volume)
	env.WaitPV(f.Volume, "released", fixture.IsReleased)
	env.Must(env.Plane.ControllerManager.Pause())
	env.Must(g.Restart())
	u := twinInProgress{env, f}
	u.waitTwin("made", func(twin *v1.PersistentVolume) bool {
		return twin != nil && policyOf(twin) == v1.PersistentVolumeReclaimRetain
	})
	return u
}

func policyOf(pv *v1.PersistentVolume) v1.PersistentVolumeReclaimPolicy {
	return pv.Spec.PersistentVolumeReclaimPolicy
}

// waitTwin waits until want accepts the twin. want gets nil if the twin does not exist.
func (u twinInProgress) waitTwin(what string, want func(*v1.PersistentVolume) bool) {
	u.T.Helper()
	u.Eventually("the twin is "+what, func() bool {
		return want(u.PVs().Find(volume.TwinName(u.Name)))
	})
}

// resume has the controller manager work again.
func (u twinInProgress) resume() {
	u.T.Helper()
	u.Must(u.Plane.ControllerManager.Resume())
}

// release marks the twin as the controller manager would.
func (u twinInProgress) release() {
	u.T.Helper()
	u.PVs().Merge(volume.TwinName(u.Name), `{"status":{"phase":"Released"}}`, "status")
}

func (u twinInProgress) expectKept() {
	u.T.Helper()
	u.Must(u.WaitGone(u.WithTimeout()))
	u.expectNoTwin()
	u.expectFolder(u.folder, true)
}

// In TestTwinMeetsUserActions, users act while a twin deletes a volume.
func TestTwinMeetsUserActions(t *testing.T) {
	fixture.Begin(t, fixture.OwnVersions)
	env := newInTreeEnvironment(t, controlplane.V1_30)
	g := env.Start("--leader-election=false")
	for name, play := range map[string]func(twinInProgress){
		"nothing happens": func(u twinInProgress) {
			u.resume()
			u.expectReclaimed(u.folder)
		},
		"turned to Retain before the twin gets policy Delete": func(u twinInProgress) {
			u.Must(u.SetPolicy(u.Ctx, v1.PersistentVolumeReclaimRetain))
			u.waitTwin("terminating",
				func(twin *v1.PersistentVolume) bool { return twin == nil || twin.DeletionTimestamp != nil })
			u.resume()
			u.expectKept()
		},
		"turned to Retain after the twin has policy Delete": func(u twinInProgress) {
			u.release()
			u.waitTwin("policy Delete", func(twin *v1.PersistentVolume) bool {
				return twin != nil && policyOf(twin) == v1.PersistentVolumeReclaimDelete
			})
			u.Must(u.SetPolicy(u.Ctx, v1.PersistentVolumeReclaimRetain))
			// Until it is terminating, a controller manager that saw policy Delete would delete: it reads no policy again.
			u.waitTwin("policy Retain and terminating",
				func(twin *v1.PersistentVolume) bool { return twin == nil || twin.DeletionTimestamp != nil })
			u.resume()
			u.expectKept()
		},
		"the PV is bound to a new claim": func(u twinInProgress) {
			_, err := u.Client.CoreV1().PersistentVolumes().Patch(u.Ctx, u.Name, types.JSONPatchType,
				[]byte(`[{"op":"remove","path":"/spec/claimRef/uid"},`+
					`{"op":"remove","path":"/spec/claimRef/resourceVersion"}]`), metav1.PatchOptions{})
			u.Must(err)
			again := u.CreateClaim(u.className, func(spec *objects.ClaimSpec) {
				spec.Name = u.ClaimName
				spec.Change = func(claim *v1.PersistentVolumeClaim) { claim.Spec.VolumeName = u.Name }
			})
			u.resume()
			vol, err := again.WaitBound(u.WithTimeout())
			u.Must(err)
			if vol.Name != u.Name {
				u.T.Errorf("the claim got PV %s, want %s", vol.Name, u.Name)
			}
			u.expectNoTwin()
			u.expectFolder(u.folder, true)
			u.MustDeleteClaim(again)
			u.expectReclaimed(u.folder)
		},
		"the claim is restored, and the PV bound to it again": func(u twinInProgress) {
			again := u.CreateClaim(u.className, func(spec *objects.ClaimSpec) {
				spec.Name = u.ClaimName
				spec.Change = func(claim *v1.PersistentVolumeClaim) { claim.Spec.VolumeName = u.Name }
			})
			u.resume()
			u.WaitPVEvent(u.Volume, string(intree.ReasonClaimNamesPV), string(again.UID))
			u.expectNoTwin()
			u.expectFolder(u.folder, true)
			u.RunBindCommand(u.Volume, u.PVEvents(u.Volume, string(intree.ReasonClaimNamesPV))[0].Message)
			vol, err := again.WaitBound(u.WithTimeout())
			u.Must(err)
			if vol.Name != u.Name {
				u.T.Errorf("the claim got PV %s, want %s", vol.Name, u.Name)
			}
			u.expectFolder(u.folder, true)
			u.MustDeleteClaim(again)
			u.expectReclaimed(u.folder)
		},
		"the claim is made again under its name": func(u twinInProgress) {
			again := u.CreateClaim(u.className, func(spec *objects.ClaimSpec) { spec.Name = u.ClaimName })
			u.resume()
			u.expectReclaimed(u.folder)
			vol, err := again.WaitBound(u.WithTimeout())
			u.Must(err)
			if vol.Name == u.Name {
				u.T.Errorf("the new claim has the old PV %s", vol.Name)
			}
		},
		"killed, and started again": func(u twinInProgress) {
			g.Kill()
			u.resume()
			u.Must(g.Restart())
			u.expectReclaimed(u.folder)
		},
	} {
		t.Run(name, func(t *testing.T) {
			u := env.forInTreeSubtest(t).pauseTwin(g)
			defer func() { _ = u.Plane.ControllerManager.Resume() }()
			play(u)
		})
	}
}

// TestTwinsOfUnusualPVs uses unusual names and plugins.
func TestTwinsOfUnusualPVs(t *testing.T) {
	fixture.Begin(t, fixture.OwnVersions)
	env := newInTreeEnvironment(t, controlplane.V1_30)
	env.Start("--leader-election=false")
	t.Run("a name at the limit", func(t *testing.T) {
		env := env.forInTreeSubtest(t)
		f := env.folderPV(strings.Repeat("long.", 50)+"end", newPath())
		env.waitGuarded(f)
		env.DeletePVFirst(f.Volume)
		env.expectReclaimed(f)
	})
	t.Run("a plugin that fails, and recovers", func(t *testing.T) {
		env := env.forInTreeSubtest(t)
		f := env.folderPV("stuck", newPath())
		env.waitGuarded(f)
		// A file replaces the parent folder of the volume, so that not even root can delete the volume.
		parent := filepath.Dir(f.path)
		env.Must(os.Rename(parent, parent+".aside"))
		env.Must(os.WriteFile(parent, nil, 0o600))
		env.DeletePVFirst(f.Volume)
		env.WaitPVEvent(f.Volume, string(intree.ReasonVolumeFailedDelete), "not a directory")
		env.Must(os.Remove(parent))
		env.Must(os.Rename(parent+".aside", parent))
		env.expectReclaimed(f)
	})
	t.Run("a plugin that does not exist", func(t *testing.T) { env.forInTreeSubtest(t).expectPluginGone() })
}

// expectPluginGone deletes a PV whose plugin is not in Kubernetes any more.
func (env *inTreeEnvironment) expectPluginGone() {
	env.T.Helper()
	vol := env.MakeVolume(objects.Spec{Name: "gluster", Handle: "none", Change: func(pv *v1.PersistentVolume) {
		pv.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": "kubernetes.io/glusterfs"}
		pv.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{
			Glusterfs: &v1.GlusterfsPersistentVolumeSource{EndpointsName: "none", Path: "none"},
		}
	}})
	f := folder{Volume: vol}
	env.waitGuarded(f)
	env.DeletePVFirst(f.Volume)
	env.WaitPVEvent(vol, string(intree.ReasonPluginGone), "set its reclaim policy to Retain")
	env.Must(vol.SetPolicy(env.Ctx, v1.PersistentVolumeReclaimRetain))
	env.Must(vol.WaitGone(env.WithTimeout()))
	env.expectNoTwin()
}

// crashAt plays the life of a twin with volume-guard killed right after its k-th write to a PV, and started again.
// crashed is false if it makes fewer writes.
func (env *inTreeEnvironment) crashAt(k int, pvFirst bool) (crashed bool) {
	env.T.Helper()
	dead, restarted, done := make(chan *program.Program, 1), make(chan error, 1), make(chan struct{})
	g, line := env.Through(func(g *program.Program) { g.Kill(); dead <- g })
	env.Must(line.SetRules(proxy.Rule{Verb: "write", Resource: "persistentvolumes", Nth: k, Effect: proxy.Crash}))
	go func() {
		select {
		case g := <-dead:
			restarted <- g.Restart()
		case <-done:
			restarted <- nil
		}
	}()
	f := env.folder()
	env.waitGuarded(f)
	if pvFirst {
		env.Must(f.DeletePV(env.Ctx))
	}
	env.Must(f.DeleteClaim(env.Ctx))
	env.expectReclaimed(f)
	// The test can see the last write of all before the write has killed volume-guard.
	if crashed = line.Applied() > 0; !crashed {
		close(done)
	}
	env.Must(<-restarted)
	env.Must(g.Terminate())
	env.Must(line.Close())
	return crashed
}

// TestVolumeGuardKilledAtEachWrite kills volume-guard after each write for a twin, right after the API server stored
// it. Each life has one kill: only a process that watched a twin knows its end, and every other one has another twin
// created. A volume-guard that is killed after the first write of each run therefore never comes further.
func TestVolumeGuardKilledAtEachWrite(t *testing.T) {
	fixture.Begin(t, fixture.OwnVersions)
	env := newInTreeEnvironment(t, controlplane.V1_30)
	for name, pvFirst := range map[string]bool{"PV first": true, "claim first": false} {
		t.Run(name, func(t *testing.T) {
			env := env.forInTreeSubtest(t)
			k := 1
			for env.crashAt(k, pvFirst) {
				k++
			}
			if k < 5 {
				env.T.Errorf("a twin's life has only %d writes", k-1)
			}
		})
	}
}

//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/rbac"
)

// living is the kept cluster: the environment of the first act, with an object that waits for each common reason.
type living struct {
	*setsAct
	// rules are the faults of the driver.
	rules []faults.Rule
}

// specimen is an object of the cluster that is kept.
type specimen struct {
	// name is the object's, and kind pv or pvc.
	kind, name string
	// reason is the plugin's word for why it is there.
	reason string
	// make makes it. Nil where another one, or the first act, has made it.
	make func(context.Context, string) error
}

func (s specimen) object() string { return s.kind + "/" + s.name }

// specimens are all objects that the plugin has something to say of, in the order in which they are made.
func (l *living) specimens() []specimen {
	return []specimen{
		{"pv", l.retained, "PolicyKeepsVolume", nil},
		{"pv", "bound", "Bound", func(ctx context.Context, name string) error {
			_, err := l.protected(ctx, name)
			return err
		}},
		{"pv", "terminating", "TerminatingBound", l.makeTerminating},
		{"pv", "retained", "RetainBound", l.makeRetained},
		{"pv", "held", "Held", l.makeHeld},
		{"pv", "attached", "Attached", l.makeAttached},
		{"pv", "shared", "SharedHandle", l.makeShared},
		{"pv", "refused", "VolumeFailedDelete", l.makeRefused},
		{"pvc", "used", "InUse", l.makeUsed},
		{"pvc", "no-pod", "NotWanted", func(ctx context.Context, name string) error {
			if _, err := l.maker.MakeClass(ctx, objects.Class{Name: "demo-wait", WaitForPod: true}); err != nil {
				return err
			}
			_, err := l.maker.MakeClaim(ctx, objects.ClaimSpec{Name: name, Class: "demo-wait"})
			return err
		}},
		{"pvc", "no-room", "ProvisioningFailed", func(ctx context.Context, name string) error {
			return l.makeUnprovisioned(ctx, name, "ResourceExhausted")
		}},
		{"pvc", "in-flight", "FinishProvisioning", func(ctx context.Context, name string) error {
			return l.makeUnprovisioned(ctx, name, "DeadlineExceeded")
		}},
		{"pvc", "data-" + retainedSet + "-1", "Retained", l.makeScaled},
	}
}

// keep leaves a cluster up. It says how to inspect it, and returns when it is asked to end.
func (env *environment) keep(ctx context.Context) (err error) {
	l := &living{setsAct: &setsAct{environment: env}}
	defer func() { err = errors.Join(err, l.stop()) }()
	if err := l.populate(ctx); err != nil {
		return err
	}
	l.introduce()
	<-ctx.Done()
	return nil
}

// populate makes all objects.
func (l *living) populate(ctx context.Context) (err error) {
	l.p.head("Getting a cluster ready to look at")
	t := l.p.liveTimeline()
	t.demo("compiling kubectl reclaim")
	building, cancel := context.WithTimeout(ctx, buildPatience)
	defer cancel()
	if l.plugin, err = program.Build(building, pluginName, l.p.out); err != nil {
		return err
	}
	t.demo("starting csi-reclaimer again, with a leak check")
	ctx, stop := context.WithTimeout(ctx, 2*patience)
	defer stop()
	if err := rbac.GrantLeakCheck(ctx, l.client, l.home, sidecarAccount); err != nil {
		return err
	}
	err = l.program.Restart("--leak-check-interval=1s", "--leak-check-sightings=2", "--leak-check-grace=1s")
	if err != nil {
		return err
	}
	if err := l.startNode(ctx); err != nil {
		return err
	}
	for _, s := range l.specimens() {
		if s.make == nil {
			continue
		}
		t.user("makes " + s.object() + ": " + s.reason)
		if err := s.make(ctx, s.name); err != nil {
			return fmt.Errorf("make %s: %w", s.object(), err)
		}
	}
	return nil
}

// introduce says how to ask about the objects.
func (l *living) introduce() {
	l.p.head("A cluster is up, and csi-reclaimer runs in it")
	l.p.raw("    export KUBECONFIG=" + l.admin)
	l.p.raw("    export PATH=" + filepath.Dir(l.plugin) + ":$PATH")
	l.p.say("Try, in another terminal:")
	l.p.raw("    kubectl get pv,pvc")
	l.p.raw("    kubectl reclaim status")
	l.p.raw("    kubectl reclaim status --retained")
	l.p.raw("    kubectl reclaim web")
	l.p.raw(fmt.Sprintf("    curl -s 'http://%s/leaks?format=json' | kubectl reclaim leaks --from=-", l.program.Address()))
	l.p.say("Ask why an object is still there, with kubectl reclaim explain OBJECT. The reasons are:")
	for _, s := range l.specimens() {
		l.p.raw(fmt.Sprintf("    %-44s %s", s.object(), s.reason))
	}
	l.p.say("The volumes, the driver's record of calls, and the log of csi-reclaimer are here:")
	l.p.raw("    ls " + l.driver.VolumesDir())
	l.p.raw("    tail -f " + l.driver.LedgerPath())
	l.p.raw("    tail -f " + l.program.LogPath())
	l.p.say("Ctrl-C stops it all and removes it.")
}

// protected makes a volume with PV and claim, as a provisioner does, and waits for csi-reclaimer's finalizer.
func (l *living) protected(ctx context.Context, name string) (*objects.Volume, error) {
	vol, err := l.maker.Make(ctx, objects.Spec{Name: name, Policy: v1.PersistentVolumeReclaimDelete, Dynamic: true})
	if err != nil {
		return nil, err
	}
	return vol, vol.WaitPV(ctx, "protected", isProtected)
}

func (l *living) makeTerminating(ctx context.Context, name string) error {
	vol, err := l.protected(ctx, name)
	if err != nil {
		return err
	}
	return vol.DeletePV(ctx)
}

// makeRetained sets the policy of a PV to Retain that was deleted by mistake.
func (l *living) makeRetained(ctx context.Context, name string) error {
	vol, err := l.protected(ctx, name)
	if err != nil {
		return err
	}
	if err := vol.DeletePV(ctx); err != nil {
		return err
	}
	return vol.SetPolicy(ctx, v1.PersistentVolumeReclaimRetain)
}

func (l *living) makeHeld(ctx context.Context, name string) error {
	vol, err := l.protected(ctx, name)
	if err != nil {
		return err
	}
	_, err = l.client.CoreV1().PersistentVolumes().Patch(ctx, name, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"the auditors want it"}}}`, volume.HoldAnnotation),
		metav1.PatchOptions{})
	if err != nil {
		return err
	}
	return vol.DeleteClaim(ctx)
}

// makeAttached has a VolumeAttachment to a node that does not exist any more.
func (l *living) makeAttached(ctx context.Context, name string) error {
	vol, err := l.protected(ctx, name)
	if err != nil {
		return err
	}
	_, err = l.client.StorageV1().VolumeAttachments().Create(ctx, &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "csi-" + name},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: driverName, NodeName: "node-that-is-gone",
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &name}},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return vol.DeleteClaim(ctx)
}

// makeShared has a second PV of the same volume, which keeps it. That is made first, so that csi-reclaimer knows it.
func (l *living) makeShared(ctx context.Context, name string) error {
	keeper, err := l.maker.Make(ctx, objects.Spec{Name: name + "-too", Policy: v1.PersistentVolumeReclaimRetain,
		Unclaimed: true})
	if err != nil {
		return err
	}
	vol, err := l.maker.Make(ctx, objects.Spec{Name: name, Policy: v1.PersistentVolumeReclaimDelete, Dynamic: true,
		Handle: keeper.Handle})
	if err != nil {
		return err
	}
	if err := vol.WaitPV(ctx, "protected", isProtected); err != nil {
		return err
	}
	return vol.DeleteClaim(ctx)
}

// makeRefused has a volume that the driver does not delete.
func (l *living) makeRefused(ctx context.Context, name string) error {
	vol, err := l.protected(ctx, name)
	if err != nil {
		return err
	}
	if err := l.addFault(ctx, faults.Rule{Method: "DeleteVolume", Volume: vol.Handle, Action: faults.Fail,
		Code: "Internal", Message: "the storage system is being repaired"}); err != nil {
		return err
	}
	return vol.DeleteClaim(ctx)
}

// makeUsed deletes a claim that a pod uses.
func (l *living) makeUsed(ctx context.Context, name string) error {
	vol, err := l.protected(ctx, name)
	if err != nil {
		return err
	}
	pod, err := l.maker.MakePod(ctx, objects.PodSpec{Name: "user", Claims: []string{name, "bound"}, Node: podNode1})
	if err != nil {
		return err
	}
	if _, err := pod.WaitRunning(ctx); err != nil {
		return err
	}
	return vol.DeleteClaim(ctx)
}

// makeUnprovisioned creates a claim for which the driver fails with this code. The class is created after the fault.
func (l *living) makeUnprovisioned(ctx context.Context, name, code string) error {
	claim, err := l.maker.MakeClaim(ctx, objects.ClaimSpec{Name: name, Class: "demo-" + name})
	if err != nil {
		return err
	}
	if err := l.addFault(ctx, faults.Rule{Method: "CreateVolume", VolumeName: "pvc-" + string(claim.UID),
		Action: faults.Fail, Code: code}); err != nil {
		return err
	}
	_, err = l.maker.MakeClass(ctx, objects.Class{Name: "demo-" + name})
	return err
}

// makeScaled has a StatefulSet leave a claim behind.
func (l *living) makeScaled(ctx context.Context, _ string) error {
	if err := l.makeSet(ctx, retainedSet, 2); err != nil {
		return err
	}
	if err := l.waitReady(ctx, retainedSet, 2); err != nil {
		return err
	}
	if err := l.scale(ctx, retainedSet, 1); err != nil {
		return err
	}
	return l.waitReady(ctx, retainedSet, 1)
}

func (l *living) addFault(ctx context.Context, rule faults.Rule) error {
	rule.Name = fmt.Sprintf("living-%d", len(l.rules))
	l.rules = append(l.rules, rule)
	return l.driver.SetFaults(ctx, faults.Plan{Rules: slices.Clone(l.rules)})
}

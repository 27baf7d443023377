//go:build unix

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/demo/cluster"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/rbac"
)

// living is the kept cluster: that of the scenarios, with an object that waits for each common reason.
type living struct {
	*cluster.CSI
	// rules are the faults of the driver.
	rules []faults.Rule
}

// specimen is an object of the cluster that is kept.
type specimen struct {
	// name is the object's, and kind pv or pvc.
	kind, name string
	// reason is the plugin's word for why it is there.
	reason string
	// make makes it. Nil where a scenario has made it.
	make func(context.Context, string) error
}

func (s specimen) object() string { return s.kind + "/" + s.name }

// specimens are all objects that the plugin has something to say of, in the order in which they are made.
func (l *living) specimens() []specimen {
	return []specimen{
		{"pv", l.Retained, "PolicyKeepsVolume", nil},
		{"pv", "bound", "Bound", func(ctx context.Context, name string) error {
			_, err := l.protected(ctx, name)
			return err
		}},
		{"pv", "terminating", "TerminatingBound", l.makeTerminating},
		{"pv", "retained", "RetainBound", l.makeRetained},
		{"pv", "held", "Held", l.deleted(l.makeHeld)},
		{"pv", "attached", "Attached", l.deleted(l.makeAttached)},
		{"pv", "shared", "SharedHandle", l.makeShared},
		{"pv", "refused", "VolumeFailedDelete", l.deleted(l.makeRefused)},
		{"pvc", "used", "InUse", l.deleted(l.makeUsed)},
		{"pvc", "no-pod", "NotWanted", func(ctx context.Context, name string) error {
			if _, err := l.Maker.MakeClass(ctx, objects.Class{Name: "demo-wait", WaitForPod: true}); err != nil {
				return err
			}
			_, err := l.Maker.MakeClaim(ctx, objects.ClaimSpec{Name: name, Class: "demo-wait"})
			return err
		}},
		{"pvc", "no-room", "ProvisioningFailed", func(ctx context.Context, name string) error {
			return l.makeUnprovisioned(ctx, name, "ResourceExhausted")
		}},
		{"pvc", "in-flight", "FinishProvisioning", func(ctx context.Context, name string) error {
			return l.makeUnprovisioned(ctx, name, "DeadlineExceeded")
		}},
		{"pvc", "data-" + scaledSet + "-1", "Retained", l.makeScaled},
	}
}

// keepUp leaves a cluster up. It says how to inspect it, and returns when it is asked to end.
func keepUp(ctx context.Context, c *cluster.CSI) error {
	l := &living{CSI: c}
	if err := l.populate(ctx); err != nil {
		return err
	}
	l.introduce()
	<-ctx.Done()
	return nil
}

// populate makes all objects.
func (l *living) populate(ctx context.Context) error {
	l.Printer.Head("Getting a cluster ready to look at")
	t := l.Printer.LiveTimeline()
	t.Demo("compiling kubectl reclaim")
	if err := l.BuildPlugin(ctx); err != nil {
		return err
	}
	t.Demo("starting csi-reclaimer again, with a leak check")
	ctx, stop := context.WithTimeout(ctx, 2*cluster.Patience)
	defer stop()
	if err := rbac.GrantLeakCheck(ctx, l.Client, l.Home, cluster.SidecarAccount); err != nil {
		return err
	}
	err := l.Program.Restart("--leak-check-interval=1s", "--leak-check-sightings=2", "--leak-check-grace=1s")
	if err != nil {
		return err
	}
	if _, err := l.StartNode(ctx); err != nil {
		return err
	}
	for _, s := range l.specimens() {
		if s.make == nil {
			continue
		}
		t.User("makes " + s.object() + ": " + s.reason)
		if err := s.make(ctx, s.name); err != nil {
			return fmt.Errorf("make %s: %w", s.object(), err)
		}
	}
	return nil
}

// introduce says how to ask about the objects.
func (l *living) introduce() {
	l.Printer.Head("A cluster is up, and csi-reclaimer runs in it")
	l.Printer.Raw("    export KUBECONFIG=" + l.Admin)
	l.Printer.Raw("    export PATH=" + filepath.Dir(l.Plugin) + ":$PATH")
	l.Printer.Say("Try, in another terminal:")
	l.Printer.Raw("    kubectl get pv,pvc")
	l.Printer.Raw("    kubectl reclaim status")
	l.Printer.Raw("    kubectl reclaim status --retained")
	l.Printer.Raw("    kubectl reclaim web")
	l.Printer.Raw(fmt.Sprintf("    curl -s 'http://%s/leaks?format=json' | kubectl reclaim leaks --from=-",
		l.Program.Address()))
	l.Printer.Say("Ask why an object is still there, with kubectl reclaim explain OBJECT. The reasons are:")
	for _, s := range l.specimens() {
		l.Printer.Raw(fmt.Sprintf("    %-44s %s", s.object(), s.reason))
	}
	l.Printer.Say("The volumes, the driver's record of calls, and the log of csi-reclaimer are here:")
	l.Printer.Raw("    ls " + l.Driver.VolumesDir())
	l.Printer.Raw("    tail -f " + l.Driver.LedgerPath())
	l.Printer.Raw("    tail -f " + l.Program.LogPath())
	l.Printer.Say("Ctrl-C stops it all and removes it.")
}

// protected makes a volume with PV and claim, as a provisioner does, and waits for csi-reclaimer's finalizer.
func (l *living) protected(ctx context.Context, name string) (*objects.Volume, error) {
	vol, err := l.Maker.Make(ctx, objects.Spec{Name: name, Policy: v1.PersistentVolumeReclaimDelete, Dynamic: true})
	if err != nil {
		return nil, err
	}
	return vol, vol.WaitPV(ctx, "protected", cluster.IsProtected)
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

// deleted makes a protected volume, has something happen to it, and deletes its claim.
func (l *living) deleted(after func(context.Context, *objects.Volume) error) func(context.Context, string) error {
	return func(ctx context.Context, name string) error {
		vol, err := l.protected(ctx, name)
		if err != nil {
			return err
		}
		if err := after(ctx, vol); err != nil {
			return err
		}
		return vol.DeleteClaim(ctx)
	}
}

func (l *living) makeHeld(ctx context.Context, vol *objects.Volume) error {
	_, err := l.Client.CoreV1().PersistentVolumes().Patch(ctx, vol.Name, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"the auditors want it"}}}`, volume.HoldAnnotation),
		metav1.PatchOptions{})
	return err
}

// makeAttached has a VolumeAttachment to a node that does not exist any more.
func (l *living) makeAttached(ctx context.Context, vol *objects.Volume) error {
	_, err := l.Client.StorageV1().VolumeAttachments().Create(ctx, &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "csi-" + vol.Name},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: l.Maker.Driver, NodeName: "node-that-is-gone",
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &vol.Name}},
	}, metav1.CreateOptions{})
	return err
}

// makeShared has a second PV of the same volume, which keeps it. That is made first, so that csi-reclaimer knows it.
func (l *living) makeShared(ctx context.Context, name string) error {
	keeper, err := l.Maker.Make(ctx, objects.Spec{Name: name + "-too", Policy: v1.PersistentVolumeReclaimRetain,
		Unclaimed: true})
	if err != nil {
		return err
	}
	vol, err := l.Maker.Make(ctx, objects.Spec{Name: name, Policy: v1.PersistentVolumeReclaimDelete, Dynamic: true,
		Handle: keeper.Handle})
	if err != nil {
		return err
	}
	if err := vol.WaitPV(ctx, "protected", cluster.IsProtected); err != nil {
		return err
	}
	return vol.DeleteClaim(ctx)
}

// makeRefused has a volume that the driver does not delete.
func (l *living) makeRefused(ctx context.Context, vol *objects.Volume) error {
	return l.addFault(ctx, faults.Rule{Method: "DeleteVolume", Volume: vol.Handle, Action: faults.Fail,
		Code: "Internal", Message: "the storage system is being repaired"})
}

// makeUsed has a pod that uses the claim.
func (l *living) makeUsed(ctx context.Context, vol *objects.Volume) error {
	pod, err := l.Maker.MakePod(ctx, objects.PodSpec{Name: "user", Node: cluster.Node1,
		Claims: []string{vol.Name, "bound"}})
	if err != nil {
		return err
	}
	_, err = pod.WaitRunning(ctx)
	return err
}

// makeUnprovisioned creates a claim for which the driver fails with this code. The class is created after the fault.
func (l *living) makeUnprovisioned(ctx context.Context, name, code string) error {
	claim, err := l.Maker.MakeClaim(ctx, objects.ClaimSpec{Name: name, Class: "demo-" + name})
	if err != nil {
		return err
	}
	if err := l.addFault(ctx, faults.Rule{Method: "CreateVolume", VolumeName: "pvc-" + string(claim.UID),
		Action: faults.Fail, Code: code}); err != nil {
		return err
	}
	_, err = l.Maker.MakeClass(ctx, objects.Class{Name: "demo-" + name})
	return err
}

// scaledSet is the StatefulSet of makeScaled.
const scaledSet = "db"

// makeScaled has a StatefulSet leave a claim behind.
func (l *living) makeScaled(ctx context.Context, _ string) error {
	retain := appsv1.RetainPersistentVolumeClaimRetentionPolicyType
	if err := l.MakeSet(ctx, scaledSet, 2, retain); err != nil {
		return err
	}
	if err := l.WaitSet(ctx, scaledSet, 2); err != nil {
		return err
	}
	if err := l.ScaleSet(ctx, scaledSet, 1); err != nil {
		return err
	}
	return l.WaitSet(ctx, scaledSet, 1)
}

func (l *living) addFault(ctx context.Context, rule faults.Rule) error {
	rule.Name = fmt.Sprintf("living-%d", len(l.rules))
	l.rules = append(l.rules, rule)
	return l.Driver.SetFaults(ctx, faults.Plan{Rules: slices.Clone(l.rules)})
}

//go:build unix

package deploy

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/ledger"
	fencing "github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/client"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane/fakenode"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// recordedRuns are the runs, each with the alerts of its faults.
func recordedRuns() []recordedRun {
	return []recordedRun{
		{name: "nothing is wrong", goesOn: longest, happens: allIsWell},
		{name: "csi-reclaimer stops", happens: sidecarStops, fire: []string{"CSIReclaimerDown"}},
		{name: "the driver fails", goesOn: 180, args: []string{"--retry-interval-max=1s", "--leak-check-interval=2s",
			"--capacity-for-immediate-binding"},
			driver: mockdriver.Options{Args: []string{"--place=" + zone + "=a@64Mi"},
				Faults: plan(faults.Rule{Method: "ListVolumes", Action: faults.Fail, Code: "Internal"})},
			happens: driverFails, fire: []string{"CSIReclaimerCapacityUnpublished", "CSIReclaimerDeletionsStuck",
				"CSIReclaimerLeakChecksFail", "CSIReclaimerProvisioningFails", "CSIReclaimerProvisioningUnclear"}},
		{name: "volumes remain", goesOn: 420, args: []string{"--leak-check-interval=2s", "--leak-check-grace=1s",
			"--leak-check-sightings=2"}, happens: volumesRemain, fire: []string{"CSIReclaimerKeptTooLate",
			"CSIReclaimerLeaksSuspected", "CSIReclaimerVolumesStayAttached"}},
		{name: "many volumes become deletable", args: []string{"--brake-deletions=2"}, happens: manyDeleted,
			fire: []string{"CSIReclaimerBraked"}},
		{name: "another program removes what is ours", happens: oursRemoved, fire: []string{
			"CSIReclaimerFinalizerContested", "CSIReclaimerPVsUnprotected", "CSIReclaimerVolumeLeaked",
			"VolumeGuardLockDamaged"}},
		{name: "a node is away", goesOn: 240, happens: nodeAway, fire: []string{"VolumeGuardLockHolderUnreachable",
			"VolumeGuardPodHeldForHours", "VolumeGuardPodsGated", "VolumeGuardPodsHeld"}},
		{name: "fences do not end", scrapes: 90, goesOn: longest, happens: fences, fire: []string{
			"VolumeGuardFenceContradicted", "VolumeGuardFenceFails", "VolumeGuardFenceStuck", "VolumeGuardFenceWaits",
			"VolumeGuardFencedForHours", "VolumeGuardFencesHalted", "VolumeGuardNodeNotFenced", "VolumeGuardUnfenceFails"}},
		{name: "claims of StatefulSets", happens: claimsOfSets, fire: []string{"VolumeGuardClaimRetentionIgnored",
			"VolumeGuardClaimsKept", "VolumeGuardPodLosesClaim"}},
		{name: "no certificate", happens: noCertificate, fire: []string{"VolumeGuardCertificateEnds"}},
		{name: "no drivers", happens: noDrivers, fire: []string{"VolumeGuardDriversUnreadable"}},
	}
}

// notRecorded are the other alerts, and why no run has their faults. The series that csi-reclaimer.tests.yaml has of
// them are written by hand.
var notRecorded = map[string]string{
	"CSIReclaimerAdmissionPolicyIneffective": "it needs an API server that does not carry out a policy it has",
	"CSIReclaimerInFlightElsewhere":          "it needs a driver that moved to another namespace",
	"CSIReclaimerInFlightLogFilling":         "it needs hundreds of volumes in flight",
	"CSIReclaimerInFlightLogUnreadable":      "no program writes an entry that cannot be read",
	"CSIReclaimerReplicaDown":                "a recording has one replica of each program",
	"VolumeGuardDeletionsStuck":              "kube-controller-manager of the control plane handles in-tree PVs",
	"VolumeGuardPVsUnprotected":              "kube-controller-manager of the control plane handles in-tree PVs",
	"VolumeGuardLockHolderIdle":              "the control plane of a recording has no scheduler that finds no node",
	"VolumeGuardManyVolumesLocked":           "it needs thousands of volumes on nodes that are away",
	"VolumeGuardProtectionStuck":             "kube-controller-manager of the control plane protects claims and PVs",
	"VolumeGuardVolumesUnlocked":             "what fails is tried again after a minute, which is an hour of a recording",
}

// allIsWell deletes a claim before its PV, and a PV before its claim.
func allIsWell(ctx context.Context, t *testing.T, r live) {
	must := mustOf(t)
	makeScrapeClass(ctx, t, r)
	claimFirst, pvFirst := waitBound(ctx, t, r.maker, "claim-first"), waitBound(ctx, t, r.maker, "pv-first")
	waitBound(ctx, t, r.maker, "stays")
	deleteClaimOf(ctx, t, claimFirst)
	must(client.CoreV1().PersistentVolumes().Delete(ctx, pvFirst.Name, metav1.DeleteOptions{}))
	deleteClaimOf(ctx, t, pvFirst)
}

func sidecarStops(_ context.Context, t *testing.T, r live) { mustOf(t)(r.car.Terminate()) }

// zone is the topology label of the driver whose capacity is published.
const zone = "scrape.csi-reclaimer.io/zone"

// plan returns a plan of faults.
func plan(rules ...faults.Rule) faults.Plan { return faults.Plan{Rules: rules} }

// driverFails has a volume that cannot be deleted, one that cannot be created, and one whose creation stays unclear.
// The driver reports neither its volumes nor its capacity.
func driverFails(ctx context.Context, t *testing.T, r live) {
	must := mustOf(t)
	//nolint:contextcheck // it lasts as long as the test
	fakenode.ForTest(t, cluster, "scrape-capacity", fakenode.Config{Drivers: map[string]fakenode.Driver{
		r.driver.Name(): {Place: map[string]string{zone: "a"}}}})
	_, err := r.maker.MakeDriver(ctx, func(d *storagev1.CSIDriver) { d.Spec.StorageCapacity = ptr.To(true) })
	must(err)
	t.Cleanup(func() {
		_ = client.StorageV1().CSIDrivers().Delete(context.WithoutCancel(ctx), r.driver.Name(), metav1.DeleteOptions{})
	})
	makeScrapeClass(ctx, t, r)
	stays := waitBound(ctx, t, r.maker, "stays")
	always := []faults.Rule{
		{Method: "ListVolumes", Action: faults.Fail, Code: "Internal"},
		{Method: "GetCapacity", Action: faults.Fail, Code: "Internal"},
		{Method: "DeleteVolume", Action: faults.Fail, Code: "Internal"},
	}
	unclear := faults.Rule{Method: "CreateVolume", Action: faults.Fail, Code: "Unavailable"}
	must(r.driver.SetFaults(ctx, plan(append(always, unclear)...)))
	deleteClaimOf(ctx, t, stays)
	claim, err := r.maker.MakeClaim(ctx, objects.ClaimSpec{Name: "unclear", Class: scrapeClass})
	must(err)
	unclear.VolumeName = "*" + string(claim.UID)
	_, err = r.driver.WaitCalls(ctx, func(calls []ledger.Call) bool { return len(calls) > 1 }, "CreateVolume")
	must(err)
	must(r.driver.SetFaults(ctx, plan(append(always, unclear,
		faults.Rule{Method: "CreateVolume", Action: faults.Fail, Code: "InvalidArgument"})...)))
	_, err = r.maker.MakeClaim(ctx, objects.ClaimSpec{Name: "refused", Class: scrapeClass})
	must(err)
	makeClassFor(ctx, t, r, scrapeClass+"-later") // which needs a CSIStorageCapacity
}

// volumesRemain has an attached volume, one that was kept too late, and one that the cluster does not know.
func volumesRemain(ctx context.Context, t *testing.T, r live) {
	must := mustOf(t)
	makeScrapeClass(ctx, t, r)
	attached, tooLate := waitBound(ctx, t, r.maker, "attached"), waitBound(ctx, t, r.maker, "too-late")
	attachments := client.StorageV1().VolumeAttachments()
	_, err := attachments.Create(ctx, &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "scrape"},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: r.driver.Name(), NodeName: "none",
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &attached.Name}}}, metav1.CreateOptions{})
	must(err)
	t.Cleanup(func() {
		if err := attachments.Delete(context.WithoutCancel(ctx), "scrape", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	_, err = r.driver.Controller().CreateVolume(ctx, &csi.CreateVolumeRequest{Name: "leaked",
		VolumeCapabilities: []*csi.VolumeCapability{{
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER}}}})
	must(err)
	// The PV of a volume that is gone stays while csi-reclaimer lacks its rights, and is kept then.
	must(r.driver.SetFaults(ctx, plan(faults.Rule{Method: "DeleteVolume", AfterWork: true, Action: faults.Delay,
		Delay: faults.Duration(5 * time.Second)})))
	deleteClaimOf(ctx, t, attached)
	deleteClaimOf(ctx, t, tooLate)
	_, err = r.driver.WaitCalls(ctx, func(calls []ledger.Call) bool {
		return len(calls) > 0 && !calls[0].Done.IsZero()
	}, "DeleteVolume")
	must(err)
	bindings := client.RbacV1().ClusterRoleBindings()
	rights, err := bindings.Get(ctx, r.maker.Namespace, metav1.GetOptions{})
	must(err)
	must(bindings.Delete(ctx, rights.Name, metav1.DeleteOptions{}))
	_, err = client.CoreV1().PersistentVolumes().Patch(ctx, tooLate.Name, types.MergePatchType,
		[]byte(`{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}`), metav1.PatchOptions{})
	must(err)
	must(r.car.WaitLog(ctx, "cannot delete resource"))
	rights.ResourceVersion = ""
	_, err = bindings.Create(ctx, rights, metav1.CreateOptions{})
	must(err)
}

func manyDeleted(ctx context.Context, t *testing.T, r live) {
	makeScrapeClass(ctx, t, r)
	var all []*v1.PersistentVolume
	for i := range 5 {
		all = append(all, waitBound(ctx, t, r.maker, fmt.Sprintf("one-of-many-%d", i)))
	}
	for _, pv := range all {
		deleteClaimOf(ctx, t, pv)
	}
}

// oursRemoved has another program that removes the finalizers of PVs again and again. One of the PVs is deleted.
func oursRemoved(ctx context.Context, t *testing.T, r live) {
	makeScrapeClass(ctx, t, r)
	pvs := client.CoreV1().PersistentVolumes()
	var names []string
	for i := range 5 {
		names = append(names, waitBound(ctx, t, r.maker, fmt.Sprintf("bare-%d", i)).Name)
	}
	mustOf(t)(pvs.Delete(ctx, names[0], metav1.DeleteOptions{}))
	damageLock(ctx, t, makeGated(ctx, t, "a"))
	again(ctx, t, func(ctx context.Context) {
		for _, name := range names {
			_, _ = pvs.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`),
				metav1.PatchOptions{})
		}
	})
}

// damageLock waits for the lock of the claim, and changes it.
func damageLock(ctx context.Context, t *testing.T, namespace string) {
	must, claims := mustOf(t), client.CoreV1().PersistentVolumeClaims(namespace)
	for {
		claim, err := claims.Get(ctx, "c", metav1.GetOptions{})
		must(err)
		if claim.Annotations[singlenode.LockAnnotation] != "" {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	_, err := claims.Patch(ctx, "c", types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"`+singlenode.LockAnnotation+`":"nobody"}}}`), metav1.PatchOptions{})
	must(err)
}

// nodeAway has a node with a deleted pod that is held, and with a pod that has the lock of a claim.
func nodeAway(ctx context.Context, t *testing.T, r live) {
	must := mustOf(t)
	const away = "scrape-away"
	makeAway(ctx, t, away)
	makeHeld(ctx, t, r.maker, away)
	pods := client.CoreV1().Pods(makeGated(ctx, t, "a", "b"))
	for {
		list, err := pods.List(ctx, metav1.ListOptions{})
		must(err)
		free := slices.IndexFunc(list.Items, func(p v1.Pod) bool { return len(p.Spec.SchedulingGates) == 0 })
		if free >= 0 {
			must(pods.Bind(ctx, &v1.Binding{ObjectMeta: metav1.ObjectMeta{Name: list.Items[free].Name},
				Target: v1.ObjectReference{Kind: "Node", Name: away}}, metav1.CreateOptions{}))
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// fences has fences that do not end: one waits for a person, one was proven and continues, one has lied, in one no
// agent succeeds, and one cannot be undone. A policy halts because all nodes are away.
func fences(ctx context.Context, t *testing.T, r live) {
	must := mustOf(t)
	makeUnreachable(ctx, t, r.maker)
	must(client.CoreV1().Pods(r.maker.Namespace).Delete(ctx, "away", metav1.DeleteOptions{}))
	makeFence(ctx, t, "scrape-none", byHand()...)
	for _, name := range []string{"scrape-off", "scrape-fails", "scrape-not-undone"} {
		makeAway(ctx, t, name)
	}
	//nolint:contextcheck // it lasts as long as the test
	fakenode.ForTest(t, cluster, "scrape-lies", fakenode.Config{Heartbeat: time.Second, BootID: "first"})
	soon := byHand()
	soon[0].Timeout.Duration = time.Second
	makeFence(ctx, t, "scrape-fails", soon...)
	for _, name := range []string{"scrape-off", "scrape-lies"} {
		all := makeFence(ctx, t, name, byHand()...)
		fence, err := all.Fences.Get(ctx, name, metav1.GetOptions{})
		must(err)
		patchFence(ctx, t, all, name, fmt.Sprintf(`{"spec":{"confirmation":"it is off","confirmationUID":%q}}`, fence.UID))
	}
	// The rights for Jobs are not granted.
	all := makeFence(ctx, t, "scrape-not-undone", v1alpha1.Agent{Name: "job", Covers: v1alpha1.CoversUntilUnfenced,
		Timeout: metav1.Duration{Duration: time.Second},
		Job:     &v1alpha1.JobAgent{Namespace: r.maker.Namespace, PodTemplateName: "none", Undo: true}})
	for {
		fence, err := all.Fences.Get(ctx, "scrape-not-undone", metav1.GetOptions{})
		must(err)
		if fence.Status.Phase == v1alpha1.PhaseFailed {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	patchFence(ctx, t, all, "scrape-not-undone", `{"spec":{"unfence":"Now"}}`)
}

func patchFence(ctx context.Context, t *testing.T, all *fencing.Client, name, patch string) {
	t.Helper()
	_, err := all.Fences.Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	mustOf(t)(err)
}

// claimsOfSets has a claim that is kept because of another owner, a claim that is deleted under its pod, and a set with
// an invalid annotation.
func claimsOfSets(ctx context.Context, t *testing.T, r live) {
	must, namespace := mustOf(t), r.maker.Namespace
	makeScaledDown(ctx, t, namespace)
	other, err := client.CoreV1().ConfigMaps(namespace).Create(ctx,
		&v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
	must(err)
	set := makeSet(ctx, t, namespace, "kept", 0, nil)
	makeClaimOf(ctx, t, set, func(claim *v1.PersistentVolumeClaim) {
		claim.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: other.Name,
			UID: other.UID}}
	})
	makeSet(ctx, t, namespace, "loses", 1, nil)
	for {
		if _, err := client.CoreV1().Pods(namespace).Get(ctx, "loses-0", metav1.GetOptions{}); err == nil {
			break
		} else if !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	pods := client.CoreV1().Pods(namespace)
	t.Cleanup(func() { removePod(context.WithoutCancel(ctx), namespace, "loses-0") })
	must(pods.Bind(ctx, &v1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "loses-0"},
		Target: v1.ObjectReference{Kind: "Node", Name: "none"}}, metav1.CreateOptions{})) // until then it uses no claim
	must(client.CoreV1().PersistentVolumeClaims(namespace).Delete(ctx, "data-loses-0", metav1.DeleteOptions{}))
}

// noCertificate starts volume-guard without the right to the certificate of its webhooks.
func noCertificate(ctx context.Context, t *testing.T, r live) {
	must := mustOf(t)
	must(client.RbacV1().RoleBindings(r.maker.Namespace).Delete(ctx, "volume-guard-webhooks", metav1.DeleteOptions{}))
	must(r.keeper.Terminate())
	must(r.keeper.Restart())
}

// noDrivers has a webhook whose condition was written by hand and names no driver.
func noDrivers(ctx context.Context, t *testing.T, _ live) {
	configurations := client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	_, err := configurations.Create(ctx, &admissionv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "csi-reclaimer"},
		Webhooks: []admissionv1.MutatingWebhook{{
			Name: "persistentvolumes.csi-reclaimer.io", AdmissionReviewVersions: []string{"v1"},
			SideEffects: ptr.To(admissionv1.SideEffectClassNone), FailurePolicy: ptr.To(admissionv1.Ignore),
			ClientConfig: admissionv1.WebhookClientConfig{URL: ptr.To("https://127.0.0.1:1/pvs")},
			Rules: []admissionv1.RuleWithOperations{{Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule: admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"},
					Resources: []string{"persistentvolumes"}}}},
			MatchConditions: []admissionv1.MatchCondition{{Name: "by-hand", Expression: "has(object.spec.csi)"}},
		}}}, metav1.CreateOptions{})
	mustOf(t)(err)
	t.Cleanup(func() {
		if err := configurations.Delete(context.WithoutCancel(ctx), "csi-reclaimer", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

const scrapeClass = "scrape"

func makeScrapeClass(ctx context.Context, t *testing.T, r live) {
	t.Helper()
	makeClassFor(ctx, t, r, scrapeClass)
}

func makeClassFor(ctx context.Context, t *testing.T, r live, name string) {
	t.Helper()
	_, err := r.maker.MakeClass(ctx, objects.Class{Name: name})
	mustOf(t)(err)
	t.Cleanup(func() {
		if err := client.StorageV1().StorageClasses().Delete(context.WithoutCancel(ctx), name,
			metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

func deleteClaimOf(ctx context.Context, t *testing.T, pv *v1.PersistentVolume) {
	t.Helper()
	mustOf(t)(client.CoreV1().PersistentVolumeClaims(pv.Spec.ClaimRef.Namespace).Delete(ctx, pv.Spec.ClaimRef.Name,
		metav1.DeleteOptions{}))
}

// again has something done 20 times a second until the test ends.
func again(ctx context.Context, t *testing.T, do func(context.Context)) {
	ctx, stop := context.WithCancel(ctx)
	var doing sync.WaitGroup
	doing.Go(func() {
		next := time.NewTicker(50 * time.Millisecond)
		defer next.Stop()
		for ctx.Err() == nil {
			do(ctx)
			<-next.C
		}
	})
	t.Cleanup(func() { stop(); doing.Wait() })
}

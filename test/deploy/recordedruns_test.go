//go:build unix

package deploy

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
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
		{name: "the driver never answers", happens: driverSilent, fire: []string{"CSIReclaimerNotReady"}},
		{name: "the driver fails", goesOn: 180, args: []string{"--retry-interval-max=1s", "--leak-check-interval=2s",
			"--capacity-for-immediate-binding"},
			driver: mockdriver.Options{Args: []string{"--place=" + zone + "=a@64Mi"},
				Faults: plan(faults.Rule{Method: "ListVolumes", Action: faults.Fail, Code: "Internal"})},
			happens: driverFails, fire: []string{"CSIReclaimerCapacityUnpublished", "CSIReclaimerDeletionsHang",
				"CSIReclaimerDeletionsStuck", "CSIReclaimerLeakChecksFail", "CSIReclaimerProvisioningFails",
				"CSIReclaimerProvisioningUnclear"}},
		{name: "volumes remain", goesOn: 420, args: []string{"--leak-check-interval=2s", "--leak-check-grace=1s",
			"--leak-check-sightings=2"}, happens: volumesRemain, fire: []string{"CSIReclaimerKeptTooLate",
			"CSIReclaimerLeaksSuspected", "CSIReclaimerVolumesStayAttached"}},
		{name: "many volumes become deletable", args: []string{"--brake-deletions=2"}, happens: manyDeleted,
			fire: []string{"CSIReclaimerBraked"}},
		{name: "another program removes what is ours", happens: oursRemoved, fire: []string{
			"CSIReclaimerFinalizerContested", "CSIReclaimerPVsUnprotected", "CSIReclaimerVolumeLeaked",
			"VolumeGuardLockDamaged"}},
		// The kind VolumeLock is not installed here.
		{name: "a node is away", goesOn: 240, happens: nodeAway, fire: []string{"VolumeGuardLockHolderUnreachable",
			"VolumeGuardPodHeldForHours", "VolumeGuardPodsGated", "VolumeGuardPodsHeld", "VolumeGuardVolumesUnlocked"}},
		{name: "fences do not end", scrapes: 90, goesOn: longest, happens: fences, fire: []string{
			"VolumeGuardFenceContradicted", "VolumeGuardFenceFails", "VolumeGuardFenceStuck", "VolumeGuardFenceWaits",
			"VolumeGuardFencedForHours", "VolumeGuardFencePolicyFails", "VolumeGuardFencesHalted", "VolumeGuardNodeNotFenced",
			"VolumeGuardUnfenceFails"}},
		{name: "claims of StatefulSets", happens: claimsOfSets, fire: []string{"VolumeGuardClaimRetentionIgnored",
			"VolumeGuardClaimsKept", "VolumeGuardPodLosesClaim"}},
		{name: "no certificate", happens: noCertificate, fire: []string{"CSIReclaimerNotReady",
			"CSIReclaimerPermissionsMissing", "VolumeGuardCertificateEnds"}},
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
	"CSIReclaimerNoLeader":                   "a recording has no leader election",
	"CSIReclaimerReplicaDown":                "a recording has one replica of each program",
	"CSIReclaimerRestarts":                   "a recording has no kubelet that restarts a program",
	"VolumeGuardDeletionsStuck":              "kube-controller-manager of the control plane handles in-tree PVs",
	"VolumeGuardHoldNotObeyed":               "kube-controller-manager of the control plane handles in-tree PVs",
	"VolumeGuardKeptTooLate":                 "kube-controller-manager of the control plane handles in-tree PVs",
	"VolumeGuardPVsUnprotected":              "kube-controller-manager of the control plane handles in-tree PVs",
	"VolumeGuardVolumeLeaked":                "kube-controller-manager of the control plane handles in-tree PVs",
	"VolumeGuardLockHolderIdle":              "the control plane of a recording has no scheduler that finds no node",
	"VolumeGuardManyVolumesLocked":           "it needs thousands of volumes on nodes that are away",
	"VolumeGuardProtectionStuck":             "kube-controller-manager of the control plane protects claims and PVs",
}

// allIsWell deletes a claim before its PV, and a PV before its claim.
func allIsWell(t *testing.T, r live) {
	makeClassFor(t, r, scrapeClass)
	claimFirst, pvFirst := waitBound(t, r.maker, "claim-first"), waitBound(t, r.maker, "pv-first")
	waitBound(t, r.maker, "stays")
	deleteClaimOf(t, claimFirst)
	must(t, client.CoreV1().PersistentVolumes().Delete(patiently(t), pvFirst.Name, metav1.DeleteOptions{}))
	deleteClaimOf(t, pvFirst)
}

func sidecarStops(t *testing.T, r live) { must(t, r.car.Terminate()) }

// driverSilent starts csi-reclaimer beside a driver that does not answer.
func driverSilent(t *testing.T, r live) {
	must(t, r.driver.SetFaults(patiently(t), plan(faults.Rule{Method: "Probe", Action: faults.Block})))
	must(t, r.car.Terminate())
	must(t, r.car.Restart())
}

// zone is the topology label of the driver whose capacity is published.
const zone = "scrape.csi-reclaimer.io/zone"

// plan returns a plan of faults.
func plan(rules ...faults.Rule) faults.Plan { return faults.Plan{Rules: rules} }

// driverFails has a volume that cannot be deleted, one whose deletion hangs, one that cannot be created, and one whose
// creation stays unclear. The driver reports neither its volumes nor its capacity.
func driverFails(t *testing.T, r live) {
	ctx := patiently(t)
	fakenode.ForTest(t, cluster, "scrape-capacity", fakenode.Config{Drivers: map[string]fakenode.Driver{
		r.driver.Name(): {Place: map[string]string{zone: "a"}}}})
	_, err := r.maker.MakeDriver(ctx, func(d *storagev1.CSIDriver) { d.Spec.StorageCapacity = ptr.To(true) })
	must(t, err)
	forget(t, func(ctx context.Context) error { return remove(ctx, client.StorageV1().CSIDrivers(), r.driver.Name()) })
	makeClassFor(t, r, scrapeClass)
	stays, hangs := waitBound(t, r.maker, "stays"), waitBound(t, r.maker, "hangs")
	fails := func(method, code string) faults.Rule {
		return faults.Rule{Method: method, Action: faults.Fail, Code: code}
	}
	hanging := fails("DeleteVolume", "Aborted")
	hanging.Volume = hangs.Spec.CSI.VolumeHandle
	always := []faults.Rule{fails("ListVolumes", "Internal"), fails("GetCapacity", "Internal"), hanging,
		fails("DeleteVolume", "Internal")}
	unclear := fails("CreateVolume", "Unavailable")
	must(t, r.driver.SetFaults(ctx, plan(append(always, unclear)...)))
	deleteClaimOf(t, stays)
	deleteClaimOf(t, hangs)
	claim, err := r.maker.MakeClaim(ctx, objects.ClaimSpec{Name: "unclear", Class: scrapeClass})
	must(t, err)
	unclear.VolumeName = "*" + string(claim.UID)
	_, err = r.driver.WaitCalls(ctx, func(calls []ledger.Call) bool { return len(calls) > 1 }, "CreateVolume")
	must(t, err)
	must(t, r.driver.SetFaults(ctx, plan(append(always, unclear, fails("CreateVolume", "InvalidArgument"))...)))
	_, err = r.maker.MakeClaim(ctx, objects.ClaimSpec{Name: "refused", Class: scrapeClass})
	must(t, err)
	makeClassFor(t, r, scrapeClass+"-later") // which needs a CSIStorageCapacity
}

// volumesRemain has an attached volume, one that was kept too late, and one that the cluster does not know.
func volumesRemain(t *testing.T, r live) {
	ctx := patiently(t)
	makeClassFor(t, r, scrapeClass)
	attached, tooLate := waitBound(t, r.maker, "attached"), waitBound(t, r.maker, "too-late")
	create(t, client.StorageV1().VolumeAttachments(), &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "scrape"},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: r.driver.Name(), NodeName: "none",
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &attached.Name}}})
	_, err := r.driver.Controller().CreateVolume(ctx, &csi.CreateVolumeRequest{Name: "leaked",
		VolumeCapabilities: []*csi.VolumeCapability{{
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER}}}})
	must(t, err)
	// The PV of a volume that is gone stays while csi-reclaimer lacks its rights, and is kept then.
	must(t, r.driver.SetFaults(ctx, plan(faults.Rule{Method: "DeleteVolume", AfterWork: true, Action: faults.Delay,
		Delay: faults.Duration(5 * time.Second)})))
	deleteClaimOf(t, attached)
	deleteClaimOf(t, tooLate)
	_, err = r.driver.WaitCalls(ctx, func(calls []ledger.Call) bool {
		return len(calls) > 0 && !calls[0].Done.IsZero()
	}, "DeleteVolume")
	must(t, err)
	bindings := client.RbacV1().ClusterRoleBindings()
	rights, err := bindings.Get(ctx, r.maker.Namespace, metav1.GetOptions{})
	must(t, err)
	must(t, bindings.Delete(ctx, rights.Name, metav1.DeleteOptions{}))
	_, err = client.CoreV1().PersistentVolumes().Patch(ctx, tooLate.Name, types.MergePatchType,
		[]byte(`{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}`), metav1.PatchOptions{})
	must(t, err)
	must(t, r.car.WaitLog(ctx, "cannot delete resource"))
	rights.ResourceVersion = ""
	_, err = bindings.Create(ctx, rights, metav1.CreateOptions{})
	must(t, err)
}

func manyDeleted(t *testing.T, r live) {
	makeClassFor(t, r, scrapeClass)
	var all []*v1.PersistentVolume
	for i := range 5 {
		all = append(all, waitBound(t, r.maker, fmt.Sprintf("one-of-many-%d", i)))
	}
	for _, pv := range all {
		deleteClaimOf(t, pv)
	}
}

// oursRemoved has another program that removes the finalizers of PVs again and again, 20 times a second. One of the PVs
// is deleted. It also changes the lock of a claim.
func oursRemoved(t *testing.T, r live) {
	ctx, pvs := patiently(t), client.CoreV1().PersistentVolumes()
	makeClassFor(t, r, scrapeClass)
	var names []string
	for i := range 5 {
		names = append(names, waitBound(t, r.maker, fmt.Sprintf("bare-%d", i)).Name)
	}
	must(t, pvs.Delete(ctx, names[0], metav1.DeleteOptions{}))
	claims := client.CoreV1().PersistentVolumeClaims(makeGated(t, "a"))
	until(t, "the claim has a lock", func() bool {
		claim, err := claims.Get(ctx, "c", metav1.GetOptions{})
		must(t, err)
		return claim.Annotations[singlenode.LockAnnotation] != ""
	})
	_, err := claims.Patch(ctx, "c", types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"`+singlenode.LockAnnotation+`":"nobody"}}}`), metav1.PatchOptions{})
	must(t, err)
	removing, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ; removing.Err() == nil; time.Sleep(50 * time.Millisecond) {
			for _, name := range names {
				_, _ = pvs.Patch(removing, name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`),
					metav1.PatchOptions{})
			}
		}
	}()
	t.Cleanup(func() { stop(); <-ended })
}

// bind binds a pod to a node.
func bind(t *testing.T, namespace, pod, node string) {
	t.Helper()
	must(t, client.CoreV1().Pods(namespace).Bind(patiently(t), &v1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod},
		Target: v1.ObjectReference{Kind: "Node", Name: node}}, metav1.CreateOptions{}))
}

// nodeAway has a node with a deleted pod that is held, and with a pod that has the lock of a claim.
func nodeAway(t *testing.T, r live) {
	const away = "scrape-away"
	makeAway(t, away)
	makeHeld(t, r.maker, away)
	namespace := makeGated(t, "a", "b")
	bind(t, namespace, waitUngated(t, namespace), away)
}

// fences has fences that do not end: one waits for a person, one was proven and continues, one has lied, in one no
// agent succeeds, and one cannot be undone. A policy halts because all nodes are away, and one has no valid selector.
func fences(t *testing.T, r live) {
	ctx := patiently(t)
	makePolicy(t, "scrape-fails", 0, cannotSelect)
	makeUnreachable(t, r.maker)
	must(t, client.CoreV1().Pods(r.maker.Namespace).Delete(ctx, "away", metav1.DeleteOptions{}))
	makeFence(t, "scrape-none", byHand()...)
	for _, name := range []string{"scrape-off", "scrape-fails", "scrape-not-undone"} {
		makeAway(t, name)
	}
	fakenode.ForTest(t, cluster, "scrape-lies", fakenode.Config{Heartbeat: time.Second, BootID: "first"})
	soon := byHand()
	soon[0].Timeout.Duration = time.Second
	makeFence(t, "scrape-fails", soon...)
	patch := func(all *fencing.Client, name, patch string) {
		_, err := all.Fences.Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		must(t, err)
	}
	for _, name := range []string{"scrape-off", "scrape-lies"} {
		all := makeFence(t, name, byHand()...)
		fence, err := all.Fences.Get(ctx, name, metav1.GetOptions{})
		must(t, err)
		patch(all, name, fmt.Sprintf(`{"spec":{"confirmation":"it is off","confirmationUID":%q}}`, fence.UID))
	}
	// The rights for Jobs are not granted.
	all := makeFence(t, "scrape-not-undone", v1alpha1.Agent{Name: "job", Covers: v1alpha1.CoversUntilUnfenced,
		Timeout: metav1.Duration{Duration: time.Second},
		Job:     &v1alpha1.JobAgent{Namespace: r.maker.Namespace, PodTemplateName: "none", Undo: true}})
	until(t, "the fence has failed", func() bool {
		fence, err := all.Fences.Get(ctx, "scrape-not-undone", metav1.GetOptions{})
		must(t, err)
		return fence.Status.Phase == v1alpha1.PhaseFailed
	})
	patch(all, "scrape-not-undone", `{"spec":{"unfence":"Now"}}`)
}

// claimsOfSets has a claim that is kept because of another owner, a claim that is deleted under its pod, and a set with
// an invalid annotation.
func claimsOfSets(t *testing.T, r live) {
	ctx, namespace := patiently(t), r.maker.Namespace
	makeScaledDown(t, namespace)
	other := create(t, client.CoreV1().ConfigMaps(namespace), &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}})
	makeClaimOf(t, makeSet(t, namespace, "kept", 0), func(claim *v1.PersistentVolumeClaim) {
		claim.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: other.Name,
			UID: other.UID}}
	})
	makeSet(t, namespace, "loses", 1)
	pods := client.CoreV1().Pods(namespace)
	until(t, "the set has a pod", func() bool {
		_, err := pods.Get(ctx, "loses-0", metav1.GetOptions{})
		must(t, ignoreNotFound(err))
		return err == nil
	})
	forget(t, func(ctx context.Context) error { return remove(ctx, pods, "loses-0") })
	bind(t, namespace, "loses-0", "none") // until then it uses no claim
	must(t, client.CoreV1().PersistentVolumeClaims(namespace).Delete(ctx, "data-loses-0", metav1.DeleteOptions{}))
}

// noCertificate starts volume-guard without the right to the certificate of its webhooks.
func noCertificate(t *testing.T, r live) {
	must(t, client.RbacV1().RoleBindings(r.maker.Namespace).Delete(patiently(t), "volume-guard-webhooks",
		metav1.DeleteOptions{}))
	must(t, r.keeper.Terminate())
	must(t, r.keeper.Restart())
}

// noDrivers has a webhook whose condition was written by hand and names no driver.
func noDrivers(t *testing.T, _ live) {
	create(t, client.AdmissionregistrationV1().MutatingWebhookConfigurations(), &admissionv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "csi-reclaimer"},
		Webhooks: []admissionv1.MutatingWebhook{{
			Name: "persistentvolumes.csi-reclaimer.io", AdmissionReviewVersions: []string{"v1"},
			SideEffects: ptr.To(admissionv1.SideEffectClassNone), FailurePolicy: ptr.To(admissionv1.Ignore),
			ClientConfig: admissionv1.WebhookClientConfig{URL: ptr.To("https://127.0.0.1:1/pvs")},
			Rules: []admissionv1.RuleWithOperations{{Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule: admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"},
					Resources: []string{"persistentvolumes"}}}},
			MatchConditions: []admissionv1.MatchCondition{{Name: "by-hand", Expression: "has(object.spec.csi)"}},
		}}})
}

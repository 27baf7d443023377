//go:build unix

package reclaim

import (
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/faults/proxy"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

// removeFinalizersRepeatedly strips a PV as often as it takes until the finalizer is not added to it any more.
func (env *environment) removeFinalizersRepeatedly(vol *objects.Volume) {
	env.T.Helper()
	for range 3 {
		env.WaitProtected(vol)
		env.RemoveFinalizers(vol)
	}
}

// runFinalizerCommand has another user add the finalizer to a PV, by the Event's command.
func (env *environment) runFinalizerCommand(vol *objects.Volume, text string) {
	env.T.Helper()
	patch := `{"metadata":{"finalizers":["` + volume.Finalizer + `"]}}`
	if text != "" && !strings.Contains(text, "kubectl patch pv "+vol.Name+" -p '"+patch+"'") {
		env.T.Fatalf("there is no command that adds the finalizer: %s", text)
	}
	env.PVs().Patch(vol.Name, patch)
}

// TestFinalizerConflictAffectsOnlyItsPV removes the finalizer of one PV again and again. All other PVs stay protected.
func TestFinalizerConflictAffectsOnlyItsPV(t *testing.T) {
	env := begin(t, fixture.AboutRequests)
	car := env.StartSidecar(fixture.FastRetries()...)
	looped, other := env.MakeVolume(objects.Spec{}), env.MakeVolume(objects.Spec{})
	env.WaitProtected(other)
	env.removeFinalizersRepeatedly(looped)
	env.WaitPVEvent(looped, "PVContested", "Other PVs are protected")
	env.WaitMetric(car, `csi_reclaimer_waiting_pvs{driver_name="`+env.Driver+`",reason="PVContested"}`, "1")
	env.WaitMetric(car, "csi_reclaimer_finalizers_contested", "0")
	before := env.WritesToPVs(env.User, []*objects.Volume{looped})["patch"]
	env.AnnotatePV(looped, "example.com/changed", "again")
	// Another PV's finalizer is added again, and a new PV gets one.
	env.RemoveFinalizers(other)
	env.WaitProtected(other)
	env.DeletePVFirst(other)
	env.ExpectReclaimed(other, 1)
	env.Barrier()
	if after := env.WritesToPVs(env.User, []*objects.Volume{looped})["patch"]; after != before || before != 3 {
		t.Errorf("%d patches before and %d after the contest was seen, want 3", before, after)
	}
	// Another user adds the finalizer: the PV is protected again.
	env.runFinalizerCommand(looped, env.PVEvents(looped, "PVContested")[0].Message)
	env.WaitMetric(car, `csi_reclaimer_pvs{driver_name="`+env.Driver+`",protected="true"}`, "1")
	env.RemoveFinalizers(looped)
	env.WaitProtected(looped)
	env.DeletePVFirst(looped)
	env.ExpectReclaimed(looped, 1)
}

// TestConflictOverManyFinalizersStopsAddingThem removes the finalizers of several PVs again and again.
func TestConflictOverManyFinalizersStopsAddingThem(t *testing.T) {
	env := begin(t, fixture.AboutRequests)
	car := env.StartSidecar(fixture.FastRetries()...)
	vols := env.MakeVolumes(3, func(int) objects.Spec { return objects.Spec{} })
	for _, vol := range vols {
		env.removeFinalizersRepeatedly(vol)
	}
	env.WaitMetric(car, "csi_reclaimer_finalizers_contested", "1")
	vol := vols[0]
	for _, vol := range vols {
		env.WaitPVEvent(vol, "FinalizerContested", "--role=companion")
	}
	before := env.WritesToPVs(env.User, []*objects.Volume{vol})["patch"]
	env.AnnotatePV(vol, "example.com/changed", "again")
	another := env.MakeVolume(objects.Spec{}) // nothing is protected any more
	env.WaitPVEvent(another, "FinalizerContested", "--role=companion")
	if after := env.WritesToPVs(env.User, []*objects.Volume{vol})["patch"]; after != before || before != 3 {
		t.Errorf("%d patches before and %d after the contest was seen, want 3", before, after)
	}
	// A volume is also deleted if its claim is deleted first.
	env.Must(vol.DeleteClaim(env.Ctx))
	env.ExpectReclaimed(vol, 1)
	// Another user adds the finalizer to one of them: the conflict ends for all.
	env.runFinalizerCommand(another, "")
	env.WaitMetric(car, "csi_reclaimer_finalizers_contested", "0")
	env.WaitProtected(vols[1])
	env.Barrier()
}

func TestFinalizerRemovedByHandReleasesPV(t *testing.T) {
	env := begin(t)
	env.StartSidecar(fixture.FastRetries()...)
	const other = "example.com/holds-it"
	for name, finalizers := range map[string][]string{"another finalizer holds the PV": {other},
		"it was the last finalizer": nil} {
		t.Run(name, func(t *testing.T) {
			env := env.forSubtest(t)
			vol := env.MakeProtected(objects.Spec{Change: func(pv *v1.PersistentVolume) { pv.Finalizers = finalizers }})
			env.AnnotatePV(vol, volume.HoldAnnotation, "time to remove the finalizer")
			env.DeletePVFirst(vol)
			env.WaitPV(vol, "released and held by us alone", func(pv *v1.PersistentVolume) bool {
				return pv.Status.Phase == v1.VolumeReleased && !slices.Contains(pv.Finalizers, "kubernetes.io/pv-protection")
			})
			env.RemoveFinalizers(vol)
			env.WaitPVEvent(vol, "ReclaimAbandoned", vol.Handle)
			env.Barrier()
			env.ExpectKept(vol)
		})
	}
}

// TestExistingPVsAreProtectedAtFirstStart upgrades a cluster with 1,000 PVs.
func TestExistingPVsAreProtectedAtFirstStart(t *testing.T) {
	env := begin(t, suite.Load, fixture.AboutLoad)
	must := func(i int) bool { return i%4 != 0 && i%3 != 0 }
	vols := env.MakeVolumes(fixture.Size(1000, 120), func(i int) objects.Spec {
		// The volumes behind are not looked at: their handles will do.
		spec := objects.Spec{Dynamic: i%2 == 0, Unclaimed: i%3 == 0, Handle: "vol-" + strconv.Itoa(i)}
		if i%4 == 0 {
			spec.Policy = v1.PersistentVolumeReclaimRetain
		}
		return spec
	})
	for i, vol := range vols {
		if i%3 == 0 {
			env.WaitPV(vol, "available", func(pv *v1.PersistentVolume) bool { return pv.Status.Phase == v1.VolumeAvailable })
		}
	}
	before := env.ListPVs()
	began := time.Now()
	env.StartSidecar()
	for i, vol := range vols {
		if must(i) {
			env.WaitProtected(vol)
		}
	}
	t.Logf("all are protected %v after the start", time.Since(began).Round(time.Millisecond))
	env.Barrier()
	after := env.ListPVs()
	for i, vol := range vols {
		was, is := before[vol.Name], after[vol.Name]
		if got := fixture.HasFinalizer(is); got != must(i) {
			t.Errorf("PV %s protected = %v, want %v: %s", vol.Name, got, must(i), objects.Describe(is))
		}
		for _, pv := range []*v1.PersistentVolume{was, is} {
			pv.Finalizers, pv.ManagedFields, pv.ResourceVersion = nil, nil, ""
		}
		if diff := cmp.Diff(was, is); diff != "" {
			t.Errorf("PV %s is changed beyond its finalizers:\n%s", vol.Name, diff)
		}
	}
}

// TestBackfillCompletesOnBusyAPIServer limits the sidecar to one concurrent request without a queue: the API server
// answers 429 to the others.
func TestBackfillCompletesOnBusyAPIServer(t *testing.T) {
	suite.Deep(t, suite.Load)
	fixture.AboutLoad.Require(t)
	env := &environment{fixture.New(t)}
	vols := env.MakeVolumes(fixture.Size(150, 60),
		func(i int) objects.Spec { return objects.Spec{Dynamic: true, Handle: "vol"} })
	env.limitToOneSeat()
	env.StartSidecar("--protect-threads=16")
	env.WaitAllPVs(vols, "protected", fixture.IsProtected)
	var codes map[int]int
	env.Eventually("the audit log has all writes", func() bool { // it is written behind the answers
		codes = map[int]int{}
		env.AuditEvents(env.User, func(e controlplane.AuditEvent) bool {
			if e.Verb == "patch" && e.Resource == "persistentvolumes" {
				codes[e.Code]++
			}
			return false
		})
		return codes[http.StatusOK] >= len(vols)
	})
	t.Logf("%d PVs: the answers were %v", len(vols), codes)
	if codes[http.StatusOK] != len(vols) {
		t.Errorf("%d writes for %d PVs", codes[http.StatusOK], len(vols))
	}
}

// TestBackfillSlowsDownOn429 refuses the first write of each worker. The server counts writes in progress, each for at
// least the time that its answer is delayed.
func TestBackfillSlowsDownOn429(t *testing.T) {
	suite.Deep(t, suite.WaitsForClock)
	fixture.AboutLoad.Require(t)
	const (
		threads, pause = 16, time.Second
		kept           = 300 * time.Millisecond
		// most is half of the threads, plus the threads that 8, 9, 10 and 11 good answers add for the 40 PVs.
		pvs, most = 40, threads/2 + 4
	)
	env := &environment{fixture.New(t)}
	vols := env.MakeVolumes(pvs, func(i int) objects.Spec { return objects.Spec{Dynamic: true, Handle: "vol"} })
	account, err := env.Plane.ServiceAccount(env.Ctx, env.Namespace, "csi-reclaimer")
	env.Must(err)
	line, err := proxy.Start(account, proxy.Options{})
	env.Must(err)
	t.Cleanup(func() { env.Must(line.Close()) })
	write := proxy.Rule{Verb: "patch", Resource: "persistentvolumes"}
	refuse, late := write, write
	refuse.Name, refuse.First, refuse.Effect = "refused", threads, proxy.Fail
	refuse.Code, refuse.RetryAfter = http.StatusTooManyRequests, int(pause.Seconds())
	late.Effect, late.Delay = proxy.LateAnswer, proxy.Duration(kept)
	env.Must(line.SetRules(refuse, late))
	env.Kubeconfig = filepath.Join(t.TempDir(), "proxied")
	env.Must(controlplane.WriteKubeconfig(env.Kubeconfig, line.Config()))
	env.StartSidecar(fmt.Sprintf("--protect-threads=%d", threads))
	env.WaitAllPVs(vols, "protected", fixture.IsProtected)

	var first time.Time
	refused := map[string]bool{}
	// began are the writes of PVs that were never refused: threads took these PVs up later.
	var began []time.Time
	for _, q := range line.Requests() {
		switch {
		case q.Verb != write.Verb || q.Resource != write.Resource:
		case q.Rule == refuse.Name:
			if refused[q.Name] = true; first.IsZero() {
				first = q.Received
			}
		case !refused[q.Name]:
			began = append(began, q.Received)
		}
	}
	if len(began) < pvs-threads {
		t.Fatalf("%d of %d PVs were taken up after the 429", len(began), pvs)
	}
	crowd := 0
	for i := range began {
		under := 1
		for j := i - 1; j >= 0 && began[i].Sub(began[j]) < kept; j-- {
			under++
		}
		crowd = max(crowd, under)
	}
	t.Logf("%d writes at once after the 429; the first of them %v later", crowd, began[0].Sub(first))
	if crowd > most {
		t.Errorf("%d writes at once after 429, want at most %d of the %d threads", crowd, most, threads)
	}
	if waited := began[0].Sub(first); waited < pause {
		t.Errorf("the next PV was taken up %v after the 429, which asked for %v", waited, pause)
	}
}

// limitToOneSeat limits the environment's account to one call at a time.
func (env *environment) limitToOneSeat() {
	env.T.Helper()
	one, zero := int32(1), int32(0)
	env.PriorityLevelConfigurations().CreateForTest(&flowcontrolv1.PriorityLevelConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: env.Namespace},
		Spec: flowcontrolv1.PriorityLevelConfigurationSpec{
			Type: flowcontrolv1.PriorityLevelEnablementLimited,
			Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{
				NominalConcurrencyShares: &one, LendablePercent: &zero, BorrowingLimitPercent: &zero,
				LimitResponse: flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject},
			},
		},
	})
	env.FlowSchemas().CreateForTest(&flowcontrolv1.FlowSchema{
		ObjectMeta: metav1.ObjectMeta{Name: env.Namespace},
		Spec: flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: env.Namespace},
			MatchingPrecedence:         100,
			Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
				Subjects: []flowcontrolv1.Subject{{Kind: flowcontrolv1.SubjectKindServiceAccount,
					ServiceAccount: &flowcontrolv1.ServiceAccountSubject{Namespace: env.Namespace, Name: "csi-reclaimer"}}},
				ResourceRules: []flowcontrolv1.ResourcePolicyRule{{
					Verbs: []string{"patch"}, APIGroups: []string{""}, Resources: []string{"persistentvolumes"}, ClusterScope: true,
				}},
			}},
		},
	})
}

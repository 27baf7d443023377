//go:build unix

package operations

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/leaks"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/rbac"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

// newLeakEnvironment has an account with the permissions of an owner and of leak detection.
func newLeakEnvironment(t *testing.T, options mockdriver.Options) *environment {
	t.Helper()
	env := newForRole(t, "owner", options)
	env.grantLeakCheck()
	return env
}

// grantLeakCheck grants csi-reclaimer the shipped permissions of the leak check.
func (env *environment) grantLeakCheck() {
	env.T.Helper()
	env.Must(rbac.GrantLeakCheck(env.Ctx, env.Client, env.Namespace, "csi-reclaimer"))
	env.T.Cleanup(func() {
		_ = env.Client.RbacV1().ClusterRoleBindings().Delete(env.CleanupContext(), "csi-reclaimer-leaks-"+env.Namespace,
			metav1.DeleteOptions{})
	})
}

// badListAnswers has the driver page badly: entries twice and in another order, tokens that expire.
func badListAnswers() []faults.Rule {
	return []faults.Rule{
		{Method: "ListVolumes", Action: faults.Duplicate}, {Method: "ListVolumes", Action: faults.Reorder},
		{Method: "ListVolumes", Action: faults.ExpireToken, Every: 11},
	}
}

// createLeak has the driver create a volume without a claim.
func (env *environment) createLeak(bytes int64) string {
	env.T.Helper()
	made, err := env.CSI.CreateVolume(env.Ctx, &csi.CreateVolumeRequest{
		Name: "leak-" + rand.String(8), CapacityRange: &csi.CapacityRange{RequiredBytes: bytes},
		VolumeCapabilities: []*csi.VolumeCapability{{
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}}}},
	})
	env.Must(err)
	return made.GetVolume().GetVolumeId()
}

// report returns the sidecar's current report.
func (env *environment) report(car *program.Program) (r leaks.Report) {
	env.T.Helper()
	text, err := car.Get(env.Ctx, "/leaks?format=json")
	env.Must(err)
	env.Must(json.Unmarshal([]byte(text), &r))
	return r
}

// suspects returns the handles of the volumes that are suspected.
func suspects(r leaks.Report) (handles []string) {
	for _, v := range r.Volumes {
		if v.Suspected {
			handles = append(handles, v.Handle)
		}
	}
	slices.Sort(handles)
	return handles
}

func (env *environment) waitSuspects(car *program.Program, handles ...string) {
	env.T.Helper()
	slices.Sort(handles)
	env.Eventually("exactly the leaks are suspected",
		func() bool { return slices.Equal(suspects(env.report(car)), handles) })
}

// TestLeaksAreFoundAndResolved finds leaked volumes, which an administrator then adopts or deletes with the plugin.
func TestLeaksAreFoundAndResolved(t *testing.T) {
	fixture.Begin(t, fixture.AboutDriver)
	env := newLeakEnvironment(t, mockdriver.Options{})
	// A leak check takes 4 pages: the second one stands still.
	env.SetFaults(append(badListAnswers(), faults.Rule{Method: "ListVolumes", Action: faults.Block, Every: 6})...)
	kept := env.MakeVolumes(5, func(int) objects.Spec { return objects.Spec{Policy: v1.PersistentVolumeReclaimRetain} })
	const sightings, grace = 4, time.Second
	large, small := env.createLeak(3<<20), env.createLeak(1<<20)
	pod := "car-" + rand.String(8)
	car := env.StartSidecar(append(fixture.FastRetries(), "--leader-election",
		"--leader-election-namespace="+env.Namespace, "--leader-election-identity="+pod,
		"--leak-check-interval=200ms", "--leak-check-sightings="+strconv.Itoa(sightings),
		"--leak-check-grace="+grace.String(),
		"--leak-check-page-size=2")...)

	env.Eventually("the leaks are seen, and not suspected", func() bool {
		seen := 0
		for _, v := range env.report(car).Volumes {
			if !v.Suspected && v.Reason == leaks.ReasonSeenTooSeldom {
				seen++
			}
		}
		return seen == 2
	})
	env.SetFaults(badListAnswers()...)
	env.Eventually("the leaks are suspected, and not before their time", func() bool {
		r := env.report(car)
		for _, v := range r.Volumes {
			if v.Handle != large && v.Handle != small {
				t.Errorf("FALSE LEAK: %+v", v)
			}
			if age := r.Completed.Sub(v.FirstSeen); v.Suspected && (v.Sightings < sightings || age < grace) {
				t.Errorf("after %d leak checks and %v: %+v", v.Sightings, age, v)
			}
		}
		return len(suspects(r)) == 2
	})
	env.WaitMetric(car, `csi_reclaimer_suspected_leaks{driver_name="`+env.Driver+`"}`, "2")
	env.WaitMetric(car, `csi_reclaimer_suspected_leak_bytes{driver_name="`+env.Driver+`"}`, "4.194304e+06")
	env.WaitEvent(v1.ObjectReference{Kind: "Lease", Name: env.LeaseName()}, "LeakSuspected")
	for _, id := range []string{large, small} {
		if n := len(env.DeleteCalls(id)); n > 0 || !env.OnDisk(id) {
			t.Fatalf("WRONG DELETE: the leak check deleted %s", id)
		}
	}

	show := env.auditPlugin(car, pod)
	output := show()
	env.ExpectOutput(output, "2 volumes of driver "+env.Driver+" are suspected to be leaks (4Mi), of 7 that it lists",
		large, "3Mi", "LeakSuspected", small)
	if strings.Index(output, large) > strings.Index(output, small) {
		t.Errorf("the largest is not the first:\n%s", output)
	}
	env.expectAdoption(show, large)
	env.waitSuspects(car, small)
	env.expectLeaksReclaimed(car, show, small, kept[0])
	env.waitSuspects(car)
	env.ExpectKept(kept...)
}

// auditPlugin returns a function that runs kubectl reclaim leaks for the driver to its end. The plugin reads the report
// through the API server from a pod that forwards to the sidecar, or from a file if this machine has no address that
// the API server accepts as a pod's.
func (env *environment) auditPlugin(car *program.Program, pod string) func(args ...string) string {
	env.T.Helper()
	address := suite.PodAddress(env.T)
	if address == nil {
		return func(args ...string) string {
			env.T.Helper()
			return env.RunPlugin(append([]string{"leaks", "--from=" + env.saveReport(car)}, args...)...)
		}
	}
	port := "--port=" + env.servePod(address, pod, car)
	kube := env.grantReader("auditor", append(env.documentedRules("reference/kubectl-reclaim-permissions.md"),
		env.documentedRules("how-to/find-leaks.md")...))
	env.Eventually("the rights of the docs are enough", func() bool {
		output, err := env.WaitExit(env.StartPluginAs(kube, "leaks", "--driver="+env.Driver, port))
		return err == nil && strings.Contains(output, "suspected")
	})
	return func(args ...string) string {
		env.T.Helper()
		return env.RunPlugin(append([]string{"leaks", "--driver=" + env.Driver, port}, args...)...)
	}
}

// saveReport writes the sidecar's current report into a file.
func (env *environment) saveReport(car *program.Program) (file string) {
	env.T.Helper()
	text, err := car.Get(env.Ctx, "/leaks?format=json")
	env.Must(err)
	file = filepath.Join(env.T.TempDir(), "report.json")
	env.Must(os.WriteFile(file, []byte(text), 0o600))
	return file
}

// servePod creates a pod with this machine's address, and serves the sidecar's endpoint there.
func (env *environment) servePod(address net.IP, name string, car *program.Program) (port string) {
	env.T.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(address.String(), "0"))
	env.Must(err)
	server := &http.Server{ReadHeaderTimeout: fixture.WaitTimeout,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			text, err := car.Get(r.Context(), r.URL.RequestURI())
			if err != nil {
				http.Error(w, err.Error(), http.StatusNotFound)
				return
			}
			_, _ = w.Write([]byte(text))
		})}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = server.Serve(listener) }()
	env.T.Cleanup(func() { _ = server.Close(); <-ended })
	env.Pods().Create(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PodSpec{
		SchedulerName: "nobody", Containers: []v1.Container{{Name: "csi-reclaimer", Image: "none"}},
	}})
	env.Pods().Merge(name, fmt.Sprintf(`{"status":{"podIP":%q,"podIPs":[{"ip":%q}]}}`, address, address), "status")
	_, port, err = net.SplitHostPort(listener.Addr().String())
	env.Must(err)
	return port
}

// documentedRules returns the rules of the role that a page of docs/ shows.
func (env *environment) documentedRules(page string) []rbacv1.PolicyRule {
	env.T.Helper()
	root := process.RootForTest(env.T)
	text, err := os.ReadFile(filepath.Join(root, "docs", filepath.FromSlash(page)))
	env.Must(err)
	_, rest, _ := strings.Cut(string(text), "```yaml\n")
	block, _, _ := strings.Cut(rest, "```")
	var role rbacv1.ClusterRole
	env.Must(yaml.Unmarshal([]byte(block), &role))
	if len(role.Rules) == 0 {
		env.T.Fatalf("docs/%s has no role", page)
	}
	return role.Rules
}

// findPV returns the PV that names a volume, or nil.
func (env *environment) findPV(handle string) (found *v1.PersistentVolume) {
	env.T.Helper()
	for _, pv := range env.ListPVs() {
		if pv.Spec.CSI != nil && pv.Spec.CSI.VolumeHandle == handle {
			found = pv
		}
	}
	return found
}

// expectAdoption has a volume come back, and a claim take it.
func (env *environment) expectAdoption(plugin func(...string) string, handle string) {
	env.T.Helper()
	env.ExpectOutput(plugin("--adopt="+handle, "--dry-run"), "persistentVolumeReclaimPolicy: Retain",
		"volumeHandle: "+handle, "storage: 3Mi")
	if pv := env.findPV(handle); pv != nil {
		env.T.Fatalf("a dry run has made PV %s", pv.Name)
	}
	claimFlag := "--claim=" + env.Namespace + "/back"
	env.ExpectOutput(plugin("--adopt="+handle, claimFlag, "--yes"),
		"keeps the volume for claim "+env.Namespace+"/back alone. The claim binds to it with spec.volumeName")
	pv := env.findPV(handle)
	if pv == nil {
		env.T.Fatal("no PV was made")
	}
	env.T.Cleanup(func() { env.RemoveLeftovers(env.ClaimOf(&v1.PersistentVolumeClaim{}).Volume(pv.Name)) })
	claim, err := env.MakeClaim(env.Ctx,
		objects.ClaimSpec{Name: "back", Change: func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName = pv.Name }})
	env.Must(err)
	env.WaitClaim(claim, "bound to the volume that is back",
		func(c *v1.PersistentVolumeClaim) bool { return c != nil && c.Status.Phase == v1.ClaimBound })
	if n := len(env.DeleteCalls(handle)); n > 0 || !env.OnDisk(handle) {
		env.T.Errorf("WRONG DELETE: %d calls for the volume that was adopted", n)
	}
}

// expectLeaksReclaimed has a volume deleted in the normal way, and once.
func (env *environment) expectLeaksReclaimed(car *program.Program, plugin func(...string) string, handle string,
	kept *objects.Volume) {
	env.T.Helper()
	env.ExpectOutput(plugin("--reclaim="+handle, "--dry-run"), "persistentVolumeReclaimPolicy: Retain",
		"volumeHandle: "+handle, "is deleted permanently")
	if pv := env.findPV(handle); pv != nil || !env.OnDisk(handle) {
		env.T.Fatalf("a dry run has made or deleted something: %v", pv)
	}
	// The plugin's question gets no answer, and the leak check does not handle a volume with a PV.
	for why, args := range map[string][]string{
		"not confirmed": {"--reclaim=" + handle}, "an object names it by now: pv/" + kept.Name: {"--reclaim=" + kept.Handle,
			"--yes"},
	} {
		output, err := env.WaitExit(env.StartPlugin(append([]string{"leaks", "--from=" + env.saveReport(car)}, args...)...))
		if err == nil || !strings.Contains(output, why) {
			env.T.Errorf("%q: %v\n%s", args, err, output)
		}
	}
	if pv := env.findPV(handle); pv != nil || !env.OnDisk(handle) || env.findPV(kept.Handle).Name != kept.Name {
		env.T.Fatalf("what was not confirmed was done: %v", pv)
	}
	env.ExpectOutput(plugin("--reclaim="+handle, "--yes"), "Released with policy Delete")
	env.Eventually("volume and PV are gone", func() bool { return !env.OnDisk(handle) && env.findPV(handle) == nil })
	if n := len(env.DeleteCalls(handle)); n != 1 {
		env.T.Errorf("%d DeleteVolume calls, want 1", n)
	}
}

// TestLeakDetectionExcludesSnapshots expects no suspicion of a handle that a VolumeSnapshotContent refers to or waits
// for. The source volume of a snapshot needs a PV like any other volume.
func TestLeakDetectionExcludesSnapshots(t *testing.T) {
	fixture.Begin(t, suite.Variant, fixture.AboutDriver)
	env := newLeakEnvironment(t, mockdriver.Options{})
	car := env.StartSidecar(append(fixture.FastRetries(), "--leak-check-interval=100ms", "--leak-check-sightings=2",
		"--leak-check-grace=0s")...)
	env.InstallSnapshotCRDs()
	source := &fixture.Provisioned{Volume: env.MakeVolume(objects.Spec{Policy: v1.PersistentVolumeReclaimRetain})}
	contents := env.Snapshots.VolumeSnapshotContents()

	// As drivers do that list the storage of their snapshots among their volumes.
	stored, stray := env.createLeak(1<<20), env.createLeak(1<<20)
	snapshot := env.CreateSnapshot(source, func(_ *snapshotv1.VolumeSnapshot, c *snapshotv1.VolumeSnapshotContent) {
		c.Status.SnapshotHandle = &stored
	})
	env.waitSuspects(car, stray)
	for _, handle := range []string{stored, source.Handle} {
		if v, found := env.report(car).Find(handle); found {
			t.Errorf("it is accounted for: %+v", v)
		}
	}
	env.Must(contents.Delete(env.Ctx, snapshot.Content, metav1.DeleteOptions{}))
	env.waitSuspects(car, stray, stored)

	young := env.CreateSnapshot(source, func(_ *snapshotv1.VolumeSnapshot, c *snapshotv1.VolumeSnapshotContent) {
		c.Status = &snapshotv1.VolumeSnapshotContentStatus{ReadyToUse: new(bool)}
	})
	env.waitAudits(car, 2) // one of them began after it was stored
	made := env.createLeak(1 << 20)
	env.Eventually("the snapshot may be the maker of what came after it", func() bool {
		v, found := env.report(car).Find(made)
		if v.Suspected {
			t.Fatalf("FALSE LEAK: %+v", v)
		}
		return found && v.Reason == leaks.ReasonBeingMade && v.Because == "VolumeSnapshotContent "+young.Content
	})
	ready, err := contents.Get(env.Ctx, young.Content, metav1.GetOptions{})
	env.Must(err)
	is := true
	ready.Status.ReadyToUse, ready.Status.SnapshotHandle = &is, &made
	_, err = contents.UpdateStatus(env.Ctx, ready, metav1.UpdateOptions{})
	env.Must(err)
	env.Eventually("it is its storage", func() bool { _, found := env.report(car).Find(made); return !found })

	// The snapshot stays, and does not account for the volume that it was taken of.
	env.Must(source.DeleteClaim(env.Ctx))
	env.Must(source.DeletePV(env.Ctx))
	env.waitSuspects(car, stray, stored, source.Handle)
	for _, handle := range []string{stray, stored, made, source.Handle} {
		if n := len(env.DeleteCalls(handle)); n > 0 || !env.OnDisk(handle) {
			t.Errorf("WRONG DELETE: %d calls for %s", n, handle)
		}
	}
}

// waitAudits waits until so many more leak checks are complete.
func (env *environment) waitAudits(car *program.Program, more int) {
	env.T.Helper()
	for last := env.report(car).Completed; more > 0; more-- {
		env.Eventually("one more leak check is complete", func() bool {
			now := env.report(car).Completed
			later := now.After(last)
			last = now
			return later
		})
	}
}

// TestLeakDetectionHasNoFalsePositives creates and deletes claims with the lowest thresholds that the flags allow: two
// sightings and no grace period. The check finds the leaks, and never suspects another volume.
func TestLeakDetectionHasNoFalsePositives(t *testing.T) {
	suite.Deep(t, suite.Load)
	fixture.AboutLoad.Require(t)
	env := newLeakEnvironment(t, mockdriver.Options{})
	env.SetFaults(badListAnswers()...)
	car := env.StartSidecar(append(fixture.FastRetries(), "--leak-check-interval=30ms", "--leak-check-sightings=2",
		"--leak-check-grace=0s", "--leak-check-page-size=7")...)
	class := env.CreateStorageClass()
	volumes := fixture.Size(600, 100)
	var mu sync.Mutex
	made, leaks := 0, []string{}
	over := make(chan struct{})
	users, working := errgroup.WithContext(env.Ctx)
	// bound counts the claims that were bound so far; a claim that failed ends the test.
	bound := func() int {
		mu.Lock()
		defer mu.Unlock()
		env.Must(context.Cause(working))
		return made
	}
	for range 8 {
		users.Go(func() error {
			for {
				select {
				case <-over:
					return nil
				default:
				}
				claim, err := env.TryCreateClaim(class)
				if err != nil {
					return err
				}
				vol, err := claim.WaitBound(env.Ctx)
				if err != nil {
					return err
				}
				mu.Lock()
				made++
				pvFirst := made%2 == 0
				mu.Unlock()
				if pvFirst {
					if err := vol.DeletePV(env.Ctx); err != nil {
						return err
					}
				}
				if err := claim.Delete(env.Ctx); err != nil {
					return err
				}
			}
		})
	}
	looks, reported := 0, map[string]bool{}
	for n := 0; n < volumes; n = bound() {
		looks++
		if len(leaks) < 3 && n > (len(leaks)+1)*volumes/5 {
			leaks = append(leaks, env.createLeak(1<<20))
		}
		for _, handle := range suspects(env.report(car)) {
			reported[handle] = true
			if !slices.Contains(leaks, handle) {
				t.Errorf("FALSE LEAK: %s", handle)
			}
		}
	}
	close(over)
	env.Must(users.Wait())
	env.Eventually("all that was made is gone", func() bool { return len(env.VolumesOnDisk()) == len(leaks) })
	env.waitSuspects(car, leaks...)
	last := env.report(car)
	t.Logf("%d volumes were made and deleted; %d looks at the report, %d leaks, %d of them found meanwhile", made, looks,
		len(leaks), len(reported))
	if len(leaks) < 3 || last.Failure != "" && strings.Contains(last.Failure, "comes to no end") {
		t.Errorf("this test shows little: %+v", last)
	}
}

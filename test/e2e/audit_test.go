//go:build unix

package e2e

import (
	"encoding/json"
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
	"github.com/csi-reclaimer/csi-reclaimer/test/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/grant"
	"github.com/csi-reclaimer/csi-reclaimer/test/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/process"
	"github.com/csi-reclaimer/csi-reclaimer/test/sidecar"
	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

// newAuditStage is a stage whose account may audit, in role owner.
func newAuditStage(t *testing.T, options mockdriver.Options) *stage {
	t.Helper()
	s := newStageAs(t, "owner", options)
	s.must(grant.Audit(s.ctx, s.client, s.Namespace, "csi-reclaimer"))
	t.Cleanup(func() {
		_ = s.client.RbacV1().ClusterRoleBindings().Delete(s.clean(), "csi-reclaimer-audit-"+s.Namespace, metav1.DeleteOptions{})
	})
	return s
}

// unruly has the driver page badly: entries twice and in another order, tokens that expire.
func unruly() faults.Plan {
	return faults.Plan{Rules: []faults.Rule{
		{Method: "ListVolumes", Action: faults.Duplicate}, {Method: "ListVolumes", Action: faults.Reorder},
		{Method: "ListVolumes", Action: faults.ExpireToken, Every: 11},
	}}
}

// leak has the driver make a volume that nobody asked for.
func (s *stage) leak(bytes int64) string {
	s.t.Helper()
	made, err := s.CSI.CreateVolume(s.ctx, &csi.CreateVolumeRequest{
		Name: "leak-" + rand.String(8), CapacityRange: &csi.CapacityRange{RequiredBytes: bytes},
		VolumeCapabilities: []*csi.VolumeCapability{{AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}}}},
	})
	s.must(err)
	return made.GetVolume().GetVolumeId()
}

// report returns what the sidecar reports now.
func (s *stage) report(car *sidecar.Sidecar) (r leaks.Report) {
	s.t.Helper()
	text, err := car.Get(s.ctx, "/audit?format=json")
	s.must(err)
	s.must(json.Unmarshal([]byte(text), &r))
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

func (s *stage) waitSuspects(car *sidecar.Sidecar, handles ...string) {
	s.t.Helper()
	slices.Sort(handles)
	s.eventually("exactly the leaks are suspected", func() bool { return slices.Equal(suspects(s.report(car)), handles) })
}

// TestAuditFindsLeaks, which a person then adopts or has reclaimed through the plugin.
func TestAuditFindsLeaks(t *testing.T) {
	t.Parallel()
	s := newAuditStage(t, mockdriver.Options{})
	s.must(s.driver.SetFaults(s.ctx, unruly()))
	kept := s.makeMany(5, func(int) storage.Spec { return storage.Spec{Policy: v1.PersistentVolumeReclaimRetain} })
	const sightings, grace = 4, time.Second
	large, small := s.leak(3<<20), s.leak(1<<20)
	pod := "car-" + rand.String(8)
	car := s.sidecar(append(eager(), "--leader-election", "--leader-election-namespace="+s.Namespace, "--leader-election-identity="+pod,
		"--audit-interval=200ms", "--audit-sightings="+strconv.Itoa(sightings), "--audit-grace="+grace.String(), "--audit-page-size=2")...)

	young := false
	s.eventually("the leaks are suspected, and not before their time", func() bool {
		r := s.report(car)
		for _, v := range r.Volumes {
			if v.Handle != large && v.Handle != small {
				t.Errorf("FALSE LEAK: %+v", v)
			}
			if age := r.Completed.Sub(v.FirstSeen); v.Suspected && (v.Sightings < sightings || age < grace) {
				t.Errorf("after %d audits and %v: %+v", v.Sightings, age, v)
			}
			young = young || !v.Suspected && v.Reason == leaks.ReasonSeenTooSeldom
		}
		return len(suspects(r)) == 2
	})
	if !young {
		t.Error("the leaks were never seen before they were suspected")
	}
	s.metric(car, `csi_reclaimer_suspected_leaks{driver_name="`+s.Driver+`"}`, "2")
	s.metric(car, `csi_reclaimer_suspected_leak_bytes{driver_name="`+s.Driver+`"}`, "4.194304e+06")
	s.eventually("an Event on the Lease tells of them", func() bool { return s.reported("Lease", s.lease(), "LeakSuspected") })
	for _, id := range []string{large, small} {
		if n := len(s.deletions(id)); n > 0 || !s.onDisk(id) {
			t.Fatalf("WRONG DELETE: the audit has deleted %s", id)
		}
	}

	show := s.auditPlugin(car, pod)
	said := show()
	s.expectTold(said, "2 volumes of driver "+s.Driver+" are suspected to be leaks (4Mi), of 7 that it lists", large, "3Mi", "LeakSuspected", small)
	if strings.Index(said, large) > strings.Index(said, small) {
		t.Errorf("the largest is not the first:\n%s", said)
	}
	s.adopts(show, large)
	s.waitSuspects(car, small)
	s.reclaims(car, show, small, kept[0])
	s.waitSuspects(car)
	for _, vol := range kept {
		s.expectKept(vol)
	}
}

// auditPlugin returns what runs kubectl reclaim audit for the driver to its end, in peace: through the API server
// and a pod that serves what the sidecar does, or through a file where this machine has no address that the API
// server takes for a pod's.
func (s *stage) auditPlugin(car *sidecar.Sidecar, pod string) func(args ...string) string {
	s.t.Helper()
	address := podAddress(s.t)
	if address == nil {
		return func(args ...string) string {
			s.t.Helper()
			return s.told(append([]string{"audit", "--from=" + s.saveReport(car)}, args...)...)
		}
	}
	port := "--port=" + s.servePod(address, pod, car)
	s.grantReader("auditor", append(s.documentedRules("reference/kubectl-reclaim.md"), s.documentedRules("how-to/find-leaks.md")...))
	kube := s.kubeOf("auditor")
	s.eventually("the rights of the docs are enough", func() bool {
		said, err := s.ended(s.pluginAs(kube, "audit", "--driver="+s.Driver, port))
		return err == nil && strings.Contains(said, "suspected")
	})
	return func(args ...string) string {
		s.t.Helper()
		return s.told(append([]string{"audit", "--driver=" + s.Driver, port}, args...)...)
	}
}

// saveReport writes what the sidecar reports now into a file.
func (s *stage) saveReport(car *sidecar.Sidecar) (file string) {
	s.t.Helper()
	text, err := car.Get(s.ctx, "/audit?format=json")
	s.must(err)
	file = filepath.Join(s.t.TempDir(), "report.json")
	s.must(os.WriteFile(file, []byte(text), 0o600))
	return file
}

// podAddress returns an address of this machine that an API server takes for a pod's: not a loopback one. Nil
// if there is none.
func podAddress(t *testing.T) net.IP {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if of, ok := a.(*net.IPNet); ok && of.IP.To4() != nil && of.IP.IsGlobalUnicast() {
			return of.IP
		}
	}
	t.Log("this machine has no address but the loopback's: the report is not fetched through the API server")
	return nil
}

// servePod makes a pod whose address is this machine's, where what the sidecar serves is served.
func (s *stage) servePod(address net.IP, name string, car *sidecar.Sidecar) (port string) {
	s.t.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(address.String(), "0"))
	s.must(err)
	server := &http.Server{ReadHeaderTimeout: patience, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := car.Get(r.Context(), r.URL.RequestURI())
		if err != nil {
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		}
		_, _ = w.Write([]byte(text))
	})}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = server.Serve(listener) }()
	s.t.Cleanup(func() { _ = server.Close(); <-ended })
	pods := s.client.CoreV1().Pods(s.Namespace)
	pod, err := pods.Create(s.ctx, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PodSpec{
		SchedulerName: "nobody", Containers: []v1.Container{{Name: "csi-reclaimer", Image: "none"}},
	}}, metav1.CreateOptions{})
	s.must(err)
	pod.Status.PodIP, pod.Status.PodIPs = address.String(), []v1.PodIP{{IP: address.String()}}
	_, err = pods.UpdateStatus(s.ctx, pod, metav1.UpdateOptions{})
	s.must(err)
	_, port, err = net.SplitHostPort(listener.Addr().String())
	s.must(err)
	return port
}

// documentedRules returns the rules of the role that a page of docs/ shows.
func (s *stage) documentedRules(page string) []rbacv1.PolicyRule {
	s.t.Helper()
	root, err := process.ModuleRoot()
	s.must(err)
	text, err := os.ReadFile(filepath.Join(root, "docs", filepath.FromSlash(page)))
	s.must(err)
	_, rest, _ := strings.Cut(string(text), "```yaml\n")
	block, _, _ := strings.Cut(rest, "```")
	var role rbacv1.ClusterRole
	s.must(yaml.Unmarshal([]byte(block), &role))
	if len(role.Rules) == 0 {
		s.t.Fatalf("docs/%s has no role", page)
	}
	return role.Rules
}

// pvOf returns the PV that names a volume, nil if there is none.
func (s *stage) pvOf(handle string) (found *v1.PersistentVolume) {
	s.t.Helper()
	for _, pv := range s.allPVs() {
		if pv.Spec.CSI != nil && pv.Spec.CSI.VolumeHandle == handle {
			found = pv
		}
	}
	return found
}

// adopts has a volume come back, and a claim take it.
func (s *stage) adopts(plugin func(...string) string, handle string) {
	s.t.Helper()
	s.expectTold(plugin("--adopt="+handle, "--dry-run"), "persistentVolumeReclaimPolicy: Retain", "volumeHandle: "+handle, "storage: 3Mi")
	if pv := s.pvOf(handle); pv != nil {
		s.t.Fatalf("a dry run has made PV %s", pv.Name)
	}
	s.expectTold(plugin("--adopt="+handle, "--yes"), "keeps the volume. A claim takes it by spec.volumeName")
	pv := s.pvOf(handle)
	if pv == nil {
		s.t.Fatal("no PV was made")
	}
	s.t.Cleanup(func() { s.sweep(s.ClaimOf(&v1.PersistentVolumeClaim{}).Volume(pv.Name)) })
	claim, err := s.MakeClaim(s.ctx, storage.ClaimSpec{Name: "back", Change: func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName = pv.Name }})
	s.must(err)
	s.waitClaim(claim, "bound to the volume that is back", func(c *v1.PersistentVolumeClaim) bool { return c != nil && c.Status.Phase == v1.ClaimBound })
	if n := len(s.deletions(handle)); n > 0 || !s.onDisk(handle) {
		s.t.Errorf("WRONG DELETE: %d calls for the volume that was adopted", n)
	}
}

// reclaims has a volume deleted in the normal way, and once.
func (s *stage) reclaims(car *sidecar.Sidecar, plugin func(...string) string, handle string, kept *storage.Volume) {
	s.t.Helper()
	s.expectTold(plugin("--reclaim="+handle, "--dry-run"), "persistentVolumeReclaimPolicy: Retain", "volumeHandle: "+handle, "is deleted for good")
	if pv := s.pvOf(handle); pv != nil || !s.onDisk(handle) {
		s.t.Fatalf("a dry run has made or deleted something: %v", pv)
	}
	// Nobody answers the question; and a volume that has a PV is none of the audit's.
	for why, args := range map[string][]string{
		"it was not confirmed": {"--reclaim=" + handle}, "a PV names it by now: " + kept.Name: {"--reclaim=" + kept.Handle, "--yes"},
	} {
		said, err := s.ended(s.plugin(append([]string{"audit", "--from=" + s.saveReport(car)}, args...)...))
		if err == nil || !strings.Contains(said, why) {
			s.t.Errorf("%q: %v\n%s", args, err, said)
		}
	}
	if pv := s.pvOf(handle); pv != nil || !s.onDisk(handle) || s.pvOf(kept.Handle).Name != kept.Name {
		s.t.Fatalf("what was not confirmed was done: %v", pv)
	}
	s.expectTold(plugin("--reclaim="+handle, "--yes"), "Released with policy Delete")
	s.eventually("volume and PV are gone", func() bool { return !s.onDisk(handle) && s.pvOf(handle) == nil })
	if n := len(s.deletions(handle)); n != 1 {
		s.t.Errorf("%d DeleteVolume calls, want 1", n)
	}
}

// TestAuditNeedsADriverThatLists, and says so.
func TestAuditNeedsADriverThatLists(t *testing.T) {
	t.Parallel()
	s := newAuditStage(t, mockdriver.Options{Profile: "no-list"})
	car := s.sidecar(append(eager(), "--audit-interval=50ms")...)
	s.must(car.WaitLog(s.soon(), "does not advertise LIST_VOLUMES: no audit is made"))
	const said = "does not advertise LIST_VOLUMES"
	if r := s.report(car); !strings.Contains(r.Off, said) || len(r.Volumes) > 0 {
		t.Errorf("%+v", r)
	}
	text, err := car.Get(s.ctx, "/audit")
	s.must(err)
	s.expectTold(text, "No audits are made: driver "+s.Driver+" "+said)
	s.fence() // all else goes on
}

// TestAuditUsesWhatItIsGranted, in the role that may do the least; what it may not do it says.
func TestAuditUsesWhatItIsGranted(t *testing.T) {
	t.Parallel()
	s := newStageAs(t, "observer", mockdriver.Options{})
	car := s.sidecar("--role=observer", "--audit-interval=100ms", "--leader-election", "--leader-election-namespace="+s.Namespace)
	s.eventually("it says that it may not", func() bool { return strings.Contains(s.report(car).Failure, "forbidden") })
	s.eventually("an Event tells of it", func() bool { return s.reported("Lease", s.lease()+"-reclaimer", "AuditFailed") })
	s.must(grant.Audit(s.ctx, s.client, s.Namespace, "csi-reclaimer"))
	t.Cleanup(func() {
		_ = s.client.RbacV1().ClusterRoleBindings().Delete(s.clean(), "csi-reclaimer-audit-"+s.Namespace, metav1.DeleteOptions{})
	})
	s.eventually("an audit is complete", func() bool { r := s.report(car); return r.Failure == "" && !r.Completed.IsZero() })
	rules, err := grant.AuditRules()
	s.must(err)
	s.eventually("all that is granted is used", func() bool {
		used := map[string]bool{}
		events, err := s.plane.AuditEventsOf(s.user, func(e controlplane.AuditEvent) bool { return e.Code != http.StatusForbidden })
		s.must(err)
		for _, e := range events {
			used[e.Verb+" "+e.Resource] = true
		}
		for _, rule := range rules {
			if len(rule.Resources) != 1 || len(rule.Verbs) != 1 || !used[rule.Verbs[0]+" "+rule.Resources[0]] {
				return false
			}
		}
		return true
	})
}

// TestAuditHeedsSnapshots: what a VolumeSnapshotContent has as its storage is no leak, and neither is what one waits for. The
// volume that a snapshot was taken of has to have a PV like any other.
func TestAuditHeedsSnapshots(t *testing.T) {
	t.Parallel()
	s := newAuditStage(t, mockdriver.Options{})
	car := s.sidecar(append(eager(), "--audit-interval=100ms", "--audit-sightings=2", "--audit-grace=0s")...)
	s.snapshotsServed()
	source := &provisioned{Volume: s.make(storage.Spec{Policy: v1.PersistentVolumeReclaimRetain})}
	contents := s.Snapshots.VolumeSnapshotContents()

	// As drivers do that list the storage of their snapshots among their volumes.
	stored, stray := s.leak(1<<20), s.leak(1<<20)
	snapshot := s.snapshot(source, func(_ *snapshotv1.VolumeSnapshot, c *snapshotv1.VolumeSnapshotContent) {
		c.Status.SnapshotHandle = &stored
	})
	s.waitSuspects(car, stray)
	for _, handle := range []string{stored, source.Handle} {
		if v, found := s.report(car).Find(handle); found {
			t.Errorf("it is accounted for: %+v", v)
		}
	}
	s.must(contents.Delete(s.ctx, snapshot.Content, metav1.DeleteOptions{}))
	s.waitSuspects(car, stray, stored)

	young := s.snapshot(source, func(_ *snapshotv1.VolumeSnapshot, c *snapshotv1.VolumeSnapshotContent) {
		c.Status = &snapshotv1.VolumeSnapshotContentStatus{ReadyToUse: new(bool)}
	})
	s.waitAudits(car, 2) // of which one was begun after it was stored
	made := s.leak(1 << 20)
	s.eventually("the snapshot may be the maker of what came after it", func() bool {
		v, found := s.report(car).Find(made)
		if v.Suspected {
			t.Fatalf("FALSE LEAK: %+v", v)
		}
		return found && v.Reason == leaks.ReasonBeingMade && v.Because == "VolumeSnapshotContent "+young.Content
	})
	ready, err := contents.Get(s.ctx, young.Content, metav1.GetOptions{})
	s.must(err)
	is := true
	ready.Status.ReadyToUse, ready.Status.SnapshotHandle = &is, &made
	_, err = contents.UpdateStatus(s.ctx, ready, metav1.UpdateOptions{})
	s.must(err)
	s.eventually("it is its storage", func() bool { _, found := s.report(car).Find(made); return !found })

	// The snapshot stays, and does not account for the volume that it was taken of.
	s.must(source.DeleteClaim(s.ctx))
	s.must(source.DeletePV(s.ctx))
	s.waitSuspects(car, stray, stored, source.Handle)
	for _, handle := range []string{stray, stored, made, source.Handle} {
		if n := len(s.deletions(handle)); n > 0 || !s.onDisk(handle) {
			t.Errorf("WRONG DELETE: %d calls for %s", n, handle)
		}
	}
}

// waitAudits waits until so many more audits are complete.
func (s *stage) waitAudits(car *sidecar.Sidecar, more int) {
	s.t.Helper()
	for last := s.report(car).Completed; more > 0; more-- {
		s.eventually("one more audit is complete", func() bool {
			now := s.report(car).Completed
			later := now.After(last)
			last = now
			return later
		})
	}
}

// TestAuditSoak has claims provisioned and deleted, at the least that the flags allow: two sightings and no
// grace. What leaks is found, and nothing else is ever suspected.
func TestAuditSoak(t *testing.T) {
	s := newAuditStage(t, mockdriver.Options{})
	s.must(s.driver.SetFaults(s.ctx, unruly()))
	car := s.sidecar(append(eager(), "--audit-interval=30ms", "--audit-sightings=2", "--audit-grace=0s", "--audit-page-size=7")...)
	class := s.class()
	until := time.Now().Add(time.Duration(size(180, 30)) * time.Second)
	var mu sync.Mutex
	made, leaks := 0, []string{}
	var users errgroup.Group
	for range 8 {
		users.Go(func() error {
			for time.Now().Before(until) {
				claim, err := s.tryClaim(class)
				if err != nil {
					return err
				}
				vol, err := claim.WaitBound(s.ctx)
				if err != nil {
					return err
				}
				mu.Lock()
				made++
				pvFirst := made%2 == 0
				mu.Unlock()
				if pvFirst {
					if err := vol.DeletePV(s.ctx); err != nil {
						return err
					}
				}
				if err := claim.Delete(s.ctx); err != nil {
					return err
				}
			}
			return nil
		})
	}
	looks, reported := 0, map[string]bool{}
	for ; time.Now().Before(until); looks++ {
		if len(leaks) < 3 && looks%100 == 50 {
			leaks = append(leaks, s.leak(1<<20))
		}
		for _, handle := range suspects(s.report(car)) {
			reported[handle] = true
			if !slices.Contains(leaks, handle) {
				t.Errorf("FALSE LEAK: %s", handle)
			}
		}
	}
	s.must(users.Wait())
	s.eventually("all that was made is gone", func() bool { return len(s.onDiskAll()) == len(leaks) })
	s.waitSuspects(car, leaks...)
	last := s.report(car)
	t.Logf("%d volumes were made and deleted; %d looks at the report, %d leaks, %d of them found meanwhile", made, looks, len(leaks), len(reported))
	if made < 20 || len(leaks) < 3 || last.Failure != "" && strings.Contains(last.Failure, "comes to no end") {
		t.Errorf("this test shows little: %+v", last)
	}
}

//go:build unix

package e2e

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

// eager are flags that let a failed deletion be tried again soon, so that tests are short.
func eager() []string {
	return []string{"--retry-interval-start=50ms", "--retry-interval-max=500ms", "--in-flight-quiet-period=2s"}
}

// events returns the Events about a PV with this reason.
func (s *stage) events(vol *storage.Volume, reason string) []v1.Event {
	s.t.Helper()
	list, err := s.client.CoreV1().Events(metav1.NamespaceDefault).List(s.ctx, metav1.ListOptions{
		FieldSelector: fields.Set{"involvedObject.name": vol.Name, "reason": reason}.String(),
	})
	s.must(err)
	return list.Items
}

func (s *stage) waitEvent(vol *storage.Volume, reason, text string) {
	s.t.Helper()
	ctx := s.soon()
	for {
		for _, e := range s.events(vol, reason) {
			if strings.Contains(e.Message, text) {
				return
			}
		}
		select {
		case <-ctx.Done():
			s.t.Fatalf("no event %s with %q about PV %s; there are %+v", reason, text, vol.Name, s.events(vol, reason))
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// waitCalls waits until the driver answered this many DeleteVolume calls for the volume.
func (s *stage) waitCalls(vol *storage.Volume, n int) {
	s.t.Helper()
	ctx := s.soon()
	for len(s.deletions(vol.Handle)) < n {
		select {
		case <-ctx.Done():
			s.t.Fatalf("the driver received %d DeleteVolume calls for PV %s, want %d", len(s.deletions(vol.Handle)), vol.Name, n)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func TestADriverThatFails(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		rule  faults.Rule
		calls int
		event string
	}{
		"Internal twice: tried again until it succeeds": {
			faults.Rule{First: 2, Action: faults.Fail, Code: "Internal", Message: "the array is rebooting"}, 3, "the array is rebooting"},
		"Aborted twice: tried again, not worth an event": {
			faults.Rule{First: 2, Action: faults.Fail, Code: "Aborted", Message: "in progress"}, 3, ""},
		"deleted, but the answer says Unavailable: asked once more": {
			faults.Rule{First: 1, Action: faults.Fail, AfterWork: true, Code: "Unavailable", Message: "connection lost"}, 2, "connection lost"},
		"hangs past the deadline: asked once more": {
			faults.Rule{First: 1, Action: faults.Hang}, 2, "DeadlineExceeded"},
		"FailedPrecondition once: tried again, slowly": {
			faults.Rule{First: 1, Action: faults.Fail, Code: "FailedPrecondition", Message: "the volume has snapshots"}, 2, "the volume has snapshots"},
		"NotFound is an error, as the specification has it": {
			faults.Rule{First: 1, Action: faults.Fail, Code: "NotFound", Message: "never heard of it"}, 2, "never heard of it"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.sidecar(append(eager(), "--timeout=1s")...)
			vol := s.make(storage.Spec{})
			s.waitProtected(vol)
			c.rule.Method = "DeleteVolume"
			s.must(s.driver.SetFaults(s.ctx, faults.Plan{Rules: []faults.Rule{c.rule}}))
			s.must(vol.DeleteClaim(s.ctx))
			s.must(vol.WaitGone(s.soon()))
			s.expectDeleted(vol, c.calls)
			if c.event != "" {
				s.waitEvent(vol, "VolumeFailedDelete", c.event)
			} else if events := s.events(vol, "VolumeFailedDelete"); len(events) != 0 {
				t.Errorf("events about what ends by itself: %+v", events)
			}
		})
	}
}

func TestAVolumeThatCannotBeDeletedKeepsItsPVAndCanBeRescued(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	car := s.sidecar(eager()...)
	vol := s.make(storage.Spec{})
	s.waitProtected(vol)
	s.must(s.driver.SetFaults(s.ctx, faults.Plan{Rules: []faults.Rule{
		{Method: "DeleteVolume", Volume: vol.Handle, Action: faults.Fail, Code: "Internal"},
	}}))
	s.must(vol.DeleteClaim(s.ctx))
	s.waitCalls(vol, 3)
	s.waitPV(vol, "protected and not terminating", func(pv *v1.PersistentVolume) bool { return protected(pv) && pv.DeletionTimestamp == nil })
	s.fence() // the others go on

	metrics, err := car.Get(s.ctx, "/metrics")
	s.must(err)
	for _, want := range []string{
		`controller_persistentvolume_delete_failed_total{class=""}`,
		`controller_persistentvolume_delete_total{class=""} 1`,
		`csi_reclaimer_waiting_pvs{driver_name="` + s.Driver + `",reason="VolumeFailedDelete"} 1`,
		`csi_sidecar_operations_seconds_count{driver_name="` + s.Driver + `",grpc_status_code="Internal",method_name="/csi.v1.Controller/DeleteVolume"}`,
		`workqueue_depth{name="reclaim"}`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("/metrics has no line with %s", want)
		}
	}

	s.must(vol.SetPolicy(s.ctx, v1.PersistentVolumeReclaimRetain))
	s.waitPV(vol, "without our finalizer", func(pv *v1.PersistentVolume) bool { return !protected(pv) })
	s.must(s.driver.ClearFaults(s.ctx))
	s.fence()
	if !s.onDisk(vol.Handle) {
		t.Error("WRONG DELETE: the volume was deleted after it was turned to Retain")
	}
}

func TestADriverThatGoesAwayAndReturns(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	car := s.sidecar(eager()...)
	before := car.PID()
	vol := s.make(storage.Spec{})
	s.waitProtected(vol)
	s.driver.Kill()
	s.must(vol.DeleteClaim(s.ctx))
	s.waitEvent(vol, "VolumeFailedDelete", "")
	s.must(s.driver.Restart(s.ctx))
	s.must(vol.WaitGone(s.soon()))
	s.expectDeleted(vol, 1)
	if car.PID() != before || car.Err() != nil {
		t.Errorf("the sidecar did not stay: pid %d, then %d (%v)", before, car.PID(), car.Err())
	}
}

func TestADriverThatComesUpLateIsWaitedFor(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	vol := s.make(storage.Spec{})
	s.driver.Kill()
	car := s.launch()
	s.must(car.WaitLog(s.soon(), "Waiting for the CSI driver's socket"))
	if _, err := car.Get(s.ctx, "/healthz"); err != nil {
		t.Errorf("a sidecar that waits is alive: %v", err)
	}
	if _, err := car.Get(s.ctx, "/readyz"); err == nil || !strings.Contains(err.Error(), "waiting for the CSI driver") {
		t.Errorf("a sidecar that waits is not ready, and says why: %v", err)
	}
	s.must(s.driver.Restart(s.ctx, "--ready-after=1s"))
	s.must(car.WaitReady(s.soon()))
	s.waitProtected(vol)
	s.must(vol.DeletePV(s.ctx))
	s.must(vol.DeleteClaim(s.ctx))
	s.must(vol.WaitGone(s.soon()))
	s.expectDeleted(vol, 1)
}

func TestTheSecretForADeletion(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.sidecar(eager()...)
	named := func(secret string) storage.Spec {
		return storage.Spec{Dynamic: true, Change: func(pv *v1.PersistentVolume) {
			pv.Annotations["volume.kubernetes.io/provisioner-deletion-secret-name"] = secret
			pv.Annotations["volume.kubernetes.io/provisioner-deletion-secret-namespace"] = s.Namespace
		}}
	}
	_, err := s.client.CoreV1().Secrets(s.Namespace).Create(s.ctx, &v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "array"}, StringData: map[string]string{"password": "x"},
	}, metav1.CreateOptions{})
	s.must(err)

	vol := s.make(named("array"))
	s.waitProtected(vol)
	s.must(vol.DeleteClaim(s.ctx))
	// The shipped rules do not grant secrets: not readable is not absent.
	s.waitEvent(vol, "Unreadable", "forbidden")
	s.expectKept(vol)

	s.grantSecrets()
	s.must(vol.WaitGone(s.soon()))
	s.expectDeleted(vol, 1)
	if keys := s.deletions(vol.Handle)[0].SecretKeys; !slices.Equal(keys, []string{"password"}) {
		t.Errorf("the driver got the secrets %v, want the password", keys)
	}

	without := s.make(named("gone"))
	s.waitProtected(without)
	s.must(without.DeleteClaim(s.ctx))
	s.must(without.WaitGone(s.soon()))
	s.expectDeleted(without, 1)
	s.waitEvent(without, "SecretNotFound", "gone")

	// The API server answers 404 for this name, too; but it never was a Secret's.
	never := s.make(named("Not_A_Name"))
	s.waitProtected(never)
	s.must(never.DeleteClaim(s.ctx))
	s.waitEvent(never, "SecretUnclear", "cannot be the name of a Secret")
	if _, err := s.client.CoreV1().Secrets(s.Namespace).Get(s.ctx, "Not_A_Name", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the API server answers %v, not 404", err)
	}
	s.expectKept(never)
}

// grantSecrets lets the sidecar read the secrets of its namespace, as an operator would.
func (s *stage) grantSecrets() {
	s.t.Helper()
	_, err := s.client.RbacV1().Roles(s.Namespace).Create(s.ctx, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "secrets"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}}},
	}, metav1.CreateOptions{})
	s.must(err)
	_, err = s.client.RbacV1().RoleBindings(s.Namespace).Create(s.ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "secrets"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "secrets"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: s.Namespace, Name: "csi-reclaimer"}},
	}, metav1.CreateOptions{})
	s.must(err)
}

func TestSIGTERMLetsADeletionInHandEnd(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	car := s.sidecar("--leader-election", "--leader-election-namespace="+s.Namespace)
	vol := s.make(storage.Spec{})
	s.waitProtected(vol)
	s.must(s.driver.SetFaults(s.ctx, faults.Plan{Rules: []faults.Rule{
		{Method: "DeleteVolume", Action: faults.Delay, Delay: faults.Duration(2 * time.Second)},
	}}))
	s.must(vol.DeleteClaim(s.ctx))
	s.waitCalls(vol, 1)
	s.must(car.Terminate())
	ctx, cancel := context.WithTimeout(s.ctx, 5*time.Second)
	defer cancel()
	s.must(vol.WaitGone(ctx))
	s.expectDeleted(vol, 1)
	lease, err := s.client.CoordinationV1().Leases(s.Namespace).List(s.ctx, metav1.ListOptions{LabelSelector: "!" + inflight.LabelLog})
	s.must(err)
	if len(lease.Items) != 1 || (lease.Items[0].Spec.HolderIdentity != nil && *lease.Items[0].Spec.HolderIdentity != "") {
		t.Errorf("the Lease was not given up: %+v", lease.Items)
	}
}

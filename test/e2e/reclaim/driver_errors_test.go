//go:build unix

package reclaim

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

func TestDriverErrorsAreRetried(t *testing.T) {
	fixture.NewestOnly(t, fixture.AboutDriver)
	t.Parallel()
	cases := map[string]struct {
		rule  faults.Rule
		calls int
		event string
	}{
		"Internal twice: tried again until it succeeds": {
			faults.Rule{First: 2, Action: faults.Fail, Code: "Internal", Message: "the array is rebooting"}, 3,
			"the array is rebooting"},
		"Aborted twice: tried again, not worth an event": {
			faults.Rule{First: 2, Action: faults.Fail, Code: "Aborted", Message: "in progress"}, 3, ""},
		"deleted, but the answer says Unavailable: asked once more": {
			faults.Rule{First: 1, Action: faults.Fail, AfterWork: true, Code: "Unavailable", Message: "connection lost"}, 2,
			"connection lost"},
		"hangs past the deadline: asked once more": {
			faults.Rule{First: 1, Action: faults.Hang}, 2, "DeadlineExceeded"},
		"FailedPrecondition once: tried again, slowly": {
			faults.Rule{First: 1, Action: faults.Fail, Code: "FailedPrecondition", Message: "the volume has snapshots"}, 2,
			"the volume has snapshots"},
		"NotFound is an error, as the specification has it": {
			faults.Rule{First: 1, Action: faults.Fail, Code: "NotFound", Message: "never heard of it"}, 2, "never heard of it"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			flags := fixture.FastRetries()
			if c.rule.Action == faults.Hang {
				suite.Deep(t, suite.WaitsForClock)
				flags = append(flags, "--timeout=20s") // a second call must not exceed it, also on a busy machine
			}
			t.Parallel()
			env := newEnvironment(t)
			env.StartSidecar(flags...)
			vol := env.MakeVolume(objects.Spec{})
			env.WaitProtected(vol)
			c.rule.Method = "DeleteVolume"
			env.Must(env.MockDriver.SetFaults(env.Ctx, faults.Plan{Rules: []faults.Rule{c.rule}}))
			env.Must(vol.DeleteClaim(env.Ctx))
			env.Must(vol.WaitGone(env.WithTimeout()))
			env.ExpectDeleted(vol, c.calls)
			if c.event != "" {
				env.WaitPVEvent(vol, "VolumeFailedDelete", c.event)
			} else if events := env.PVEvents(vol, "VolumeFailedDelete"); len(events) != 0 {
				t.Errorf("events about what ends by itself: %+v", events)
			}
		})
	}
}

func TestUndeletableVolumeKeepsPVAndCanBeRescued(t *testing.T) {
	t.Parallel()
	env := newEnvironment(t)
	car := env.StartSidecar(fixture.FastRetries()...)
	vol := env.MakeVolume(objects.Spec{})
	env.WaitProtected(vol)
	env.Must(env.MockDriver.SetFaults(env.Ctx, faults.Plan{Rules: []faults.Rule{
		{Method: "DeleteVolume", Volume: vol.Handle, Action: faults.Fail, Code: "Internal"},
	}}))
	env.Must(vol.DeleteClaim(env.Ctx))
	env.WaitDeleteCalls(vol, 3)
	env.WaitPV(vol, "protected and not terminating",
		func(pv *v1.PersistentVolume) bool { return fixture.HasFinalizer(pv) && pv.DeletionTimestamp == nil })
	env.Barrier() // the others go on

	env.WaitMetric(car, `controller_persistentvolume_delete_total{class=""}`, "1")
	env.WaitMetric(car, `csi_reclaimer_waiting_pvs{driver_name="`+env.Driver+`",reason="VolumeFailedDelete"}`, "1")
	metrics, err := car.Get(env.Ctx, "/metrics")
	env.Must(err)
	for _, want := range []string{
		`controller_persistentvolume_delete_failed_total{class=""}`,
		`csi_sidecar_operations_seconds_count{driver_name="` + env.Driver +
			`",grpc_status_code="Internal",method_name="/csi.v1.Controller/DeleteVolume"}`,
		`workqueue_depth{name="reclaim"}`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("/metrics has no line with %s", want)
		}
	}

	env.Must(vol.SetPolicy(env.Ctx, v1.PersistentVolumeReclaimRetain))
	env.WaitPV(vol, "without our finalizer", func(pv *v1.PersistentVolume) bool { return !fixture.HasFinalizer(pv) })
	env.Must(env.MockDriver.ClearFaults(env.Ctx))
	env.Barrier()
	if !env.OnDisk(vol.Handle) {
		t.Error("WRONG DELETE: the volume was deleted after it was turned to Retain")
	}
}

func TestDriverOutageDelaysDeletion(t *testing.T) {
	fixture.NewestOnly(t, fixture.AboutDriver)
	t.Parallel()
	env := newEnvironment(t)
	car := env.StartSidecar(fixture.FastRetries()...)
	before := car.PID()
	vol := env.MakeVolume(objects.Spec{})
	env.WaitProtected(vol)
	env.MockDriver.Kill()
	env.Must(vol.DeleteClaim(env.Ctx))
	env.WaitPVEvent(vol, "VolumeFailedDelete", "")
	env.Must(env.MockDriver.Restart(env.Ctx))
	env.Must(vol.WaitGone(env.WithTimeout()))
	env.ExpectDeleted(vol, 1)
	if car.PID() != before || car.Err() != nil {
		t.Errorf("the sidecar did not stay: pid %d, then %d (%v)", before, car.PID(), car.Err())
	}
}

func TestSidecarWaitsForDriverAtStart(t *testing.T) {
	fixture.NewestOnly(t, fixture.AboutDriver)
	t.Parallel()
	env := newEnvironment(t)
	vol := env.MakeVolume(objects.Spec{})
	env.MockDriver.Kill()
	car := env.LaunchSidecar()
	env.Must(car.WaitLog(env.WithTimeout(), "Waiting for the CSI driver's socket"))
	if _, err := car.Get(env.Ctx, "/healthz"); err != nil {
		t.Errorf("a sidecar that waits is alive: %v", err)
	}
	if _, err := car.Get(env.Ctx, "/readyz"); err == nil || !strings.Contains(err.Error(), "waiting for the CSI driver") {
		t.Errorf("a sidecar that waits is not ready, and says why: %v", err)
	}
	env.Must(env.MockDriver.Restart(env.Ctx, "--ready-after=1s"))
	env.Must(car.WaitReady(env.WithTimeout()))
	env.WaitProtected(vol)
	env.Must(vol.DeletePV(env.Ctx))
	env.Must(vol.DeleteClaim(env.Ctx))
	env.Must(vol.WaitGone(env.WithTimeout()))
	env.ExpectDeleted(vol, 1)
}

//go:build unix

package reclaim

import (
	"os"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

// TestUnusualHandlesAndNames creates PVs with unexpected but valid names and handles. The driver knows none of the
// handles and answers OK; its ledger records the requests.
func TestUnusualHandlesAndNames(t *testing.T) {
	fixture.Begin(t, suite.Load, fixture.AboutProgram)
	const forged = `E0101 00:00:00.000000       1 main.go:1] "Forged"`
	env := &environment{fixture.New(t)}
	// JSON cannot carry invalid UTF-8; protobuf can, and the API server keeps it.
	config := rest.CopyConfig(env.Plane.Admin())
	config.ContentType = "application/vnd.kubernetes.protobuf"
	var err error
	env.Client, err = kubernetes.NewForConfig(config)
	env.Must(err)
	class := func(name string) func(*v1.PersistentVolume) {
		return func(pv *v1.PersistentVolume) {
			pv.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": env.Driver,
				v1.BetaStorageClassAnnotation: name}
		}
	}
	unique := rand.String(8)
	specs := map[string]objects.Spec{
		"a path":                     {Handle: "../../" + unique + "/%2e%2e/vol"},
		"lines, one of them a log's": {Handle: unique + "\n" + forged + "\n"},
		"control characters":         {Handle: unique + "\x00\x1b[31m\x7f\r"},
		"any language":               {Handle: unique + " диск 磁盘 \U0001F4BE \u202e"},
		"longer than any Event":      {Handle: unique + strings.Repeat("\U0001F4BE", 32<<10)},
		"the longest name of a PV":   {Handle: unique + "-long", Name: strings.Repeat(unique+".", 28) + "a"},
		"a class that is not UTF-8":  {Handle: unique + "-class", Change: class("\xff\xfe")},
		"a class with lines":         {Handle: unique + "-lines", Change: class("a\"b\n" + forged)},
	}
	env.SetFaults(faults.Rule{Method: "DeleteVolume", First: 1, PerVolume: true, Action: faults.Fail,
		Code: "FailedPrecondition", Message: "try\n" + forged})
	car := env.StartSidecar(append(fixture.FastRetries(), "-v=7")...)
	vols := map[string]*objects.Volume{}
	for name, spec := range specs {
		vols[name] = env.MakeVolume(spec)
		env.WaitProtected(vols[name])
	}
	kept, err := vols["a class that is not UTF-8"].PV(env.Ctx)
	env.Must(err)
	if class := kept.Annotations[v1.BetaStorageClassAnnotation]; class != "\xff\xfe" {
		t.Errorf("the API server made %q of what is not UTF-8: nothing is tried here", class)
	}
	for name, vol := range vols {
		if len(name)%2 == 0 {
			env.Must(vol.DeletePV(env.Ctx))
		}
		env.Must(vol.DeleteClaim(env.Ctx))
	}
	for name, vol := range vols {
		if err := vol.WaitGone(env.WithTimeout()); err != nil {
			t.Fatalf("%s: %.500s", name, err)
		}
		if got := env.countDeletionsLike(vol.Handle); got != 2 {
			t.Errorf("%s: the driver got %d DeleteVolume calls for this handle, want one that it refuses and one more", name,
				got)
		}
		env.WaitPVEvent(vol, "VolumeFailedDelete", "")
		for _, e := range env.PVEvents(vol, "VolumeFailedDelete") {
			if len(e.Message) > 1024 {
				t.Errorf("%s: an Event of %d bytes", name, len(e.Message))
			}
		}
	}
	env.WaitMetric(car, `csi_sidecar_operations_seconds_count{driver_name="`+env.Driver+
		`",grpc_status_code="OK",method_name="/csi.v1.Controller/DeleteVolume"}`, "8")
	env.Must(car.Terminate())
	log, err := os.ReadFile(car.LogPath())
	env.Must(err)
	if !strings.Contains(string(log), "Forged") || strings.Contains(string(log), "\nE0101") {
		t.Error("the log holds an entry that the sidecar did not make, or nothing of it")
	}
}

// countDeletionsLike counts the DeleteVolume calls for a handle. The ledger keeps only the handle's first kilobyte.
func (env *environment) countDeletionsLike(handle string) (n int) {
	env.T.Helper()
	calls, err := env.MockDriver.Calls("DeleteVolume")
	env.Must(err)
	for _, call := range calls {
		if strings.HasPrefix(call.Volume, handle[:min(len(handle), 1000)]) {
			n++
		}
	}
	return n
}

// TestPVRemovedDuringDeleteVolumeCausesNoSecondCall removes the finalizer while the driver executes DeleteVolume.
func TestPVRemovedDuringDeleteVolumeCausesNoSecondCall(t *testing.T) {
	env := begin(t, fixture.AboutRequests)
	env.StartSidecar(fixture.FastRetries()...)
	vol := env.MakeProtected(objects.Spec{})
	env.SetFaults(faults.Rule{Method: "DeleteVolume", Volume: vol.Handle, Action: faults.Block})
	env.DeletePVFirst(vol)
	env.WaitDeleteCalls(vol, 1)
	env.RemoveFinalizers(vol)
	env.Must(vol.WaitGone(env.WithTimeout()))
	env.Must(env.MockDriver.ClearFaults(env.Ctx))
	env.Eventually("the driver has answered", func() bool { return !env.OnDisk(vol.Handle) })
	env.Barrier()
	env.ExpectDeleted(vol, 1)
	if events := env.PVEvents(vol, "ReclaimAbandoned"); len(events) > 0 {
		t.Errorf("an Event about a volume that is gone: %s", events[0].Message)
	}
}

// TestPVNameIsReused creates a PV under the name of another PV that is being reclaimed.
func TestPVNameIsReused(t *testing.T) {
	env := begin(t)
	env.StartSidecar(fixture.FastRetries()...)
	first := env.MakeProtected(objects.Spec{})
	env.DeletePVFirst(first)
	env.Must(first.WaitGone(env.WithTimeout()))
	second := env.MakeVolume(objects.Spec{Name: first.Name})
	if second.PVUID == first.PVUID || second.Handle == first.Handle {
		t.Fatalf("not another PV: %+v %+v", first, second)
	}
	env.WaitProtected(second)
	env.Barrier()
	env.ExpectDeleted(first, 1)
	env.ExpectKept(second)
	env.Must(second.DeleteClaim(env.Ctx))
	env.ExpectReclaimed(second, 1)
}

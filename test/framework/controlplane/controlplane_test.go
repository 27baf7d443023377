//go:build unix

package controlplane

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// components returns the running components.
func (cp *ControlPlane) components() []*Component {
	var running []*Component
	for _, c := range []*Component{cp.Etcd, cp.APIServer, cp.ControllerManager, cp.Scheduler} {
		if c != nil {
			running = append(running, c)
		}
	}
	return running
}

func TestTwoVersionsRunSideBySide(t *testing.T) {
	newer := sharedControlPlane(t)
	older := start(t, V1_30, Options{})
	for cp, want := range map[*ControlPlane]string{newer: "v1.37.", older: "v1.30."} {
		version := must.Get(clientFor(t, cp.Admin()).Discovery().ServerVersion())(t)
		if !strings.HasPrefix(version.GitVersion, want) || "v"+version.Major+"."+version.Minor+"." != want {
			t.Errorf("server version %+v, want %s", version, want)
		}
	}
	components := older.components()
	must.OK(t, older.Stop())
	for _, c := range components {
		if c.Running() {
			t.Errorf("%s runs after Stop", c.Name())
		}
	}
	if _, err := os.Stat(older.Dir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("folder after Stop: %v, want none", err)
	}
	if !newer.APIServer.Running() {
		t.Error("the other control plane ended too")
	}
}

func TestComponentsRestartOnTheirData(t *testing.T) {
	t.Parallel()
	cp := start(t, Newest, Options{Scheduler: true})
	client := clientFor(t, cp.Admin())
	volume := hostPathVolume("survivor", "nowhere")
	if _, err := client.CoreV1().PersistentVolumes().Create(t.Context(), volume, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, c := range cp.components() {
		before := c.PID()
		c.Kill()
		if c.Running() {
			t.Errorf("%s runs after Kill", c.Name())
		}
		must.OK(t, c.Restart(t.Context()))
		if c.PID() == before || !c.Running() {
			t.Errorf("%s: process %d after Restart, %d before, running %t", c.Name(), c.PID(), before, c.Running())
		}
		// An API server whose etcd was replaced under it needs a moment to reconnect.
		eventually(t, "read the volume after restart of "+c.Name(), func(ctx context.Context) error {
			_, err := client.CoreV1().PersistentVolumes().Get(ctx, "survivor", metav1.GetOptions{})
			return err
		})
	}
	if err := cp.ControllerManager.Restart(t.Context(), "--no-such-flag"); err == nil {
		t.Error("a flag for one run does not reach it")
	}
	if err := cp.ControllerManager.Restart(t.Context()); err != nil {
		t.Errorf("a flag for one run stays: %v", err)
	}
	// The controller manager was restarted after the API server it knew: it still does its work.
	namespace(t, cp)
}

func TestPausedAPIServerAnswersAfterResume(t *testing.T) {
	t.Parallel()
	cp := start(t, Newest, Options{NoControllerManager: true})
	must.OK(t, cp.APIServer.Pause())
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := cp.APIServer.probe(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("probe of a paused API server: %v, want DeadlineExceeded", err)
	}
	must.OK(t, cp.APIServer.Resume())
	eventually(t, "probe of the resumed API server", cp.APIServer.probe)
	if err := cp.APIServer.Stop(testTimeout); err != nil {
		t.Errorf("graceful stop: %v", err)
	}
}

func TestPortsInUseAreReplaced(t *testing.T) {
	t.Parallel()
	taken := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer func() { _ = taken.Close() }()
	binary := must.Get(Build(t.Context(), Newest, os.Stderr))(t)
	calls := 0
	cp, err := startBinary(t.Context(), binary, Newest, Options{NoControllerManager: true}, func(n int) ([]int, error) {
		calls++
		ports, err := FreePorts(n)
		if calls == 1 && err == nil {
			ports[portAPIServer] = taken.Addr().(*net.TCPAddr).Port
		}
		return ports, err
	})
	if err != nil {
		t.Fatal(err)
	}
	if calls != 2 {
		t.Errorf("ports chosen %d times, want 2", calls)
	}
	if err := cp.Stop(); err != nil {
		t.Error(err)
	}
}

func TestFailedStartReportsCauseAndCleansUp(t *testing.T) {
	t.Parallel()
	binary := must.Get(Build(t.Context(), Newest, os.Stderr))(t)
	dir := filepath.Join(t.TempDir(), "controlplane")
	_, err := startBinary(t.Context(), binary, Newest,
		Options{Dir: dir, APIServerArgs: []string{"--no-such-flag"}}, FreePorts)
	if err == nil || !strings.Contains(err.Error(), "kube-apiserver") || !strings.Contains(err.Error(), "no-such-flag") {
		t.Errorf("error %v, want the component and its words", err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("folder after a failed start: %v, want none", err)
	}
}

// playKilledRun starts a control plane, says where each component answers, and waits to be killed.
func playKilledRun() {
	cp, err := Start(context.Background(), Newest, Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for _, c := range cp.components() {
		fmt.Println("component", c.health)
	}
	fmt.Println("folder", cp.Dir())
	time.Sleep(time.Hour)
}

func TestKilledRunLeavesNoProcess(t *testing.T) {
	t.Parallel()
	run := exec.Command(os.Args[0])
	temporary := t.TempDir() // the sweep is for the whole temporary folder: one of this test's own
	run.Env = append(os.Environ(), roleVariable+"=killed run", "TMPDIR="+temporary)
	run.Stderr = os.Stderr
	stdout := must.Get(run.StdoutPipe())(t)
	must.OK(t, run.Start())
	t.Cleanup(func() { _ = run.Process.Kill(); _ = run.Wait() })

	var components []*Component
	dir := ""
	for lines := bufio.NewScanner(stdout); dir == "" && lines.Scan(); {
		kind, value, _ := strings.Cut(lines.Text(), " ")
		switch kind {
		case "component":
			components = append(components, &Component{health: value})
		case "folder":
			dir = value
		}
	}
	if len(components) != 3 || filepath.Dir(dir) != temporary {
		t.Fatalf("the run has %d components and folder %q, want 3 and one in %q", len(components), dir, temporary)
	}
	if removeOrphans(temporary); !exists(dir) {
		t.Error("the folder of a living run was removed")
	}
	must.OK(t, run.Process.Kill())
	for _, c := range components {
		eventually(t, "end of "+c.health, func(ctx context.Context) error {
			if err := c.probe(ctx); !strings.Contains(fmt.Sprint(err), "connection refused") {
				return fmt.Errorf("%w: it answers %s", errNotYet, fmt.Sprint(err))
			}
			return nil
		})
	}
	eventually(t, "removal of the folder", func(context.Context) error {
		removeOrphans(temporary)
		if exists(dir) {
			return errNotYet
		}
		return nil
	})
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// A claim and its volume that are both Bound show that the controllers work.
func TestControllerManagerBindsClaim(t *testing.T) { testBindsClaim(t, sharedControlPlane(t)) }

func TestLeanControlPlaneBindsClaim(t *testing.T) {
	testBindsClaim(t, start(t, Newest, Options{Lean: true, AuditLog: true}))
}

func testBindsClaim(t *testing.T, cp *ControlPlane) {
	t.Helper()
	client := clientFor(t, cp.Admin())
	ns := namespace(t, cp)
	volumes, claims := client.CoreV1().PersistentVolumes(), client.CoreV1().PersistentVolumeClaims(ns)

	if _, err := volumes.Create(t.Context(), hostPathVolume(ns, ns), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	class := ""
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "data"},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, VolumeName: ns, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
	if _, err := claims.Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "claim and volume bound", func(ctx context.Context) error {
		claim, err := claims.Get(ctx, "data", metav1.GetOptions{})
		if err != nil {
			return err
		}
		volume, err := volumes.Get(ctx, ns, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if claim.Status.Phase != corev1.ClaimBound || volume.Status.Phase != corev1.VolumeBound {
			return fmt.Errorf("%w: claim %s, volume %s", errNotYet, claim.Status.Phase, volume.Status.Phase)
		}
		return nil
	})
	// Each controller acts as itself, with its own rights.
	eventually(t, "the binder in the audit log", func(context.Context) error {
		binds, err := cp.AuditEvents(func(e AuditEvent) bool {
			return e.User == "system:serviceaccount:kube-system:persistent-volume-binder" &&
				e.Resource == "persistentvolumes" && e.Name == ns
		})
		if err == nil && len(binds) == 0 {
			err = errNotYet
		}
		return err
	})
}

// hostPathVolume is a volume that only a claim in the namespace may bind.
func hostPathVolume(name, namespace string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			ClaimRef:                      &corev1.ObjectReference{Namespace: namespace, Name: "data"},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: "/nonexistent"},
			},
		},
	}
}

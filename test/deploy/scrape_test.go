//go:build unix

package deploy

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/rbac"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// served holds the metrics that a program answers with, and the labels of each.
type served map[string][]string

// scrape returns what both programs serve, by the program's name, with all that they can do switched on. Some figures
// are there only once something happened, so it does.
func scrape(t *testing.T) map[string]served {
	t.Helper()
	// Compiling takes longer than anything else here on a busy machine.
	for _, name := range []string{"csi-reclaimer", guard} {
		if _, err := program.Build(t.Context(), name, os.Stderr); err != nil {
			t.Fatal(err)
		}
	}
	ctx := patiently(t)
	there := map[string]served{}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	namespace, err := cluster.CreateNamespace(ctx, "scrape-")
	must(err)
	driver := mockdriver.ForTest(t, mockdriver.Options{Name: "scrape.csi-reclaimer.io", Profile: "no-attach"})
	maker := objects.Maker{Client: client, Driver: driver.Name(), Namespace: namespace, CSI: driver.Controller()}
	must(rbac.GrantSidecar(ctx, client, namespace, "csi-reclaimer", "owner"))
	must(rbac.GrantCapacity(ctx, client, namespace, "csi-reclaimer"))
	must(rbac.GrantLeakCheck(ctx, client, namespace, "csi-reclaimer"))
	must(rbac.GrantGuard(ctx, client, namespace, guard))
	forgetGuard(t)

	car, err := program.StartSidecar(ctx, program.SidecarOptions{
		Address: driver.Socket(), Kubeconfig: kubeconfigOf(t, namespace, "csi-reclaimer"), Progress: os.Stderr,
		Args: []string{"--enable-capacity", "--capacity-ownerref-level=-1", "--brake-deletions=9", "--leak-check-interval=1m",
			"--leader-election"},
		Env: []string{"NAMESPACE=" + namespace, "POD_NAMESPACE=" + namespace, "POD_NAME=none"},
	})
	must(err)
	stopLater(t, car)
	keeper, err := program.Start(ctx, program.Options{
		Name: guard, Progress: os.Stderr, Env: []string{"POD_NAMESPACE=" + namespace},
		Args: []string{"--kubeconfig=" + kubeconfigOf(t, namespace, guard),
			"--controllers=*,pvc-protection,pv-protection,pod-safety", "--webhook-address=127.0.0.1:0"},
	})
	must(err)
	stopLater(t, keeper)

	_, err = maker.MakeClass(ctx, objects.Class{Name: "scrape"})
	must(err)
	// One volume is made and deleted; one cannot be deleted; one cannot be made.
	made := waitBound(ctx, t, maker, "made")
	stays := waitBound(ctx, t, maker, "stays")
	must(driver.SetFaults(ctx, faults.Plan{Rules: []faults.Rule{
		{Method: "CreateVolume", Action: faults.Fail, Code: "Internal"},
		{Method: "DeleteVolume", Volume: stays.Spec.CSI.VolumeHandle, Action: faults.Fail, Code: "Internal"},
	}}))
	for _, pv := range []*v1.PersistentVolume{made, stays} {
		must(client.CoreV1().PersistentVolumeClaims(namespace).Delete(ctx, pv.Spec.ClaimRef.Name, metav1.DeleteOptions{}))
	}
	_, err = maker.MakeClaim(ctx, objects.ClaimSpec{Name: "never", Class: "scrape"})
	must(err)
	// One, of an in-tree plugin, is being deleted while its claim is there.
	makeInTree(ctx, t, namespace)
	makeHeld(ctx, t, maker)

	for running, last := range map[*program.Program][]string{
		car: {
			"leader_election_master_status", "controller_persistentvolume_delete_total",
			"controller_persistentvolume_delete_failed_total", "csi_reclaimer_waiting_pvs",
			"csi_reclaimer_reports_total", "controller_persistentvolumeclaim_provision_total",
			"controller_persistentvolumeclaim_provision_failed_total",
		},
		keeper: {"leader_election_master_status", "csi_reclaimer_intree_waiting_pvs", "csi_reclaimer_protection_waiting",
			"csi_reclaimer_pod_safety_waiting_pods"},
	} {
		there[map[*program.Program]string{car: "csi-reclaimer", keeper: guard}[running]] = waitMetrics(ctx, t, running, last)
	}
	must(driver.ClearFaults(ctx)) // so that all of it goes
	return there
}

// makeHeld makes a pod that is held and terminating, on a node that nobody runs.
func makeHeld(ctx context.Context, t *testing.T, maker objects.Maker) {
	t.Helper()
	pod, err := maker.MakePod(ctx, objects.PodSpec{Name: "held", Node: "none",
		Change: func(pod *v1.Pod) { pod.Finalizers = []string{podsafety.Finalizer} }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = client.CoreV1().Pods(maker.Namespace).Patch(context.WithoutCancel(ctx), pod.Name, types.MergePatchType,
			[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	})
	if err := pod.Delete(ctx); err != nil {
		t.Fatal(err)
	}
}

// waitMetrics returns what the program serves, once these are among it.
func waitMetrics(ctx context.Context, t *testing.T, running *program.Program, last []string) served {
	t.Helper()
	there := served{}
	line := regexp.MustCompile(`(?m)^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? \S+$`)
	for {
		text, err := running.Get(ctx, "/metrics")
		for _, found := range line.FindAllStringSubmatch(text, -1) {
			there[found[1]] = nil
			for _, label := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(found[2], -1) {
				there[found[1]] = append(there[found[1]], label[1])
			}
		}
		missing := ""
		for _, name := range last {
			if _, is := there[name]; !is {
				missing += " " + name
			}
		}
		if missing == "" && err == nil {
			return there
		}
		select {
		case <-ctx.Done():
			t.Fatalf("without%s: %v\n%s", missing, err, running.LogTail(20))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// waitBound makes a claim and returns the PV that is made for it.
func waitBound(ctx context.Context, t *testing.T, maker objects.Maker, name string) *v1.PersistentVolume {
	t.Helper()
	claim, err := maker.MakeClaim(ctx, objects.ClaimSpec{Name: name, Class: "scrape"})
	if err != nil {
		t.Fatal(err)
	}
	var bound string
	if err := claim.Wait(ctx, "bound", func(c *v1.PersistentVolumeClaim) bool {
		if c == nil || c.Status.Phase != v1.ClaimBound {
			return false
		}
		bound = c.Spec.VolumeName
		return true
	}); err != nil {
		t.Fatal(err)
	}
	pv, err := client.CoreV1().PersistentVolumes().Get(ctx, bound, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return pv
}

// makeInTree makes a bound PV of an in-tree plugin and deletes it, which lasts as long as its claim.
func makeInTree(ctx context.Context, t *testing.T, namespace string) {
	t.Helper()
	maker := objects.Maker{Client: client, Namespace: namespace}
	volume, err := maker.Make(ctx, objects.Spec{Name: "scrape-in-tree", Policy: v1.PersistentVolumeReclaimDelete,
		Handle: "none", Change: func(pv *v1.PersistentVolume) {
			pv.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": "kubernetes.io/host-path"}
			pv.Finalizers = []string{"kubernetes.io/pv-controller"}
			pv.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/nowhere"}}
		}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = client.CoreV1().PersistentVolumeClaims(namespace).Delete(context.WithoutCancel(ctx), volume.ClaimName,
			metav1.DeleteOptions{})
	})
	if err := client.CoreV1().PersistentVolumes().Delete(ctx, volume.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// kubeconfigOf returns a kubeconfig file of a service account.
func kubeconfigOf(t *testing.T, namespace, account string) string {
	t.Helper()
	config, err := cluster.ServiceAccount(patiently(t), namespace, account)
	if err != nil {
		t.Fatal(err)
	}
	path, err := cluster.Kubeconfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func stopLater(t *testing.T, running *program.Program) {
	t.Helper()
	t.Cleanup(func() {
		if err := running.Stop(); err != nil {
			t.Errorf("%v\n%s", err, strings.TrimSpace(running.LogTail(20)))
		}
	})
}

//go:build unix

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/admission"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/explain"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/process"
	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

// pluginProgram is kubectl-reclaim, compiled when it is first needed.
var pluginProgram = sync.OnceValues(func() (string, error) {
	return process.Build(context.Background(), "./cmd/kubectl-reclaim", os.Stderr)
})

// plugin starts kubectl-reclaim as an administrator, whose input is at its end. What it says goes to the log.
func (s *stage) plugin(args ...string) *process.Process {
	s.t.Helper()
	kube := filepath.Join(s.t.TempDir(), "kubeconfig")
	s.must(controlplane.WriteKubeconfig(kube, s.plane.Admin()))
	return s.pluginAs(kube, args...)
}

func (s *stage) pluginAs(kube string, args ...string) *process.Process {
	s.t.Helper()
	binary, err := pluginProgram()
	s.must(err)
	p, err := process.Start(process.Command{Path: binary, Args: append([]string{"--kubeconfig=" + kube, "--namespace=" + s.Namespace}, args...)})
	s.must(err)
	s.t.Cleanup(p.Close)
	return p
}

// ended waits for a program's end and returns what it said.
func (s *stage) ended(p *process.Process) (said string, err error) {
	s.t.Helper()
	select {
	case <-p.Done():
	case <-s.soon().Done():
		s.t.Fatalf("kubectl-reclaim does not end:\n%s", p.LogTail(20))
	}
	return p.LogTail(100), p.Err()
}

// told runs kubectl-reclaim to its end, which is to be in peace.
func (s *stage) told(args ...string) string {
	s.t.Helper()
	said, err := s.ended(s.plugin(args...))
	if err != nil {
		s.t.Fatalf("kubectl-reclaim %q: %v\n%s", args, err, said)
	}
	return said
}

// expectTold checks what was said.
func (s *stage) expectTold(said string, want ...string) {
	s.t.Helper()
	for _, words := range want {
		if !strings.Contains(said, words) {
			s.t.Errorf("%q is not said:\n%s", words, said)
		}
	}
}

// install makes the CSIDriver object that every driver has which is installed.
func (s *stage) install() {
	s.t.Helper()
	attaches := true
	_, err := s.client.StorageV1().CSIDrivers().Create(s.ctx, &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: s.Driver}, Spec: storagev1.CSIDriverSpec{AttachRequired: &attaches},
	}, metav1.CreateOptions{})
	s.must(err)
	s.t.Cleanup(func() { _ = s.client.StorageV1().CSIDrivers().Delete(s.clean(), s.Driver, metav1.DeleteOptions{}) })
}

func TestPluginExplains(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.install()
	s.sidecar(eager()...)

	attached, bound := s.make(storage.Spec{Dynamic: true}), s.make(storage.Spec{})
	kept := s.make(storage.Spec{Policy: v1.PersistentVolumeReclaimRetain})
	s.waitProtected(attached)
	s.waitProtected(bound)
	s.attach(attached)
	s.must(attached.DeletePV(s.ctx))
	s.must(attached.DeleteClaim(s.ctx))
	s.must(kept.DeleteClaim(s.ctx))
	s.waitEvent(attached, "Attached", "")
	s.waitPV(kept, "released", isReleased)
	gone := "gone-" + rand.String(8) + ".csi-reclaimer.io"
	stuck := s.make(storage.Spec{Handle: "vol-of-a-driver-that-is-gone", Unclaimed: true, Change: func(pv *v1.PersistentVolume) {
		pv.Spec.CSI.Driver = gone
		pv.Finalizers = []string{"external-attacher/" + strings.ReplaceAll(gone, ".", "-")}
	}})
	s.must(stuck.DeletePV(s.ctx))

	said := s.told("explain", "pv/"+attached.Name)
	s.expectTold(said, "PV "+attached.Name+" is being deleted since", "waits (Attached)", "VolumeAttachment csi-"+attached.Name,
		"node a-node-of-another-cluster (gone from the cluster)", s.Namespace+"/"+attached.Name+", gone", volume.Finalizer+": csi-reclaimer", "Said ")
	said = s.told("explain", "pv/"+kept.Name)
	s.expectTold(said, "is released (PolicyKeepsVolume)", "To delete the volume too: kubectl patch pv "+kept.Name, "/spec/claimRef")
	said = s.told("explain", "pv/"+stuck.Name)
	s.expectTold(said, "is stuck: nobody takes external-attacher/", "driver "+gone+" is gone", "kubectl patch pv "+stuck.Name)
	said = s.told("explain", "pvc/"+bound.ClaimName)
	s.expectTold(said, "Claim "+s.Namespace+"/"+bound.ClaimName+" is bound, with PV "+bound.Name, "PV "+bound.Name+" is bound (Bound)")

	said, err := s.ended(s.plugin("explain", "pv/nobody-has-this-name"))
	if err == nil {
		t.Errorf("a PV that is not there is explained:\n%s", said)
	}
	s.expectTold(said, `read PV "nobody-has-this-name"`, "not found", "next: ")

	s.status(attached)
	s.explainsWithFewRights(bound)
	s.explainsWithTheRightsOfTheDocs(bound)
}

// status checks what is told of the stage's driver: three PVs, one of them kept and one that waits.
func (s *stage) status(waiting *storage.Volume) {
	s.t.Helper()
	var status explain.Status
	s.must(json.Unmarshal([]byte(s.told("status", "--driver="+s.Driver, "-o", "json")), &status))
	if len(status.Drivers) != 1 {
		s.t.Fatalf("status tells of %+v", status.Drivers)
	}
	d := status.Drivers[0]
	if d.PVs != 3 || d.Protected != 2 || d.Unprotected != 0 || d.Terminating != 1 || len(d.Waiting) != 1 || d.Waiting["Attached"] != 1 ||
		d.Oldest == nil || d.Oldest.PV != waiting.Name || len(status.Unread) != 0 {
		s.t.Errorf("status tells %+v", d)
	}
	s.expectTold(s.told("status", "--driver="+s.Driver, "-o", "wide"), "OLDEST TERMINATING", "ROLE", s.Driver, "Attached 1", waiting.Name)

	p := s.plugin("status", "--driver="+s.Driver, "--watch", "--interval=50ms", "-o", "yaml")
	s.must(p.WaitLog(s.soon(), "pvs: 3"))
	s.must(s.client.StorageV1().VolumeAttachments().Delete(s.ctx, "csi-"+waiting.Name, metav1.DeleteOptions{}))
	s.must(p.WaitLog(s.soon(), "pvs: 2"))
	s.must(p.Stop(patience))
}

// explainsWithFewRights has somebody ask who may read PVs alone.
func (s *stage) explainsWithFewRights(vol *storage.Volume) {
	s.t.Helper()
	s.grantReader("few", []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"persistentvolumes"}, Verbs: []string{"get"}}})
	kube := s.kubeOf("few")
	var said string
	var err error
	s.eventually("the right is granted", func() bool {
		said, err = s.ended(s.pluginAs(kube, "explain", "pv/"+vol.Name))
		return err == nil
	})
	s.expectTold(said, "PV "+vol.Name+" is bound (Bound)", "Not read", "VolumeAttachments: ", "So it is not known whether the volume is attached", "not readable here")
	said, err = s.ended(s.pluginAs(kube, "status"))
	if err == nil {
		s.t.Errorf("a status without the right to list PVs:\n%s", said)
	}
	s.expectTold(said, "list PVs", "next: ask for the right")
}

// explainsWithTheRightsOfTheDocs has somebody ask who has the ClusterRole of docs/reference/kubectl-reclaim.md: all can be read.
func (s *stage) explainsWithTheRightsOfTheDocs(vol *storage.Volume) {
	s.t.Helper()
	root, err := process.ModuleRoot()
	s.must(err)
	page, err := os.ReadFile(filepath.Join(root, "docs", "reference", "kubectl-reclaim.md"))
	s.must(err)
	_, rest, _ := strings.Cut(string(page), "```yaml\n")
	block, _, found := strings.Cut(rest, "```")
	if !found {
		s.t.Fatal("docs/reference/kubectl-reclaim.md has no ClusterRole")
	}
	var role rbacv1.ClusterRole
	s.must(yaml.Unmarshal([]byte(block), &role))
	s.grantReader("docs", role.Rules)
	kube := s.kubeOf("docs")
	var said string
	s.eventually("the rights are granted", func() bool {
		said, err = s.ended(s.pluginAs(kube, "explain", "pvc/"+vol.ClaimName))
		return err == nil && !strings.Contains(said, "Not read")
	})
	s.expectTold(said, "PV "+vol.Name+" is bound (Bound)")
	said, err = s.ended(s.pluginAs(kube, "status", "--driver="+s.Driver, "-o", "json"))
	s.must(err)
	if strings.Contains(said, "unread") {
		s.t.Errorf("not all is read:\n%s", said)
	}
}

// grantReader makes a service account with these rights in the whole cluster.
func (s *stage) grantReader(account string, rules []rbacv1.PolicyRule) {
	s.t.Helper()
	name := account + "-" + s.Namespace
	rbac := s.client.RbacV1()
	_, err := rbac.ClusterRoles().Create(s.ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{})
	s.must(err)
	_, err = rbac.ClusterRoleBindings().Create(s.ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: s.Namespace, Name: account}}}, metav1.CreateOptions{})
	s.must(err)
	s.t.Cleanup(func() {
		_ = rbac.ClusterRoleBindings().Delete(s.clean(), name, metav1.DeleteOptions{})
		_ = rbac.ClusterRoles().Delete(s.clean(), name, metav1.DeleteOptions{})
	})
}

// kubeOf returns the path of a kubeconfig file for a service account.
func (s *stage) kubeOf(account string) string {
	s.t.Helper()
	config, err := s.plane.ServiceAccount(s.ctx, s.Namespace, account)
	s.must(err)
	kube := filepath.Join(s.t.TempDir(), "kubeconfig")
	s.must(controlplane.WriteKubeconfig(kube, config))
	return kube
}

func TestPluginReleases(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.install()
	car := s.sidecar(append(eager(), "--leader-election", "--leader-election-namespace="+s.Namespace)...)
	const count = 40
	vols := s.makeMany(count, func(i int) storage.Spec { return storage.Spec{Dynamic: i%2 == 0} })
	s.waitAll(vols, "protected", isProtected)
	release := func(more ...string) (string, error) {
		return s.ended(s.plugin(append([]string{"release", "--driver=" + s.Driver}, more...)...))
	}
	refused := func(why string, more ...string) {
		t.Helper()
		said, err := release(more...)
		if err == nil {
			t.Fatalf("it is not refused:\n%s", said)
		}
		s.expectTold(said, why)
		s.waitAll(vols, "still protected", isProtected)
	}
	refused("still works for "+s.Driver, "--yes")
	s.must(car.Terminate())

	said, err := release("--dry-run")
	s.must(err)
	s.expectTold(said, fmt.Sprintf("%d PVs of %s carry a finalizer", count, s.Driver), "and 30 more")
	s.waitAll(vols, "still protected", isProtected)
	refused("it was not confirmed")
	refused("--driver is missing", "--driver=", "--yes")

	p := s.plugin("release", "--driver="+s.Driver, "--yes", "--workers=1", "--qps=5")
	s.must(p.WaitLog(s.soon(), "of 40 released"))
	s.must(p.Signal(syscall.SIGINT))
	said, err = s.ended(p)
	if err == nil {
		t.Fatalf("it was not interrupted:\n%s", said)
	}
	s.expectTold(said, "interrupted: run the same command again")
	left := 0
	for _, pv := range s.allPVs() {
		if pv.Spec.CSI != nil && pv.Spec.CSI.Driver == s.Driver && protected(pv) {
			left++
		}
	}
	if left == 0 || left == count {
		t.Fatalf("%d of %d are left after the interruption", left, count)
	}
	said, err = release("--yes")
	s.must(err)
	s.expectTold(said, fmt.Sprintf("%d PVs were released", left))
	s.waitAll(vols, "without our finalizer", isFree)
	for _, vol := range vols {
		s.expectKept(vol)
	}
	s.expectTold(s.told("release", "--driver="+s.Driver), "0 PVs of")
}

// TestPluginKnowsTheAdmissionPolicy, and its release removes the driver from it first.
func TestPluginKnowsTheAdmissionPolicy(t *testing.T) {
	s := newPolicyStage(t)
	vol := s.make(storage.Spec{Dynamic: true})
	s.waitPV(vol, "protected", isProtected)
	s.expectTold(s.told("status", "--driver="+s.Driver, "-o", "json"), `"admission": "yes"`)
	const object = "mutatingadmissionpolicy/" + admission.PolicyName
	s.expectTold(s.told("release", "--driver="+s.Driver, "--dry-run"), object+" lists "+s.Driver)
	s.waitInForce(true) // nothing was changed
	said, err := s.ended(s.plugin("release", "--driver="+s.Driver, "--yes"))
	s.must(err)
	s.expectTold(said, s.Driver+" was removed from "+object, "1 PVs were released")
	s.annotate(vol, "e2e.csi-reclaimer.io/touched", "yes")
	s.waitPV(vol, "without our finalizer", isFree)
	s.expectTold(s.told("status", "--driver="+s.Driver, "-o", "json"), `"admission": "no"`)
}

//go:build unix

package e2e

import (
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/admission"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/intree"
	protectpv "github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pv"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pvc"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/controlplane/fakenode"
	"github.com/csi-reclaimer/csi-reclaimer/test/daemon"
	"github.com/csi-reclaimer/csi-reclaimer/test/grant"
	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

// TestVolumeGuardUsesWhatItIsGranted has it do all it can do, with the rights that operators install, and compares
// what it asked for with what it may: both ways. So does each controller that is off by default, by itself.
func TestVolumeGuardUsesWhatItIsGranted(t *testing.T) {
	t.Parallel()
	options := unprotected()
	options.HostPathProvisioner = true
	// Nobody lets go of the protection where only the controllers on by default run.
	options.APIServerArgs = []string{"--disable-admission-plugins=StorageObjectInUseProtection"}
	s := newGuardPlane(t, controlplane.V1_30, options)
	rules, err := grant.GuardByDefault(s.ctx, s.client, s.Namespace, guardName)
	s.must(err)
	s.Driver = "kubernetes.io/host-path"
	address := freeAddress(t)
	s.configureWebhooks(address, webhookDriver)
	// One that is there is written into, one that is not is made.
	secrets := s.client.CoreV1().Secrets(s.Namespace)
	_, err = secrets.Create(s.ctx, &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "volume-guard-webhooks"}}, metav1.CreateOptions{})
	s.must(err)
	g := s.guard("--webhook-address="+address, "--webhook-names=localhost")
	s.must(g.Terminate())
	s.must(secrets.Delete(s.ctx, "volume-guard-webhooks", metav1.DeleteOptions{}))
	s.must(g.Restart())
	s.must(g.WaitReady(s.soon()))

	s.useWebhooks(g)
	s.useInTree()
	s.must(g.Terminate())
	_, err = s.releaseGuard()
	s.must(err)
	s.expectAllUsed(rules)

	fakenode.ForTest(t, s.plane, "node", fakenode.Config{})
	for controller, use := range map[string]func(*stage, *daemon.Daemon){
		"pvc-protection": (*stage).useClaimProtection, "pv-protection": (*stage).usePVProtection,
	} {
		alone := s.elsewhere()
		alone.Driver = "none.csi-reclaimer.io"
		alone.account(guardName)
		rules, err := grant.GuardProtecting(s.ctx, s.client, alone.Namespace, guardName, controller)
		s.must(err)
		g := alone.guard("--controllers=-intree,"+controller, "--protection-patience=2s")
		use(alone, g)
		s.must(g.Terminate())
		alone.expectAllUsed(rules)
	}
}

// webhookDriver is a driver that the webhook protects.
const webhookDriver = "disk.csi.example.com"

// freeAddress returns a loopback address with a port that nobody has.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// configureWebhooks makes the configurations of the webhooks at the address, which list these drivers.
func (s *stage) configureWebhooks(address string, drivers ...string) {
	s.t.Helper()
	_, port, err := net.SplitHostPort(address)
	s.must(err)
	at := func(c *admissionv1.WebhookClientConfig) {
		c.URL, c.Service = ptr.To("https://localhost:"+port+*c.Service.Path), nil
	}
	service := admission.Service{Namespace: s.Namespace, Name: guardName}
	pvs, pods := admission.PVWebhooks(service, admission.Drivers{volume.RoleOwner: drivers}), admission.PodWebhooks(service)
	for i := range pvs.Webhooks {
		at(&pvs.Webhooks[i].ClientConfig)
	}
	for i := range pods.Webhooks {
		at(&pods.Webhooks[i].ClientConfig)
	}
	_, err = s.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(s.ctx, pvs, metav1.CreateOptions{})
	s.must(err)
	_, err = s.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(s.ctx, pods, metav1.CreateOptions{})
	s.must(err)
}

// useWebhooks has PVs be protected in the write that binds them, and a pod be kept off a claim that is being deleted.
func (s *stage) useWebhooks(g *daemon.Daemon) {
	s.t.Helper()
	s.metric(g, "csi_reclaimer_admission_drivers_unreadable", "0")
	vol := s.make(storage.Spec{Handle: "none", Change: func(pv *v1.PersistentVolume) { pv.Spec.CSI.Driver = webhookDriver }})
	s.eventually("a PV is protected in the write that binds it", func() bool {
		s.annotate(vol, "touched", "again")
		pv, err := vol.PV(s.ctx)
		s.must(err)
		return protected(pv)
	})

	claim := s.claim("none", func(spec *storage.ClaimSpec) {
		spec.Change = func(c *v1.PersistentVolumeClaim) { c.Finalizers = []string{"e2e.csi-reclaimer.io/stays"} }
	})
	s.deleteClaim(claim)
	pod, err := s.MakePod(s.ctx, storage.PodSpec{Name: "bound", Claims: []string{claim.Name}})
	s.must(err)
	err = s.client.CoreV1().Pods(s.Namespace).Bind(s.ctx, &v1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: pod.Name}, Target: v1.ObjectReference{Kind: "Node", Name: "node"},
	}, metav1.CreateOptions{})
	if err == nil || !strings.Contains(err.Error(), "PVC ("+claim.Name+") is in scheduled for deletion state") {
		s.t.Errorf("a pod is bound to a node while its claim is being deleted: %v", err)
	}
}

// useClaimProtection has a claim be kept while a pod uses it.
func (s *stage) useClaimProtection(g *daemon.Daemon) {
	s.t.Helper()
	bare := s.claim("none")
	claims := s.client.CoreV1().PersistentVolumeClaims(s.Namespace)
	s.contest(g, "PersistentVolumeClaim", func(patch string) (finalizers []string) {
		now, err := claims.Patch(s.ctx, bare.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		s.must(err)
		return now.Finalizers
	}, func() int { return s.repeated(s.Namespace, bare.Name) })
	claim := s.claim("none")
	pod, err := s.MakePod(s.ctx, storage.PodSpec{Name: "user", Claims: []string{claim.Name}, Node: "node"})
	s.must(err)
	_, err = pod.WaitRunning(s.soon())
	s.must(err)
	s.waitClaim(claim, "protected", func(now *v1.PersistentVolumeClaim) bool {
		return now != nil && slices.Contains(now.Finalizers, pvc.Finalizer)
	})
	s.deleteClaim(claim)
	s.waitTold(claim, "InUse", "Pod user")
	s.must(pod.Delete(s.ctx))
	s.waitClaim(claim, "gone", noClaim)
}

// usePVProtection has PVs be protected.
func (s *stage) usePVProtection(g *daemon.Daemon) {
	s.t.Helper()
	bare := s.make(storage.Spec{Handle: "none", Policy: v1.PersistentVolumeReclaimRetain, Unclaimed: true})
	s.contest(g, "PersistentVolume", func(patch string) (finalizers []string) {
		now, err := s.client.CoreV1().PersistentVolumes().Patch(s.ctx, bare.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		s.must(err)
		return now.Finalizers
	}, func() int { return s.repeated(metav1.NamespaceDefault, bare.Name) })
}

// contest takes the finalizer off an object until it is not put on any more, twice: the same Event a second time is a patch.
func (s *stage) contest(g *daemon.Daemon, kind string, patch func(string) (finalizers []string), repeated func() int) {
	s.t.Helper()
	const touch, strip = `{"metadata":{"annotations":{"touched":"again"}}}`, `{"metadata":{"finalizers":null}}`
	for range 3 {
		s.eventually("the finalizer is on", func() bool { return len(patch(touch)) == 1 })
		patch(strip)
	}
	s.eventually("an Event", func() bool { return repeated() == 1 })
	finalizer := map[string]string{"PersistentVolumeClaim": pvc.Finalizer, "PersistentVolume": protectpv.Finalizer}[kind]
	patch(`{"metadata":{"finalizers":["` + finalizer + `"]}}`)
	s.eventually("there is peace", func() bool {
		text, err := g.Get(s.ctx, "/metrics")
		return err == nil && !strings.Contains(text, `csi_reclaimer_protection_waiting{kind="`+kind+`",reason="FinalizerContested"}`)
	})
	patch(strip)
	s.eventually("the same Event again", func() bool { return repeated() == 2 })
}

// repeated tells how often an object was told of as contested.
func (s *stage) repeated(namespace, name string) int {
	s.t.Helper()
	list, err := s.client.CoreV1().Events(namespace).List(s.ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + name + ",reason=FinalizerContested"})
	s.must(err)
	times := 0
	for i := range list.Items {
		times += int(list.Items[i].Count)
	}
	return times
}

// useInTree has a volume be deleted by a twin, after another one was given up.
func (s *stage) useInTree() {
	s.t.Helper()
	vol := s.inTreeVolume(s.class())
	pv, err := vol.PV(s.ctx)
	s.must(err)
	s.waitPV(vol, "protected", guarded)
	s.annotate(vol, volume.HoldAnnotation, "wait")
	s.must(vol.DeletePV(s.ctx))
	s.must(vol.DeleteClaim(s.ctx))
	s.waitPV(vol, "released", isReleased)
	s.waitEvent(vol, "Held", "wait")
	// Without the controller manager the twin stays.
	s.plane.ControllerManager.Kill()
	twin := func() bool {
		_, err := s.client.CoreV1().PersistentVolumes().Get(s.ctx, intree.TwinName(vol.Name), metav1.GetOptions{})
		return err == nil
	}
	s.annotate(vol, volume.HoldAnnotation, "")
	s.eventually("there is a twin", twin)
	s.annotate(vol, volume.HoldAnnotation, "wait") // the same Event a second time is a patch
	s.eventually("the twin is given up", func() bool { return !twin() })
	s.must(s.plane.ControllerManager.Restart(s.ctx))
	s.annotate(vol, volume.HoldAnnotation, "")
	s.must(vol.WaitGone(s.soon()))
	if _, err := os.Stat(pv.Spec.HostPath.Path); !os.IsNotExist(err) {
		s.t.Errorf("LEAK: the volume of PV %s is still there: %v", vol.Name, err)
	}
}

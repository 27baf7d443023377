//go:build unix

package volumeguard

import (
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/admission"
	protectpv "github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pv"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pvc"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane/fakenode"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/rbac"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

// TestVolumeGuardPermissionsAreNecessaryAndSufficient exercises all of volume-guard with the shipped RBAC, and compares
// the requests with the rules in both directions. It repeats this with each controller that is off by default alone.
func TestVolumeGuardPermissionsAreNecessaryAndSufficient(t *testing.T) {
	fixture.Begin(t, fixture.OwnVersions)
	options := unprotected()
	options.HostPathProvisioner = true
	// With only the default controllers, no program releases the protection.
	options.APIServerArgs = []string{"--disable-admission-plugins=StorageObjectInUseProtection"}
	env := newWithControlPlane(t, controlplane.V1_30, options)
	rules, err := rbac.GrantGuardByDefault(env.Ctx, env.Client, env.Namespace, fixture.VolumeGuardName)
	env.Must(err)
	env.Driver = "kubernetes.io/host-path"
	address := suite.FreeAddress(t)
	env.configureWebhooks(address, webhookDriver)
	// An existing Secret is written, a missing one is created.
	secrets := env.Client.CoreV1().Secrets(env.Namespace)
	_, err = secrets.Create(env.Ctx, &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "volume-guard-webhooks"}},
		metav1.CreateOptions{})
	env.Must(err)
	g := env.Start("--webhook-address="+address, "--webhook-names=localhost")
	env.Must(g.Terminate())
	env.Must(secrets.Delete(env.Ctx, "volume-guard-webhooks", metav1.DeleteOptions{}))
	env.Must(g.Restart())
	env.Must(g.WaitReady(env.WithTimeout()))

	env.useWebhooks(g)
	env.useInTree()
	env.Must(g.Terminate())
	_, err = env.Release("--controllers=*")
	env.Must(err)
	env.ExpectAllRulesUsed(rules)

	fakenode.ForTest(t, env.Plane, "node", fakenode.Config{})
	for controller, use := range map[string]func(*environment, *program.Program){
		"pvc-protection": (*environment).useClaimProtection, "pv-protection": (*environment).usePVProtection,
	} {
		alone := env.inOtherNamespace()
		alone.Driver = "none.csi-reclaimer.io"
		alone.DriverNamespace = alone.Namespace
		alone.CreateServiceAccount(fixture.VolumeGuardName)
		rules, err := rbac.GrantGuardController(env.Ctx, env.Client, alone.Namespace, fixture.VolumeGuardName, controller)
		env.Must(err)
		g := alone.Start("--controllers=-intree,"+controller, "--protection-patience=2s")
		use(alone, g)
		env.Must(g.Terminate())
		alone.ExpectAllRulesUsed(rules)
	}
}

// webhookDriver is a driver that the webhook protects.
const webhookDriver = "disk.csi.example.com"

// configureWebhooks makes the configurations of the webhooks at the address, which list these drivers.
func (env *environment) configureWebhooks(address string, drivers ...string) {
	env.T.Helper()
	_, port, err := net.SplitHostPort(address)
	env.Must(err)
	pods := admission.PodWebhooks(admission.Service{Namespace: env.Namespace, Name: fixture.VolumeGuardName})
	for i := range pods.Webhooks {
		redirect(&pods.Webhooks[i].ClientConfig, "localhost:"+port)
		pods.Webhooks[i].TimeoutSeconds = longestTimeout()
	}
	env.MutatingWebhookConfigurations().Create(env.pvWebhooks("localhost:"+port, drivers...))
	env.ValidatingWebhookConfigurations().Create(pods)
}

// useWebhooks has PVs be protected in the write that binds them, and a pod be kept off a claim that is being deleted.
func (env *environment) useWebhooks(g *program.Program) {
	env.T.Helper()
	env.WaitMetric(g, "csi_reclaimer_admission_drivers_unreadable", "0")
	vol := env.MakeVolume(objects.Spec{Handle: "none",
		Change: func(pv *v1.PersistentVolume) { pv.Spec.CSI.Driver = webhookDriver }})
	env.Eventually("a PV is protected in the write that binds it", func() bool {
		env.AnnotatePV(vol, "touched", "again")
		pv, err := vol.PV(env.Ctx)
		env.Must(err)
		return fixture.HasFinalizer(pv)
	})

	claim := env.CreateClaim("none", func(spec *objects.ClaimSpec) {
		spec.Change = func(c *v1.PersistentVolumeClaim) { c.Finalizers = []string{"e2e.csi-reclaimer.io/stays"} }
	})
	env.MustDeleteClaim(claim)
	pod := env.CreatePod(objects.PodSpec{Name: "bound", Claims: []string{claim.Name}})
	// The API server begins with each webhook at a time of its own.
	env.Eventually("no pod is bound to a node while its claim is being deleted", func() bool {
		err := env.Client.CoreV1().Pods(env.Namespace).Bind(env.Ctx, &v1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: env.Namespace, Name: pod.Name},
			Target:     v1.ObjectReference{Kind: "Node", Name: "node"},
		}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil && strings.Contains(err.Error(), "PVC ("+claim.Name+") is in scheduled for deletion state")
	})
}

// useClaimProtection has a claim be kept while a pod uses it.
func (env *environment) useClaimProtection(g *program.Program) {
	env.T.Helper()
	bare := env.CreateClaim("none")
	claims := env.Client.CoreV1().PersistentVolumeClaims(env.Namespace)
	env.contest(g, "PersistentVolumeClaim", func(patch string) (finalizers []string) {
		now, err := claims.Patch(env.Ctx, bare.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		env.Must(err)
		return now.Finalizers
	}, v1.ObjectReference{UID: bare.UID})
	claim := env.CreateClaim("none")
	pod := env.CreatePod(objects.PodSpec{Name: "user", Claims: []string{claim.Name}, Node: "node"})
	env.WaitRunning(pod)
	env.WaitClaim(claim, "protected", func(now *v1.PersistentVolumeClaim) bool {
		return now != nil && slices.Contains(now.Finalizers, pvc.Finalizer)
	})
	env.MustDeleteClaim(claim)
	env.WaitClaimEvent(claim, "InUse", "Pod user")
	env.Must(pod.Delete(env.Ctx))
	env.WaitClaim(claim, "gone", fixture.ClaimIsGone)
}

// usePVProtection has PVs be protected.
func (env *environment) usePVProtection(g *program.Program) {
	env.T.Helper()
	bare := env.MakeVolume(objects.Spec{Handle: "none", Policy: v1.PersistentVolumeReclaimRetain, Unclaimed: true})
	env.contest(g, "PersistentVolume", func(patch string) (finalizers []string) {
		now := env.PVs().Merge(bare.Name, patch)
		return now.Finalizers
	}, v1.ObjectReference{Namespace: metav1.NamespaceDefault, Name: bare.Name})
}

// contest removes an object's finalizer until it is not added any more, twice: the same Event a second time is a
// patch.
func (env *environment) contest(g *program.Program, kind string, patch func(string) (finalizers []string),
	about v1.ObjectReference) {
	env.T.Helper()
	const touch, strip = `{"metadata":{"annotations":{"touched":"again"}}}`, `{"metadata":{"finalizers":null}}`
	for range 3 {
		env.Eventually("the finalizer is on", func() bool { return len(patch(touch)) == 1 })
		patch(strip)
	}
	env.WaitReports(about, "FinalizerContested", 1)
	finalizer := map[string]string{"PersistentVolumeClaim": pvc.Finalizer, "PersistentVolume": protectpv.Finalizer}[kind]
	patch(`{"metadata":{"finalizers":["` + finalizer + `"]}}`)
	env.Eventually("there is peace", func() bool {
		text, err := g.Get(env.Ctx, "/metrics")
		return err == nil && !strings.Contains(text,
			`csi_reclaimer_protection_waiting{kind="`+kind+`",reason="FinalizerContested"}`)
	})
	patch(strip)
	env.WaitReports(about, "FinalizerContested", 2)
}

// useInTree has a volume be deleted by a twin, after another one was given up.
func (env *environment) useInTree() {
	env.T.Helper()
	vol := env.inTreeVolume(env.CreateStorageClass())
	pv, err := vol.PV(env.Ctx)
	env.Must(err)
	env.WaitPV(vol, "protected", guarded)
	env.AnnotatePV(vol, volume.HoldAnnotation, "wait")
	env.DeletePVFirst(vol)
	env.WaitPV(vol, "released", fixture.IsReleased)
	env.WaitPVEvent(vol, "Held", "wait")
	// Without the controller manager the twin stays.
	env.Plane.ControllerManager.Kill()
	twin := func() bool { return env.PVs().Find(volume.TwinName(vol.Name)) != nil }
	env.AnnotatePV(vol, volume.HoldAnnotation, "")
	env.Eventually("there is a twin", twin)
	env.AnnotatePV(vol, volume.HoldAnnotation, "wait") // the same Event a second time is a patch
	env.Eventually("the twin is given up", func() bool { return !twin() })
	env.Must(env.Plane.ControllerManager.Restart(env.Ctx))
	env.AnnotatePV(vol, volume.HoldAnnotation, "")
	env.Must(vol.WaitGone(env.WithTimeout()))
	if _, err := os.Stat(pv.Spec.HostPath.Path); !os.IsNotExist(err) {
		env.T.Errorf("LEAK: the volume of PV %s is still there: %v", vol.Name, err)
	}
}

// TestVolumeGuardReportsMissingPermissions also covers a dry run.
func TestVolumeGuardReportsMissingPermissions(t *testing.T) {
	fixture.Begin(t, fixture.OwnVersions)
	env := newWithVolumeGuard(t, controlplane.V1_30, controlplane.Options{HostPathProvisioner: true})
	env.Driver = "kubernetes.io/host-path"
	mayListPods := []string{"pvc-protection-", "pod-safety-", "single-node-", "statefulset-claims-", "node-fencing-"}
	for _, role := range mayListPods {
		role = "volume-guard-" + role
		env.ClusterRoleBindings().Delete(role + env.Namespace)
	}
	env.Eventually("lists of pods are denied", func() bool { return !env.IsAllowed("list", "", "pods") })
	g := env.Launch(protecting()...)
	const lacking = `may not list pods: no claim loses its finalizer, because a pod may use it. ` +
		`Add to the ClusterRole: {apiGroups: [""], resources: ["pods"], verbs: ["list"]}`
	env.Must(g.WaitLog(env.WithTimeout(), "Preflight: may not list pods"))
	env.Eventually("the health endpoint says so", func() bool {
		_, err := g.Get(env.Ctx, "/readyz")
		return err != nil && strings.Contains(err.Error(), lacking)
	})
	if output, err := env.Release(protecting()...); err == nil || !strings.Contains(output, "may not list pods") {
		t.Errorf("--release-finalizers without its rights: %v, %q", err, output)
	}
	env.Must(g.Terminate())

	began := time.Now()
	g = env.Start("--dry-run")
	vol := env.inTreeVolume(env.CreateStorageClass())
	env.Must(g.WaitLog(env.WithTimeout(), "Would do AddFinalizer"))
	if pv, err := vol.PV(env.Ctx); err != nil || guarded(pv) {
		t.Errorf("%v: protected in a dry run", err)
	}
	events := env.AuditEvents(env.User, func(e controlplane.AuditEvent) bool {
		return e.Received.After(began) && e.APIGroup != "authorization.k8s.io" && e.Writes()
	})
	if len(events) > 0 {
		t.Errorf("a dry run wrote: %+v", events)
	}
}

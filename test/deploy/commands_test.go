//go:build unix

package deploy

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/leaks"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/deploy/maketargets"
	shipped "github.com/csi-reclaimer/csi-reclaimer/test/framework/manifests"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

// The objects in the pages' commands.
const (
	docsPV     = "pvc-8a5c"
	docsHome   = "shop"
	docsDriver = "disk.csi.example.com"
)

// plays says of each command on the pages how it is run, or why it is not.
func (s *shell) plays(t *testing.T) map[string]play {
	t.Helper()
	const chart = "TestChartInstallUpgradeUninstall runs it, as it stands on the page"
	const noLog = "no kubelet runs here, so no pod has a log; TestTroubleshootingNamesRealMessages of test/docs finds " +
		"the messages in the sources"
	const upgraded = "TestChartsUpgradeAndRollBack runs it, as it stands on the page"
	of := func(name string) []string {
		return []string{"NAMESPACE", docsHome, "LEASE", "disk-csi-example-com", "NAME", name}
	}
	plays := map[string]play{
		"kubectl krew install --manifest=.build/krew/reclaim.yaml --archive=.build/krew/kubectl-reclaim-linux-amd64.tar.gz": {
			why: "krew is no program of ours; krew_test.go makes what it is given, and judges it by krew's rules"},
		"helm install volume-guard deploy/charts/volume-guard --namespace csi-reclaimer --create-namespace " +
			"--set image.registry=registry.example.com/storage": {why: chart},
		"helm uninstall volume-guard --namespace csi-reclaimer --timeout 20m": {why: chart},
		"helm upgrade volume-guard deploy/charts/volume-guard --namespace csi-reclaimer --reset-then-reuse-values": {
			why: upgraded},
		"helm rollback volume-guard --namespace csi-reclaimer": {why: upgraded},

		"helm show values deploy/charts/volume-guard": {want: "protectedDrivers"},

		"kubectl delete secret volume-guard-webhooks --namespace csi-reclaimer --ignore-not-found": {scene: s.makeSecret,
			want: "deleted"},
		"kubectl delete secret -n csi-reclaimer volume-guard-webhooks": {scene: s.makeSecret,
			want: "deleted"},

		"kubectl describe pv NAME": {with: of(docsPV),
			want: docsHome + "/" + docsPV},
		"kubectl describe pvc NAME": {with: of(docsPV),
			also: "-n " + docsHome, want: docsPV},
		"kubectl get pv --sort-by=.metadata.deletionTimestamp":           {want: docsPV},
		"kubectl get pv VOLUME":                                          {with: []string{"VOLUME", docsPV}, want: docsPV},
		"kubectl get volumeattachments":                                  {},
		"kubectl get events -A --field-selector reason=VolumeLeftBehind": {},
		`kubectl annotate pv NAME csi-reclaimer.io/hold="why"`: {with: of(docsPV),
			want: "annotated"},
		"kubectl annotate pv NAME csi-reclaimer.io/hold-": {with: of(docsPV),
			want: "annotated"},
		"kubectl get pv,pvc": {want: docsPV},
		`kubectl patch pv NAME -p '{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}'`: {with: of(docsPV),
			also: "--dry-run=server", want: "patched"},
		`kubectl annotate lease -n NAMESPACE LEASE csi-reclaimer.io/brake="an upgrade"`: {scene: s.makeBrake, with: of(""),
			also: "--overwrite", want: "annotated"},
		"kubectl annotate lease -n NAMESPACE LEASE csi-reclaimer.io/brake-": {scene: s.makeBrake, with: of(""),
			want: "annotated"},
		"kubectl delete lease -n NAMESPACE LEASE": {scene: s.makeBrake, with: of(""), also: "--dry-run=server",
			want: "deleted"},
		"kubectl get -o yaml":           {also: "pv/" + docsPV, want: "name: " + docsPV},
		"kubectl reclaim settle":        {why: "it is named, and how it is used stands elsewhere"},
		"kubectl reclaim settle VOLUME": {why: "TestInFlightEntryIsSettled in test/e2e/provision runs it"},
		"kubectl reclaim settle -n shop --storage-class=fast --older-than=1h": {
			why: "TestInFlightEntryIsSettled in test/e2e/provision runs it"},
		"kubectl reclaim settle -n NAMESPACE --storage-class=CLASS --older-than=1h --dry-run": {
			with: append(of(""), "CLASS", "fast")},
		"kubectl get leases -A -l csi-reclaimer.io/in-flight-log": {},
		"kubectl reclaim explain pvc/NAME -n NAMESPACE": {with: of(docsPV),
			want: "Claim " + docsHome + "/" + docsPV},
		`kubectl patch pv NAME --type=merge -p '{"metadata":{"finalizers":null}}'`: {with: of(docsPV), want: "patched"},
		`kubectl patch pv NAME -p '{"spec":{"claimRef":{"uid":"UID","resourceVersion":null}}}'`: {
			why: "TestRestoredClaimKeepsVolume in test/e2e/reclaim runs it, as the Event has it"},
		`kubectl get pv -o jsonpath='{range .items[?(@.metadata.deletionTimestamp)]}{.metadata.name} {.spec.nodeAffinity.required.nodeSelectorTerms[*].matchExpressions[*].values[*]}{"\n"}{end}'`: {scene: s.makeLeavingPV, want: "pvc-77f0 node-7"},

		"kubectl reclaim explain pod/db-0 -n shop": {scene: s.makePod, want: "Pod shop/db-0 is pending"},
		"kubectl reclaim explain namespace/shop":   {scene: s.makeHome, want: "Namespace shop is not terminating"},
		"kubectl reclaim explain pod/NAME -n NAMESPACE": {scene: s.makePod, with: of("db-0"),
			want: "Pod shop/db-0 is pending"},
		"kubectl reclaim delete-pod NAME -n NAMESPACE --force": {scene: s.makePod, with: of("db-0"), also: "--yes",
			want: "Pod shop/db-0 was confirmed and force-deleted, and is gone"},
		"kubectl reclaim pods -A":        {},
		"kubectl reclaim status -o wide": {want: docsDriver},
		"kubectl logs -n NAMESPACE POD -c csi-reclaimer": {
			why: noLog},
		"kubectl logs -n NAMESPACE POD -c csi-reclaimer --previous": {
			why: noLog},
		"kubectl logs -n csi-reclaimer job/volume-guard-release": {why: noLog},
		"kubectl wait -n csi-reclaimer --for=condition=Complete --timeout=15m job/volume-guard-release": {
			why: "no kubelet runs here, so no Job completes; TestReleaseJobRunsAsDeployment compares its pod"},
		"kubectl scale deployment -n NAMESPACE DEPLOYMENT --replicas=0": {scene: s.makeDeployment,
			with: append(of(""), "DEPLOYMENT", docsOther), want: "scaled"},
		"kubectl scale deployment -n NAMESPACE DEPLOYMENT --replicas=1": {scene: s.makeDeployment,
			with: append(of(""), "DEPLOYMENT", docsOther), want: "scaled"},
		"kubectl reclaim delete-pod NAME": {scene: s.makePod, with: of("db-0"), also: "-n " + docsHome,
			want: "Pod shop/db-0 was deleted, and is gone"},
		"kubectl reclaim delete-pod db-0 -n shop --force": {scene: s.makePod, also: "--yes",
			want: "Pod shop/db-0 was confirmed and force-deleted, and is gone"},
		"kubectl reclaim explain pv/pvc-8a5c":                             {want: "PV pvc-8a5c"},
		"kubectl reclaim explain":                                         {also: "pv/" + docsPV, want: "PV pvc-8a5c"},
		"kubectl describe pv":                                             {also: docsPV, want: docsHome + "/" + docsPV},
		"kubectl reclaim explain pv/NAME":                                 {with: of(docsPV), want: "PV pvc-8a5c"},
		"kubectl reclaim list -A":                                         {scene: s.makeLeavingPV, want: "pvc-77f0"},
		"kubectl reclaim explain --all -A":                                {scene: s.makeLeavingPV, want: "PV pvc-77f0"},
		"kubectl reclaim list -A --reason=TerminatingBound":               {},
		"kubectl reclaim list -n shop":                                    {},
		"kubectl reclaim status":                                          {want: docsDriver},
		"kubectl reclaim version":                                         {want: "Kubernetes version: v1."},
		"kubectl reclaim release --driver=disk.csi.example.com --dry-run": {},
		"kubectl reclaim release --driver=disk.csi.example.com":           {also: "--yes"},
	}
	addMake(t, plays)
	plays[`kubectl get pv -o jsonpath='{range .items[?(@.metadata.deletionTimestamp)]}{.metadata.name}{"\n"}{end}'`] = play{scene: s.makeLeavingPV, want: "pvc-77f0"}
	s.addAudit(t, plays)
	s.addManifests(plays)
	s.addTokens(plays)
	s.addPodSafety(plays)
	s.addStatefulSets(plays)
	s.addFencing(plays)
	s.addSingleNode(plays)
	for _, args := range []string{"", " --open", " --port=8001"} {
		plays["kubectl reclaim web"+args] = play{why: "it does not end; TestWeb in cmd/kubectl-reclaim runs it"}
	}
	plays["go test ./test/deploy -run TestAlertsOnRecordedRuns -record 'a node is away'"] = play{
		why: "it writes into this checkout; TestAlertsOnRecordedRuns replays what it wrote"}
	s.addPrograms(t, plays)
	return plays
}

// addMake adds the commands that name a target of the Makefile. Package maketargets runs the targets that take seconds,
// and says why it does not run the others, whose lines with variables are checked here.
func addMake(t *testing.T, plays map[string]play) {
	t.Helper()
	for _, c := range commands(t) {
		line, is := strings.CutPrefix(c.text, "make ")
		if !is {
			continue
		}
		why, known := maketargets.Why(line)
		switch {
		case known && why == "":
			plays[c.text] = play{why: "TestCheapTargetsRun in test/deploy/maketargets runs it"}
		case known:
			plays[c.text] = play{with: []string{"make ", "make -n "}, want: "go "}
		}
	}
}

// addAudit gives a report to the commands that read one from the sidecar's pod, because no pods run here. test/e2e
// reads it from a pod, and creates the PVs.
func (s *shell) addAudit(t *testing.T, plays map[string]play) {
	t.Helper()
	const leak = "vol-left"
	text, err := json.Marshal(leaks.Report{
		Driver: docsDriver, Completed: time.Now(), Listed: 2, Suspected: 1, SuspectedBytes: 1 << 30,
		Volumes: []leaks.Found{{Handle: leak, Bytes: 1 << 30, Suspected: true, Reason: leaks.ReasonLeakSuspected,
			Sightings: 3, FirstSeen: time.Now().Add(-time.Hour)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	report := filepath.Join(t.TempDir(), "report.json")
	if err := os.WriteFile(report, text, 0o600); err != nil {
		t.Fatal(err)
	}
	from := "--from=" + report
	const driver = "kubectl reclaim leaks --driver=" + docsDriver
	plays[driver] = play{also: from, want: leak}
	plays["kubectl reclaim leaks --driver=DRIVER"] = play{with: []string{"DRIVER", docsDriver}, also: from, want: leak}
	plays["kubectl reclaim leaks"] = play{also: "--driver=" + docsDriver + " " + from, want: leak}
	plays[driver+" --adopt=HANDLE"] = play{with: []string{"HANDLE", leak}, also: from + " --dry-run",
		want: "volumeHandle: " + leak}
	plays[driver+" --reclaim=HANDLE"] = play{with: []string{"HANDLE", leak}, also: from + " --dry-run",
		want: "volumeHandle: " + leak}
	const fetched = "kubectl port-forward -n NAMESPACE POD 8080 & " +
		"curl -s --retry 9 --retry-connrefused --retry-delay 1 'localhost:8080/leaks?format=json'"
	plays[fetched+" | kubectl reclaim leaks --from=-"] = play{with: []string{fetched, "cat " + report}, want: leak}
}

// addManifests applies the manifests in a dry run, because other tests install them for good.
func (s *shell) addManifests(plays map[string]play) {
	for _, files := range []string{
		"-f deploy/manifests/volume-guard.yaml", "-n csi-reclaimer -f deploy/manifests/rbac-volume-guard.yaml",
		"-f deploy/manifests/volume-guard-availability.yaml", "-f deploy/manifests/volume-guard-release.yaml",
		"-f deploy/manifests/volume-guard-webhooks.yaml",
		"-n csi-reclaimer -f deploy/manifests/rbac-volume-guard-webhooks.yaml",
		"-f deploy/manifests/pod-safety-crd.yaml", "-f deploy/manifests/pod-safety-policies.yaml",
		"-f deploy/manifests/pod-safety-hold.yaml", "-f deploy/manifests/pod-safety-hold-webhook.yaml",
		"-f deploy/manifests/rbac-volume-guard-web.yaml", "-f deploy/manifests/http-roles.yaml",
		"-f deploy/manifests/example.yaml", "-n mock-csi -f deploy/manifests/rbac-owner.yaml",
	} {
		plays["kubectl apply "+files] = play{scene: makeHomes, also: "--dry-run=server", want: "(server dry run)"}
	}
	// Without the Job, whose pod TestChartInstallUpgradeUninstall would take for that of its own.
	plays["kubectl delete job -n csi-reclaimer volume-guard-release --ignore-not-found"] = play{}
	for _, name := range []string{"csi-driver", "node-fencing"} { // other tests may have made them
		plays["kubectl create namespace "+name] = play{also: "--dry-run=client", want: "created"}
	}
	for _, base := range []string{guard, car} {
		plays["kubectl apply -k deploy/kustomize/"+base] = play{scene: makeKustomizeHomes, also: "--dry-run=server",
			want: "(server dry run)"}
	}
}

// addTokens adds the commands for tokens from the page about volume-guard's web page.
func (s *shell) addTokens(plays map[string]play) {
	const account, viewers = "serviceaccount web-viewer -n csi-reclaimer", "clusterrolebinding volume-guard-web-viewers " +
		"--clusterrole=volume-guard-web-viewer --serviceaccount=csi-reclaimer:web-viewer"
	const delegator = "clusterrolebinding %s --clusterrole=system:auth-delegator --serviceaccount=%s"
	for _, object := range []string{account, viewers,
		fmt.Sprintf(delegator, "volume-guard-auth-delegator", "csi-reclaimer:volume-guard"),
		fmt.Sprintf(delegator, "mock-csi-auth-delegator", "mock-csi:mock-csi-controller"),
	} {
		plays["kubectl create "+object] = play{scene: makeHomes, also: "--dry-run=server", want: "created"}
	}
	plays["kubectl create token web-viewer -n csi-reclaimer --duration=8h"] = play{scene: s.makeViewer, want: "ey"}
	plays["kubectl port-forward -n csi-reclaimer deployment/volume-guard 8080"] = play{
		why: "no kubelet runs here; TestThePageOfVolumeGuard of test/web opens the page"}
}

func (s *shell) makeViewer(t *testing.T) {
	t.Helper()
	makeHomes(t)
	if _, err := cluster.ServiceAccount(patiently(t), "csi-reclaimer", "web-viewer"); err != nil {
		t.Fatal(err)
	}
}

// addPodSafety deletes missing objects: test/e2e/podadmission installs them.
func (s *shell) addPodSafety(plays map[string]play) {
	const ns, key = "namespace NAMESPACE", "csi-reclaimer.io/pod-safety"
	for _, command := range []string{
		"label " + ns + " " + key + "=warn", "label --overwrite " + ns + " " + key + "=enforce",
		"label " + ns + " " + key + "-",
	} {
		plays["kubectl "+command] = play{scene: s.makeHome, with: []string{"NAMESPACE", docsHome}, want: "labeled"}
	}
	for _, files := range []string{
		"-f deploy/manifests/pod-safety-hold.yaml -f deploy/manifests/pod-safety-policies.yaml",
		"-f deploy/manifests/pod-safety-crd.yaml",
	} {
		plays["kubectl delete "+files] = play{also: "--ignore-not-found"}
	}
	for label, all := range map[string][]string{
		key: {"namespaces"}, "csi-reclaimer.io/single-node": {"namespaces", "storageclasses"}} {
		for _, kind := range all { // of other tests, too
			plays["kubectl label "+kind+" --all "+label+"-"] = play{scene: func(t *testing.T) {
				t.Helper()
				s.makeHome(t)
				s.makeClass(t)
			}, also: "--dry-run=server", want: "labeled"}
		}
	}
	plays["kubectl get volumelocks"] = play{scene: func(t *testing.T) {
		t.Helper()
		if err := shipped.Apply(patiently(t), cluster.Admin(), shipped.PodSafetyCRD); err != nil {
			t.Fatal(err)
		}
	}}
}

// addPrograms runs the programs with the addresses of this machine, and a pod's environment.
func (s *shell) addPrograms(t *testing.T, plays map[string]play) {
	t.Helper()
	socket, sidecar, guard := s.programs(t)
	const byHand = ".build/bin/csi-reclaimer --csi-address=/csi/csi.sock --kubeconfig=$HOME/.kube/config " +
		"--http-endpoint=:8080"
	plays[byHand] = play{
		with: []string{".build/bin/csi-reclaimer", sidecar, "/csi/csi.sock", socket, ":8080",
			suite.FreeAddress(t)}, runsOn: "Reclaiming"}
	plays[".build/bin/volume-guard --kubeconfig=$HOME/.kube/config --dry-run -v=2"] = play{
		with: []string{".build/bin/volume-guard", guard}, runsOn: "Carrying out the reclaim policy of in-tree PVs"}
	// In a namespace whose Lease no other test needs: it is kept for ten minutes.
	elsewhere := []string{".build/bin/volume-guard", guard, "namespace=csi-reclaimer", "namespace=" + docsHome}
	const release = ".build/bin/volume-guard --kubeconfig=$HOME/.kube/config " +
		"--leader-election-namespace=csi-reclaimer --release-finalizers"
	plays[release] = play{scene: s.makeHome, with: elsewhere, want: "0 in-tree PVs were released"}
	plays[release+" --release-drivers='*'"] = play{scene: s.makeHome, with: elsewhere, want: "were released"}
}

// startPrograms compiles the programs, and starts a driver.
func startPrograms(t *testing.T) (socket, sidecar, guard string) {
	t.Helper()
	binary := func(name string) string {
		path, err := program.Build(patiently(t), name, os.Stderr)
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	driver := mockdriver.ForTest(t, mockdriver.Options{Name: "docs.csi-reclaimer.io"})
	return driver.Socket(), binary("csi-reclaimer"), binary("volume-guard")
}

func makeKustomizeHomes(t *testing.T) {
	t.Helper()
	makeGuardHome(t)
	if err := makeNamespace(patiently(t), "csi-driver"); err != nil {
		t.Fatal(err)
	}
}

func makeHomes(t *testing.T) {
	t.Helper()
	makeGuardHome(t)
	install(t)
}

func (s *shell) makeHome(t *testing.T) {
	t.Helper()
	if err := makeNamespace(patiently(t), docsHome); err != nil {
		t.Fatal(err)
	}
}

func (s *shell) makeSecret(t *testing.T) {
	t.Helper()
	makeGuardHome(t)
	_, err := client.CoreV1().Secrets(guardHome).Create(patiently(t),
		&v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "volume-guard-webhooks"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// makePV creates the pages' PV, bound to its claim, of a driver that does not run. It stays for all commands, because
// the PV controller may take 15 seconds to notice a reused name.
func (s *shell) makePV(t *testing.T) {
	t.Helper()
	s.make(t, objects.Spec{Name: docsPV,
		Change: func(pv *v1.PersistentVolume) { pv.Finalizers = []string{volume.Finalizer} }})
}

// makeLeavingPV makes one of a node that is gone, which is being deleted.
func (s *shell) makeLeavingPV(t *testing.T) {
	t.Helper()
	s.make(t, objects.Spec{Name: "pvc-77f0", Unclaimed: true, Change: func(pv *v1.PersistentVolume) {
		pv.Finalizers = []string{volume.Finalizer}
		pv.Spec.NodeAffinity = &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
			MatchExpressions: []v1.NodeSelectorRequirement{{Key: "example.com/node", Operator: v1.NodeSelectorOpIn,
				Values: []string{"node-7"}}},
		}}}}
	}})
	if err := client.CoreV1().PersistentVolumes().Delete(patiently(t), "pvc-77f0", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (s *shell) make(t *testing.T, spec objects.Spec) {
	t.Helper()
	s.makeHome(t)
	spec.Policy, spec.Handle = v1.PersistentVolumeReclaimRetain, "vol-of-"+spec.Name
	vol, err := objects.Maker{Client: client, Driver: docsDriver, Namespace: docsHome}.Make(patiently(t), spec)
	if err != nil {
		t.Fatal(err)
	}
	forget(t, func(ctx context.Context) error {
		if vol.Claimed {
			if err := vol.DeleteClaim(ctx); err != nil {
				return err
			}
		}
		if err := vol.DeletePV(ctx); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		_, err := client.CoreV1().PersistentVolumes().Patch(ctx, spec.Name, types.MergePatchType,
			[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

// makePod creates the pages' pod if it is missing. No scheduler binds it to a node.
func (s *shell) makePod(t *testing.T) {
	t.Helper()
	s.makeHome(t)
	pods := client.CoreV1().Pods(docsHome)
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "db-0"},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main", Image: "none"}}}}
	if _, err := pods.Create(patiently(t), pod, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	forget(t, func(ctx context.Context) error {
		if err := pods.Delete(ctx, pod.Name, *metav1.NewDeleteOptions(0)); !apierrors.IsNotFound(err) {
			return err
		}
		return nil
	})
}

// makeBrake makes a Lease with the brake on.
func (s *shell) makeBrake(t *testing.T) {
	t.Helper()
	s.makeHome(t)
	leases := client.CoordinationV1().Leases(docsHome)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "disk-csi-example-com",
		Annotations: map[string]string{reclaim.BrakeAnnotation: "on"}}}
	if _, err := leases.Create(patiently(t), lease, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	forget(t, func(ctx context.Context) error { return leases.Delete(ctx, lease.Name, metav1.DeleteOptions{}) })
}

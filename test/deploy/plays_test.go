//go:build unix

package deploy

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/leaks"
	"github.com/csi-reclaimer/csi-reclaimer/test/deploy/maketargets"
	shipped "github.com/csi-reclaimer/csi-reclaimer/test/framework/manifests"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

// plays has, for each command on the pages, how it is run, or why it is not.
type plays map[string]play

// kubectl is a command of kubectl. Its name is put in for NAME, and also is added at its end. want is in its output.
type kubectl struct {
	command, name, also, want string
	scene                     func(*testing.T)
}

func (p plays) kubectl(all []kubectl) {
	for _, c := range all {
		p["kubectl "+c.command] = play{scene: c.scene, also: c.also, want: c.want,
			with: []string{"NAMESPACE", docsHome, "LEASE", "disk-csi-example-com", "DEPLOYMENT", docsOther, "POLICY", docsPolicy,
				"CLASS", "fast", "NAME", c.name}}
	}
}

// plays returns them.
func (s *shell) plays(t *testing.T) plays {
	t.Helper()
	p := plays{}
	p.addUnplayed()
	addMake(t, p)
	p["helm show values deploy/charts/volume-guard"] = play{want: "protectedDrivers"}
	p.addVolumes()
	p.addManifests()
	p.addTokens()
	p.addPodSafety()
	p.addStatefulSets()
	p.addFencing()
	p.addSingleNode()
	s.addAudit(t, p)
	s.addPrograms(t, p)
	return p
}

// addUnplayed adds the commands that are not run here, with the reasons.
func (p plays) addUnplayed() {
	const (
		chart     = "TestChartInstallUpgradeUninstall runs it, as it stands on the page"
		upgraded  = "TestChartsUpgradeAndRollBack runs it, as it stands on the page"
		settled   = "TestInFlightEntryIsSettled in test/e2e/provision runs it"
		neverEnds = "it does not end; TestWeb in cmd/kubectl-reclaim runs it"
		noLog     = "no kubelet runs here, so no pod has a log; TestTroubleshootingNamesRealMessages of test/docs finds " +
			"the messages in the sources"
	)
	for command, why := range map[string]string{
		"kubectl krew install --manifest=.build/krew/reclaim.yaml " +
			"--archive=.build/krew/kubectl-reclaim-linux-amd64.tar.gz": "krew is no program of ours; krew_test.go makes " +
			"what it is given, and judges it by krew's rules",
		"helm install volume-guard deploy/charts/volume-guard --namespace csi-reclaimer --create-namespace " +
			"--set image.registry=registry.example.com/storage": chart,
		"helm uninstall volume-guard --namespace csi-reclaimer --timeout 20m":                                      chart,
		"helm upgrade volume-guard deploy/charts/volume-guard --namespace csi-reclaimer --reset-then-reuse-values": upgraded,
		"helm rollback volume-guard --namespace csi-reclaimer":                                                     upgraded,
		"kubectl reclaim settle":        "it is named, and how it is used stands elsewhere",
		"kubectl reclaim settle VOLUME": settled,
		"kubectl reclaim settle -n shop --storage-class=fast --older-than=1h": settled,
		`kubectl patch pv NAME -p '{"spec":{"claimRef":{"uid":"UID","resourceVersion":null}}}'`: "" +
			"TestRestoredClaimKeepsVolume in test/e2e/reclaim runs it, as the Event has it",
		"kubectl logs -n NAMESPACE POD -c csi-reclaimer":            noLog,
		"kubectl logs -n NAMESPACE POD -c csi-reclaimer --previous": noLog,
		"kubectl logs -n NAMESPACE POD -c csi-reclaimer | grep -E " +
			"'VolumeLeftBehind|ReclaimAbandoned|DeletionUnprotected'": noLog,
		"kubectl logs -n NAMESPACE POD -c csi-reclaimer | grep TooLateToKeep": noLog,
		"kubectl logs -n NAMESPACE POD -c csi-reclaimer | grep Preflight":     noLog,
		"kubectl logs -n csi-reclaimer job/volume-guard-release":              noLog,
		"kubectl logs -n csi-reclaimer -l app=volume-guard-release --tail=-1": noLog,
		"kubectl port-forward -n NAMESPACE POD 8080":                          "no kubelet runs here",
		"kubectl wait -n csi-reclaimer --for=condition=Complete --timeout=15m job/volume-guard-release": "" +
			"no kubelet runs here, so no Job completes; TestReleaseJobRunsAsDeployment compares its pod",
		"kubectl port-forward -n csi-reclaimer deployment/volume-guard 8080": "" +
			"no kubelet runs here; TestThePageOfVolumeGuard of test/web opens the page",
		"kubectl reclaim web":                                           neverEnds,
		"kubectl reclaim web --open":                                    neverEnds,
		"kubectl reclaim web --port=8001":                               neverEnds,
		"kubectl reclaim fences --watch":                                "it does not end",
		`kubectl reclaim fence worker-2 --reason="kernel hangs" --wait`: "no agent works here",
		"go test ./test/deploy -run TestAlertsOnRecordedRuns -record 'a node is away'": "" +
			"it writes into this checkout; TestAlertsOnRecordedRuns replays what it wrote",
	} {
		p[command] = play{why: why}
	}
}

// addMake adds the commands that name a target of the Makefile. Package maketargets runs the targets that take seconds,
// and says why it does not run the others, whose lines with variables are checked here.
func addMake(t *testing.T, p plays) {
	t.Helper()
	for _, c := range commands(t) {
		line, is := strings.CutPrefix(c.text, "make ")
		if !is {
			continue
		}
		why, known := maketargets.Why(line)
		switch {
		case known && why == "":
			p[c.text] = play{why: "TestCheapTargetsRun in test/deploy/maketargets runs it"}
		case known:
			p[c.text] = play{with: []string{"make ", "make -n "}, want: "go "}
		}
	}
}

// addVolumes adds the commands for claims, PVs, and the brake.
func (p plays) addVolumes() {
	const leaving = `get pv -o jsonpath='{range .items[?(@.metadata.deletionTimestamp)]}{.metadata.name}`
	p.kubectl([]kubectl{
		{"delete secret volume-guard-webhooks --namespace csi-reclaimer --ignore-not-found", "", "", "deleted", makeSecret},
		{"delete secret -n csi-reclaimer volume-guard-webhooks", "", "", "deleted", makeSecret},
		{"describe pv NAME", docsPV, "", docsHome + "/" + docsPV, nil},
		{"describe pv", "", docsPV, docsHome + "/" + docsPV, nil},
		{"describe pvc NAME", docsPV, "-n " + docsHome, docsPV, nil},
		{"get volumeattachments", "", "", "", nil},
		{"get events -A --field-selector reason=VolumeLeftBehind", "", "", "", nil},
		{"get events -A --field-selector reason=DeletionUnprotected", "", "", "", nil},
		{`annotate pv NAME csi-reclaimer.io/hold="why"`, docsPV, "", "annotated", nil},
		{"annotate pv NAME csi-reclaimer.io/hold-", docsPV, "", "annotated", nil},
		{"get pv,pvc", "", "", docsPV, nil},
		{`patch pv NAME -p '{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}'`, docsPV, dryRun, "patched", nil},
		{`patch pv NAME -p '{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}'`, docsPV, dryRun, "patched", nil},
		{`annotate lease -n NAMESPACE LEASE csi-reclaimer.io/brake="an upgrade"`, "", "--overwrite", "annotated", makeBrake},
		{"annotate lease -n NAMESPACE LEASE csi-reclaimer.io/brake-", "", "", "annotated", makeBrake},
		{"get lease -n NAMESPACE LEASE -o yaml", "", "", "csi-reclaimer.io/brake: ", makeBrake},
		{"reclaim list -A --reason=DeletionsPaused", "", "", "", nil},
		{"delete lease -n NAMESPACE LEASE", "", "--dry-run=server", "deleted", makeBrake},
		{"get -o yaml", "", "pv/" + docsPV, "name: " + docsPV, nil},
		{"reclaim settle -n NAMESPACE --storage-class=CLASS --older-than=1h --dry-run", "", "", "", nil},
		{"get leases -A -l csi-reclaimer.io/in-flight-log", "", "", "", nil},
		{"reclaim explain pvc/NAME -n NAMESPACE", docsPV, "", "Claim " + docsHome + "/" + docsPV, nil},
		{`patch pv NAME --type=merge -p '{"metadata":{"finalizers":null}}'`, docsPV, "", "patched", nil},
		{`get pv -o jsonpath='{range .items[?(@.spec.csi.driver=="disk.csi.example.com")]}{.metadata.name} {.status.phase} ` +
			`{.spec.nodeAffinity.required.nodeSelectorTerms[*].matchExpressions[*]}{"\n"}{end}'`, "", "",
			`"values":["node-7"]`, makeLeavingPV},
		{"delete pv NAME --wait=false", docsPV, dryRun, "deleted", nil},
		{"get pvc -A -o custom-columns='NAMESPACE:.metadata.namespace,CLAIM:.metadata.name,FINALIZERS:.metadata.finalizers'",
			"", "", docsPV, nil},
		{"delete csistoragecapacities -n NAMESPACE -l csi.storage.k8s.io/drivername=DRIVER", "", "", "No resources found",
			nil},
		{leaving + `{"\n"}{end}'`, "", "", "pvc-77f0", makeLeavingPV},
		{"get pv -o custom-columns='PV:.metadata.name,FINALIZERS:.metadata.finalizers'", "", "", docsPV, nil},
		{"reclaim explain pod/db-0 -n shop", "", "", "Pod shop/db-0 is pending", makePod},
		{"reclaim explain namespace/shop", "", "", "Namespace shop is not terminating", makeHome},
		{"reclaim explain pod/NAME -n NAMESPACE", "db-0", "", "Pod shop/db-0 is pending", makePod},
		{"reclaim delete-pod NAME -n NAMESPACE --force", "db-0", "--yes",
			"Pod shop/db-0 was confirmed and force-deleted, and is gone", makePod},
		{"reclaim pods -A", "", "", "", nil},
		{"reclaim status -o wide", "", "", docsDriver, nil},
		{"scale deployment -n NAMESPACE DEPLOYMENT --replicas=0", "", "", "scaled", makeDeployment},
		{"scale deployment -n NAMESPACE DEPLOYMENT --replicas=1", "", "", "scaled", makeDeployment},
		{"reclaim delete-pod NAME", "db-0", "-n " + docsHome, "Pod shop/db-0 was deleted, and is gone", makePod},
		{"reclaim delete-pod db-0 -n shop --force", "", "--yes", "Pod shop/db-0 was confirmed and force-deleted, and is gone",
			makePod},
		{"reclaim explain pv/pvc-8a5c", "", "", "PV pvc-8a5c", nil},
		{"reclaim explain", "", "pv/" + docsPV, "PV pvc-8a5c", nil},
		{"reclaim explain pv/NAME", docsPV, "", "PV pvc-8a5c", nil},
		{"reclaim list -A", "", "", "pvc-77f0", makeLeavingPV},
		{"reclaim explain --all -A", "", "", "PV pvc-77f0", makeLeavingPV},
		{"reclaim list -A --reason=TerminatingBound", "", "", "", nil},
		{"reclaim list -n shop", "", "", "", nil},
		{"reclaim status", "", "", docsDriver, nil},
		{"reclaim version", "", "", "Kubernetes version: v1.", nil},
		{"reclaim release --driver=disk.csi.example.com --dry-run", "", "", "", nil},
		{"reclaim release --driver=disk.csi.example.com", "", "--role=owner --yes", "", nil},
	})
	p["kubectl reclaim status --driver=DRIVER"] = play{scene: makeBrake, with: []string{"DRIVER", docsDriver},
		want: "csi-reclaimer.io/brake-"}
	p["kubectl get pv"] = play{want: docsPV}
	p["kubectl get pv VOLUME"] = play{with: []string{"VOLUME", docsPV}, want: docsPV}
}

// addAudit gives a report to the commands that read one from the sidecar's pod, because no pods run here. test/e2e
// reads it from a pod, and creates the PVs.
func (s *shell) addAudit(t *testing.T, p plays) {
	t.Helper()
	const leak = "vol-left"
	text, err := json.Marshal(leaks.Report{
		Driver: docsDriver, Completed: time.Now(), Listed: 2, Suspected: 1, SuspectedBytes: 1 << 30,
		Volumes: []leaks.Found{{Handle: leak, Bytes: 1 << 30, Suspected: true, Reason: leaks.ReasonLeakSuspected,
			Sightings: 3, FirstSeen: time.Now().Add(-time.Hour)}},
	})
	must(t, err)
	report := filepath.Join(t.TempDir(), "report.json")
	must(t, os.WriteFile(report, text, 0o600))
	from := "--from=" + report
	const driver = "kubectl reclaim leaks --driver=" + docsDriver
	p[driver] = play{also: from, want: leak}
	p["kubectl reclaim leaks --driver=DRIVER"] = play{with: []string{"DRIVER", docsDriver}, also: from, want: leak}
	p["kubectl reclaim leaks"] = play{also: "--driver=" + docsDriver + " " + from, want: leak}
	p[driver+" --reclaim=HANDLE"] = play{with: []string{"HANDLE", leak}, also: from + " --dry-run",
		want: "volumeHandle: " + leak}
	p[driver+" --adopt=HANDLE --storage-class=CLASS --claim=NAMESPACE/NAME"] = play{also: from + " --dry-run",
		with: []string{"HANDLE", leak, "CLASS", "fast", "NAMESPACE/NAME", docsHome + "/data"}, want: "  claimRef:"}
	const fetched = "kubectl port-forward -n NAMESPACE POD 8080 & " +
		"curl -s --retry 9 --retry-connrefused --retry-delay 1 'localhost:8080/leaks?format=json'"
	p[fetched+" | kubectl reclaim leaks --from=-"] = play{with: []string{fetched, "cat " + report}, want: leak}
}

// dryRun is the end of a command that changes nothing, and applied a part of its output.
const dryRun, applied = "--dry-run=server", "(server dry run)"

// addManifests applies the manifests in a dry run, because other tests install them for good.
func (p plays) addManifests() {
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
		p.kubectl([]kubectl{{"apply " + files, "", dryRun, applied, makeHomes}})
	}
	// Without the Job, whose pod TestChartInstallUpgradeUninstall would take for that of its own.
	p["kubectl delete job -n csi-reclaimer volume-guard-release --ignore-not-found"] = play{}
	for _, name := range []string{"csi-driver", "node-fencing"} { // other tests may have made them
		p.kubectl([]kubectl{{"create namespace " + name, "", "--dry-run=client", "created", nil}})
	}
	for _, base := range []string{guard, car} {
		p.kubectl([]kubectl{{"apply -k deploy/kustomize/" + base, "", dryRun, applied, makeKustomizeHomes}})
	}
}

// addTokens adds the commands for tokens from the page about volume-guard's web page.
func (p plays) addTokens() {
	const account, viewers = "serviceaccount web-viewer -n csi-reclaimer", "clusterrolebinding volume-guard-web-viewers " +
		"--clusterrole=volume-guard-web-viewer --serviceaccount=csi-reclaimer:web-viewer"
	const delegator = "clusterrolebinding %s --clusterrole=system:auth-delegator --serviceaccount=%s"
	for _, object := range []string{account, viewers,
		fmt.Sprintf(delegator, "volume-guard-auth-delegator", "csi-reclaimer:volume-guard"),
		fmt.Sprintf(delegator, "mock-csi-auth-delegator", "mock-csi:mock-csi-controller"),
	} {
		p.kubectl([]kubectl{{"create " + object, "", dryRun, "created", makeHomes}})
	}
	p.kubectl([]kubectl{{"create token web-viewer -n csi-reclaimer --duration=8h", "", "", "ey", makeViewer}})
}

// addPodSafety deletes missing objects: test/e2e/podadmission installs them.
func (p plays) addPodSafety() {
	const key = "csi-reclaimer.io/pod-safety"
	p.kubectl([]kubectl{
		{"label namespace NAMESPACE " + key + "=warn", "", "", "labeled", makeHome},
		{"label --overwrite namespace NAMESPACE " + key + "=enforce", "", "", "labeled", makeHome},
		{"label namespace NAMESPACE " + key + "-", "", "", "labeled", makeHome},
		{"delete -f deploy/manifests/pod-safety-hold.yaml -f deploy/manifests/pod-safety-policies.yaml", "",
			"--ignore-not-found", "", nil},
		{"delete -f deploy/manifests/pod-safety-crd.yaml", "", "--ignore-not-found", "", nil},
		{"get volumelocks", "", "", "", func(t *testing.T) {
			must(t, shipped.Apply(patiently(t), cluster.Admin(), shipped.PodSafetyCRD))
		}},
	})
	for label, all := range map[string][]string{
		key: {"namespaces"}, "csi-reclaimer.io/single-node": {"namespaces", "storageclasses"}} {
		for _, kind := range all { // of other tests, too
			p.kubectl([]kubectl{{"label " + kind + " --all " + label + "-", "", dryRun, "labeled", func(t *testing.T) {
				makeHome(t)
				makeClass(t)
			}}})
		}
	}
}

// addStatefulSets adds the pages' commands for the claims of StatefulSets.
func (p plays) addStatefulSets() {
	const set, policy = " statefulset NAME -n NAMESPACE ", `{"spec":{"persistentVolumeClaimRetentionPolicy":`
	p.kubectl([]kubectl{
		{"get" + set + "-o jsonpath='{.spec.persistentVolumeClaimRetentionPolicy}'", docsSet, "", `"whenScaled":"Retain"`,
			makeStatefulSet},
		{"patch" + set + "-p '" + policy + `{"whenScaled":"Delete"}}}'`, docsSet, "", "patched", makeStatefulSet},
		{"patch" + set + "--type=merge -p '" + policy + "null}}'", docsSet, "", "patched", makeStatefulSet},
		{"annotate" + set + statefulset.PolicyAnnotation + `='{"whenScaled":"Delete"}'`, docsSet, "", "annotated",
			makeStatefulSet},
		{"annotate" + set + statefulset.PolicyAnnotation + "-", docsSet, "", "annotated", makeStatefulSet},
		{"annotate" + set + statefulset.GraceAnnotation + "=10m", docsSet, "", "annotated", makeStatefulSet},
		{"annotate pvc NAME -n NAMESPACE " + statefulset.HoldAnnotation + `="why"`, docsPV, "", "annotated", nil},
		{"delete pvc NAME -n NAMESPACE", docsPV, dryRun, "deleted", nil},
		{"delete pvc", "", docsPV + " -n " + docsHome + " " + dryRun, "deleted", nil},
		{"reclaim status --retained", "", "", "", nil},
		{"reclaim status --retained -n shop", "", "", "", nil},
		{"reclaim status --retained -A", "", "", "", nil},
		{"apply -f deploy/manifests/statefulset-claims-warn.yaml", "", dryRun, applied, nil},
	})
	const has = "StatefulSet shop/" + docsSet
	db := []string{"/db", "/" + docsSet}
	for command, is := range map[string]play{
		"reclaim preview sts/cache -n shop --replicas=1": {scene: makeStatefulSet, with: []string{"cache", docsSet},
			want: has},
		"reclaim preview statefulset/db --replicas=1 -n shop": {scene: makeStatefulSet, with: db, want: has},
		"reclaim preview statefulset/NAME -n NAMESPACE --delete": {scene: makeStatefulSet,
			with: []string{"NAME ", docsSet + " ", "NAMESPACE", docsHome}, want: has},
		"reclaim explain sts/db -n shop": {scene: makeStatefulSet, with: db, want: has + " has"},
		"reclaim explain pvc/data-db-2 -n shop": {with: []string{"data-db-2", docsPV},
			want: "Claim " + docsHome + "/" + docsPV},
		"delete pvc -n shop data-old-0 data-db-2": {with: []string{"data-old-0", docsPV, "data-db-2", ""}, also: dryRun,
			want: "deleted"},
	} {
		p["kubectl "+command] = is
	}
}

// addFencing adds the pages' commands for fences. No volume-guard works on the fences.
func (p plays) addFencing() {
	for _, file := range []string{"crd", "policy", "roles"} {
		p.kubectl([]kubectl{{"apply -f deploy/manifests/node-fencing-" + file + ".yaml", "", dryRun, applied, nil}})
	}
	const reason, cables = `--reason="kernel hangs" --agents-of=POLICY`, `--because="both power cables are out"`
	p.kubectl([]kubectl{
		{"delete -f deploy/manifests/node-fencing-policy.yaml -f deploy/manifests/node-fencing-roles.yaml", "",
			"--ignore-not-found", "", nil},
		{"delete -f deploy/manifests/node-fencing-crd.yaml", "", dryRun, "deleted", makeUnfenced},
		{"create clusterrolebinding fencing --clusterrole=csi-reclaimer-fencing-operator --group=GROUP", "", dryRun,
			"created", nil},
		{"reclaim explain node/NAME", docsNode, "", "Node " + docsNode, makeDocsFence},
		{"reclaim fence NAME " + reason + " --dry-run", docsNode, "", docsNode, makeUnfenced},
		{"reclaim fence NAME " + reason, docsNode, "--yes", docsNode, makeUnfenced},
		{`reclaim fence NAME --manual --reason="mainboard broken"`, docsNode, "--yes", docsNode, makeUnfenced},
		{"reclaim confirm node/NAME " + cables, docsNode, "--yes", docsNode, makeDocsFence},
		{`reclaim confirm node/NAME --because="switched off at the PDU"`, docsNode, "--yes", docsNode, makeDocsFence},
		{"reclaim confirm", "", "node/" + docsNode + " --because=off --yes", docsNode, makeDocsFence},
		{"reclaim unfence", "", docsNode + " --yes", docsNode, makeDocsFence},
		{"reclaim unfence NAME", docsNode, "--yes", docsNode, makeDocsFence},
		{"reclaim unfence NAME --abandon", docsNode, "--yes", docsNode, makeDocsFence},
		{"reclaim unfence NAME --when-released", docsNode, "--yes", docsNode, makeDocsFence},
		{"reclaim fences", "", "", docsNode, makeDocsFence},
		{"reclaim explain node/worker-2", "", "", docsNode, makeDocsFence},
		{"reclaim fence", "", docsNode + " --manual --reason=test --yes", docsNode, makeUnfenced},
		{"reclaim fence --manual", "", docsNode + " --reason=test --yes", docsNode, makeUnfenced},
		{"reclaim confirm node/worker-2 " + cables, "", "--yes", docsNode, makeDocsFence},
		{"reclaim unfence worker-2", "", "--yes", docsNode, makeDocsFence},
		{"reclaim unfence worker-2 --when-released", "", "--yes", docsNode, makeDocsFence},
		{"reclaim unfence worker-2 --abandon", "", "--yes", docsNode, makeDocsFence},
		{"describe nodefence NAME", docsNode, "", "a test", makeDocsFence},
		{"get nodefences", "", "", docsNode, makeDocsFence},
		{"get fencepolicies", "", "", docsPolicy, makeUnfenced},
		{"describe fencepolicy NAME", docsPolicy, "", docsPolicy, makeUnfenced},
		{`patch fencepolicy NAME --type=merge -p '{"spec":{"dryRun":false}}'`, docsPolicy, "", "patched", makeUnfenced},
		{"delete fencepolicies --all", "", "", "deleted", makeUnfenced},
		{"get jobs -n node-fencing -l csi-reclaimer.io/fence", "", "", "", nil},
		{"get jobs -n NAMESPACE -l csi-reclaimer.io/fence", "", "", "", nil},
	})
}

// addSingleNode adds the pages' commands for the locks of claims. No volume-guard works on the locks.
func (p plays) addSingleNode() {
	const label, freed = "csi-reclaimer.io/single-node", "was confirmed and force-deleted"
	for _, file := range []string{"policies", "gate", "gate-webhook"} {
		p.kubectl([]kubectl{{"apply -f deploy/manifests/single-node-" + file + ".yaml", "", dryRun, applied, nil}})
	}
	p.kubectl([]kubectl{
		{"delete -f deploy/manifests/single-node-gate.yaml -f deploy/manifests/single-node-policies.yaml", "",
			"--ignore-not-found", "", nil},
		{"label storageclass NAME " + label + "=true", docsOther, "", "labeled", makeClass},
		{"label storageclass NAME " + label + "-", docsOther, "", docsOther, makeClass},
		{"label --overwrite namespace NAMESPACE csi-reclaimer.io/pod-safety=enforce " + label + "=selected", "", dryRun,
			"labeled", makeHome},
		{"label namespace NAMESPACE " + label + "-", "", "", docsHome, makeHome},
		{`patch deployment NAME -n NAMESPACE -p '{"spec":{"strategy":{"$retainKeys":["type"],"type":"Recreate"}}}'`, docsOther,
			"", "patched", makeDeployment},
		{"rollout restart deployment NAME -n NAMESPACE", docsOther, "", "restarted", makeDeployment},
		{"reclaim locks -n NAMESPACE", "", "", docsHolder, makeLock},
		{"reclaim locks -n shop", "", "", docsHolder, makeLock},
		{"reclaim locks -A", "", "", docsHolder, makeLock},
		{"delete pod", "", docsHolder + " -n " + docsHome + " --wait=false", "deleted", makeLock},
		{"reclaim explain pvc/data -n shop", "", "", "Lock         pod " + docsHolder, makeLock},
		{"reclaim confirm pvc/data -n shop", "", "--yes", freed, makeLock},
		{"reclaim confirm pvc/NAME -n NAMESPACE", docsClaim, "--yes", freed, makeLock},
		{"reclaim confirm pvc/NAME", docsClaim, "-n " + docsHome + " --yes", freed, makeLock},
		{"describe pod NAME -n NAMESPACE", docsHolder, "", docsHolder, makeLock},
		{"delete pod NAME -n NAMESPACE --wait=false", docsHolder, "", "deleted", makeLock},
		{"get pod NAME -o jsonpath='{.metadata.uid}'", docsHolder, "-n " + docsHome, "-", makeLock},
		{`patch pod NAME -n NAMESPACE -p '{"spec":{"schedulingGates":[{"name":"csi-reclaimer.io/volume","$patch":"delete"}]}}'`,
			docsOther, "", "patched", makeGatedPod},
	})
	const confirms = "kubectl annotate pod NAME -n NAMESPACE csi-reclaimer.io/confirm-force-delete"
	for _, command := range []string{confirms + "=UID", confirms + "-"} {
		p[command] = play{scene: makeLock, want: "annotated",
			with: []string{"NAMESPACE", docsHome, "NAME", docsHolder, "UID", "u"}}
	}
}

// addPrograms runs the programs with the addresses of this machine, and a pod's environment.
func (s *shell) addPrograms(t *testing.T, p plays) {
	t.Helper()
	socket, sidecar, guard := s.programs(t)
	const byHand = ".build/bin/csi-reclaimer --csi-address=/csi/csi.sock --kubeconfig=$HOME/.kube/config " +
		"--leader-election-namespace=NAMESPACE --http-endpoint=:8080"
	p[byHand] = play{
		with: []string{".build/bin/csi-reclaimer", sidecar, "/csi/csi.sock", socket, ":8080",
			suite.FreeAddress(t)}, runsOn: "Reclaiming"}
	p[".build/bin/volume-guard --kubeconfig=$HOME/.kube/config --dry-run -v=2"] = play{
		with: []string{".build/bin/volume-guard", guard}, runsOn: "Carrying out the reclaim policy of in-tree PVs"}
	// In a namespace whose Lease no other test needs: it is kept for ten minutes.
	elsewhere := []string{".build/bin/volume-guard", guard, "namespace=csi-reclaimer", "namespace=" + docsHome}
	const release = ".build/bin/volume-guard --kubeconfig=$HOME/.kube/config " +
		"--leader-election-namespace=csi-reclaimer --release-finalizers"
	p[release+" --controllers=LIST"] = play{scene: makeHome, with: append(slices.Clone(elsewhere), "LIST", "intree"),
		want: "0 in-tree PVs were released"}
	p[release+" --release-drivers='*'"] = play{scene: makeHome, with: elsewhere, want: "were released"}
}

// startPrograms compiles the programs, and starts a driver.
func startPrograms(t *testing.T) (socket, sidecar, guard string) {
	t.Helper()
	binary := func(name string) string {
		path, err := program.Build(patiently(t), name, os.Stderr)
		must(t, err)
		return path
	}
	driver := mockdriver.ForTest(t, mockdriver.Options{Name: "docs.csi-reclaimer.io"})
	return driver.Socket(), binary("csi-reclaimer"), binary("volume-guard")
}

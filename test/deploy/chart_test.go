//go:build unix

package deploy

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

const (
	guard     = "volume-guard"
	guardHome = "csi-reclaimer" // the namespace of the manifests
)

// guardValues are ways to install the chart; all that it can render is in one of them.
func guardValues() map[string][]string {
	const affinity = "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]." +
		"matchExpressions[0]"
	const antiAffinity = "affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0]"
	return map[string][]string{
		"as it comes":       nil,
		"for a first look":  {"dryRun=true", "webhooks.pods=true", "controllers={*,pvc-protection}"},
		"with the policy":   {"admissionPolicy.enabled=true", `protectedDrivers.disk\.csi\.example\.com=owner`},
		"with protection":   {"controllers={*,pvc-protection,pv-protection}"},
		"with claims alone": {"controllers={-intree,pvc-protection}"},
		"without intree":    {"controllers={-intree,pv-protection}"},
		"with webhooks": {"webhooks.persistentVolumes=true", "webhooks.pods=true",
			`protectedDrivers.disk\.csi\.example\.com=owner`},
		"with pods' webhooks": {"webhooks.pods=true"},
		"with cert-manager":   {"webhooks.pods=true", "webhooks.certificate.certManager.issuerRef.name=ca"},
		"with a certificate":  {"webhooks.pods=true", "webhooks.certificate.existingSecret=tls"},
		"with pod safety":     {"podSafety.enabled=true"},
		"with pod safety's webhooks": {"podSafety.enabled=true", "podSafety.webhook=true", "webhooks.persistentVolumes=true",
			"webhooks.pods=true", `protectedDrivers.disk\.csi\.example\.com=owner`},
		"with single-node": {"podSafety.enabled=true", "singleNode.enabled=true"},
		"with single-node's webhooks": {"podSafety.enabled=true", "podSafety.webhook=true", "singleNode.enabled=true",
			"webhooks.persistentVolumes=true", "webhooks.pods=true", `protectedDrivers.disk\.csi\.example\.com=owner`},
		"with claims of sets": {"statefulSetClaims.enabled=true"},
		"with warnings":       {"statefulSetClaims.warn=true"},
		"with claims of sets, for a first look": {"statefulSetClaims.enabled=true", "dryRun=true",
			"statefulSetClaims.scaleDownGrace=10m"},
		"with node fencing": {"nodeFencing.enabled=true", "nodeFencing.jobNamespaces={node-fencing}",
			"nodeFencing.remediationNamespaces={openshift-workload-availability}", "nodeFencing.networkFences=true"},
		"with fences by hand": {"nodeFencing.enabled=true", "nodeFencing.keepReturned=24h"},
		"with node fencing, for a first look": {"nodeFencing.enabled=true", "nodeFencing.jobNamespaces={node-fencing}",
			"nodeFencing.remediationNamespaces={a}", "nodeFencing.networkFences=true", "dryRun=true"},
		"with monitoring": {"monitoring.podMonitor.enabled=true", "monitoring.alerts.enabled=true",
			"monitoring.dashboard.enabled=true"},
		"with a ServiceMonitor": {"monitoring.serviceMonitor.enabled=true", "monitoring.serviceMonitor.interval=30s",
			"monitoring.serviceMonitor.labels.release=prometheus"},
		"with the page": {"web.enabled=true"},
		"with metrics that need a token": {"httpAuthorization.enabled=true", "monitoring.podMonitor.enabled=true",
			"monitoring.podMonitor.tokenSecret.name=prometheus"},
		"with little": {"serviceAccount.create=false", "rbac.create=false", "podDisruptionBudget.enabled=false",
			"networkPolicy.enabled=false", "releaseOnUninstall.enabled=false"},
		"with everything else": {
			"image.registry=registry.example.com/storage", "image.repository=guard",
			"image.digest=sha256:" + strings.Repeat("0a", 32),
			"imagePullSecrets[0].name=pull", "imagePullSecrets[1]=other", "extraEnv[0].name=HTTPS_PROXY",
			"extraEnv[0].value=http://proxy:3128", "podSecurityContext.fsGroup=65532", "securityContext.procMount=Default",
			"replicas=3", "log.format=json", "log.verbosity=4", "extraArgs={--worker-threads=20}", "nodeSelector.disk=fast",
			"tolerations[0].key=node-role.kubernetes.io/control-plane", "tolerations[0].operator=Exists",
			"priorityClassName=system-cluster-critical",
			affinity + ".key=a", affinity + ".operator=Exists",
			antiAffinity + `.topologyKey=kubernetes\.io/hostname`, antiAffinity + ".labelSelector.matchLabels.app=volume-guard",
			"strategy.rollingUpdate.maxSurge=0", "strategy.rollingUpdate.maxUnavailable=1",
			"podAnnotations.a=b", "podLabels.e=f", "serviceAccount.name=other", "serviceAccount.annotations.c=d",
			"networkPolicy.apiServer={10.0.0.1/32,fd00::1/128}",
			"networkPolicy.metricsFrom[0].namespaceSelector.matchLabels.a=b",
		},
	}
}

// sets turns values into flags of helm.
func sets(values []string) (args []string) {
	for _, value := range values {
		args = append(args, "--set", value)
	}
	return args
}

// render returns the objects that helm would install, with hooks.
func render(t *testing.T, values ...string) []document {
	t.Helper()
	return rendered(t, append([]string{"releaseOnUninstall.rendered=true"}, values...)...)
}

// rendered returns the output of helm template.
func rendered(t *testing.T, values ...string) []document {
	t.Helper()
	return documents(t, guard, []byte(mustHelm(t, template(t, append([]string{"--namespace", guardHome},
		sets(values)...)...)...)))
}

// TestHelmLint lints both charts, also with their defaults, because chart-testing and Artifact Hub give no values.
func TestHelmLint(t *testing.T) {
	for chart, all := range map[string]map[string][]string{guard: guardValues(), car: carValues()} {
		for name, values := range all {
			if out, err := helm(t, append([]string{"lint", "--strict", inDeploy(t, "charts", chart)},
				sets(values)...)...); err != nil {
				t.Errorf("%s %s: %v\n%s", chart, name, err, out)
			}
		}
	}
}

func TestInvalidChartValuesAreRefused(t *testing.T) {
	for value, complaint := range map[string]string{
		"replica=1":                             "replica",
		"replicas=-1":                           "replicas",
		"webhooks.pod=true":                     "pod",
		"controllers={everything}":              "controllers",
		"controllers={}":                        "controllers",
		"extraArgs={--dry-run}":                 "extraArgs",
		"extraArgs={--controllers=intree}":      "extraArgs",
		"image.digest=latest":                   "digest",
		"image.repository=":                     "repository",
		"image.registry=r/":                     "registry",
		"imagePullSecrets[0].secret=a":          "imagePullSecrets",
		"extraEnv[0].name=POD_NAMESPACE":        "extraEnv",
		"log.verbosity=9":                       "verbosity",
		"log.format=xml":                        "format",
		"networkPolicy.apiServer={10.0.0.1}":    "apiServer",
		"protectedDrivers.d=somebody":           "protectedDrivers",
		"admissionPolicy=true":                  "admissionPolicy",
		"podSafety=true":                        "podSafety",
		"podSafety.hold=true":                   "hold",
		"podSafety.enabled=true,dryRun=true":    "choose one",
		"singleNode=true":                       "singleNode",
		"singleNode.enabled=true":               "needs podSafety.enabled",
		"nodeFencing=true":                      "nodeFencing",
		"nodeFencing.keepReturned=1d":           "keepReturned",
		"nodeFencing.keepReturned=0s":           "keepReturned",
		"statefulSetClaims.scaleDownGrace=0h0s": "scaleDownGrace",
		"extraArgs={--leader-election=false}":   "extraArgs",
		"extraArgs={--webhook-secret=a}":        "extraArgs",
		"extraArgs={--metrics-path=/m}":         "extraArgs",
		"nodeFencing.jobNamespaces={A}":         "jobNamespaces",
		"extraArgs={--keep-returned-fences=1h}": "extraArgs",
		"monitoring.alerts.labels.a=true":       "labels",
		"monitoring.podMonitor.interval=often":  "interval",
		"monitoring.podMonitor.enabled=true,monitoring.serviceMonitor.enabled=true": "choose one",
		"serviceAccount.name=":                                      "name",
		"fullnameOverride=A":                                        "fullnameOverride",
		"commonLabels.app=a":                                        "app",
		`podLabels.helm\.sh/chart=a`:                                "helm.sh/chart",
		"extraArgs={--webhook-service=a}":                           "extraArgs",
		"extraArgs={--webhook-issue-certificate=false}":             "extraArgs",
		"webhooks.certificate.existingSecret=volume-guard-webhooks": "existingSecret",
		"webhooks.certificate.secret=a":                             "secret",
		"webhooks.certificate.certManager.issuerRef.kinds=Issuer":   "kinds",
		"webhooks.certificate.existingSecret=a,webhooks.certificate.certManager.issuerRef.name=b": "choose one",
		"admissionPolicy.enabled=true,webhooks.persistentVolumes=true,protectedDrivers.d=owner":   "choose one",
		"admissionPolicy.enabled=true":    "none is named",
		"webhooks.persistentVolumes=true": "none is named",
	} {
		expectRefused(t, complaint, template(t, "--set", value)...)
	}
}

func TestFeaturesNeedKubernetesVersions(t *testing.T) {
	for _, c := range []struct{ version, values, complaint string }{
		{"1.35.9", "admissionPolicy.enabled=true,protectedDrivers.d=owner", "1.36 or newer"},
		{"1.29.9", "podSafety.enabled=true", "needs Kubernetes 1.30"},
		{"1.35.9", "podSafety.enabled=true", "podSafety.webhook"},
		{"1.29.9", "statefulSetClaims.warn=true", "needs Kubernetes 1.30"},
		{"1.29.9", "nodeFencing.enabled=true", "needs Kubernetes 1.30"},
		{"1.30.0", "dryRun=false", ""},
		{"1.30.0", "podSafety.enabled=true,podSafety.webhook=true,singleNode.enabled=true,statefulSetClaims.warn=true," +
			"nodeFencing.enabled=true", ""},
	} {
		args := template(t, "--kube-version", c.version, "--set", c.values)
		if c.complaint == "" {
			mustHelm(t, args...)
		} else {
			expectRefused(t, c.complaint, args...)
		}
	}
}

// TestPodSafetyExemptsChartServiceAccount uses another name and namespace, and checks the Service of the webhooks, too.
func TestPodSafetyExemptsChartServiceAccount(t *testing.T) {
	const (
		account         = "system:serviceaccount:storage:other"
		manifestAccount = "system:serviceaccount:csi-reclaimer:volume-guard"
	)
	out := mustHelm(t, template(t, "--namespace", "storage", "--set",
		"serviceAccount.name=other,podSafety.enabled=true,podSafety.webhook=true,singleNode.enabled=true")...)
	if strings.Contains(out, manifestAccount) {
		t.Error("the account of the manifests is exempt")
	}
	named := 0
	for _, d := range documents(t, guard, []byte(out)) {
		named += strings.Count(string(d.text), account)
		if d.GetKind() != "MutatingWebhookConfiguration" {
			continue
		}
		hooks, _, _ := unstructured.NestedSlice(d.Object, "webhooks")
		for _, hook := range hooks {
			hook, _ := hook.(map[string]any)
			if at, _, _ := unstructured.NestedString(hook, "clientConfig", "service", "namespace"); at != "storage" {
				t.Errorf("%s: a Service in namespace %q", d, at)
			}
		}
	}
	inManifest := 0
	for _, d := range manifestsOf(t, "pod-safety-policies.yaml single-node-policies.yaml ValidatingAdmissionPolicy") {
		text, _ := json.Marshal(d.Object)
		inManifest += strings.Count(string(text), manifestAccount)
	}
	if named != inManifest || named == 0 {
		t.Errorf("the account is named %d times, in the manifest %d times", named, inManifest)
	}
}

// TestChartValuesHaveSchema expects the same keys in values.yaml and in the schema, which refuses unknown and absent
// keys. A key without a default would be known to the schema alone.
func TestChartValuesHaveSchema(t *testing.T) {
	for _, chart := range []string{guard, car} {
		var values, schema map[string]any
		must(t, yaml.Unmarshal(read(t, "charts", chart, "values.yaml"), &values))
		must(t, json.Unmarshal(read(t, "charts", chart, "values.schema.json"), &schema))
		definitions, _ := schema["definitions"].(map[string]any)
		sameKeys(t, chart, values, schema, definitions)
	}
}

func TestChartValuesHaveComments(t *testing.T) {
	var values map[string]any
	text := read(t, "charts", guard, "values.yaml")
	must(t, yaml.Unmarshal(text, &values))
	for key := range values {
		// A comment above the key, or above the first of its own.
		if !regexp.MustCompile(`(?m)^( *#.*\n)` + key + `:|^` + key + `:.*\n +#`).Match(text) {
			t.Errorf("values.yaml: %s is not explained", key)
		}
	}
}

// sameKeys goes down both as far as the schema names its keys.
func sameKeys(t *testing.T, path string, values, schema, definitions map[string]any) {
	t.Helper()
	if to, is := schema["$ref"].(string); is {
		schema, _ = definitions[strings.TrimPrefix(to, "#/definitions/")].(map[string]any)
	}
	properties, named := schema["properties"].(map[string]any)
	if !named || strings.HasSuffix(path, ".resources") { // whose parts may be null
		return
	}
	if schema["additionalProperties"] != false {
		t.Errorf("%s: the schema takes anything", path)
	}
	// helm's own, and the usual condition of a chart with this one as its dependency
	known := slices.DeleteFunc(slices.Sorted(maps.Keys(properties)), func(key string) bool {
		return key == "global" || key == "enabled" && !strings.Contains(path, ".")
	})
	if there := slices.Sorted(maps.Keys(values)); !slices.Equal(there, known) {
		t.Errorf("%s: values.yaml has %q, the schema %q", path, there, known)
	}
	// An absent value would be an error in a template, or the field of a pod without its default.
	list, _ := schema["required"].([]any)
	for _, key := range known {
		if !slices.Contains(list, any(key)) {
			t.Errorf("%s: the schema takes values without %s", path, key)
		}
	}
	for _, key := range known {
		below, _ := properties[key].(map[string]any)
		inner, _ := values[key].(map[string]any)
		sameKeys(t, path+"."+key, inner, below, definitions)
	}
}

//go:build unix

package deploy

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestChartGrantsNoSecretsByDefault also checks that webhooks add access to the certificate's Secret alone.
func TestChartGrantsNoSecretsByDefault(t *testing.T) {
	for name, values := range guardValues() {
		webhooks := strings.Contains(name, "webhooks") || strings.Contains(name, "cert")
		granted := 0
		secret := map[string]string{"with cert-manager": guard + "-certificate", "with a certificate": "tls"}[name]
		secret = cmp.Or(secret, "volume-guard-webhooks")
		for _, d := range render(t, values...) {
			for _, rule := range d.rules(t) {
				for _, word := range slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs) {
					if strings.Contains(word, "*") {
						t.Errorf("%s: %s: a wildcard in %+v", name, d, rule)
					}
				}
				if !slices.Contains(rule.Resources, "secrets") {
					continue
				}
				granted++
				if d.GetKind() != "Role" || d.GetNamespace() != guardHome {
					t.Errorf("%s: %s grants Secrets beyond its namespace", name, d)
				}
				// A rule cannot name an object before its creation.
				if !slices.Equal(rule.ResourceNames, []string{secret}) && !slices.Equal(rule.Verbs,
					[]string{"create"}) {
					t.Errorf("%s: %s grants Secrets without a name: %+v", name, d, rule)
				}
			}
		}
		if (granted > 0) != webhooks {
			t.Errorf("%s: %d rules grant Secrets", name, granted)
		}
	}
}

// TestChartPermissionsFollowControllers expects each rendering to grant exactly the permissions of its controllers. The
// end-to-end tests show that volume-guard uses all of them, also with a single controller.
func TestChartPermissionsFollowControllers(t *testing.T) {
	const (
		intreeReads  = "get,list,watch persistentvolumes; get persistentvolumeclaims; list volumeattachments.storage.k8s.io"
		intreeWrites = "; create,patch,delete persistentvolumes"
		claims       = "; list,watch persistentvolumeclaims; list,watch pods"
		events       = "; create,patch events; get,create,update leases.coordination.k8s.io"
		podSafety    = "; get,list,watch,patch,delete pods; patch pods/status; get,list,watch nodes" +
			"; list,watch namespaces; get,list,watch,patch persistentvolumeclaims" +
			"; list,create,update,delete volumelocks.csi-reclaimer.io; list,watch nodefences.csi-reclaimer.io" +
			"; get validatingadmissionpolicies.admissionregistration.k8s.io" +
			"; get validatingadmissionpolicybindings.admissionregistration.k8s.io" +
			"; delete mutatingadmissionpolicybindings.admissionregistration.k8s.io" +
			"; delete mutatingwebhookconfigurations.admissionregistration.k8s.io" +
			"; delete validatingadmissionpolicybindings.admissionregistration.k8s.io"
		singleNode = "; get,list,watch,patch persistentvolumeclaims; get,list,watch persistentvolumes" +
			"; get,list,watch storageclasses.storage.k8s.io; get namespaces"
		setReads  = "; get,list,watch persistentvolumeclaims; get,list,watch pods; get,list,watch statefulsets.apps"
		setWrites = "; patch,delete persistentvolumeclaims; delete pods; patch statefulsets.apps"
		// The permissions of people and programs that fence nodes.
		roles = "; get,list,watch,create,update,patch,delete,confirm nodefences.csi-reclaimer.io" +
			"; get,list,watch fencepolicies.csi-reclaimer.io; get,list,watch nodefencetemplates.csi-reclaimer.io"
		fenceReads = "; get,list,watch nodefences.csi-reclaimer.io; get,list,watch fencepolicies.csi-reclaimer.io" +
			"; get,list,watch nodes; list pods; list volumeattachments.storage.k8s.io" +
			"; list poddisruptionbudgets.policy; get namespaces; get,list leases.coordination.k8s.io"
		fenceWrites = "; create,patch,delete nodefences.csi-reclaimer.io; update nodefences/status.csi-reclaimer.io" +
			"; update fencepolicies/status.csi-reclaimer.io; patch nodes"
		agents = "; get,create,delete jobs.batch; get podtemplates" +
			"; get fenceagentsremediationtemplates.fence-agents-remediation.medik8s.io" +
			"; get,create,delete fenceagentsremediations.fence-agents-remediation.medik8s.io" +
			"; get selfnoderemediationtemplates.self-node-remediation.medik8s.io" +
			"; get,create,delete selfnoderemediations.self-node-remediation.medik8s.io" +
			"; get machinedeletionremediationtemplates.machine-deletion-remediation.medik8s.io" +
			"; get,create,delete machinedeletionremediations.machine-deletion-remediation.medik8s.io" +
			"; get,create,patch networkfences.csiaddons.openshift.io; list csiaddonsnodes.csiaddons.openshift.io" +
			"; get networkfenceclasses.csiaddons.openshift.io"
		// In addition to system:auth-delegator.
		page = "; get,list,watch persistentvolumes; get,list,watch persistentvolumeclaims" +
			"; get,list,watch pods; get,list,watch nodes; get namespaces; list,watch events" +
			"; list,watch volumeattachments.storage.k8s.io; list,watch csidrivers.storage.k8s.io" +
			"; list,watch csinodes.storage.k8s.io; list,watch storageclasses.storage.k8s.io; list statefulsets.apps" +
			"; get,list,watch leases.coordination.k8s.io; get,list,watch nodefences.csi-reclaimer.io" +
			"; list fencepolicies.csi-reclaimer.io" +
			"; get mutatingadmissionpolicies.admissionregistration.k8s.io" +
			"; get mutatingadmissionpolicybindings.admissionregistration.k8s.io" +
			"; get mutatingwebhookconfigurations.admissionregistration.k8s.io"
		// With a certificate of others.
		ofOthers = "; get pods; get persistentvolumeclaims; get secrets" +
			"; get,list,watch,patch mutatingwebhookconfigurations.admissionregistration.k8s.io; get,patch " +
			"validatingwebhookconfigurations.admissionregistration.k8s.io"
		webhooks = ofOthers + "; create,patch secrets"
	)
	for name, want := range map[string]string{
		"as it comes":      intreeReads + intreeWrites + events,
		"for a first look": intreeReads + claims, // it writes nothing, and no webhook runs
		"with the policy":  intreeReads + intreeWrites + events,
		"with protection": intreeReads + intreeWrites + claims +
			"; patch persistentvolumeclaims" + events,
		"with claims alone":                     claims + "; patch persistentvolumeclaims" + events,
		"without intree":                        "list,watch,patch persistentvolumes" + events,
		"with webhooks":                         intreeReads + intreeWrites + events + webhooks,
		"with pods' webhooks":                   intreeReads + intreeWrites + events + webhooks,
		"with cert-manager":                     intreeReads + intreeWrites + events + ofOthers,
		"with a certificate":                    intreeReads + intreeWrites + events + ofOthers,
		"with pod safety":                       intreeReads + intreeWrites + events + podSafety,
		"with pod safety's webhooks":            intreeReads + intreeWrites + events + webhooks + podSafety,
		"with single-node":                      intreeReads + intreeWrites + events + podSafety + singleNode,
		"with single-node's webhooks":           intreeReads + intreeWrites + events + webhooks + podSafety + singleNode,
		"with claims of sets":                   intreeReads + intreeWrites + events + setReads + setWrites,
		"with claims of sets, for a first look": intreeReads + setReads,
		"with warnings":                         intreeReads + intreeWrites + events,
		"with node fencing": intreeReads + intreeWrites + events + fenceReads + fenceWrites + roles +
			agents,
		"with fences by hand":                 intreeReads + intreeWrites + events + fenceReads + fenceWrites + roles,
		"with node fencing, for a first look": intreeReads + fenceReads + roles,
		"with monitoring":                     intreeReads + intreeWrites + events,
		"with a ServiceMonitor":               intreeReads + intreeWrites + events,
		"with the page":                       intreeReads + intreeWrites + events + page,
		"with metrics that need a token":      intreeReads + intreeWrites + events,
		"with little":                         "",
		"with everything else":                intreeReads + intreeWrites + events,
	} {
		granted, wanted := map[string]bool{}, map[string]bool{}
		for _, d := range render(t, guardValues()[name]...) {
			for _, rule := range d.rules(t) {
				for _, resource := range rule.Resources {
					for _, verb := range rule.Verbs {
						granted[verb+" "+strings.Trim(resource+"."+rule.APIGroups[0], ".")] = true
					}
				}
			}
		}
		for words := range strings.SplitSeq(want, ";") {
			verbs, resource, _ := strings.Cut(strings.TrimSpace(words), " ")
			for verb := range strings.SplitSeq(verbs, ",") {
				if verb != "" {
					wanted[verb+" "+resource] = true
				}
			}
		}
		if !maps.Equal(granted, wanted) {
			t.Errorf("%s: granted are %q\nwant %q", name, slices.Sorted(maps.Keys(granted)), slices.Sorted(maps.Keys(wanted)))
		}
	}
	if len(guardValues()) != 26 {
		t.Error("a rendering is not looked at")
	}
}

// TestChartHasRolesForTokens expects roles only with the page or authorized metrics. Each role allows nothing but
// paths, and volume-guard may review tokens.
func TestChartHasRolesForTokens(t *testing.T) {
	want := map[string]string{"volume-guard-web-viewer": "/web/", "csi-reclaimer-metrics-reader": "/metrics",
		"csi-reclaimer-leaks-reader": "/leaks", "ClusterRoleBinding": "system:auth-delegator"}
	for name, values := range guardValues() {
		found := map[string]string{}
		for _, d := range render(t, values...) {
			if d.GetName() == "volume-guard-auth-delegator" {
				role, _, _ := unstructured.NestedString(d.Object, "roleRef", "name")
				found[d.GetKind()] = role
			}
			for _, rule := range d.rules(t) {
				if len(rule.NonResourceURLs) == 0 {
					continue
				}
				found[d.GetName()] = strings.Join(rule.NonResourceURLs, " ")
				if !slices.Equal(rule.Verbs, []string{"get"}) || len(rule.Resources) > 0 {
					t.Errorf("%s: %s: %+v", name, d, rule)
				}
			}
		}
		tokens := slices.Contains([]string{"with the page", "with metrics that need a token"}, name)
		if tokens && !maps.Equal(found, want) || !tokens && len(found) > 0 {
			t.Errorf("%s: %v", name, found)
		}
	}
}

// TestChartMonitorsSendToken also checks that a monitor sends no token where none is required.
func TestChartMonitorsSendToken(t *testing.T) {
	token := map[string]any{"credentials": map[string]any{"name": "prometheus", "key": "token"}}
	for kind, field := range map[string]string{"PodMonitor": "podMetricsEndpoints", "ServiceMonitor": "endpoints"} {
		value := "monitoring." + strings.ToLower(kind[:1]) + kind[1:]
		switched := value + ".enabled=true"
		endpoint := endpointOf(t, find(t, render(t, switched), kind, guard), field)
		if got := endpoint["authorization"]; got != nil {
			t.Errorf("%s sends %v", kind, got)
		}
		endpoint = endpointOf(t, find(t, render(t, switched, "httpAuthorization.enabled=true",
			value+".tokenSecret.name=prometheus"), kind, guard), field)
		if got := endpoint["authorization"]; !reflect.DeepEqual(got, token) {
			t.Errorf("%s sends %v, want %v", kind, got, token)
		}
		expectRefused(t, value+".tokenSecret.name",
			template(t, "--set", "httpAuthorization.enabled=true", "--set", switched)...)
	}
}

package docs

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/intree"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/manifests"
)

// reason is one of any package.
type reason interface {
	~string
	Sentence() string
	EventType() string
}

func TestEventReferencesAreCurrent(t *testing.T) {
	sidecar := eventPage("csi-reclaimer", "[Events of volume-guard](events-volume-guard.md)",
		"[respond to alerts](../how-to/respond-to-alerts.md)", "[concepts](../explanation/concepts.md)")
	table(sidecar, "Deletion",
		"On the PV; `DeletionsPaused` on the Lease too, and `TooLateToKeep` on the claim too.\n"+
			"`TerminatingBound` and `TerminatingUnbound` have an Event once they have lasted a minute.", reclaim.Reasons())
	table(sidecar, "Provisioning",
		"On the claim. `Provisioning`, `ProvisioningSucceeded` and `ProvisioningFailed` are the Events "+
			"of\nexternal-provisioner, with the driver's message. Each failure has one Event. A message that\n"+
			"changes is a new Event, at most one each minute; one that stays is recorded again every 20 to 30\n"+
			"minutes, so that the last answer stands on the claim. Where the claim is gone, its Events are on the\n"+
			"Lease of the in-flight log, and begin with the names of claim and volume.", provision.Reasons())
	CheckPage(t, "events.md", sidecar.String())

	guard := eventPage("volume-guard", "[Events of csi-reclaimer](events.md)",
		"[respond to alerts](../how-to/respond-to-alerts-volume-guard.md)", "[volume-guard](../explanation/volume-guard.md)")
	table(guard, "Volumes of in-tree plugins", "On the PV; `TooLateToKeep` on the claim too. "+
		"`TerminatingBound` and\n`TerminatingUnbound` have an Event once they have lasted a minute.", intree.Reasons())
	table(guard, "Claims and PVs in use", "On the claim or the PV.", inuse.Reasons())
	table(guard, "Pods held until their processes have ended", "On the pod.", podsafety.Reasons())
	table(guard, "Locks of claims", "On the pod that waits, or on the claim that has the lock.", singlenode.Reasons())
	table(guard, "Claims of StatefulSets",
		"On the claim or the StatefulSet; `ScaledDown`, `PodUsesOldClaim`, `PodUsesTerminatingClaim` and\n"+
			"`ConflictingController` on both.", statefulset.Reasons())
	table(guard, "Fences of nodes", "On the NodeFence or the FencePolicy, and on the Node.", fencing.Reasons())
	CheckPage(t, "events-volume-guard.md", guard.String())
}

// eventPage begins the page of a program, with links to the other program's page, the runbook and an explanation.
func eventPage(program, other, runbook, explanation string) *strings.Builder {
	var text strings.Builder
	fmt.Fprintf(&text, "# Events and reasons of %s\n\nGenerated from the code by `make docs`.\n", program)
	text.WriteString(`
A decision has one reason. That word is the reason of the Event, the value of the label
` + "`reason` in the [metrics](metrics.md), and the word in parentheses in\n" +
		"[`kubectl reclaim explain`](kubectl-reclaim-explain.md)." + ` An Event is reported once for each change.
It waits for its turn, and a newer one on the same object can replace it
([Events](scale.md#events)).
A reason without a type has no Event: it is the normal course of things, which the log has at
` + "`-v=4`.\n\n")
	fmt.Fprintf(&text, "- Responses to alerts: %s\n- How they follow each other: %s\n- %s\n", runbook,
		explanation, other)
	return &text
}

func table[R reason](to *strings.Builder, title, about string, reasons []R) {
	fmt.Fprintf(to, "\n## %s\n\n%s\n\n| reason | Event | meaning |\n|---|---|---|\n", title, about)
	for _, r := range reasons {
		kind := r.EventType()
		if kind == "" {
			kind = "–"
		}
		fmt.Fprintf(to, "| `%s` | %s | %s |\n", string(r), kind, cell(r.Sentence()))
	}
}

func words[R reason](reasons []R) []string {
	all := make([]string, len(reasons))
	for i, r := range reasons {
		all[i] = string(r)
	}
	return all
}

// cell is a text as the cell of a table.
func cell(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", "\\|")
}

// elsewhere maps kind and field to a reference, for fields whose own fields another page or part explains.
var elsewhere = map[string]string{
	"NodeFence status.conditions":          "",
	"FencePolicy spec.agents":              "As [of a NodeFence](#nodefence). Here they can be changed.",
	"FencePolicy spec.nodeSelector":        "",
	"FencePolicy spec.namespaceSelector":   "",
	"FencePolicy status.conditions":        "",
	"NodeFenceTemplate spec.template.spec": "The spec [of the NodeFences](#nodefence), without a `confirmation`.",
}

func TestKindReferenceIsCurrent(t *testing.T) {
	var text strings.Builder
	text.WriteString("# Kinds of node fencing\n\nGenerated from\n" +
		"[node-fencing-crd.yaml](../../deploy/manifests/node-fencing-crd.yaml) by `make docs`.\n\n" +
		"Group `csi-reclaimer.io`, version `v1alpha1`. All kinds are cluster-scoped.\n\n" +
		"- How to use them: [fence nodes](../how-to/node-fencing.md)\n" +
		"- Why they are so: [node fencing](../explanation/node-fencing.md)\n" +
		"- Values of `reason`: [Events and reasons](events-volume-guard.md)\n")
	crds, err := manifests.Read(manifests.NodeFencingCRD)
	must(t, err)
	order := []string{"nodefences", "fencepolicies", "nodefencetemplates"}
	place := func(crd *unstructured.Unstructured) int {
		plural, _, _ := strings.Cut(crd.GetName(), ".")
		return slices.Index(order, plural)
	}
	slices.SortFunc(crds, func(a, b *unstructured.Unstructured) int { return place(a) - place(b) })
	for _, crd := range crds {
		kind, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "kind")
		versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
		if len(versions) != 1 {
			t.Fatalf("%s has %d versions", kind, len(versions))
		}
		version, _ := versions[0].(map[string]any)
		schema, _, _ := unstructured.NestedMap(version, "schema", "openAPIV3Schema")
		fmt.Fprintf(&text, "\n## %s\n\n", kind)
		fmt.Fprintf(&text, "| field | type | meaning |\n|---|---|---|\n")
		description, _ := schema["description"].(string)
		fmt.Fprintf(&text, "| | | %s |\n", cell(strings.Join(append([]string{description}, rules(schema)...), " ")))
		properties, _ := schema["properties"].(map[string]any)
		for _, part := range []string{"spec", "status"} {
			if of, there := properties[part].(map[string]any); there {
				kindFields(&text, kind, part, of)
			}
		}
	}
	CheckPage(t, "fencing-kinds.md", text.String())
}

// kindFields writes the rows of all fields below one.
func kindFields(to *strings.Builder, kind, path string, of map[string]any) {
	if items, is := of["items"].(map[string]any); is {
		of = items
	}
	properties, _ := of["properties"].(map[string]any)
	required, _ := of["required"].([]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		field, _ := properties[name].(map[string]any)
		below := path + "." + name
		meaning, _ := field["description"].(string)
		instead, stop := elsewhere[kind+" "+below]
		if instead != "" {
			meaning = instead
		}
		if slices.Contains(required, any(name)) {
			meaning = "Required. " + meaning
		}
		if value, has := field["default"]; has {
			meaning += fmt.Sprintf(" Default: `%v`.", value)
		}
		if instead == "" {
			meaning += " " + strings.Join(rules(field), " ")
		}
		fmt.Fprintf(to, "| `%s` | %s | %s |\n", below, typeOf(field), cell(meaning))
		if !stop {
			kindFields(to, kind, below, field)
		}
	}
}

// typeOf is the type of a field, as a reader of YAML sees it.
func typeOf(field map[string]any) string {
	if items, is := field["items"].(map[string]any); is {
		return "list of " + typeOf(items)
	}
	var values []string
	if all, is := field["enum"].([]any); is {
		for _, value := range all {
			values = append(values, fmt.Sprintf("`%v`", value))
		}
		return strings.Join(values, ", ")
	}
	if field["x-kubernetes-int-or-string"] == true {
		return "integer or string"
	}
	if format, is := field["format"].(string); is && format == "date-time" {
		return "time"
	}
	return fmt.Sprint(field["type"])
}

// rules returns the API server's validation rules, as sentences.
func rules(field map[string]any) (all []string) {
	validations, _ := field["x-kubernetes-validations"].([]any)
	for _, one := range validations {
		rule, _ := one.(map[string]any)
		message, _ := rule["message"].(string)
		message = strings.NewReplacer("[", "(", "]", ")").Replace(message)
		all = append(all, "Rule: "+message+".")
	}
	items, _ := field["items"].(map[string]any)
	if len(items) > 0 {
		all = append(all, rules(items)...)
	}
	return all
}

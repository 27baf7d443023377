package docs

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/manifests"
)

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

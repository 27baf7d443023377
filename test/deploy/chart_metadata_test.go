//go:build unix

package deploy

import (
	"encoding/base64"
	"encoding/xml"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// chartMetadata is what Artifact Hub shows of a chart.
type chartMetadata struct {
	Home, Icon, KubeVersion string
	Sources, Keywords       []string
	Maintainers             []struct{ Name, URL string }
	Annotations             map[string]string
}

func TestChartsDescribeThemselves(t *testing.T) {
	for _, chart := range []string{guard, car} {
		var m chartMetadata
		must(t, yaml.Unmarshal(read(t, "charts", chart, "Chart.yaml"), &m))
		if m.Home == "" || m.KubeVersion == "" || len(m.Keywords) == 0 || !slices.Contains(m.Sources, m.Home) ||
			len(m.Maintainers) != 1 || m.Maintainers[0].URL != m.Home {
			t.Errorf("%s is described by %+v", chart, m)
		}
		// Where nobody reaches the internet, the icon is shown all the same.
		encoded, is := strings.CutPrefix(m.Icon, "data:image/svg+xml;base64,")
		picture, err := base64.StdEncoding.DecodeString(encoded)
		if !is || err != nil {
			t.Fatalf("%s has the icon %q: %v", chart, m.Icon, err)
		}
		if err := xml.Unmarshal(picture, new(struct{ XMLName xml.Name })); err != nil {
			t.Errorf("%s: the icon: %v", chart, err)
		}
		if license := m.Annotations["artifacthub.io/license"]; license != "Apache-2.0" {
			t.Errorf("%s has the license %q", chart, license)
		}
		var links []struct{ Name, URL string }
		if err := yaml.UnmarshalStrict([]byte(m.Annotations["artifacthub.io/links"]), &links); err != nil || len(links) == 0 {
			t.Errorf("%s has the links %v: %v", chart, links, err)
		}
		for _, link := range links {
			path, is := strings.CutPrefix(link.URL, m.Home+"/blob/main/")
			path, _, _ = strings.Cut(path, "#")
			if !is {
				t.Errorf("%s: the link %s", chart, link.URL)
				continue
			}
			read(t, "..", path)
		}
	}
}

// TestChartNamesItsKinds in the annotation, from which Artifact Hub lists them.
func TestChartNamesItsKinds(t *testing.T) {
	type kind struct{ Kind, Version, Name, DisplayName, Description string }
	var m chartMetadata
	must(t, yaml.Unmarshal(read(t, "charts", guard, "Chart.yaml"), &m))
	var named []kind
	must(t, yaml.UnmarshalStrict([]byte(m.Annotations["artifacthub.io/crds"]), &named))
	got, want := map[kind]bool{}, map[kind]bool{}
	for _, k := range named {
		if k.Description == "" || k.DisplayName != k.Kind {
			t.Errorf("%+v is not described", k)
		}
		got[kind{Kind: k.Kind, Version: k.Version, Name: k.Name}] = true
	}
	for _, values := range []string{"with pod safety", "with node fencing"} {
		for _, d := range render(t, guardValues()[values]...) {
			if d.GetKind() != "CustomResourceDefinition" {
				continue
			}
			name, _, _ := unstructured.NestedString(d.Object, "spec", "names", "kind")
			versions, _, _ := unstructured.NestedSlice(d.Object, "spec", "versions")
			for _, version := range versions {
				version, _, _ := unstructured.NestedString(map[string]any{"in": version}, "in", "name")
				want[kind{Kind: name, Version: version, Name: d.GetName()}] = true
			}
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("the annotation names %v, and the chart installs %v", got, want)
	}
}

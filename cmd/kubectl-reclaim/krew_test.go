package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/yaml"
)

// TestTheKrewManifest has what krew's validate-krew-manifest asks of one, and what "make krew" fills in.
func TestTheKrewManifest(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "deploy", "krew", "reclaim.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	makefile, err := os.ReadFile(filepath.Join("..", "..", "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	var manifest struct {
		Kind     string
		Metadata struct{ Name string }
		Spec     struct {
			Version, Homepage, ShortDescription, Description string
			Platforms                                        []struct {
				Selector         struct{ MatchLabels map[string]string }
				URI, SHA256, Bin string
			}
		}
	}
	if err := yaml.Unmarshal(text, &manifest); err != nil {
		t.Fatal(err)
	}
	spec := manifest.Spec
	if manifest.Kind != "Plugin" || "kubectl-"+manifest.Metadata.Name != name || spec.Version != "${VERSION}" || spec.Homepage == "" ||
		spec.Description == "" || spec.ShortDescription == "" || len(spec.ShortDescription) > 50 || strings.HasSuffix(spec.ShortDescription, ".") {
		t.Errorf("%+v", manifest)
	}
	made := strings.Fields(regexp.MustCompile(`PLATFORMS \?= (.*)`).FindStringSubmatch(string(makefile))[1])
	if len(made) != len(spec.Platforms) {
		t.Errorf("make krew makes %q, the manifest has %d platforms", made, len(spec.Platforms))
	}
	for i, p := range spec.Platforms {
		labels := p.Selector.MatchLabels
		if made[i] != labels["os"]+"/"+labels["arch"] || p.Bin != name || p.SHA256 != "${SHA256_"+labels["os"]+"_"+labels["arch"]+"}" ||
			!strings.HasSuffix(p.URI, "/${VERSION}/"+name+"-"+labels["os"]+"-"+labels["arch"]+".tar.gz") {
			t.Errorf("make krew makes %s, the manifest has %+v", made[i], p)
		}
	}
}

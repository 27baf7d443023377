package main

import (
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/kubectl-reclaim/internal/cli"
)

// TestK9sPlugins holds the kinds and flags of the plugins of k9s against those of the commands that they run.
func TestK9sPlugins(t *testing.T) {
	text, err := os.ReadFile("../../deploy/k9s/plugins.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Plugins map[string]struct {
			ShortCut, Description, Command string
			Scopes, Args                   []string
		}
	}
	if err := yaml.Unmarshal(text, &file); err != nil || len(file.Plugins) != 3 {
		t.Fatalf("%d plugins, %v", len(file.Plugins), err)
	}
	for name, plugin := range file.Plugins {
		for _, scope := range plugin.Scopes {
			if _, known := cli.KindOf(scope); !known {
				t.Errorf("%s: %s is no kind that is explained", name, scope)
			}
		}
		line, _, _ := strings.Cut(plugin.Args[len(plugin.Args)-1], ";")
		words, is := strings.CutPrefix(line, "kubectl reclaim ")
		cmd, args, err := root.Discard().Find(strings.Fields(words))
		if err != nil || !is {
			t.Fatalf("%s runs %q: %v", name, line, err)
		}
		if err := cmd.ParseFlags(args); err != nil {
			t.Errorf("%s runs %q: %v", name, line, err)
		}
	}
}

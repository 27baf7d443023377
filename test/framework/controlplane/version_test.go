//go:build unix

package controlplane

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Each version has a module of its name with a Kubernetes of that minor version, and each module is a version.
func TestEachVersionHasItsModule(t *testing.T) {
	folders, err := filepath.Glob("v*.*")
	if err != nil {
		t.Fatal(err)
	}
	modules := slices.DeleteFunc(folders, func(name string) bool {
		info, err := os.Stat(name)
		return err != nil || !info.IsDir()
	})
	slices.Reverse(modules) // sorted by name, newest first until there is a 1.100
	var versions []string
	for _, v := range Versions() {
		versions = append(versions, string(v))
		dir, err := v.moduleDir()
		if err != nil {
			t.Fatal(err)
		}
		if kubernetes, err := kubernetesVersion(dir); err != nil || !strings.HasPrefix(kubernetes, string(v)+".") {
			t.Errorf("module of %s: Kubernetes %q, error %v", v, kubernetes, err)
		}
	}
	if !slices.Equal(modules, versions) {
		t.Errorf("modules %q, versions %q", modules, versions)
	}
}

func TestVersionsAreOrdered(t *testing.T) {
	all := Versions()
	for i, v := range all {
		for j, other := range all {
			if got := v.Before(other); got != (i > j) {
				t.Errorf("%s before %s: %t", v, other, got)
			}
		}
	}
	if V1_30.Before(V1_30) || !V1_30.Before(V1_31) || !V1_31.Before(V1_32) || !V1_32.Before(V1_33) {
		t.Error("versions without a module are in another order")
	}
	if want := []Version{all[0], all[len(all)-1]}; !slices.Equal(Edges(), want) {
		t.Errorf("edges %q, want %q", Edges(), want)
	}
}

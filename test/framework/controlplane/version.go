//go:build unix

package controlplane

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

// Version is a Kubernetes minor version, which is also the name of the nested module in this folder
// that compiles it.
type Version string

const (
	// V1_36 is the newest: all of KEP-2644 is GA.
	V1_36 Version = "v1.36"
	// V1_30 is from before KEP-2644 was on by default (1.31): PV deleted first leaks the volume.
	V1_30 Version = "v1.30"
)

// Versions returns all versions, newest first.
func Versions() []Version { return []Version{V1_36, V1_30} }

// ParseVersion finds the version of that name.
func ParseVersion(name string) (Version, error) {
	known := make([]string, 0, len(Versions()))
	for _, v := range Versions() {
		if string(v) == name {
			return v, nil
		}
		known = append(known, string(v))
	}
	return "", fmt.Errorf("control plane version %q: known are %s", name, strings.Join(known, ", "))
}

// moduleDir is the folder of the version's nested module.
func (v Version) moduleDir() (string, error) {
	root, err := process.ModuleRoot()
	if err != nil {
		return "", err
	}
	return filepath.Join(root, "test", "framework", "controlplane", string(v)), nil
}

// kubernetesVersion reads from the module's go.mod which Kubernetes it requires, for example "v1.36.3".
func kubernetesVersion(moduleDir string) (string, error) {
	gomod, err := os.ReadFile(filepath.Join(moduleDir, "go.mod"))
	if err != nil {
		return "", fmt.Errorf("read Kubernetes version: %w", err)
	}
	for line := range bytes.Lines(gomod) {
		fields := strings.Fields(strings.TrimPrefix(strings.TrimSpace(string(line)), "require "))
		if len(fields) >= 2 && fields[0] == "k8s.io/kubernetes" {
			return fields[1], nil
		}
	}
	return "", fmt.Errorf("read Kubernetes version: %q requires no k8s.io/kubernetes", filepath.Join(moduleDir, "go.mod"))
}

//go:build unix

package controlplane

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

// Version is a Kubernetes minor version, which is also the name of the nested module in this folder
// that compiles it.
type Version string

const (
	V1_37 Version = "v1.37"
	// V1_36 has all of KEP-2644 for good, and serves MutatingAdmissionPolicy v1.
	V1_36 Version = "v1.36"
	V1_35 Version = "v1.35"
	// V1_34 serves VolumeAttributesClass v1, and pods say which generation the kubelet has observed.
	V1_34 Version = "v1.34"
	// V1_33 deletes the pods of a namespace before all else, and has pods/resize.
	V1_33 Version = "v1.33"
	// V1_32 has StatefulSetAutoDeletePVC for good: its gate is locked. It is for [Version.Before]: no module compiles it.
	V1_32 Version = "v1.32"
	// V1_31 has KEP-2644 on by default, and the CSI migration of all in-tree plugins. As V1_32, it is for comparisons.
	V1_31 Version = "v1.31"
	// V1_30 is from before KEP-2644 was on by default: PV deleted first leaks the volume.
	V1_30 Version = "v1.30"
)

// Newest is the version that tests and the demo run on unless they need another one. Its module requires the same
// versions of modules as the root module, so that one compilation of a package serves both.
const Newest = V1_37

// Versions returns all versions that have a module, newest first.
func Versions() []Version { return []Version{V1_37, V1_36, V1_35, V1_34, V1_33, V1_30} }

// Edges returns the newest and the oldest version, on which each change is tested. Those in between are compiled and
// tested on demand.
func Edges() []Version { return []Version{Newest, V1_30} }

// Before reports whether v is older than other. Both are of the form v1.NN, with a module or without.
func (v Version) Before(other Version) bool { return v.minor() < other.minor() }

// minor is the number after the dot, 0 for an invalid version.
func (v Version) minor() int {
	n, _ := strconv.Atoi(strings.TrimPrefix(string(v), "v1."))
	return n
}

// ParseVersion finds the version of that name.
func ParseVersion(name string) (Version, error) {
	if v := Version(name); slices.Contains(Versions(), v) {
		return v, nil
	}
	known := make([]string, 0, len(Versions()))
	for _, v := range Versions() {
		known = append(known, string(v))
	}
	return "", fmt.Errorf("control plane version %q: known are %s", name, strings.Join(known, ", "))
}

// Release is the Kubernetes release that the version's module compiles, such as v1.36.3.
func (v Version) Release() (string, error) {
	dir, err := v.moduleDir()
	if err != nil {
		return "", err
	}
	return kubernetesVersion(dir)
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

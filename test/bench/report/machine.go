//go:build unix

package report

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/csi-reclaimer/csi-reclaimer/test/bench/peer"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

// Machine describes the measuring machine. Unknown fields are empty.
type Machine struct {
	CPU       string `json:"cpu"`
	Cores     int    `json:"cores"`
	MemoryMiB int    `json:"memoryMiB"`
	System    string `json:"system"`
	Kernel    string `json:"kernel"`
}

// String says it in one line.
func (m Machine) String() string {
	return fmt.Sprintf("%s, %d cores, %d MiB of memory, %s %s", m.CPU, m.Cores, m.MemoryMiB, m.System, m.Kernel)
}

// ThisMachine looks around. CPU, memory and kernel are known on Linux only.
func ThisMachine() Machine {
	m := Machine{CPU: procField("/proc/cpuinfo", "model name"), Cores: runtime.NumCPU(),
		System: runtime.GOOS + "/" + runtime.GOARCH}
	_, _ = fmt.Sscan(procField("/proc/meminfo", "MemTotal"), &m.MemoryMiB)
	m.MemoryMiB /= 1024 // from kB
	if kernel, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel = strings.TrimSpace(string(kernel))
	}
	return m
}

// procField returns the first value of a name in a file of lines "name: value", or the empty string.
func procField(path, name string) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// The library of external-provisioner: the versions of csi-reclaimer and of external-provisioner 6.4.
const (
	referenceModule    = "sigs.k8s.io/sig-storage-lib-external-provisioner/v10"
	referenceV13Module = "sigs.k8s.io/sig-storage-lib-external-provisioner/v13"
)

// TheseVersions returns the versions that a measurement would have now.
func TheseVersions(ctx context.Context) (Versions, error) {
	v := Versions{Go: runtime.Version()}
	root, err := process.ModuleRoot()
	if err != nil {
		return v, err
	}
	for _, ask := range []struct {
		into *string
		dir  string
		args []string
	}{
		{&v.Ours, ".", []string{"git", "describe", "--tags", "--always", "--dirty"}},
		{&v.Reference, ".", []string{"go", "list", "-m", referenceModule}},
		{&v.ReferenceV13, peer.FolderV13, []string{"go", "list", "-m", referenceV13Module}},
		{&v.Kubernetes, "test/framework/controlplane/" + string(controlplane.Newest),
			[]string{"go", "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes"}},
	} {
		command := exec.CommandContext(ctx, ask.args[0], ask.args[1:]...)
		command.Dir = filepath.Join(root, ask.dir)
		answer, err := command.Output()
		if err != nil {
			return v, fmt.Errorf("ask %s: %w", strings.Join(ask.args, " "), err)
		}
		*ask.into = strings.TrimSpace(string(answer))
	}
	return v, nil
}

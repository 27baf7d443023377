//go:build linux

package nodes

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// packages is the command that installs the required packages on Debian.
const packages = "apt-get install containerd runc containernetworking-plugins iproute2"

// sbin is where some of the programs are, which a user's PATH may leave out.
const sbin = "/usr/local/sbin:/usr/sbin:/sbin"

// Supported returns nil if nodes can run on this machine, and else an error that names all that is missing.
func Supported() error {
	if os.Geteuid() != 0 {
		return errors.New("real nodes need root: they mount and make namespaces")
	}
	var missing []string
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "ctr", "runc", "ip"} {
		if !hasProgram(name) {
			missing = append(missing, name)
		}
	}
	if _, err := findCNI(); err != nil {
		missing = append(missing, "the CNI plugins loopback, bridge and host-local")
	}
	if len(missing) > 0 {
		return fmt.Errorf("real nodes need %s: %s", strings.Join(missing, ", "), packages)
	}
	for _, name := range []string{"unshare", "nsenter", "mount", "umount"} {
		if !hasProgram(name) {
			return fmt.Errorf("real nodes need the program %s, of the package util-linux or mount", name)
		}
	}
	// root in a container may lack all of these rights.
	probe := exec.Command("unshare", "--mount", "--pid", "--fork", "--mount-proc", "mount", "-t", "tmpfs", "probe", "/run")
	if out, err := probe.CombinedOutput(); err != nil {
		return fmt.Errorf("real nodes need to make namespaces and to mount, which fails here: %w: %s", err,
			strings.TrimSpace(string(out)))
	}
	cgroups := cgroupRoot
	if !cgroupVersion2() {
		cgroups = filepath.Join(cgroupRoot, "memory")
	}
	if err := unix.Access(cgroups, unix.W_OK); err != nil {
		return fmt.Errorf("real nodes need to make cgroups in %s, which fails here: %w", cgroups, err)
	}
	return nil
}

const (
	inotifyLimit = "/proc/sys/fs/inotify/max_user_instances"
	// inotifyInstances is enough for a dozen nodes beside their control planes, each of which takes about ten.
	inotifyInstances = 1024
)

// raiseInotifyLimit lets this user have enough inotify instances, and never lowers the limit. It is the one setting of
// the machine that nodes change: Linux has 128 for all processes of a user, without which a kubelet ends with "too
// many open files". Where the setting cannot be written, nodes run until the limit is reached.
func raiseInotifyLimit() error {
	text, err := os.ReadFile(inotifyLimit)
	if err != nil {
		return err
	}
	limit, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || limit >= inotifyInstances {
		return err
	}
	if err := os.WriteFile(inotifyLimit, []byte(strconv.Itoa(inotifyInstances)), 0); err != nil {
		fmt.Fprintf(os.Stderr, "real nodes run with %d inotify instances, %d are better: %v\n", limit, inotifyInstances, err)
	}
	return nil
}

func hasProgram(name string) bool {
	_, err := exec.LookPath(name)
	for _, dir := range strings.Split(sbin, ":") {
		if err != nil {
			_, err = exec.LookPath(filepath.Join(dir, name))
		}
	}
	return err == nil
}

// findCNI returns the directory of the CNI plugins. Without them containerd is not ready, even where pods have the
// host's network.
func findCNI() (string, error) {
	for _, dir := range []string{"/usr/lib/cni", "/opt/cni/bin"} {
		complete := true
		for _, plugin := range []string{"loopback", "bridge", "host-local"} {
			_, err := os.Stat(filepath.Join(dir, plugin))
			complete = complete && err == nil
		}
		if complete {
			return dir, nil
		}
	}
	return "", errors.New("find the CNI plugins loopback, bridge and host-local")
}

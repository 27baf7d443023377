package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/nodes"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/nodes/sshd"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process/rundir"
)

// nodePool are the nodes of a cluster.
type nodePool = *nodes.Pool

// realNodes are the names of the nodes with kubelets.
var realNodes = []string{"node-1", "node-2"}

// nodesSupported returns nil if this machine can run suites with real nodes.
func nodesSupported() error {
	_, err := staticBusybox()
	return errors.Join(nodes.Supported(), err)
}

// startPlaneWithTunnel starts a control plane that reaches kubelets and pods by a tunnel.
func (c *cluster) startPlaneWithTunnel(ctx context.Context) error {
	dir, err := rundir.New("csi-conf-") // a socket's path must be short
	if err != nil {
		return err
	}
	c.atEnd(dir.Remove)
	c.tunnel = filepath.Join(dir.Path(), "tunnel")
	config := filepath.Join(dir.Path(), "egress.yaml")
	if err := os.WriteFile(config, []byte(nodes.EgressConfig(c.tunnel)), 0o600); err != nil {
		return err
	}
	return c.startPlaneWith(ctx, "--egress-selector-config-file="+config, "--kubelet-preferred-address-types=InternalIP")
}

// startRealNodes starts nodes with the images of the suite.
func (c *cluster) startRealNodes(ctx context.Context) error {
	pool, err := nodes.Start(ctx, c.plane, nodes.Options{Names: realNodes, PodNetwork: true,
		OwnKubeletDir: c.suite.Manifests == "" && c.suite.Images == "", Tunnel: c.tunnel, Progress: c.progress})
	if err != nil {
		return err
	}
	c.atEnd(pool.Stop)
	c.atEnd(func() error { return c.keepKubeletLogs(pool) })
	if err := c.importImages(ctx, pool); err != nil {
		return fmt.Errorf("make images: %w", err)
	}
	c.pool = pool
	return c.serveSSH()
}

// startMockDriver starts the mock driver on the nodes. Its kind has what [Suite.Driver] says.
func (c *cluster) startMockDriver(ctx context.Context) error {
	o := nodes.DriverOptions{Options: mockdriver.Options{Name: driverName, Progress: c.progress}}
	if c.suite.Driver != "" {
		o.Attach, o.Profile, o.Dir = true, "topology", filepath.Join(c.logs, "driver")
		// The kubelet has the group own the files, which the driver does not do.
		o.Args = []string{"--disable-capabilities=node/VOLUME_MOUNT_GROUP"}
		o.CSIDriver = func(d *storagev1.CSIDriver) { d.Spec.FSGroupPolicy = ptr.To(storagev1.FileFSGroupPolicy) }
	}
	driver, err := c.pool.StartDriver(ctx, o)
	if err != nil {
		return err
	}
	c.driver = driver.Driver
	c.atEnd(driver.Stop)
	return nil
}

func (c *cluster) keepKubeletLogs(pool *nodes.Pool) (err error) {
	const lines = 100_000
	for _, n := range pool.Nodes() {
		err = errors.Join(err, os.WriteFile(filepath.Join(c.logs, n.Name()+".log"), []byte(n.KubeletLog(lines)), 0o644))
	}
	return err
}

// staticBusybox returns the path of a busybox without shared libraries.
func staticBusybox() (string, error) {
	path, err := exec.LookPath("busybox")
	if err == nil {
		var text []byte
		if text, err = os.ReadFile(path); err == nil && bytes.Contains(text, []byte("/ld-linux")) {
			err = errors.New("it is not static")
		}
	}
	if err != nil {
		return "", fmt.Errorf("pods of the suite need a static busybox (apt-get install busybox-static): %w", err)
	}
	return path, nil
}

// importImages gives the nodes the images that the suite names. No registry is asked: agnhost is compiled from the
// sources that the suite comes with, the shell is busybox, and its web server plays nginx.
func (c *cluster) importImages(ctx context.Context, pool *nodes.Pool) error {
	names, err := c.imageNames(ctx)
	if err != nil {
		return err
	}
	shell, err := shellFiles(ctx)
	if err != nil {
		return err
	}
	agnhost, err := buildAgnhost(ctx, c)
	if err != nil {
		return err
	}
	const pages = "usr/share/nginx/html/"
	web := []string{"/bin/sh", "-c", "trap 'exit 0' TERM QUIT; httpd -f -p 80 -h /" + pages + " & wait"}
	var images []nodes.Image
	for _, name := range names {
		repository, _, _ := strings.Cut(name, ":")
		image := nodes.Image{Name: name, Files: shell}
		switch repository {
		case "registry.k8s.io/e2e-test-images/agnhost":
			image.Files, image.Command = append(shell[:len(shell):len(shell)], agnhost...), []string{"/agnhost"}
			image.Args = []string{"pause"}
		case "registry.k8s.io/e2e-test-images/busybox", "registry.k8s.io/e2e-test-images/glibc-dns-testing":
			// The second one is the suite's usual image for a shell.
			image.Args = []string{"/bin/sh"}
		case "registry.k8s.io/e2e-test-images/nginx":
			image.Files = append(shell[:len(shell):len(shell)], folders(pages)...)
			image.Files = append(image.Files, nodes.File{Path: pages + "index.html", Content: []byte("nginx\n"), Mode: 0o644})
			image.Args = web
		case "registry.k8s.io/pause":
			if err := pool.ImportPause(ctx, name); err != nil {
				return err
			}
			continue
		default:
			continue
		}
		images = append(images, image)
	}
	return pool.Import(ctx, images...)
}

// imageNames returns the names of the images that the suite may use.
func (c *cluster) imageNames(ctx context.Context) ([]string, error) {
	var list bytes.Buffer
	err := process.Run(ctx, process.Command{Path: c.binary, Args: []string{"--list-images"}, Stdout: &list})
	return strings.Fields(list.String()), err
}

// folders returns a folder and those above it, from the top.
func folders(path string) (all []nodes.File) {
	above := ""
	for name := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		above += name + "/"
		all = append(all, nodes.File{Path: above})
	}
	return all
}

// shellFiles are busybox with all its programs.
func shellFiles(ctx context.Context) ([]nodes.File, error) {
	path, err := staticBusybox()
	if err != nil {
		return nil, err
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var programs bytes.Buffer
	if err := process.Run(ctx, process.Command{Path: path, Args: []string{"--list"}, Stdout: &programs}); err != nil {
		return nil, err
	}
	files := []nodes.File{{Path: "tmp/", Mode: 0o1777}, {Path: "var/"}, {Path: "var/tmp/", Mode: 0o1777}, {Path: "etc/"},
		{Path: "bin/"},
		{Path: "bin/busybox", Content: content}}
	for _, name := range strings.Fields(programs.String()) {
		if name != "busybox" {
			files = append(files, nodes.File{Path: "bin/" + name, Link: "busybox"})
		}
	}
	return files, nil
}

// buildAgnhost compiles the program of most pods, with the suite's own sources.
func buildAgnhost(ctx context.Context, c *cluster) ([]nodes.File, error) {
	const agnhost = "k8s.io/kubernetes/test/images/agnhost"
	root, err := process.ModuleRoot()
	if err != nil {
		return nil, err
	}
	module := filepath.Join(root, "test", "conformance", string(controlplane.Newest))
	binary, err := process.BuildIn(ctx, module, agnhost, c.progress, "-buildvcs=false", process.NoDWARF, "-ldflags=-s -w")
	if err != nil {
		return nil, err
	}
	var sources bytes.Buffer
	if err := process.Run(ctx, process.Command{Path: "go", Args: []string{"list", "-f", "{{.Dir}}", agnhost}, Dir: module,
		Stdout: &sources}); err != nil {
		return nil, err
	}
	// Probes read the certificate from the web server, whose root is that of the image.
	porter := filepath.Join(strings.TrimSpace(sources.String()), "porter")
	files := []nodes.File{{Path: "agnhost-2", Link: "agnhost"}, {Path: "uploads/"}}
	for _, from := range []string{binary, filepath.Join(porter, "localhost.crt"), filepath.Join(porter, "localhost.key")} {
		content, err := os.ReadFile(from)
		if err != nil {
			return nil, err
		}
		files = append(files, nodes.File{Path: filepath.Base(from), Content: content})
	}
	files[2].Path = "agnhost"
	return files, nil
}

// failedCommand is the exit status of ssh(1) for an error of its own.
const failedCommand = 255

// serveSSH lets specs run commands on the nodes: they look for mounts, and stop kubelets.
func (c *cluster) serveSSH() error {
	server, err := sshd.Serve(c.onNode)
	if err != nil {
		return err
	}
	c.atEnd(server.Close)
	key := filepath.Join(filepath.Dir(c.tunnel), "ssh")
	c.env = append(c.env, "KUBE_SSH_BASTION="+server.Address(), "KUBE_SSH_KEY_PATH="+key, "KUBE_SSH_USER=root")
	return os.WriteFile(key, server.Key(), 0o600)
}

// onNode is a [sshd.Run].
func (c *cluster) onNode(ctx context.Context, address, command string, stdout, stderr io.Writer) int {
	for _, node := range c.pool.Nodes() {
		if node.Address() != address {
			continue
		}
		status, err := runOn(ctx, node, command, stdout, stderr)
		if err != nil {
			_, _ = fmt.Fprintln(stderr, err)
			return failedCommand
		}
		return status
	}
	_, _ = fmt.Fprintln(stderr, "no node has the address", address)
	return failedCommand
}

// runOn runs a command of a shell, and plays sudo and systemctl, which nodes do not have. A kubelet that is stopped
// gets no time for its end.
func runOn(ctx context.Context, node *nodes.Node, command string, stdout, stderr io.Writer) (status int, err error) {
	switch command = strings.TrimPrefix(command, "sudo "); command {
	case "--version":
		return 0, nil
	case "systemctl stop kubelet":
		return 0, node.Crash()
	case "systemctl start kubelet":
		return 0, node.Restart(ctx)
	case "systemctl show kubelet --property ActiveState --value":
		state := "inactive"
		if node.KubeletRuns() {
			state = "active"
		}
		_, err = fmt.Fprintln(stdout, state)
		return 0, err
	}
	return node.Shell(ctx, command, stdout, stderr)
}

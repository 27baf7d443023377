package conformance

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/nodes"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/nodes/sshd"
)

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

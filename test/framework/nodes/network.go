//go:build linux

package nodes

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

// The network of a pool with Options.PodNetwork is a network namespace, which nodes share as they share the machine's
// otherwise. Pods are on one bridge in there. The addresses are nowhere else, so they need not be free on this machine.
const (
	podRange = "10.88.0.0/16"
	// serviceURL is the API server's, as pods and kubelets reach it: a relay in this process listens on the address of
	// the Service "kubernetes", where a cluster has kube-proxy.
	serviceURL = "https://" + controlplane.ServiceIP
	// commonKubeletDir is --root-dir of nearly all kubelets, which manifests of CSI drivers mount.
	commonKubeletDir = "/var/lib/kubelet"
)

// nodeAddress is the address of the node of that index.
func nodeAddress(i int) string { return fmt.Sprintf("192.168.88.%d", i+1) }

// makeNetwork gives the namespace its addresses, and leads the one of the Service "kubernetes" to the API server.
func (p *Pool) makeNetwork(ctx context.Context) error {
	commands := []string{"link set lo up", "address add " + controlplane.ServiceIP + "/32 dev lo"}
	for i := range p.options.Names {
		commands = append(commands, "address add "+nodeAddress(i)+"/32 dev lo")
	}
	for _, command := range commands {
		if err := process.Run(ctx, process.Command{Name: "ip", Path: "nsenter",
			Args: append([]string{"--net=" + p.spaceFile("net"), "--", "ip"}, strings.Fields(command)...),
			Env:  []string{"PATH=" + os.Getenv("PATH") + ":" + sbin},
		}); err != nil {
			return err
		}
	}
	listener, err := p.listen(controlplane.ServiceIP + ":443")
	if err != nil {
		return err
	}
	if p.service, err = newLink(p.cluster.Admin(), listener); err != nil || p.options.Tunnel == "" {
		return err
	}
	p.tunnel, err = openTunnel(p.options.Tunnel, p.spaceFile("net"))
	return err
}

// listen listens in the network of the nodes.
func (p *Pool) listen(address string) (net.Listener, error) {
	if !p.options.PodNetwork {
		return net.Listen("tcp", address)
	}
	return inNetwork(p.spaceFile("net"), func() (net.Listener, error) { return net.Listen("tcp", address) })
}

// inNetwork makes a socket in a network namespace.
func inNetwork[Socket any](namespace string, open func() (Socket, error)) (socket Socket, err error) {
	made := make(chan struct{})
	go func() {
		defer close(made)
		// The thread is in the other namespace then. It ends with this goroutine, and the socket stays where it was made.
		runtime.LockOSThread()
		if err = enterNetwork(namespace); err == nil {
			socket, err = open()
		}
	}()
	<-made
	return socket, err
}

func enterNetwork(namespace string) error {
	file, err := os.Open(namespace)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	if err := unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter network namespace: %w", err)
	}
	return nil
}

// podNetworkConfig is the configuration of containerd's CNI plugins. Even with the host's network, containerd is not
// ready without one.
func (p *Pool) podNetworkConfig() string {
	if !p.options.PodNetwork {
		return `{"cniVersion": "0.3.1", "name": "loopback", "type": "loopback"}`
	}
	// Nodes give addresses from one range, and say so in one directory.
	return fmt.Sprintf(`{"cniVersion": "0.3.1", "name": "pods", "type": "bridge", "bridge": "pods", "isGateway": true,
  "ipam": {"type": "host-local", "dataDir": %q, "ranges": [[{"subnet": %q}]], "routes": [{"dst": "0.0.0.0/0"}]}}
`, filepath.Join(p.Dir(), "addresses"), podRange)
}

//go:build linux

package nodes

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"

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

// link is the way from a kubelet, or from all pods, to the API server: a relay in this process, which can be cut.
type link struct {
	listener net.Listener
	server   string // host and port

	mu   sync.Mutex
	cut  bool
	open map[net.Conn]struct{}
}

// newLink starts a relay from a listener to the server of a configuration, and has the configuration use it.
func newLink(config *rest.Config, listener net.Listener) (*link, error) {
	server, err := url.Parse(config.Host)
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	l := &link{listener: listener, server: server.Host, open: map[net.Conn]struct{}{}}
	server.Host = listener.Addr().String()
	config.Host = server.String()
	go l.serve()
	return l, nil
}

// serve relays connections until the listener is closed.
func (l *link) serve() {
	for {
		near, err := l.listener.Accept()
		if err != nil {
			return
		}
		go l.relay(near)
	}
}

func (l *link) relay(near net.Conn) {
	defer func() { _ = near.Close() }()
	if !l.add(near) {
		return
	}
	defer l.remove(near)
	far, err := net.Dial("tcp", l.server)
	if err != nil {
		return
	}
	defer func() { _ = far.Close() }()
	go func() {
		_, _ = io.Copy(far, near)
		_ = far.Close() // which ends the other direction
	}()
	_, _ = io.Copy(near, far)
}

// add reports whether the link is whole.
func (l *link) add(near net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.cut {
		l.open[near] = struct{}{}
	}
	return !l.cut
}

func (l *link) remove(near net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, near)
}

// setCut breaks all connections and refuses others, or ends that.
func (l *link) setCut(cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = cut
	for near := range l.open {
		if cut {
			_ = near.Close()
		}
	}
}

// close ends the relay and its connections.
func (l *link) close() {
	_ = l.listener.Close()
	l.setCut(true)
}

// dialTimeout bounds a connection to a kubelet or a pod.
const dialTimeout = 10 * time.Second

// EgressConfig is the configuration (--egress-selector-config-file) with which an API server reaches kubelets and pods
// by a pool's [Options].Tunnel.
func EgressConfig(socket string) string {
	return fmt.Sprintf(`apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
- name: cluster
  connection:
    proxyProtocol: HTTPConnect
    transport: {uds: {udsName: %q}}
`, socket)
}

// tunnel leads from a Unix socket into the network of the nodes, by HTTP CONNECT.
type tunnel struct {
	listener net.Listener
	network  string
}

func openTunnel(socket, network string) (*tunnel, error) {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, fmt.Errorf("open tunnel: %w", err)
	}
	t := &tunnel{listener: listener, network: network}
	go t.serve()
	return t, nil
}

// serve relays connections until the listener is closed. They end with the network's processes.
func (t *tunnel) serve() {
	for {
		near, err := t.listener.Accept()
		if err != nil {
			return
		}
		go t.relay(near)
	}
}

func (t *tunnel) relay(near net.Conn) {
	defer func() { _ = near.Close() }()
	request, err := http.ReadRequest(bufio.NewReader(near)) // the client sends nothing else before the answer
	if err != nil || request.Method != http.MethodConnect || request.URL.Host == "" {
		_, _ = io.WriteString(near, "HTTP/1.1 400 Bad Request\r\n\r\n")
		return
	}
	far, err := inNetwork(t.network, func() (net.Conn, error) {
		return net.DialTimeout("tcp", request.URL.Host, dialTimeout)
	})
	if err != nil {
		_, _ = io.WriteString(near, "HTTP/1.1 502 Bad Gateway\r\n\r\n")
		return
	}
	defer func() { _ = far.Close() }()
	if _, err := io.WriteString(near, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		return
	}
	go func() {
		_, _ = io.Copy(far, near)
		_ = far.Close() // which ends the other direction
	}()
	_, _ = io.Copy(near, far)
}

func (t *tunnel) close() { _ = t.listener.Close() }

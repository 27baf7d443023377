//go:build linux

package nodes

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

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

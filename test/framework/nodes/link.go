//go:build linux

package nodes

import (
	"errors"
	"io"
	"net"
	"net/url"
	"sync"

	"k8s.io/client-go/rest"
)

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

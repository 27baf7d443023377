//go:build unix

package controlplane

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// Ports are taken from below the range from which the kernel gives clients theirs (Linux 32768, BSD and macOS 49152):
// a client of another program must not sit on the port of an API server that is being restarted.
const (
	lowestPort  = 20000
	highestPort = 32767
	portTries   = 1000
)

// given are the ports that this process has chosen. It chooses none twice, since a chosen port may not be in use yet,
// or its component may be restarting.
var given = struct {
	sync.Mutex
	ports map[int]bool
}{ports: map[int]bool{}}

// FreePorts returns n unused loopback ports, different ones at each call. Another program may take a port before it is
// used. The caller then retries with others.
func FreePorts(n int) (ports []int, err error) {
	given.Lock()
	defer given.Unlock()
	var held []net.Listener // until all are found, so that none is found twice
	defer func() {
		for _, l := range held {
			err = errors.Join(err, l.Close())
		}
	}()
	for range portTries {
		if len(ports) == n {
			return ports, nil
		}
		port := lowestPort + rand.IntN(highestPort-lowestPort+1)
		if given.ports[port] {
			continue
		}
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		held = append(held, listener)
		given.ports[port] = true
		ports = append(ports, port)
	}
	return nil, fmt.Errorf("find %d free ports: none in %d tries", n, portTries)
}

// FreeAddress returns a loopback address with an unused port.
func FreeAddress() (string, error) {
	ports, err := FreePorts(1)
	if err != nil {
		return "", err
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[0])), nil
}

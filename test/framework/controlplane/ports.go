//go:build unix

package controlplane

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
)

// Ports are taken from below the range from which the kernel gives clients theirs (Linux 32768, BSD and macOS 49152):
// a client of another program must not sit on the port of an API server that is being restarted.
const (
	lowestPort  = 20000
	highestPort = 32767
	portTries   = 1000
)

// FreePorts finds n loopback ports that nobody listens on. Somebody may before they are used:
// who uses them tries again with others then.
func FreePorts(n int) (ports []int, err error) {
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
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		held = append(held, listener)
		ports = append(ports, port)
	}
	return nil, fmt.Errorf("find %d free ports: none in %d tries", n, portTries)
}

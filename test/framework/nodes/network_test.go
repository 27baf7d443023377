//go:build linux

package nodes

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process/rundir"
)

// TestTunnelConnects sends a line to a server and back by way of a tunnel, into the network of this process.
func TestTunnelConnects(t *testing.T) {
	t.Parallel()
	SkipUnlessSupported(t) // to enter a namespace needs root
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	go func() {
		if c, err := server.Accept(); err == nil {
			_, _ = io.Copy(c, c)
			_ = c.Close()
		}
	}()
	dir, err := rundir.New("csi-tunnel-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dir.Remove() })
	tunnel, err := openTunnel(dir.Path()+"/s", "/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tunnel.close)
	for address, want := range map[string]int{server.Addr().String(): http.StatusOK,
		"127.0.0.1:1": http.StatusBadGateway} {
		conn, err := net.Dial("unix", dir.Path()+"/s")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", address); err != nil {
			t.Fatal(err)
		}
		from := bufio.NewReader(conn)
		answer, err := http.ReadResponse(from, nil)
		if err != nil || answer.StatusCode != want {
			t.Fatalf("%s: %+v, %v, want status %d", address, answer, err, want)
		}
		if want == http.StatusOK {
			_, _ = io.WriteString(conn, "hello\n")
			if line, err := from.ReadString('\n'); line != "hello\n" {
				t.Errorf("%q came back, %v", line, err)
			}
		}
		_ = answer.Body.Close()
		_ = conn.Close()
	}
}

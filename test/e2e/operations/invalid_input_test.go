//go:build unix

package operations

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

func TestInvalidInputEndsInOneLine(t *testing.T) {
	fixture.NewestOnly(t, fixture.AboutProgram)
	t.Parallel()
	env := newEnvironment(t)
	badName := serveNameless(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	env.Must(os.WriteFile(file, nil, 0o600))
	link := filepath.Join(dir, "link")
	env.Must(os.Symlink(env.MockDriver.Socket(), link))
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	env.Must(err)
	t.Cleanup(func() { _ = busy.Close() })

	good := map[string]string{"--csi-address": env.MockDriver.Socket(), "--kubeconfig": env.Kubeconfig}
	cases := map[string]struct {
		flag, value string
		want        []string
	}{
		"a scheme that is no socket's": {"--csi-address", "tcp://127.0.0.1:1", []string{"tcp", "unix://"}},
		"a folder that is not there": {"--csi-address", "/not/there/csi.sock",
			[]string{"/not/there", "does not exist"}},
		"a path that is not absolute":         {"--csi-address", "csi.sock", []string{"absolute"}},
		"a file that is no socket":            {"--csi-address", file, []string{file, "regular file"}},
		"a symbolic link":                     {"--csi-address", link, []string{link, "symbolic link"}},
		"a path longer than a socket can be":  {"--csi-address", "/" + strings.Repeat("x", 200), []string{"bytes"}},
		"a driver whose name is none":         {"--csi-address", badName, []string{"not a name", "domain name"}},
		"a kubeconfig that is not there":      {"--kubeconfig", filepath.Join(dir, "none"), []string{"none", "no such file"}},
		"a kubeconfig that is no such file":   {"--kubeconfig", file, []string{file}},
		"a role that does not exist":          {"--role", "boss", []string{"boss", "owner"}},
		"no workers":                          {"--worker-threads", "0", []string{"--worker-threads=0"}},
		"a port that is taken":                {"--http-endpoint", busy.Addr().String(), []string{"in use"}},
		"a flag that does not exist":          {"--delete-everything", "true", []string{"--delete-everything"}},
		"retries that shrink":                 {"--retry-interval-max", "1ms", []string{"--retry-interval-max"}},
		"a log format that does not exist":    {"--logging-format", "xml", []string{"xml"}},
		"a metrics path that is no such path": {"--metrics-path", "metrics", []string{"--metrics-path"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var args []string
			for flag, value := range good {
				if flag != c.flag {
					args = append(args, flag+"="+value)
				}
			}
			p, err := process.Start(process.Command{Path: fixture.SidecarBinary(t), Args: append(args, c.flag+"="+c.value)})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(p.Close)
			select {
			case <-p.Done():
			case <-env.WithTimeout().Done():
				t.Fatalf("csi-reclaimer did not end:\n%s", p.LogTail(20))
			}
			var output []string
			for line := range strings.Lines(p.LogTail(50)) {
				if strings.HasPrefix(line, "csi-reclaimer: ") {
					output = append(output, strings.TrimSpace(line))
				}
			}
			if p.Err() == nil || !strings.Contains(p.Err().Error(), "exit status 1") {
				t.Errorf("ended with %v, want exit status 1", p.Err())
			}
			if len(output) != 1 {
				t.Fatalf("output %q, want one line", output)
			}
			for _, want := range c.want {
				if !strings.Contains(output[0], want) {
					t.Errorf("output %q, want it to name %q", output[0], want)
				}
			}
		})
	}
}

// badlyNamed is a driver that gets as far as its name.
type badlyNamed struct {
	csi.UnimplementedIdentityServer
}

func (badlyNamed) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}

func (badlyNamed) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: "not a name"}, nil
}

// serveNameless serves a driver with an invalid name, and returns its socket.
func serveNameless(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "csi-")
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "csi.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	csi.RegisterIdentityServer(server, badlyNamed{})
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		<-done
		_ = os.RemoveAll(dir)
	})
	return socket
}

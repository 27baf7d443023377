//go:build unix

package e2e

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/process"
)

func TestBadInputEndsInOneClearLine(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	badName := nameless(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	s.must(os.WriteFile(file, nil, 0o600))
	link := filepath.Join(dir, "link")
	s.must(os.Symlink(s.driver.Socket(), link))
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	s.must(err)
	t.Cleanup(func() { _ = busy.Close() })

	good := map[string]string{"--csi-address": s.driver.Socket(), "--kubeconfig": s.kube}
	cases := map[string]struct {
		flag, value string
		want        []string
	}{
		"a scheme that is no socket's":        {"--csi-address", "tcp://127.0.0.1:1", []string{"tcp", "unix://"}},
		"a folder that is not there":          {"--csi-address", "/not/there/csi.sock", []string{"/not/there", "does not exist"}},
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
			p, err := process.Start(process.Command{Path: program, Args: append(args, c.flag+"="+c.value)})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(p.Close)
			select {
			case <-p.Done():
			case <-s.soon().Done():
				t.Fatalf("csi-reclaimer did not end:\n%s", p.LogTail(20))
			}
			var said []string
			for line := range strings.Lines(p.LogTail(50)) {
				if strings.HasPrefix(line, "csi-reclaimer: ") {
					said = append(said, strings.TrimSpace(line))
				}
			}
			if p.Err() == nil || !strings.Contains(p.Err().Error(), "exit status 1") {
				t.Errorf("ended with %v, want exit status 1", p.Err())
			}
			if len(said) != 1 {
				t.Fatalf("said %q, want one line", said)
			}
			for _, want := range c.want {
				if !strings.Contains(said[0], want) {
					t.Errorf("said %q, want it to name %q", said[0], want)
				}
			}
		})
	}
}

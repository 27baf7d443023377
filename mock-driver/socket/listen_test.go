package socket_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/socket"
)

func TestParseEndpoint(t *testing.T) {
	for endpoint, want := range map[string]string{
		"unix:///run/csi.sock": "/run/csi.sock", "unix:/run/csi.sock": "/run/csi.sock", "/run/csi.sock": "/run/csi.sock",
		"unix:///run/../csi.sock": "/csi.sock",
		"unix://run/csi.sock":     "", "csi.sock": "", "": "", "tcp://127.0.0.1:9": "", "http://x": "",
		"unix://" + "/" + strings.Repeat("x", 107): "",
		"unix://" + "/" + strings.Repeat("x", 106): "/" + strings.Repeat("x", 106),
	} {
		got, err := socket.ParseEndpoint(endpoint)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: got %q, %v, want %q", endpoint, got, err, want)
		}
	}
}

func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "csi-")
	check(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func TestListenReplacesStaleSocket(t *testing.T) {
	path := filepath.Join(shortDir(t), "csi.sock")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	check(t, err)
	dead.SetUnlinkOnClose(false)
	check(t, dead.Close())
	l, err := socket.Listen(t.Context(), path)
	check(t, err)
	info, err := os.Stat(path)
	check(t, err)
	if got := info.Mode().Perm(); got != 0o660 {
		t.Errorf("mode: got %o", got)
	}
	check(t, l.Close())
}

func TestListenKeepsOtherFiles(t *testing.T) {
	dir := shortDir(t)
	live := filepath.Join(dir, "live.sock")
	l, err := socket.Listen(t.Context(), live)
	check(t, err)
	file := filepath.Join(dir, "file")
	check(t, os.WriteFile(file, []byte("precious"), 0o600))
	link := filepath.Join(dir, "link")
	check(t, os.Symlink(file, link))
	for _, path := range []string{live, file, link, dir} {
		if second, err := socket.Listen(t.Context(), path); err == nil {
			_ = second.Close()
			t.Errorf("%s is listened on", path)
		}
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("%s is gone: %v", path, err)
		}
	}
	if data, err := os.ReadFile(file); err != nil || string(data) != "precious" {
		t.Errorf("file: got %q, %v", data, err)
	}
	check(t, l.Close())
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

package csidriver

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

func TestSocketPath(t *testing.T) {
	dir, err := os.MkdirTemp("", "csi-") // t.TempDir's paths are too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "csi.sock")
	listener := must.Get(net.Listen("unix", socket))(t)
	t.Cleanup(func() { _ = listener.Close() })
	file, link, nowhere := filepath.Join(dir, "file"), filepath.Join(dir, "link"), filepath.Join(dir, "nowhere")
	emptyDir, varRun := filepath.Join(dir, "e"), filepath.Join(dir, "v")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Symlink(socket, link), os.Symlink(dir+"/none", nowhere),
		os.Mkdir(emptyDir, 0o700), os.Symlink(emptyDir, varRun)); err != nil {
		t.Fatal(err)
	}
	open := must.Get(net.Listen("unix", emptyDir+"/csi.sock"))(t)
	t.Cleanup(func() { _ = open.Close() })
	// The kubelet sets this mode on an emptyDir, and a driver with umask 0 on its socket.
	must.OK(t, errors.Join(os.Chmod(emptyDir, 0o777), os.Chmod(emptyDir+"/csi.sock", 0o777)))

	cases := map[string]struct {
		address string
		want    string // the path, or words of the error
		ok      bool
	}{
		"a socket":                     {socket, socket, true},
		"a socket with its scheme":     {"unix://" + socket, socket, true},
		"a path that is not clean":     {dir + "//./csi.sock", socket, true},
		"not created yet":              {dir + "/later.sock", dir + "/later.sock", true},
		"nothing":                      {"", "names no file", false},
		"only a scheme":                {"unix://", "names no file", false},
		"another scheme":               {"tcp://localhost:1", `"tcp"`, false},
		"a relative path":              {"csi.sock", "not an absolute path", false},
		"a relative path with scheme":  {"unix://csi.sock", "not an absolute path", false},
		"a folder that is not there":   {dir + "/none/csi.sock", "does not exist", false},
		"a file instead of the folder": {file + "/csi.sock", "is not a folder", false},
		"a file":                       {file, "regular file", false},
		"the folder":                   {dir, "folder", false},
		"a symbolic link":              {link, "symbolic link", false},
		"a link that leads nowhere":    {nowhere, "symbolic link", false},
		"an emptyDir, a socket of all": {emptyDir + "/csi.sock", emptyDir + "/csi.sock", true},
		"a folder behind a link":       {varRun + "/csi.sock", varRun + "/csi.sock", true},
		"a path too long for a socket": {"/" + strings.Repeat("x", maxSocketPath), "bytes", false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := SocketPath(c.address)
			switch {
			case c.ok && (err != nil || got != c.want):
				t.Errorf("SocketPath(%q) = %q, %v, want %q", c.address, got, err, c.want)
			case !c.ok && (!errors.Is(err, ErrAddress) || !strings.Contains(err.Error(), c.want)):
				t.Errorf("SocketPath(%q) = %q, %v, want ErrAddress with %q", c.address, got, err, c.want)
			}
		})
	}
}

func TestSocketStateNamesOwner(t *testing.T) {
	file := filepath.Join(t.TempDir(), "csi.sock")
	must.OK(t, os.WriteFile(file, nil, 0o600))
	for name, c := range map[string]struct {
		err   error
		path  string
		words []string
		not   string
	}{
		"it may be opened":  {nil, file, []string{"socket " + file}, "mode"},
		"it does not exist": {reach(t.Context(), file+"x"), file + "x", []string{"err", "no such file"}, "mode"},
		"no listener":       {syscall.ECONNREFUSED, file, []string{"err connection refused"}, "mode"},
		"another user's": {&net.OpError{Op: "dial", Err: syscall.EACCES}, file, []string{"permission denied",
			"mode -rw-------", fmt.Sprintf("owner %d", os.Getuid()), "group ", "ownUser", "securityContext"}, "nothing"},
	} {
		words := strings.TrimSuffix(fmt.Sprintln(socketState(c.path, c.err)...), "\n")
		for _, want := range c.words {
			if !strings.Contains(words, want) {
				t.Errorf("%s: %q is missing in %s", name, want, words)
			}
		}
		if strings.Contains(words, c.not) {
			t.Errorf("%s: %q is in %s", name, c.not, words)
		}
	}
}

func TestCheckName(t *testing.T) {
	for name, ok := range map[string]bool{
		"disk.csi.example.com":                 true,
		"disk":                                 true,
		"Disk.CSI.example.com":                 true,
		strings.Repeat("a", 63):                true,
		"":                                     false,
		strings.Repeat("a", 64):                false,
		"not a name":                           false,
		"disk/example.com":                     false,
		".example.com":                         false,
		"disk.example.com.":                    false,
		"disk.example.com\nE0101 forged entry": false,
	} {
		if err := CheckName(name); (err == nil) != ok || (err != nil && !errors.Is(err, ErrDriverName)) {
			t.Errorf("CheckName(%q) = %v, want ok = %v", name, err, ok)
		}
	}
}

func FuzzSocketPath(f *testing.F) {
	for _, seed := range []string{"/run/csi/socket", "unix:///csi/csi.sock", "tcp://x", "", "unix://\x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, address string) {
		path, err := SocketPath(address)
		if err == nil && (!filepath.IsAbs(path) || len(path) > maxSocketPath) {
			t.Errorf("SocketPath(%q) = %q", address, path)
		}
	})
}

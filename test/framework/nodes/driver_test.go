//go:build linux

package nodes

import (
	"archive/tar"
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/ledger"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process/rundir"
)

func TestDeletedInUse(t *testing.T) {
	for sentence, c := range map[string]struct {
		// calls are METHOD NODE PATH, a second each, in which they do their work at once. With a dash before, a call changes
		// nothing. The driver works on a call with a plus before it when the next call comes in.
		calls string
		want  []string
	}{
		"nothing used it":     {"Delete", nil},
		"all uses have ended": {"NodeStage a s,NodePublish a p,NodeUnpublish a p,NodeUnstage a s,Delete", nil},
		"it is published":     {"NodePublish a p,Delete", []string{"NodePublishVolume p on node a"}},
		"it is published on another node": {"NodePublish a p,NodePublish b q,NodeUnpublish a p,Delete",
			[]string{"NodePublishVolume q on node b"}},
		"it is published at another path": {"NodePublish a p,NodePublish a q,NodeUnpublish a p,Delete",
			[]string{"NodePublishVolume q on node a"}},
		"it is staged": {"NodeStage a s,NodePublish a p,NodeUnpublish a p,Delete",
			[]string{"NodeStageVolume s on node a"}},
		"it is attached":                     {"ControllerPublish a ,Delete", []string{"ControllerPublishVolume on node a"}},
		"twice":                              {"NodePublish a p,Delete,Delete", []string{"Publish", "Publish"}},
		"an unpublish that did nothing":      {"NodePublish a p,-NodeUnpublish a p,Delete", []string{"Publish"}},
		"an unpublish that had not ended":    {"NodePublish a p,+NodeUnpublish a p,Delete", []string{"Publish"}},
		"a publish that did nothing":         {"-NodePublish a p,Delete", nil},
		"it is published after DeleteVolume": {"Delete,NodePublish a p", nil},
		"published again": {"NodePublish a p,NodeUnpublish a p,NodePublish a p,Delete",
			[]string{"Publish"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			var calls []ledger.Call
			for i, text := range strings.Split(c.calls, ",") {
				fields := append(strings.Fields(strings.TrimLeft(text, "+-")), "", "")
				at := time.Unix(int64(i), 0)
				call := ledger.Call{Method: strings.TrimSuffix(fields[0], "Volume") + "Volume", Node: fields[1], Path: fields[2],
					Volume: "v", Received: at, Done: at}
				switch text[0] {
				case '-':
					call.Done = time.Time{}
				case '+':
					call.Done = at.Add(1500 * time.Millisecond)
				}
				calls = append(calls, call)
			}
			got := deletedInUse(calls)
			if len(got) != len(c.want) {
				t.Fatalf("%q, want %q", got, c.want)
			}
			for i := range got {
				if !strings.Contains(got[i].String(), c.want[i]) {
					t.Errorf("%q, want %q", got[i], c.want[i])
				}
			}
			calls = append(calls, ledger.Call{Method: "DeleteVolume", Volume: "another", Received: time.Unix(99, 0)})
			if more := deletedInUse(calls); len(more) != len(got) {
				t.Errorf("another volume: %q", more)
			}
		})
	}
}

func TestImagesWithSameFilesShareLayer(t *testing.T) {
	t.Parallel()
	files := []entry{{name: "bin/"}, {name: "bin/sh", link: "busybox"},
		{name: "bin/busybox", content: []byte("x"), mode: 0o755}}
	var a archive
	for image, of := range map[string][]entry{"a:1": files, "b:1": files, "c:1": files[:1]} {
		must.OK(t, a.addImage(image, of, nil, []string{"sh"}))
	}
	if len(a.layers) != 2 || len(a.manifest) != 3 || len(a.entries) != 2+3 {
		t.Errorf("%d layers, %d images, %d files", len(a.layers), len(a.manifest), len(a.entries))
	}
	layer := must.Get(tarOf(files...))(t)
	reader := tar.NewReader(bytes.NewReader(layer))
	for _, want := range []byte{tar.TypeDir, tar.TypeSymlink, tar.TypeReg} {
		h, err := reader.Next()
		if err != nil || h.Typeflag != want {
			t.Fatalf("%+v, %v, want type %c", h, err, want)
		}
	}
	if _, err := reader.Next(); err != io.EOF {
		t.Errorf("%v, want the end", err)
	}
}

// TestTunnelConnects sends a line to a server and back by way of a tunnel, into the network of this process.
func TestTunnelConnects(t *testing.T) {
	t.Parallel()
	SkipUnlessSupported(t) // to enter a namespace needs root
	server := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = server.Close() })
	go func() {
		if c, err := server.Accept(); err == nil {
			_, _ = io.Copy(c, c)
			_ = c.Close()
		}
	}()
	dir := must.Get(rundir.New("csi-tunnel-"))(t)
	t.Cleanup(func() { _ = dir.Remove() })
	tunnel := must.Get(openTunnel(dir.Path()+"/s", "/proc/self/ns/net"))(t)
	t.Cleanup(tunnel.close)
	for address, want := range map[string]int{server.Addr().String(): http.StatusOK,
		"127.0.0.1:1": http.StatusBadGateway} {
		conn := must.Get(net.Dial("unix", dir.Path()+"/s"))(t)
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

func TestOptions(t *testing.T) {
	for sentence, c := range map[string]struct {
		names []string
		valid bool
	}{
		"one":                        {[]string{"node"}, true},
		"two":                        {[]string{"node-1", "node-2"}, true},
		"none":                       {nil, false},
		"one of no name":             {[]string{""}, false},
		"a name that is no label":    {[]string{"Node"}, false},
		"a path":                     {[]string{"../node"}, false},
		"a name that ends in a dash": {[]string{"node-"}, false},
		"a name that is too long":    {[]string{"a-very-long-name"}, false},
		"one name twice":             {[]string{"node", "node"}, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			if err := (Options{Names: c.names}).validate(); (err == nil) != c.valid {
				t.Errorf("got %v, want valid: %v", err, c.valid)
			}
		})
	}
}

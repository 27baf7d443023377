package waiting

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	neturl "net/url"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/kubectl-reclaim/internal/cli"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

func TestWebServesOnlyLoopback(t *testing.T) {
	for _, address := range []string{"0.0.0.0", "::", "10.0.0.1", "192.0.2.1", "fe80::1"} {
		_, err := root.Run(t, "web", "--address="+address)
		if err == nil || !strings.Contains(err.Error(), "--address="+address) ||
			!strings.Contains(err.Error(), "served on this machine alone") {
			t.Errorf("%s: %v", address, err)
		}
	}
	for args, want := range map[string]string{
		"--address=localhost": "must be an IP address", "--address=": "must be an IP address", "--port=70000": "--port=70000",
		"--port=-1": "--port=-1", "--leak-port=-1": "--leak-port=-1", "--role=king": "must be one of owner",
		"extra": "unknown command",
	} {
		if _, err := root.Run(t, "web", args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}

// TestWeb serves the page until its context ends, with an API server that answers every request with 404.
func TestWeb(t *testing.T) {
	api := httptest.NewServer(http.NotFoundHandler())
	defer api.Close()
	cluster := genericclioptions.NewConfigFlags(false)
	cluster.APIServer, cluster.KubeConfig = ptr.To(api.URL), ptr.To(os.DevNull)
	out, in := io.Pipe()
	opened := make(chan string, 1)
	streams := genericiooptions.IOStreams{Out: in, ErrOut: io.Discard}
	o := &webOptions{Plugin: &cli.Plugin{IOStreams: streams, Kubeconfig: cluster}, address: "127.0.0.1", open: true}
	o.browser = func(_ context.Context, url string) error {
		opened <- url
		return nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- o.run(ctx) }()
	line := must.Get(bufio.NewReader(out).ReadString('\n'))(t)
	url := strings.TrimSpace(line)
	answer, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusOK || !strings.HasPrefix(url, "http://127.0.0.1:") {
		t.Errorf("%s: %s", url, answer.Status)
	}

	// Other users can read the arguments of programs, so the browser gets a file that only this user can read.
	file := <-opened
	if token := strings.Split(url, "/")[3]; len(token) < 43 || strings.Contains(file, token) {
		t.Errorf("the browser is started with %s", file)
	}
	parsed := must.Get(neturl.Parse(file))(t)
	about, err := os.Stat(parsed.Path)
	if err != nil || about.Mode().Perm() != 0o600 {
		t.Errorf("file %v: %v", about, err)
	}
	text, err := os.ReadFile(parsed.Path)
	if err != nil || !strings.Contains(string(text), "url="+url+`"`) {
		t.Errorf("file has %s: %v", text, err)
	}
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("it has not ended")
	}
	if _, err := os.Stat(parsed.Path); !os.IsNotExist(err) {
		t.Errorf("the file is left: %v", err)
	}
}

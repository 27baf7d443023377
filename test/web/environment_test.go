//go:build unix

package web

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
	"github.com/csi-reclaimer/csi-reclaimer/test/web/browser"
)

// plugin compiles kubectl-reclaim with the race detector: it ends with an error when it has raced.
func plugin() (string, error) {
	return process.Build(context.Background(), "./cmd/kubectl-reclaim", os.Stderr, process.RaceFlags()...)
}

// startChromium starts the browser that the tests share.
var startChromium = sync.OnceValues(func() (*browser.Browser, error) {
	// Not the context of a test: it lasts until all have ended.
	return browser.Start(context.Background())
})

// server is kubectl reclaim web.
type server struct {
	env *fixture.Environment
	*process.Process
	// url is the address that it printed.
	url string
}

var addressLine = regexp.MustCompile(`(?m)^(http://\S+/)$`)

// serve starts kubectl reclaim web as an administrator.
func serve(env *fixture.Environment, args ...string) *server {
	env.T.Helper()
	kube := filepath.Join(env.T.TempDir(), "kubeconfig")
	env.Must(controlplane.WriteKubeconfig(kube, env.Plane.Admin()))
	return serveAs(env, kube, args...)
}

// serveAs is serve with a kubeconfig file.
func serveAs(env *fixture.Environment, kube string, args ...string) *server {
	env.T.Helper()
	binary, err := plugin()
	env.Must(err)
	p, err := process.Start(process.Command{Path: binary, Args: append([]string{"--kubeconfig=" + kube, "web"}, args...)})
	env.Must(err)
	s := &server{env: env, Process: p}
	env.T.Cleanup(func() {
		if err := p.Stop(fixture.WaitTimeout); err != nil {
			env.T.Errorf("kubectl reclaim web: %v\n%s", err, p.LogTail(50))
		}
	})
	env.Must(p.WaitLog(env.WithTimeout(), "http://"))
	env.Eventually("the address is printed", func() bool {
		found := addressLine.FindStringSubmatch(p.LogTail(20))
		if found == nil {
			return false
		}
		s.url = found[1]
		return true
	})
	return s
}

// open opens a page at a hash, and waits until it is live. At the end of the test, the page must have sent no request
// to other origins, and have no errors except errors that contain one of the texts.
func (s *server) open(t *testing.T, hash string, except ...string) *browser.Page {
	t.Helper()
	b, err := startChromium()
	if err != nil {
		t.Fatal(err)
	}
	chromium = b
	p := b.Open(t)
	t.Cleanup(func() { p.ExpectQuiet(s.url, except...) })
	p.Goto(s.url + hash)
	waitLive(p)
	return p
}

func waitLive(p *browser.Page) {
	p.T.Helper()
	p.Wait("the page is live", `document.querySelector("#status")?.textContent === "Live"`)
}

// waitRows waits until the table has as many rows.
func waitRows(p *browser.Page, n int) {
	p.T.Helper()
	p.Wait("the table has its rows", `document.querySelector(".grid")?.getAttribute("aria-rowcount") === `+
		`String(`+itoa(n+1)+`)`)
}

// folder is where pictures are kept.
func folder(t *testing.T) string {
	t.Helper()
	root := process.RootForTest(t)
	return filepath.Join(root, ".build", "screenshots")
}

// hashOf is the hash of an object's page.
func hashOf(parts ...string) string {
	hash := "#"
	for _, part := range parts {
		hash += "/" + url.PathEscape(part)
	}
	return hash
}

// chromium is shared: each test opens pages of its own in it.
var chromium *browser.Browser

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) (status int) {
	defer func() {
		if chromium == nil {
			return
		}
		if err := chromium.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			status = 1
		}
	}()
	return fixture.Main(m)
}

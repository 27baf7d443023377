//go:build unix

package web

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/web/browser"
)

// slowest is how long a change may take from the API server to the screen, on a machine that stalls.
const slowest = browser.WaitTimeout

// TestChangesArrive follows a volume from its PV's deletion to its end, in the table and on its page.
func TestChangesArrive(t *testing.T) {
	env := fixture.NewForRole(t, "", mockdriver.Options{})
	// Without a sidecar, the finalizer keeps the PV once the claim is gone.
	vol := env.MakeVolume(objects.Spec{Dynamic: true, Change: func(pv *v1.PersistentVolume) {
		pv.Finalizers = []string{volume.Finalizer}
	}})
	s := serve(env, "--driver="+env.Driver)
	table, page := s.open(t, "#/waiting"), s.open(t, hashOf("pv", vol.Name))
	table.Wait("nothing waits", `document.querySelector(".list.none .empty")?.textContent === "Nothing waits."`)
	page.Wait("the picture has the claim", `document.querySelector('[data-node="claim/`+env.Namespace+`/`+vol.ClaimName+`"]')`)
	entries := Eval[int](page, `document.querySelectorAll(".entry").length`)

	began := time.Now()
	env.Must(vol.DeletePV(env.Ctx))
	waitRows(table, 1)
	took := time.Since(began)
	t.Logf("a deletion is in the table after %v", took.Round(time.Millisecond))
	if took > slowest {
		t.Errorf("a deletion is in the table after %v", took)
	}
	reason := Eval[string](table, `document.querySelector(".row .c-reason").textContent`)
	page.Wait("the page says the reason", `document.querySelector(".decision .reason")?.textContent === "`+reason+`"`)
	page.Wait("the timeline has grown", `document.querySelectorAll(".entry").length > `+itoa(entries))
	entries = Eval[int](page, `document.querySelectorAll(".entry").length`)
	began = time.Now()
	before := Eval[string](table, `document.querySelector(".row .c-age").textContent`)
	table.Wait("the age counts on", `document.querySelector(".row .c-age").textContent !== "`+before+`"`)
	t.Logf("an age has counted on after %v", time.Since(began).Round(time.Millisecond))

	env.Must(vol.DeleteClaim(env.Ctx))
	page.Wait("the claim has left the picture",
		`!document.querySelector('[data-node="claim/`+env.Namespace+`/`+vol.ClaimName+`"]')`)
	env.RemoveLeftovers(vol)
	table.Wait("nothing waits", `document.querySelector(".list.none .empty")?.textContent === "Nothing waits."`)
	page.Wait("the page says that it is gone", `document.querySelector(".object.gone .pill")?.textContent.startsWith("Gone")`)
	page.Wait("the timeline has grown again", `document.querySelectorAll(".entry").length > `+itoa(entries))
	table.Screenshot(folder(t), "live-table")
	page.Screenshot(folder(t), "live-page")
}

// place is where the row of that name is on the screen.
func place(name string) string {
	return `[...document.querySelectorAll(".row")].find((r) => r.querySelector(".name").textContent === "` + name +
		`")?.getBoundingClientRect().top`
}

// TestUpdatesKeepRowsInPlace adds rows above the rows in view, and above the row with the focus.
func TestUpdatesKeepRowsInPlace(t *testing.T) {
	env := fixture.NewForRole(t, "", mockdriver.Options{})
	env.MakeVolumes(60, func(int) objects.Spec { return objects.Spec{Unclaimed: true, Handle: "none"} })
	s := serve(env, "--driver="+env.Driver)
	p := s.open(t, "#/volumes")
	waitRows(p, 60)
	n := 60
	add := func() {
		n++
		env.MakeVolume(objects.Spec{Name: "aaa-" + env.Namespace + "-" + itoa(n), Unclaimed: true, Handle: "none"})
		waitRows(p, n)
	}
	expect := func(what string) {
		t.Helper()
		name := Eval[string](p, `[...document.querySelectorAll(".row")].find((r) => r.getBoundingClientRect().top > 500)
			.querySelector(".name").textContent`)
		if strings.Contains(what, "focus") {
			Eval[bool](p, `([...document.querySelectorAll(".row")].find((r) => r.querySelector(".name").textContent === "`+
				name+`").focus({preventScroll: true}), true)`)
		}
		before := Eval[float64](p, place(name))
		add()
		if now := Eval[float64](p, place(name)); now != before {
			t.Errorf("%s: the row of %s has moved from %v to %v", what, name, before, now)
		}
		if strings.Contains(what, "focus") && Eval[string](p, focused) != name {
			t.Errorf("%s: the focus has left %s", what, name)
		}
	}
	expect("at the top, with the focus on a row")
	Eval[bool](p, `(document.activeElement.blur(), document.querySelector(".grid").scrollTop = 700, true)`)
	p.Wait("the rows are drawn", `document.querySelector('.row[aria-rowindex="25"]')`)
	expect("scrolled")
	expect("scrolled, with the focus on a row")
	Eval[bool](p, `(document.querySelector(".grid").scrollTop = 0, true)`)
	if ok := Eval[bool](p, `document.activeElement.classList.contains("row")`); !ok {
		t.Error("a row that is scrolled out of sight has lost the focus")
	}
	Eval[bool](p, `(document.activeElement.blur(), true)`)
	add()
	if top := Eval[float64](p, `document.querySelector(".grid").scrollTop`); top != 0 {
		t.Errorf("a table that is at its top has moved to %v", top)
	}
	sorted := Eval[bool](p, `(() => {
		const rows = [...document.querySelectorAll(".row")].map((r) => Number(r.getAttribute("aria-rowindex")));
		return rows.every((n, i) => i === 0 || n > rows[i - 1]);
	})()`)
	if !sorted {
		t.Error("the rows of the document are not in the order in which they are seen")
	}
}

// TestAPIServerGoesAway takes the API server away and brings it back under two open pages.
func TestAPIServerGoesAway(t *testing.T) {
	env := fixture.NewForRole(t, "", mockdriver.Options{})
	vol := env.MakeVolume(objects.Spec{Dynamic: true})
	env.Must(vol.DeletePV(env.Ctx))
	s := serve(env, "--driver="+env.Driver)
	table, page := s.open(t, "#/waiting"), s.open(t, hashOf("pv", vol.Name))
	waitRows(table, 1)
	page.Wait("the decision is shown", `document.querySelector(".decision")`)

	env.Plane.APIServer.Kill()
	for name, p := range map[string]*browser.Page{"table": table, "page": page} {
		p.Wait("the page says that the API server is lost", `document.querySelector("#status").textContent === "API server lost"`)
		p.Wait("it says how old it is", `/as of \d\d:\d\d:\d\d, \S+ ago/.test(document.querySelector("#banner").textContent)`)
		p.Screenshot(folder(t), "outage-"+name)
	}
	waitRows(table, 1)
	expectAccessible(table, "outage")
	if n := Eval[int](page, `document.querySelectorAll(".decision").length`); n != 1 {
		t.Error("the page does not show what was known before")
	}
	env.Must(env.Plane.APIServer.Restart(env.Ctx))
	waitLive(table)
	waitLive(page)
	env.RemoveLeftovers(vol)
	env.Must(vol.DeleteClaim(env.Ctx))
	table.Wait("changes arrive again", `document.querySelector(".list.none")`)
	page.Wait("on the page, too", `document.querySelector(".object.gone")`)
	if n := Eval[int](table, `document.querySelector("#banner").childElementCount`); n != 0 {
		t.Error("the page still has a banner")
	}
}

// behind returns the server behind one that answers with handle, and can pass requests on to a proxy.
func (s *server) behind(t *testing.T, handle func(w http.ResponseWriter, r *http.Request, proxy http.Handler)) (*server,
	*httptest.Server) {
	t.Helper()
	to, err := url.Parse(s.url)
	s.env.Must(err)
	proxy := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = to.Scheme, to.Host, to.Host
		if r.Out.Header.Get("Origin") != "" {
			r.Out.Header.Set("Origin", to.Scheme+"://"+to.Host)
		}
	}}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handle(w, r, proxy) }))
	t.Cleanup(front.Close)
	return &server{env: s.env, Process: s.Process, url: front.URL + to.Path}, front
}

// gate passes answers on while it is open.
type gate struct {
	mu sync.Mutex
	// shut is nil while the gate is open, and closed when it opens.
	shut chan struct{}
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = make(chan struct{})
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.shut)
	g.shut = nil
}

func (g *gate) wait(ctx context.Context) {
	g.mu.Lock()
	shut := g.shut
	g.mu.Unlock()
	if shut == nil {
		return
	}
	select {
	case <-shut:
	case <-ctx.Done():
	}
}

// gated writes through a gate.
type gated struct {
	http.ResponseWriter
	wait func()
}

func (g gated) Write(text []byte) (int, error) {
	g.wait()
	return g.ResponseWriter.Write(text)
}

func (g gated) Unwrap() http.ResponseWriter { return g.ResponseWriter }

// TestServerFallsSilent has a connection pass nothing on, and not end, as that of a tunnel whose other side is gone.
func TestServerFallsSilent(t *testing.T) {
	env := fixture.NewForRole(t, "", mockdriver.Options{})
	env.MakeVolume(objects.Spec{Dynamic: true})
	var tunnel gate
	s, _ := serve(env, "--driver="+env.Driver).behind(t, func(w http.ResponseWriter, r *http.Request, proxy http.Handler) {
		wait := func() { tunnel.wait(r.Context()) }
		wait()
		proxy.ServeHTTP(gated{w, wait}, r)
	})
	p := s.open(t, "#/volumes")
	waitRows(p, 2)
	tunnel.close()
	env.MakeVolume(objects.Spec{Unclaimed: true, Handle: "none"})
	Eval[bool](p, `((now) => Boolean(Date.now = () => now() + 60_000))(Date.now)`)
	p.Wait("the page misses the server", `document.querySelector("#status").textContent === "Reconnecting"`)
	p.Wait("it says how old it is", `/as of \d\d:\d\d:\d\d, \S+ ago/.test(document.querySelector("#banner").textContent)`)
	waitRows(p, 2)
	tunnel.open()
	waitLive(p)
	waitRows(p, 3)
}

// TestServerGoesAway takes the page's server away, and has it answer again: with an error first.
func TestServerGoesAway(t *testing.T) {
	env := fixture.NewForRole(t, "", mockdriver.Options{})
	vol := env.MakeVolume(objects.Spec{Dynamic: true})
	s := serve(env, "--driver="+env.Driver)
	const up, down, refuses = 0, 1, 2
	var mode atomic.Int32
	through, front := s.behind(t, func(w http.ResponseWriter, r *http.Request, proxy http.Handler) {
		switch mode.Load() {
		case down:
			panic(http.ErrAbortHandler)
		case refuses:
			http.NotFound(w, r)
		default:
			proxy.ServeHTTP(w, r)
		}
	})
	p := through.open(t, "#/volumes", "net::ERR", "404")
	page := through.open(t, hashOf("pv", vol.Name), "net::ERR", "404")
	waitRows(p, 2)
	page.Wait("the timeline is filled", `document.querySelector(".entry")`)

	mode.Store(down)
	front.CloseClientConnections()
	p.Wait("the page connects again", `document.querySelector("#status").textContent === "Reconnecting"`)
	p.Wait("it says how old it is", `/as of \d\d:\d\d:\d\d, \S+ ago/.test(document.querySelector("#banner").textContent)`)
	p.Screenshot(folder(t), "reconnecting")
	mode.Store(refuses)
	p.Wait("the page says what the server answers", `document.querySelector("#status").textContent === "Disconnected" &&
		document.querySelector("#banner").textContent.includes("404 page not found")`)
	waitRows(p, 2)
	p.Screenshot(folder(t), "refused")
	mode.Store(up)
	waitLive(p)
	env.MakeVolume(objects.Spec{Unclaimed: true, Handle: "none"})
	waitRows(p, 3)
	page.Wait("the timeline says what it misses", `[...document.querySelectorAll(".entry")].some((e) =>
		e.textContent.includes("was not connected from"))`)

	direct := s.open(t, "#/volumes", "net::ERR")
	env.Must(s.Stop(fixture.WaitTimeout))
	direct.Wait("the page notices that the program has ended", `document.querySelector("#status").textContent === "Reconnecting"`)
}

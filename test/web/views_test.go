//go:build unix

package web

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/leaks"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/fill"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
	"github.com/csi-reclaimer/csi-reclaimer/test/web/browser"
)

func itoa(n int) string { return strconv.Itoa(n) }

const driver = "disk.csi.example.com"

// size is a cluster with that many PVs: a fifth of them is released and waits.
type size struct{ pvs int }

func (s size) released() int { return (s.pvs + 4) / 5 }
func (s size) bound() int    { return s.pvs - s.released() }
func (s size) claims() int   { return (s.bound() + 1) / 2 }

// released is the name of a released PV.
func released(i int) string { return fmt.Sprintf("pvc-%08x-77aa-4e1f-9d5e-7a3f00c0ffee", i) }

// TestViews shows each view of a cluster with 0, 3 and 10,000 PVs, in light and dark, wide and narrow.
func TestViews(t *testing.T) {
	env := newStill(t)
	suspects := env.serveLeaks()
	s := serve(env.Environment, "--leak-port="+suspects.port)
	filled, err := fill.New(env.Client, env.Plane.EtcdAddress(), env.Namespace, driver)
	env.Must(err)
	t.Cleanup(func() { _ = filled.Close() })
	for _, size := range []size{{0}, {3}, {10000}} {
		t.Run(itoa(size.pvs), func(t *testing.T) {
			env := env.ForSubtest(t)
			env.Must(filled.Bound(env.Ctx, size.bound(), fill.Unprotected))
			env.Must(filled.Claims(env.Ctx))
			pvs := make([]fill.PV, size.released())
			for i := range pvs {
				pvs[i] = fill.PV{Name: released(i), Handle: "released-" + itoa(i), Driver: driver, Phase: v1.VolumeReleased}
			}
			env.Must(filled.Put(env.Ctx, pvs...))
			suspects.count.Store(int64(size.pvs))
			showViews(t, s, size, suspects.reachable)
		})
	}
}

// showViews opens each view, and keeps its pictures.
func showViews(t *testing.T, s *server, size size, leaks bool) {
	p := s.open(t, "#/waiting")
	waitRows(p, size.released())
	pictures(p, fmt.Sprintf("waiting-%d", size.pvs))
	p.Goto(s.url + "#/overview")
	p.Wait("the overview is filled", `/\d/.test(document.querySelector(".overview .count").textContent)`)
	pictures(p, fmt.Sprintf("overview-%d", size.pvs))
	p.Goto(s.url + "#/volumes")
	waitRows(p, size.pvs+size.claims())
	pictures(p, fmt.Sprintf("volumes-%d", size.pvs))
	if size.pvs > 0 {
		expectFast(p, s, size)
	}
	p.Goto(s.url + "#/leaks")
	if leaks {
		waitRows(p, size.pvs)
	}
	pictures(p, fmt.Sprintf("leaks-%d", size.pvs))
	name := released(0)
	p.Goto(s.url + hashOf("pv", name))
	if size.pvs == 0 {
		p.Wait("the PV does not exist", `document.querySelector(".headline").textContent.includes("does not exist")`)
	} else {
		p.Wait("the picture is drawn", `document.querySelector(".box.subject")`)
		p.Wait("the decision is shown", `document.querySelector(".decision")`)
	}
	pictures(p, fmt.Sprintf("pv-%d", size.pvs))
}

// The longest waits of a person. An idle machine needs a small part of these times; the bounds suit a machine that runs
// other tests.
const (
	firstRows = 30 * time.Second
	aKey      = 5 * time.Second
	aScroll   = 5 * time.Second
)

// expectFast measures a person's waits with all volumes in the table: until they are shown, and from a key in the
// search box and from a turn of the wheel to the next paint.
func expectFast(p *browser.Page, s *server, size size) {
	p.T.Helper()
	began := time.Now()
	p.Do(chromedp.Navigate("about:blank"))
	p.Goto(s.url + "#/volumes")
	waitRows(p, size.pvs+size.claims())
	report(p, size, "until the rows are there", time.Since(began), firstRows)
	painted := `new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - began))))`
	key := Eval[float64](p, `(() => {
		const box = document.querySelector("#search");
		box.value = "77";
		const began = performance.now();
		box.dispatchEvent(new Event("input"));
		return `+painted+`;
	})()`)
	report(p, size, "from a key to the painted rows", milliseconds(key), aKey)
	p.Goto(s.url + "#/volumes")
	waitRows(p, size.pvs+size.claims())
	worst := Eval[float64](p, `(async () => {
		const grid = document.querySelector(".grid");
		let worst = 0;
		for (let i = 0; i < 30; i++) {
			const began = performance.now();
			grid.scrollTop += grid.scrollHeight / 30;
			worst = Math.max(worst, await `+painted+`);
			const rows = document.querySelectorAll(".row");
			if (rows.length > 120 || rows.length === 0) return 1e9;
		}
		return worst;
	})()`)
	report(p, size, "from a scroll to the painted rows, the slowest of 30", milliseconds(worst), aScroll)
}

func milliseconds(n float64) time.Duration { return time.Duration(n * float64(time.Millisecond)) }

func report(p *browser.Page, size size, what string, took, most time.Duration) {
	p.T.Helper()
	p.T.Logf("%d PVs, %s: %v", size.pvs, what, took.Round(time.Millisecond))
	if took > most {
		p.T.Errorf("%d PVs, %s: %v, more than %v", size.pvs, what, took, most)
	}
}

// pictures keeps four pictures of a page.
func pictures(p *browser.Page, name string) {
	p.T.Helper()
	for _, scheme := range []string{"light", "dark"} {
		p.Media(scheme, "")
		p.Resize(browser.Wide, 900)
		p.Screenshot(folder(p.T), name+"-"+scheme)
		p.Resize(browser.Narrow, 780)
		p.Screenshot(folder(p.T), name+"-"+scheme+"-narrow")
	}
	p.Media("light", "")
	p.Resize(browser.Wide, 900)
}

// still is an environment that only the test changes.
type still struct{ *fixture.Environment }

func newStill(t *testing.T) *still {
	t.Helper()
	plane := controlplane.ForTest(t, fixture.Version(),
		controlplane.Options{Controllers: []string{"serviceaccount-controller"}})
	return &still{fixture.NewOn(t, plane, driver)}
}

// suspects serves a sidecar's report without a sidecar, because a driver with ten thousand leaks takes long to create.
type suspects struct {
	port  string
	count atomic.Int64
	// reachable means that the API server reaches it.
	reachable bool
}

// serveLeaks has a pod that leads for the driver report leaks. Where this machine has no address that the API server
// takes for a pod's, nothing is reported.
func (env *still) serveLeaks() *suspects {
	env.T.Helper()
	s := &suspects{port: "0"}
	address := suite.PodAddress(env.T)
	if address == nil {
		return s
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(address.String(), "0"))
	env.Must(err)
	web := &http.Server{ReadHeaderTimeout: fixture.WaitTimeout, Handler: s}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = web.Serve(listener) }()
	env.T.Cleanup(func() { _ = web.Close(); <-ended })
	_, s.port, err = net.SplitHostPort(listener.Addr().String())
	env.Must(err)
	s.reachable = true
	no := false
	pods := env.Client.CoreV1().Pods(env.Namespace)
	pod, err := pods.Create(env.Ctx, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "csi-reclaimer"}, Spec: v1.PodSpec{
		SchedulerName: "nobody", AutomountServiceAccountToken: &no,
		Containers: []v1.Container{{Name: "csi-reclaimer", Image: "none"}},
	}}, metav1.CreateOptions{})
	env.Must(err)
	pod.Status.PodIP, pod.Status.PodIPs = address.String(), []v1.PodIP{{IP: address.String()}}
	_, err = pods.UpdateStatus(env.Ctx, pod, metav1.UpdateOptions{})
	env.Must(err)
	holder, seconds, now := "csi-reclaimer", int32(24*3600), metav1.NowMicro()
	_, err = env.Client.CoordinationV1().Leases(env.Namespace).Create(env.Ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: env.LeaseName()},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, AcquireTime: &now,
			RenewTime: &now},
	}, metav1.CreateOptions{})
	env.Must(err)
	return s
}

func (s *suspects) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	now := time.Now()
	n := int(s.count.Load())
	r := leaks.Report{Driver: driver, Completed: now, Interval: "1h0m0s", Sightings: 3, Grace: "24h0m0s", Listed: 2 * n}
	for i := range n {
		bytes := int64(1+i%97) << 30
		r.Suspected, r.SuspectedBytes = r.Suspected+1, r.SuspectedBytes+bytes
		r.Volumes = append(r.Volumes, leaks.Found{Handle: fmt.Sprintf("vol-%016x", i*7919), Bytes: bytes, Suspected: true,
			Reason: leaks.ReasonLeakSuspected, Sightings: 5, FirstSeen: now.Add(-time.Duration(i) * time.Minute)})
	}
	_ = json.NewEncoder(w).Encode(r)
}

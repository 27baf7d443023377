package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/leadership"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// strayDriver is the driver of the tests, whose log has Leases with the name strayLog.
const strayDriver, strayLog = "disk.csi.example.com", "disk-csi-example-com-in-flight"

// strayLease returns a Lease of a driver's log with entries.
func strayLease(namespace, name, driver string, entries int) *coordinationv1.Lease {
	o := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
		UID: types.UID(namespace + name), Labels: map[string]string{inflight.LabelLog: "true"},
		Annotations: map[string]string{inflight.LabelLog: fmt.Sprintf(`{"version":1,"driver":%q,"uid":%q}`, driver,
			namespace+name)}}}
	for n := range entries {
		o.Annotations[fmt.Sprintf("in-flight.csi-reclaimer.io/pvc-%d", n)] = "?"
	}
	return o
}

// strayClient returns an API server with Leases, which the program may list while may is true.
func strayClient(may *bool, leases ...runtime.Object) *fake.Clientset {
	client := fake.NewClientset(leases...)
	client.PrependReactor("create", "selfsubjectaccessreviews", func(k8stesting.Action) (bool, runtime.Object, error) {
		return true, &authorizationv1.SelfSubjectAccessReview{
			Status: authorizationv1.SubjectAccessReviewStatus{Allowed: *may}}, nil
	})
	return client
}

// logIn returns the log of a process in namespace "new".
func logIn(t *testing.T, client *fake.Clientset, name string, shards int) *inFlightLog {
	t.Helper()
	own, err := inflight.New(inflight.Config{Leases: client.CoordinationV1(), Namespace: "new", Name: name,
		Driver: strayDriver, Shards: shards})
	if err != nil {
		t.Fatal(err)
	}
	return &inFlightLog{Log: own, namespace: "new", authorization: client.AuthorizationV1()}
}

func TestReportStrays(t *testing.T) {
	may := true
	client := strayClient(&may, strayLease("new", strayLog+"-0", strayDriver, 1),
		strayLease("old", strayLog+"-0", strayDriver, 0), strayLease("old", strayLog+"-1", strayDriver, 3),
		strayLease("old", "tape-in-flight-0", "tape", 5), strayLease("new", strayLog+"-worker-1-0", strayDriver, 2),
		strayLease("old", strayLog+"-worker-1-0", strayDriver, 4))
	report := func(name string, shards, entries int) string {
		t.Helper()
		client.ClearActions()
		var written bytes.Buffer
		ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&written))))
		log := logIn(t, client, name, shards)
		if again := log.findStrays(ctx); again != (entries > 0 || !may) || log.Stats().Elsewhere != entries {
			t.Errorf("it looks again: %v, and counts %d, want %d", again, log.Stats().Elsewhere, entries)
		}
		for _, action := range client.Actions() {
			lists := may && action.Matches("list", "leases")
			if !lists && !action.Matches("create", "selfsubjectaccessreviews") {
				t.Errorf("it sent %v", action)
			}
		}
		return written.String()
	}
	got := report(strayLog, 0, 9)
	for _, want := range []string{inflight.ToSettle, `lease="old/` + strayLog + `-1" entries=3`,
		`lease="new/` + strayLog + `-worker-1-0" entries=2`, `lease="old/` + strayLog + `-worker-1-0" entries=4`} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in %s", want, got)
		}
	}
	if n := strings.Count(got, "entries="); n != 3 {
		t.Errorf("%d lines, want 3: %s", n, got)
	}
	got = report(strayLog+"-worker-1", 1, 4)
	if n := strings.Count(got, "entries="); n != 1 ||
		!strings.Contains(got, `lease="old/`+strayLog+`-worker-1-0" entries=4`) {
		t.Errorf("on a node: %s", got)
	}
	list, ok := client.Actions()[1].(k8stesting.ListAction)
	if !ok || list.GetListRestrictions().Fields.String() != "metadata.name="+strayLog+"-worker-1-0" {
		t.Errorf("a node lists %v", client.Actions()[1])
	}

	may = false
	if got := report(strayLog, 0, 0); got != "" {
		t.Errorf("where Leases may not be listed: %s", got)
	}
}

// The process of a log may never have run in the namespace of its log.
func TestForgedLeaseIsNotInNamespaceOfLog(t *testing.T) {
	t.Parallel()
	o := must.Get(newOptions())(t)
	help := o.Flags().FlagSets["Leader election"].Lookup("leader-election-namespace").Usage
	if !strings.Contains(inflight.IfForged, "--leader-election-namespace") || !strings.Contains(help, "in-flight log") {
		t.Errorf("%q, and the help is %q", inflight.IfForged, help)
	}
}

func TestReleaseStopsAtOtherLogs(t *testing.T) {
	may := true
	client := strayClient(&may, strayLease("new", strayLog+"-worker-1-0", strayDriver, 2),
		strayLease("old", strayLog+"-1", strayDriver, 1), strayLease("old", "tape-in-flight-0", "tape", 5))
	r := releasing{log: logIn(t, client, strayLog, 0)}
	err := r.drain(t.Context())
	for _, want := range []string{"2 volumes in flight in Lease new/" + strayLog + "-worker-1-0",
		"1 volume in flight in Lease old/" + strayLog + "-1", inflight.ToSettle} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("drain = %v, want %q", err, want)
		}
	}
	copied := strayLease("old", strayLog+"-2", strayDriver, 1)
	copied.UID = "another"
	other := logIn(t, strayClient(&may, copied), strayLog, 0)
	if err := other.checkStrays(t.Context()); !errors.Is(err, inflight.ErrCopy) ||
		strings.Contains(err.Error(), inflight.ToSettle) {
		t.Errorf("a copy, which neither csi-reclaimer nor settle takes: %v", err)
	}
	client.PrependReactor("list", "leases", func(k8stesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewInternalError(errors.New("no etcd"))
	})
	if err := r.log.checkStrays(t.Context()); !apierrors.IsInternalError(err) {
		t.Errorf("a failed read: %v", err)
	}
	may = false
	if err := r.log.checkStrays(t.Context()); err != nil {
		t.Errorf("a process that may not look: %v", err)
	}
}

func TestReleaseStopsAtUnreadablePartOfOwnLog(t *testing.T) {
	may := true
	copied := strayLease("new", strayLog+"-0", strayDriver, 1)
	copied.UID = "another"
	log := logIn(t, strayClient(&may, copied), strayLog, 0)
	must.OK(t, log.TakeOver(t.Context()))
	err := releasing{log: log}.drain(t.Context())
	if err == nil || !strings.Contains(err.Error(), "Lease new/"+strayLog+"-0: a copy") {
		t.Errorf("drain = %v", err)
	}
}

// An entry that stays in flight until the release gives up does not hide an entry that cannot be read.
func TestReleaseStopsAtUnreadableEntryAfterItsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		may := true
		for _, unreadable := range []int{0, 1} {
			lease := strayLease("new", strayLog+"-0", strayDriver, unreadable)
			lease.ResourceVersion = "1"
			lease.Annotations[inflight.LabelLog] = strings.Replace(lease.Annotations[inflight.LabelLog], "{", `{"shards":1,`, 1)
			lease.Annotations["in-flight.csi-reclaimer.io/pvc-a"] = `{"version":1,"volume":"pvc-a",` +
				`"claim":{"namespace":"a","name":"a","uid":"a"},` +
				`"requests":[{"create":{"name":"pvc-a"},"persistentVolume":{"metadata":{"name":"pvc-a"}}}]}`
			log := logIn(t, strayClient(&may, lease), strayLog, 1)
			if err := log.TakeOver(t.Context()); err != nil || log.Stats().Open != 1 {
				t.Fatalf("%v, %+v, %v", err, log.Stats(), log.Problems())
			}
			began, quiet := time.Now(), time.Second
			err := releasing{log: log, quiet: quiet}.drain(t.Context())
			if named := err != nil && strings.Contains(err.Error(), "pvc-0"); named != (unreadable > 0) ||
				time.Since(began) != quiet+drainAfterQuiet {
				t.Errorf("%d unreadable, after %v: drain = %v", unreadable, time.Since(began), err)
			}
		}
	})
}

// A failed read does not count as an empty log, and a missing permission may be granted later.
func TestStraysAreCountedUntilEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		may := true
		var fails atomic.Bool // the log reads in its own goroutine
		fails.Store(true)
		client := strayClient(&may, strayLease("old", strayLog+"-1", strayDriver, 3))
		client.PrependReactor("list", "leases", func(k8stesting.Action) (bool, runtime.Object, error) {
			return fails.Load(), nil, apierrors.NewInternalError(errors.New("no etcd"))
		})
		var denied atomic.Bool
		denied.Store(true)
		client.PrependReactor("create", "selfsubjectaccessreviews", func(k8stesting.Action) (bool, runtime.Object, error) {
			return denied.Load(), &authorizationv1.SelfSubjectAccessReview{}, nil
		})
		log := logIn(t, client, strayLog, 0)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			log.reportStrays(t.Context())
		}()
		counts := func(want int, after time.Duration) {
			t.Helper()
			select {
			case <-ended:
				t.Fatal("it does not look again")
			case <-time.After(after):
			}
			if got := log.Stats().Elsewhere; got != want {
				t.Errorf("%d entries elsewhere, want %d", got, want)
			}
		}
		counts(0, strayInterval/2) // between two searches, as from here on
		denied.Store(false)
		counts(0, strayInterval)
		fails.Store(false)
		counts(3, strayInterval)
		denied.Store(true)
		counts(0, strayInterval)
		denied.Store(false)
		counts(3, strayInterval)
		fails.Store(true)
		counts(3, strayInterval)
		if err := client.Tracker().Update(coordinationv1.SchemeGroupVersion.WithResource("leases"),
			strayLease("old", strayLog+"-1", strayDriver, 0), "old"); err != nil {
			t.Fatal(err)
		}
		fails.Store(false)
		select {
		case <-ended:
		case <-time.After(strayInterval):
			t.Error("it looks again after it found none")
		}
		if got := log.Stats().Elsewhere; got != 0 {
			t.Errorf("%d entries elsewhere, want none", got)
		}
	})
}

// A refused request proves nothing about the entries of an earlier process, whose permissions may have been others.
func TestRefusedTakeOverKeepsVolumes(t *testing.T) {
	for name, tc := range map[string]struct{ mayRead, releases, fails, without bool }{
		"it may not read":         {without: true},
		"it may read":             {mayRead: true},
		"a release that may not":  {releases: true, fails: true},
		"a release that may read": {releases: true, mayRead: true, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := strayClient(&tc.mayRead)
				var refused atomic.Bool
				refused.Store(true)
				client.PrependReactor("get", "leases", func(k8stesting.Action) (bool, runtime.Object, error) {
					leases := coordinationv1.Resource("leases")
					return refused.Load(), nil, apierrors.NewForbidden(leases, strayLog, errors.New("no"))
				})
				log := logIn(t, client, strayLog, 0)
				log.finishOnly, log.releases = true, tc.releases
				if !log.usesSource(volume.SourceRef{Kind: volume.SourceClaim}) {
					t.Error("before the take-over, no volume counts as created from the source")
				}
				done := make(chan error, 1)
				go func() { done <- log.TakeOver(t.Context()) }()
				synctest.Wait()
				state, _ := log.InFlight("pvc-1")
				if source, _ := log.SourceInFlight(volume.SourceRef{}); (state == volume.InFlightSettled) != tc.without ||
					source != state {
					t.Errorf("the volume's state is %v, its source's %v", state, source)
				}
				refused.Store(false)
				if err := <-done; (err != nil) != tc.fails {
					t.Errorf("the take-over ends with %v", err)
				}
				if state, problem := log.InFlight("pvc-1"); (state == volume.InFlightSettled) == tc.fails {
					t.Errorf("then the volume's state is %v: %s", state, problem)
				}
			})
		})
	}
}

// TestPermissionsOfLog: a process runs without the log of another one that it may not read, but no release does.
func TestPermissionsOfLog(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mayRead, finishOnly, releases bool
		want                          int
	}{
		"it provisions, and may not read":  {false, false, false, 2},
		"it finishes, and may not read":    {false, true, false, 0},
		"a release that may not read":      {false, true, true, 2},
		"it has all that it needs already": {true, true, true, 0},
	} {
		log := logIn(t, strayClient(&c.mayRead), strayLog, 0)
		log.finishOnly, log.releases = c.finishOnly, c.releases
		if missing, err := log.MissingPermissions(t.Context()); err != nil || len(missing) != c.want {
			t.Errorf("%s: %v, %v", name, missing, err)
		}
	}
}

// TestStepAside: a superseded process that has no election waits until the other one is idle.
func TestStepAside(t *testing.T) {
	t.Parallel()
	lost := fmt.Errorf("provision: %w", inflight.ErrSuperseded)
	for name, tc := range map[string]struct {
		elected, releases bool
		err               error
		want              bool
	}{
		"superseded":                 {err: lost, want: true},
		"with leader election":       {elected: true, err: lost},
		"a release, which runs once": {releases: true, err: lost},
		"another error":              {err: errors.New("x")},
		"no error":                   {},
	} {
		if got := (&inFlightLog{releases: tc.releases}).stepsAside(tc.elected, tc.err); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	metrics := &ownMetrics{Registry: prometheus.NewRegistry()}
	metrics.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "stands_still"}))
	for _, stopped := range []bool{false, true} {
		metrics.stopped.Store(stopped)
		if got, err := metrics.Gather(); err != nil || (len(got) == 0) != stopped {
			t.Errorf("stopped: %t: %d metrics, %v", stopped, len(got), err)
		}
	}
	for _, told := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			may := true
			log := logIn(t, strayClient(&may, strayLease("new", strayLog+"-0", strayDriver, 1)), strayLog, 0)
			ctx, cancel := context.WithCancel(t.Context())
			began, done := time.Now(), make(chan error, 1)
			go func() { done <- log.stepAside(ctx, lost) }()
			time.Sleep(idleLog / 2)
			if told {
				cancel()
			}
			err := <-done
			waited := time.Since(began)
			if told && (err != nil || waited != idleLog/2) || !told && (!errors.Is(err, lost) ||
				waited < idleLog || !strings.Contains(err.Error(), "--leader-election")) {
				t.Errorf("told to end: %v, after %v: %v", told, waited, err)
			}
			cancel()
		})
	}
}

// The log does not share the limit of the requests of a busy program.
func TestLogHasNoLimit(t *testing.T) {
	o, err := parse(t, "--leader-election-namespace=ns")
	must.OK(t, err)
	config := kube.Limited(&rest.Config{Host: "http://127.0.0.1:1", QPS: 5})
	log := must.Get(newInFlightLog(o, config, "disk.csi.example.com", nil, leadership.NewClock()))(t)
	client, ok := log.authorization.RESTClient().(*rest.RESTClient)
	if !ok || client.GetRateLimiter() != nil {
		t.Errorf("the log's client has the limiter %v", client.GetRateLimiter())
	}
}

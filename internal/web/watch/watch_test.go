package watch

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/panics"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

func TestStateOf(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no"))
	absent := apierrors.NewNotFound(schema.GroupResource{Resource: "nodefences"}, "")
	away := errors.New("connection refused")
	fine := health{kind: kind{what: "PVs"}, synced: true}
	for name, c := range map[string]struct {
		all               []health
		synced, connected bool
		unread            string
		since             time.Time
	}{
		"all is read":    {all: []health{fine, fine}, synced: true, connected: true},
		"one is not yet": {all: []health{fine, {kind: fine.kind}}, connected: true},
		"one is forbidden": {all: []health{fine, {kind: kind{what: "Pods", open: "what is held"}, err: forbidden}},
			synced: true, connected: true, unread: "Pods: pods is forbidden: no. So it is not known what is held."},
		"one is not served": {all: []health{fine, {kind: kind{what: "NodeFences", maybe: true}, err: absent}},
			synced: true, connected: true},
		"an always served kind is not served": {all: []health{fine, {kind: kind{what: "PVs", open: "x"}, err: absent}},
			synced: true, connected: true, unread: "PVs: "},
		"the API server is away": {all: []health{fine, {synced: true, err: away, since: at.Add(time.Second)},
			{synced: true, err: away, since: at}}, synced: true, since: at},
		"it is away, and an optional kind was never served": {all: []health{fine, {kind: kind{maybe: true}, err: away,
			since: at}}, synced: true, since: at},
		"it is away from the start": {all: []health{{err: away, since: at}}, since: at},
		"unauthorized": {all: []health{{synced: true, err: apierrors.NewUnauthorized("who?"), since: at}},
			synced: true, since: at},
	} {
		s := stateOf(c.all)
		if s.Synced != c.synced || s.Connected != c.connected || (s.Problem == "") != c.connected {
			t.Errorf("%s: %+v", name, s)
		}
		if c.unread == "" && len(s.Unread) > 0 || c.unread != "" && (len(s.Unread) != 1 ||
			!strings.HasPrefix(s.Unread[0], c.unread)) {
			t.Errorf("%s: unread is %q", name, s.Unread)
		}
		if !c.since.IsZero() && (s.Since == nil || !s.Since.Time.Equal(c.since)) {
			t.Errorf("%s: since %v", name, s.Since)
		}
	}
}

// newClusterOfOnePV returns a Cluster whose API server has one PV.
func newClusterOfOnePV(t *testing.T) *Cluster {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"PersistentVolumeList","apiVersion":"v1","metadata":{"resourceVersion":"1"},
			"items":[{"metadata":{"name":"pv","resourceVersion":"1"}}]}`))
	}))
	t.Cleanup(server.Close)
	c := must.Get(New(&rest.Config{Host: server.URL}, Config{}))(t)
	return c
}

func TestPanicOfWatchIsUnread(t *testing.T) {
	c := newClusterOfOnePV(t)
	pvs := newTable(c, kind{resource: "persistentvolumes", what: "PVs", open: "which PVs there are"}, kube.Selection{},
		c.cluster.Core.RESTClient(), &v1.PersistentVolume{},
		kube.RecordAll(func(*v1.PersistentVolume) int { panic("bad object") }), never)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { pvs.run(ctx) })
	defer running.Wait()
	defer cancel()
	for !errors.Is(pvs.failure(), panics.Err) {
		select {
		case <-c.Changed():
		case <-time.After(time.Minute):
			t.Fatalf("the failure is %v", pvs.failure())
		}
	}
	const want = "PVs: panic: bad object. So it is not known which PVs there are."
	if s := stateOf([]health{pvs.health()}); !s.Connected || !slices.Equal(s.Unread, []string{want}) {
		t.Errorf("%+v", s)
	}
}

// A request may succeed before the next panic, which the same object causes.
func TestUnfinishedListDoesNotEndPanic(t *testing.T) {
	c := newClusterOfOnePV(t)
	var pvs *table[int]
	panicked := false
	pvs = newTable(c, kind{resource: "persistentvolumes"}, kube.Selection{}, c.cluster.Core.RESTClient(),
		&v1.PersistentVolume{}, kube.RecordAll(func(*v1.PersistentVolume) int {
			if err := pvs.failure(); panicked && !errors.Is(err, panics.Err) {
				t.Errorf("before the list is whole: %v", err)
			}
			return 0
		}), never)
	for _, panicked = range []bool{false, true} {
		if panicked {
			pvs.observe(fmt.Errorf("%w: bad object", panics.Err))
		}
		must.OK(t, pvs.load(t.Context()))
		if err := pvs.failure(); err != nil || pvs.health().err != nil {
			t.Errorf("after a whole list: %v, %v", err, pvs.health().err)
		}
	}
}

// A laptop that sleeps notices later that the API server is away.
func TestCachesAreCurrentUpToLastWord(t *testing.T) {
	at := testclock.NewFakeClock(time.Date(2026, 1, 2, 22, 0, 0, 0, time.UTC))
	c := must.Get(New(&rest.Config{Host: "http://127.0.0.1"}, Config{Clock: at}))(t)
	away := errors.New("no route to host")
	c.pvs.observe(away)
	if since := c.pvs.health().since; !since.Equal(at.Now()) {
		t.Errorf("before the first word, since is %v", since)
	}
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "persistentvolumes"}, "", errors.New("no"))
	for _, word := range []func(){func() { c.pvs.observe(nil) }, c.pvs.Listed, func() { c.pvs.observe(forbidden) }} {
		c.pvs.observe(nil)
		at.Step(time.Hour)
		word()
		heard := at.Now()
		at.Step(5 * time.Hour)
		c.pvs.observe(away)
		at.Step(time.Minute)
		c.pvs.observe(away)
		if since := c.pvs.health().since; !since.Equal(heard) {
			t.Errorf("since is %v, want %v", since, heard)
		}
	}
}

// Each event and bookmark of a watch is an outcome.
func TestWordOfAPIServerWakesNobody(t *testing.T) {
	c := must.Get(New(&rest.Config{Host: "http://127.0.0.1"}, Config{}))(t)
	wakes := func() bool {
		select {
		case <-c.Changed():
			return true
		default:
			return false
		}
	}
	for i, step := range []struct {
		do   func()
		want bool
	}{
		{func() { c.pvs.observe(nil) }, false}, {func() { c.pvs.observe(errors.New("away")) }, true},
		{func() { c.pvs.observe(errors.New("refused")) }, true}, {func() { c.pvs.observe(nil) }, true},
		{func() { c.pvs.observe(nil) }, false}, {c.pvs.Listed, true},
	} {
		if step.do(); wakes() != step.want {
			t.Errorf("step %d: want %v", i, step.want)
		}
	}
}

func TestPartAfterPanicIsNotRepeatedAtOnce(t *testing.T) {
	calls := 0
	ctx, cancel := context.WithCancel(t.Context())
	(&Cluster{cfg: Config{Clock: clock.RealClock{}}}).contained("poll", func(context.Context) {
		calls++
		cancel()
		panic("bad object")
	})(ctx)
	if calls != 1 {
		t.Errorf("%d calls", calls)
	}
}

func TestTrimKeepsFinalizerManagers(t *testing.T) {
	fields := func(text string) *metav1.FieldsV1 { return metav1.NewFieldsV1(text) }
	o := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv", Finalizers: []string{"a"},
		Annotations: map[string]string{v1.LastAppliedConfigAnnotation: "long", "kept": "yes"},
		ManagedFields: []metav1.ManagedFieldsEntry{
			{Manager: "other", FieldsV1: fields(`{"f:spec":{"f:capacity":{}}}`)},
			{Manager: "adder", FieldsV1: fields(`{"f:metadata":{"f:annotations":{"f:x":{}},"f:finalizers":{".":{},"v:\"a\"":{}}}}`)},
		}},
		Spec: v1.PersistentVolumeSpec{PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{
			Driver: "d", VolumeHandle: "h", VolumeAttributes: map[string]string{"x": "y"}}}}}
	if its := pvOf(true)(o.DeepCopy()); its.object.Spec.CSI.VolumeAttributes["x"] != "y" {
		t.Error("the attributes that decide on a lock are gone")
	}
	before := explain.PVOf(o)
	trimmed := pvOf(false)(o)
	if by := explain.AddedBy(trimmed.object, "a"); by != "adder" {
		t.Errorf("the finalizer was added by %q", by)
	}
	if len(o.ManagedFields) != 1 || strings.Contains(string(o.ManagedFields[0].FieldsV1.GetRawBytes()), "annotations") {
		t.Errorf("managed fields are %v", o.ManagedFields)
	}
	if len(o.Annotations) != 1 || o.Spec.CSI.VolumeAttributes != nil {
		t.Errorf("not trimmed: %+v", o)
	}
	if before != trimmed.PV || before != explain.PVOf(trimmed.object) {
		t.Error("decisions read something else of a trimmed PV")
	}
}

func TestInvisibleChangesDoNotWake(t *testing.T) {
	lease := func(holder string, renewed time.Time, annotation string) coordinationv1.Lease {
		return coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"x": annotation}},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To(holder), RenewTime: ptr.To(metav1.NewMicroTime(renewed))}}
	}
	at := time.Unix(1000, 0)
	for name, c := range map[string]struct {
		same, want bool
	}{
		"a Lease that is renewed":    {sameLease(lease("a", at, ""), lease("a", at.Add(time.Second), "")), true},
		"a Lease that changes hands": {sameLease(lease("a", at, ""), lease("b", at, "")), false},
		"a Lease with a brake":       {sameLease(lease("a", at, ""), lease("a", at, "on")), false},
		"a node's heartbeat": {sameNode(heartbeat(at, v1.ConditionTrue),
			heartbeat(at.Add(1), v1.ConditionTrue)), true},
		"a node that is lost": {sameNode(heartbeat(at, v1.ConditionTrue), heartbeat(at, v1.ConditionFalse)), false},
		"a pod's condition":   {samePod(condition("1", v1.PodRunning), condition("2", v1.PodRunning)), true},
		"a pod that ends":     {samePod(condition("1", v1.PodRunning), condition("2", v1.PodFailed)), false},
	} {
		if c.same != c.want {
			t.Errorf("%s: same is %v", name, c.same)
		}
	}
}

func heartbeat(at time.Time, ready v1.ConditionStatus) *v1.Node {
	return explain.NodeOf(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: at.String()},
		Status: v1.NodeStatus{Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: ready,
			LastHeartbeatTime: metav1.NewTime(at)}}}})
}

func condition(version string, phase v1.PodPhase) explain.Pod {
	return explain.PodOf(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", ResourceVersion: version},
		Status: v1.PodStatus{Phase: phase, Conditions: []v1.PodCondition{{Type: "Other", Message: version}}}})
}

func TestPodsWithoutClaimsAreLeftOut(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*v1.Pod)
		want   bool
	}{
		"none of it":  {func(*v1.Pod) {}, false},
		"terminating": {func(o *v1.Pod) { o.DeletionTimestamp = ptr.To(metav1.Now()) }, true},
		"with a claim": {func(o *v1.Pod) {
			o.Spec.Volumes = []v1.Volume{{VolumeSource: v1.VolumeSource{
				PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
		}, true},
	} {
		o := &v1.Pod{}
		c.change(o)
		if _, keep, err := some(kube.RecordAll(explain.PodOf), matters)(o, false); keep != c.want || err != nil {
			t.Errorf("%s: kept is %v, %v", name, keep, err)
		}
	}
	if !slices.Contains(Kinds(), "pod") {
		t.Error("pods have no page")
	}
}

package sources

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	k8stesting "k8s.io/client-go/testing"
	testclock "k8s.io/utils/clock/testing"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/snapshottest"
)

const driverName = "disk.csi.example.com"

func sweeperOf(client kubernetes.Interface, shop *snapshottest.Snapshots, cfg SweeperConfig) *Sweeper {
	return newSweeper(client.CoreV1(), client.AuthorizationV1(), driverName, shop, cfg)
}

func TestDecideSweep(t *testing.T) {
	type snapshot = request.Snapshot
	noContent := func(s *snapshot) { s.Content = nil }
	unbound := func(s *snapshot) { s.Content, s.ContentName = nil, "" }
	deleting := func(s *snapshot) { s.Deleting = true }
	foreign := func(s *snapshot) { s.Content.Driver = "another.csi.example.com" }
	of := func(changes ...func(*snapshot)) sweepFacts {
		return sweepFacts{Snapshot: snapshottest.Of(driverName, "s", changes...), UID: "u-s", Driver: driverName}
	}
	used := func(f sweepFacts) sweepFacts { f.InUse = true; return f }
	for name, c := range map[string]struct {
		f      sweepFacts
		remove bool
		why    sweepReason
	}{
		"nothing is known": {sweepFacts{}, false, sweepNothing},
		"it is gone": {sweepFacts{UID: "u-s", Driver: driverName}, false,
			sweepNothing},
		"another has its name": {of(func(s *snapshot) { s.UID = "x" }), false, sweepNothing},
		"the finalizer is gone": {of(func(s *snapshot) { s.Protected = false }), false,
			sweepNothing},
		"not being restored":              {of(), true, sweepOrphaned},
		"not being restored, and deleted": {of(deleting), true, sweepOrphaned},
		"not ready": {of(func(s *snapshot) { s.Ready = false }), true,
			sweepOrphaned},
		"being restored":                             {used(of()), false, sweepInUse},
		"being restored, and deleted":                {used(of(deleting)), false, sweepInUse},
		"being restored, and its content is gone":    {used(of(deleting, noContent)), false, sweepInUse},
		"another driver's":                           {of(foreign), false, sweepOtherDriver},
		"another driver's, and it is deleted":        {of(foreign, deleting), false, sweepOtherDriver},
		"its content is gone, and it is deleted":     {of(noContent, deleting), true, sweepContentGone},
		"it never had a content, and it is deleted":  {of(unbound, deleting), true, sweepContentGone},
		"its content is gone, and it is not deleted": {of(noContent), false, sweepDriverUnknown},
		"it has no content yet":                      {of(unbound), false, sweepDriverUnknown},
		"its content is another snapshot's": {of(func(s *snapshot) { s.Content.SnapshotUID = "x" }),
			false, sweepDriverUnknown},
		"its content is another snapshot's, and it is deleted": {of(deleting,
			func(s *snapshot) { s.Content.Snapshot.Namespace = "x" }), true, sweepContentGone},
		"another content was read": {of(func(s *snapshot) { s.Content.Name = "x" }), false,
			sweepDriverUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			if remove, why := decideSweep(c.f); remove != c.remove || why != c.why {
				t.Errorf("%v, %s; want %v, %s", remove, why, c.remove, c.why)
			}
		})
	}
}

// TestSweepWithoutAProvisioner reads the claims live, because no provisioner reports the sources in use.
func TestSweepWithoutAProvisioner(t *testing.T) {
	bound := snapshottest.ClaimFrom("bound", "free", "")
	bound.Spec.VolumeName = "pv"
	client := fake.NewClientset(
		snapshottest.ClaimFrom("pending", "used", ""),
		snapshottest.ClaimFrom("afar", "used-from-afar", "ns"),
		bound,
	)
	shop := snapshottest.New(
		snapshottest.Of(driverName, "used"),
		snapshottest.Of(driverName, "used-from-afar"),
		snapshottest.Of(driverName, "free"),
		snapshottest.Of(driverName, "deleted", func(s *request.Snapshot) { s.Deleting = true }),
		snapshottest.Of(driverName, "foreign", func(s *request.Snapshot) { s.Content.Driver = "x" }),
		snapshottest.Of(driverName, "unprotected", func(s *request.Snapshot) { s.Protected = false }),
	)
	s := sweeperOf(client, shop, SweeperConfig{})
	must.OK(t, s.Sweep(t.Context()))
	if want := []string{"remove deleted", "remove free"}; !slices.Equal(shop.Calls(), want) {
		t.Errorf("%q, want %q", shop.Calls(), want)
	}
}

// An unreadable object is no reason to remove a finalizer.
func TestSweepErrors(t *testing.T) {
	broken := errors.New("broken")
	for what, removes := range map[string]int{"list": 0, "read": 0, "remove": 1} {
		client := fake.NewClientset()
		shop := snapshottest.New(snapshottest.Of(driverName, "free"))
		shop.Fail(what, broken)
		s := sweeperOf(client, shop, SweeperConfig{})
		if err := s.Sweep(t.Context()); !errors.Is(err, broken) || len(shop.Calls()) != removes || !shop.Protected("free") {
			t.Errorf("%s: %v, %q", what, err, shop.Calls())
		}
	}
	client, lists := fake.NewClientset(), 0
	client.PrependReactor("list", "persistentvolumeclaims", func(k8stesting.Action) (bool, runtime.Object, error) {
		lists++
		return true, nil, broken
	})
	shop := snapshottest.New(snapshottest.Of(driverName, "free"), snapshottest.Of(driverName, "another"))
	s := sweeperOf(client, shop, SweeperConfig{})
	if err := s.Sweep(t.Context()); !errors.Is(err, broken) || !shop.Protected("free") || lists != 1 {
		t.Errorf("%v after %d lists of claims", err, lists)
	}
	shop = snapshottest.New()
	s.snapshots = shop
	if err := s.Sweep(t.Context()); err != nil {
		t.Errorf("claims are read though no snapshot has the finalizer: %v", err)
	}
}

func TestSweepIsRepeated(t *testing.T) {
	client, clock := fake.NewClientset(), testclock.NewFakeClock(time.Unix(1, 0))
	shop := snapshottest.New(snapshottest.Of(driverName, "first"))
	s := sweeperOf(client, shop, SweeperConfig{Clock: clock, Interval: time.Minute})
	done := make(chan error, 1)
	go func() { done <- s.Run(t.Context()) }()
	waitFor(t, "the first sweep", func() bool { return !shop.Protected("first") && clock.HasWaiters() })
	shop.Put(snapshottest.Of(driverName, "second"))
	clock.Step(time.Minute)
	waitFor(t, "the second sweep", func() bool { return !shop.Protected("second") && clock.HasWaiters() })
	s.Stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func waitFor(t *testing.T, what string, until func() bool) {
	t.Helper()
	t.Logf("waiting for %s", what) // shown with -v
	for !until() {
		time.Sleep(time.Millisecond)
	}
}

// isUsed reports whether a source has the name of one in use.
func isUsed(of volume.SourceRef) bool { return of.Namespace == "ns" && of.Name == "used" }

func TestReleaseSnapshots(t *testing.T) {
	shop := snapshottest.New(
		snapshottest.Of(driverName, "a"),
		snapshottest.Of(driverName, "b", func(s *request.Snapshot) { s.Deleting, s.Content = true, nil }),
		snapshottest.Of(driverName, "foreign", func(s *request.Snapshot) { s.Content.Driver = "x" }),
		snapshottest.Of(driverName, "gone"), snapshottest.Of(driverName, "used"),
	)
	n, err := ReleaseSnapshots(t.Context(), driverName, shop, isUsed)
	if n != 3 || err != nil || !shop.Protected("foreign") || !shop.Protected("used") || shop.Protected("a") ||
		shop.Protected("b") {
		t.Errorf("%d, %v, %q", n, err, shop.Calls())
	}
	for _, what := range []string{"list", "read", "remove"} {
		shop = snapshottest.New(snapshottest.Of(driverName, "a"))
		shop.Fail(what, errors.New("broken"))
		if n, err := ReleaseSnapshots(t.Context(), driverName, shop, isUsed); n != 0 || err == nil || !shop.Protected("a") {
			t.Errorf("%s: %d, %v", what, n, err)
		}
	}
}

// allUses is a provisioner with a fixed answer.
type allUses struct {
	asked  []volume.SourceRef
	unused bool
	err    error
}

func (u *allUses) IfUnused(ctx context.Context, of volume.SourceRef, do func(context.Context) error) (bool, error) {
	u.asked = append(u.asked, of)
	if !u.unused {
		return false, u.err
	}
	return true, do(ctx)
}

// TestSweepAsksTheProvisioner: only the provisioner knows the restores in progress, so no claim is read.
func TestSweepAsksTheProvisioner(t *testing.T) {
	for _, unused := range []bool{true, false} {
		client, uses := fake.NewClientset(), &allUses{unused: unused}
		shop := snapshottest.New(snapshottest.Of(driverName, "a"))
		s := sweeperOf(client, shop, SweeperConfig{Uses: uses})
		if err := s.Sweep(t.Context()); err != nil || shop.Protected("a") == unused || len(client.Actions()) > 0 {
			t.Errorf("unused %t: %v, %q, %v", unused, err, shop.Calls(), client.Actions())
		}
		if want := (volume.SourceRef{Kind: volume.SourceSnapshot, Namespace: "ns", Name: "a", UID: "u-a"}); len(
			uses.asked) != 1 || uses.asked[0] != want {
			t.Errorf("asked for %+v", uses.asked)
		}
		if n := len(s.Permissions()); n != 4 {
			t.Errorf("%d permissions: %+v", n, s.Permissions())
		}
	}
}

// TestSweepBesideAnotherProvisioner: claims show the restores of the other one, and this process knows its own, whose
// claims may be gone.
func TestSweepBesideAnotherProvisioner(t *testing.T) {
	for name, c := range map[string]struct {
		claims []runtime.Object
		unused bool
		err    error
		want   bool
	}{
		"not in use":                        {nil, true, nil, false},
		"in flight here":                    {nil, false, nil, true},
		"named by a claim":                  {[]runtime.Object{snapshottest.ClaimFrom("pending", "a", "")}, true, nil, true},
		"what is in flight here is unknown": {nil, false, errors.New("a copy"), true},
	} {
		client, shop := fake.NewClientset(c.claims...), snapshottest.New(snapshottest.Of(driverName, "a"))
		s := sweeperOf(client, shop, SweeperConfig{Uses: &allUses{unused: c.unused, err: c.err}, ReadClaims: true})
		if err := s.Sweep(t.Context()); !errors.Is(err, c.err) || shop.Protected("a") != c.want {
			t.Errorf("%s: %v, %q", name, err, shop.Calls())
		}
		if n := len(s.Permissions()); n != 5 {
			t.Errorf("%d permissions: %+v", n, s.Permissions())
		}
	}
}

// TestLongSweepReadsClaimsAgain: another provisioner begins a restore during the sweep. It finds the finalizer there.
func TestLongSweepReadsClaimsAgain(t *testing.T) {
	for passed, removes := range map[time.Duration]int{session.LiveFor: 2, session.LiveFor + 1: 1} {
		client, now := fake.NewClientset(), testclock.NewFakeClock(time.Unix(1e9, 0))
		shop := snapshottest.New(snapshottest.Of(driverName, "a"), snapshottest.Of(driverName, "b"))
		begins := sync.OnceFunc(func() {
			now.Step(passed)
			must.OK(t, client.Tracker().Add(snapshottest.ClaimFrom("one", "a", "")))
			must.OK(t, client.Tracker().Add(snapshottest.ClaimFrom("two", "b", "")))
		})
		shop.Before = func(string) { begins() }
		s := sweeperOf(client, shop, SweeperConfig{Clock: now})
		if err := s.Sweep(t.Context()); err != nil || len(shop.Calls()) != removes {
			t.Errorf("after %v: %v, %q", passed, err, shop.Calls())
		}
	}
}

func TestSweepEndsWithItsContext(t *testing.T) {
	client := fake.NewClientset()
	shop := snapshottest.New(snapshottest.Of(driverName, "a"), snapshottest.Of(driverName, "b"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	shop.Before = func(string) { cancel() }
	s := sweeperOf(client, shop, SweeperConfig{})
	if err := s.Sweep(ctx); !errors.Is(err, context.Canceled) || len(shop.Calls()) != 1 {
		t.Errorf("%v, %q", err, shop.Calls())
	}
}

func TestNewSweeper(t *testing.T) {
	config, shop := &rest.Config{}, snapshottest.New()
	s, err := NewSweeper(config, driverName, shop, SweeperConfig{})
	if err != nil || s.cfg.Interval != 5*time.Minute || s.cfg.Clock == nil || len(s.Permissions()) != 5 {
		t.Errorf("%+v, %v", s, err)
	}
	for name, make := range map[string]func() (*Sweeper, error){
		"no cluster": func() (*Sweeper, error) { return NewSweeper(nil, driverName, shop, SweeperConfig{}) },
		"no driver":  func() (*Sweeper, error) { return NewSweeper(config, "", shop, SweeperConfig{}) },
		"no reader":  func() (*Sweeper, error) { return NewSweeper(config, driverName, nil, SweeperConfig{}) },
		"an interval before now": func() (*Sweeper, error) {
			return NewSweeper(config, driverName, shop, SweeperConfig{Interval: -1})
		},
		"a cluster without address": func() (*Sweeper, error) {
			return NewSweeper(&rest.Config{Host: "http://:x"}, driverName, shop, SweeperConfig{})
		},
	} {
		if _, err := make(); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

func TestReleaseClonedClaims(t *testing.T) {
	claim := func(name, pv string, finalizers ...string) *v1.PersistentVolumeClaim {
		return &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name,
			UID: "u-" + types.UID(name), Finalizers: finalizers},
			Spec: v1.PersistentVolumeClaimSpec{VolumeName: pv}}
	}
	pv := func(name, driver string) *v1.PersistentVolume {
		return &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PersistentVolumeSpec{
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: driver,
				VolumeHandle: name}}}}
	}
	client := fake.NewClientset(pv("ours", driverName), pv("theirs", "x"),
		claim("ours", "ours", "example.com/x", request.CloningFinalizer), claim("theirs", "theirs", request.CloningFinalizer),
		claim("lost", "gone", request.CloningFinalizer), claim("used", "ours", request.CloningFinalizer),
		claim("unbound", "", request.CloningFinalizer), claim("plain", "ours", "example.com/x"))
	client.PrependReactor("get", "persistentvolumes", func(a k8stesting.Action) (bool, runtime.Object, error) {
		get, _ := a.(k8stesting.GetAction)
		return get.GetName() == "", nil, errors.New("resource name may not be empty")
	})
	n, err := ReleaseClonedClaims(t.Context(), client.CoreV1(), driverName, isUsed)
	if n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	list := must.Get(client.CoreV1().PersistentVolumeClaims("ns").List(t.Context(), metav1.ListOptions{}))(t)
	for _, c := range list.Items {
		want := slices.Contains([]string{"theirs", "lost", "used", "unbound"}, c.Name)
		if slices.Contains(c.Finalizers, request.CloningFinalizer) != want {
			t.Errorf("claim %s has %q", c.Name, c.Finalizers)
		}
	}
}

func TestReleaseClonedClaimsErrors(t *testing.T) {
	broken := errors.New("broken")
	for step, c := range map[string]struct{ answer, want error }{
		"list persistentvolumeclaims": {broken, broken}, "get persistentvolumes": {broken, broken},
		"patch persistentvolumeclaims": {broken, broken},
		// Another program deleted it in between.
		"patch persistentvolumeclaims/a": {apierrors.NewNotFound(v1.Resource("persistentvolumeclaims"), "a"), nil},
	} {
		client := fake.NewClientset(
			&v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "u-a",
				Finalizers: []string{request.CloningFinalizer}}, Spec: v1.PersistentVolumeClaimSpec{VolumeName: "pv"}},
			&v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: v1.PersistentVolumeSpec{
				PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: driverName}}}})
		verb, rest, _ := strings.Cut(step, " ")
		resource, _, _ := strings.Cut(rest, "/")
		client.PrependReactor(verb, resource, func(k8stesting.Action) (bool, runtime.Object, error) {
			return true, nil, c.answer
		})
		n, err := ReleaseClonedClaims(t.Context(), client.CoreV1(), driverName, isUsed)
		if n != 0 || !errors.Is(err, c.want) || c.want == nil && err != nil {
			t.Errorf("%s: released %d, %v", step, n, err)
		}
	}
}

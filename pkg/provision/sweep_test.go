package provision

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	testclock "k8s.io/utils/clock/testing"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
)

// fakeSnapshots are VolumeSnapshots in memory, by name in namespace "ns".
type fakeSnapshots struct {
	mu    sync.Mutex
	of    map[string]*request.Snapshot
	diary []string
	fail  map[string]error
	// before, if set, is called before a write.
	before func(what string)
}

func newFakeSnapshots(all ...*request.Snapshot) *fakeSnapshots {
	f := &fakeSnapshots{of: map[string]*request.Snapshot{}, fail: map[string]error{}}
	for _, s := range all {
		f.of[s.Name] = s
	}
	return f
}

// snapshotOf returns one that is bound to a content of the driver, with the changes.
func snapshotOf(name string, changes ...func(*request.Snapshot)) *request.Snapshot {
	s := &request.Snapshot{
		Namespace: "ns", Name: name, UID: "u-" + types.UID(name), Ready: true, Protected: true,
		ContentName: "content-" + name,
		Content: &request.SnapshotContent{
			Name: "content-" + name, Driver: driverName, Handle: "snap-" + name, SnapshotUID: "u-" + types.UID(name),
			Snapshot: types.NamespacedName{Namespace: "ns", Name: name},
		},
	}
	for _, change := range changes {
		change(s)
	}
	return s
}

func (f *fakeSnapshots) did(what, name string) error {
	f.diary = append(f.diary, what+" "+name)
	if f.before != nil {
		f.before(what)
	}
	return f.fail[what]
}

func (f *fakeSnapshots) told() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.diary)
}

func (f *fakeSnapshots) protected(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.of[name]
	return s != nil && s.Protected
}

func (f *fakeSnapshots) remove(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.of[name].Deleting = true
	if !f.of[name].Protected {
		delete(f.of, name)
	}
}

func (f *fakeSnapshots) AddFinalizer(_ context.Context, name types.NamespacedName, uid types.UID) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.did("add", name.Name); err != nil {
		return err
	}
	switch s := f.of[name.Name]; {
	case s == nil || s.UID != uid:
		return fmt.Errorf("add: %w", kube.ErrGone)
	case s.Deleting && !s.Protected:
		return fmt.Errorf("add: %w", kube.ErrChanged)
	default:
		s.Protected = true
	}
	return nil
}

func (f *fakeSnapshots) RemoveFinalizer(_ context.Context, name types.NamespacedName, uid types.UID) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.did("remove", name.Name); err != nil {
		return err
	}
	if s := f.of[name.Name]; s != nil && s.UID == uid {
		s.Protected = false
		if s.Deleting {
			delete(f.of, name.Name)
		}
	}
	return nil
}

func (f *fakeSnapshots) EachProtected(_ context.Context, visit func(request.Snapshot)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(f.of)) {
		if s := f.of[name]; s.Protected {
			visit(request.Snapshot{Namespace: s.Namespace, Name: s.Name, UID: s.UID, Deleting: s.Deleting, Protected: true})
		}
	}
	return f.fail["list"]
}

func (f *fakeSnapshots) Read(_ context.Context, name types.NamespacedName) (*request.Snapshot, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.fail["read"]; err != nil {
		return nil, err
	}
	if s := f.of[name.Name]; s != nil {
		own := *s
		return &own, nil
	}
	return nil, nil
}

func TestDecideSweep(t *testing.T) {
	type snapshot = request.Snapshot
	noContent := func(s *snapshot) { s.Content = nil }
	unbound := func(s *snapshot) { s.Content, s.ContentName = nil, "" }
	deleting := func(s *snapshot) { s.Deleting = true }
	foreign := func(s *snapshot) { s.Content.Driver = "another.csi.example.com" }
	of := func(changes ...func(*snapshot)) sweepFacts {
		return sweepFacts{Snapshot: snapshotOf("s", changes...), UID: "u-s", Driver: driverName}
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
		"nobody restores it":                    {of(), true, sweepOrphaned},
		"nobody restores it, and it is deleted": {of(deleting), true, sweepOrphaned},
		"not ready": {of(func(s *snapshot) { s.Ready = false }), true,
			sweepOrphaned},
		"somebody restores it":                          {used(of()), false, sweepInUse},
		"somebody restores it, and it is deleted":       {used(of(deleting)), false, sweepInUse},
		"somebody restores it, and its content is gone": {used(of(deleting, noContent)), false, sweepInUse},
		"another driver's":                              {of(foreign), false, sweepOtherDriver},
		"another driver's, and it is deleted":           {of(foreign, deleting), false, sweepOtherDriver},
		"its content is gone, and it is deleted":        {of(noContent, deleting), true, sweepContentGone},
		"it never had a content, and it is deleted":     {of(unbound, deleting), true, sweepContentGone},
		"its content is gone, and it is not deleted":    {of(noContent), false, sweepDriverUnknown},
		"it has no content yet":                         {of(unbound), false, sweepDriverUnknown},
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

// claimFrom names a snapshot as the source of its data, in dataSource, or with a namespace in dataSourceRef.
func claimFrom(name, snapshot, namespace string) *v1.PersistentVolumeClaim {
	group := "snapshot.storage.k8s.io"
	c := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "u-" + types.UID(name)}}
	if namespace != "" {
		c.Namespace = "other"
		c.Spec.DataSourceRef = &v1.TypedObjectReference{APIGroup: &group, Kind: "VolumeSnapshot", Name: snapshot,
			Namespace: &namespace}
		return c
	}
	c.Spec.DataSource = &v1.TypedLocalObjectReference{APIGroup: &group, Kind: "VolumeSnapshot", Name: snapshot}
	return c
}

// TestSweepWithoutAProvisioner reads the claims live, as there is nobody to ask.
func TestSweepWithoutAProvisioner(t *testing.T) {
	bound := claimFrom("bound", "free", "")
	bound.Spec.VolumeName = "pv"
	client := fake.NewClientset(claimFrom("pending", "used", ""), claimFrom("afar", "used-from-afar", "ns"), bound)
	shop := newFakeSnapshots(snapshotOf("used"), snapshotOf("used-from-afar"), snapshotOf("free"),
		snapshotOf("deleted", func(s *request.Snapshot) { s.Deleting = true }),
		snapshotOf("foreign", func(s *request.Snapshot) { s.Content.Driver = "x" }),
		snapshotOf("unprotected", func(s *request.Snapshot) { s.Protected = false }))
	s := newSweeper(client.CoreV1(), client.AuthorizationV1(), driverName, shop, SweeperConfig{})
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := []string{"remove deleted", "remove free"}; !slices.Equal(shop.told(), want) {
		t.Errorf("%q, want %q", shop.told(), want)
	}
}

// What cannot be read is no reason to remove anything.
func TestASweepThatCannotRead(t *testing.T) {
	broken := errors.New("broken")
	for what, removes := range map[string]int{"list": 0, "read": 0, "remove": 1} {
		client := fake.NewClientset()
		shop := newFakeSnapshots(snapshotOf("free"))
		shop.fail[what] = broken
		s := newSweeper(client.CoreV1(), client.AuthorizationV1(), driverName, shop, SweeperConfig{})
		if err := s.Sweep(t.Context()); !errors.Is(err, broken) || len(shop.told()) != removes || !shop.protected("free") {
			t.Errorf("%s: %v, %q", what, err, shop.told())
		}
	}
	client := fake.NewClientset()
	client.PrependReactor("list", "persistentvolumeclaims", failing(broken))
	shop := newFakeSnapshots(snapshotOf("free"))
	s := newSweeper(client.CoreV1(), client.AuthorizationV1(), driverName, shop, SweeperConfig{})
	if err := s.Sweep(t.Context()); !errors.Is(err, broken) || !shop.protected("free") {
		t.Errorf("%v", err)
	}
	shop = newFakeSnapshots()
	s.snapshots = shop
	if err := s.Sweep(t.Context()); err != nil {
		t.Errorf("claims are read though no snapshot has the finalizer: %v", err)
	}
}

func TestASweepIsRepeated(t *testing.T) {
	client, clock := fake.NewClientset(), testclock.NewFakeClock(time.Unix(1, 0))
	shop := newFakeSnapshots(snapshotOf("first"))
	s := newSweeper(client.CoreV1(), client.AuthorizationV1(), driverName, shop,
		SweeperConfig{Clock: clock, Interval: time.Minute})
	done := make(chan error, 1)
	go func() { done <- s.Run(t.Context()) }()
	waitFor(t, "the first sweep", func() bool { return !shop.protected("first") && clock.HasWaiters() })
	shop.mu.Lock()
	shop.of["second"] = snapshotOf("second")
	shop.mu.Unlock()
	clock.Step(time.Minute)
	waitFor(t, "the second sweep", func() bool { return !shop.protected("second") && clock.HasWaiters() })
	s.Stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func waitFor(t *testing.T, what string, until func() bool) {
	t.Helper()
	for began := time.Now(); !until(); time.Sleep(time.Millisecond) {
		if time.Since(began) > patience {
			t.Fatalf("%s did not come", what)
		}
	}
}

func TestReleaseSnapshots(t *testing.T) {
	shop := newFakeSnapshots(snapshotOf("a"), snapshotOf("b", func(s *request.Snapshot) {
		s.Deleting, s.Content = true,
			nil
	}),
		snapshotOf("foreign", func(s *request.Snapshot) { s.Content.Driver = "x" }), snapshotOf("gone"))
	if n, err := ReleaseSnapshots(t.Context(), driverName, shop); n != 3 || err != nil || !shop.protected("foreign") ||
		shop.protected("a") || shop.protected("b") {
		t.Errorf("%d, %v, %q", n, err, shop.told())
	}
	shop = newFakeSnapshots(snapshotOf("a"))
	shop.fail["remove"] = errors.New("broken")
	if n, err := ReleaseSnapshots(t.Context(), driverName, shop); n != 0 || err == nil {
		t.Errorf("%d, %v", n, err)
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
		claim("ours", "ours", "example.com/x", CloningFinalizer), claim("theirs", "theirs", CloningFinalizer),
		claim("lost", "gone", CloningFinalizer),
		claim("unbound", "", CloningFinalizer), claim("plain", "ours", "example.com/x"))
	n, err := ReleaseClonedClaims(t.Context(), client.CoreV1(), driverName)
	if n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	list, err := client.CoreV1().PersistentVolumeClaims("ns").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range list.Items {
		if want := c.Name == "theirs" || c.Name == "lost" || c.Name == "unbound"; slices.Contains(c.Finalizers,
			CloningFinalizer) != want {
			t.Errorf("claim %s has %q", c.Name, c.Finalizers)
		}
	}
}

// forbidden is what the API server answers where the right is missing.
func forbidden() error {
	return apierrors.NewForbidden(schema.GroupResource{Group: "snapshot.storage.k8s.io", Resource: "volumesnapshots"},
		"s", nil)
}

func said(diary []string, what string) (n int) {
	for _, line := range diary {
		if strings.HasPrefix(line, what) {
			n++
		}
	}
	return n
}

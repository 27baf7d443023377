// Package snapshottest has in-memory VolumeSnapshots for tests of their protection.
package snapshottest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
)

// Snapshots holds VolumeSnapshots in memory, by name in namespace "ns".
type Snapshots struct {
	mu    sync.Mutex
	of    map[string]*request.Snapshot
	diary []string
	fail  map[string]error
	// Before, if set, is called before a write. It is set before the test begins.
	Before func(what string)
}

// New returns Snapshots with these VolumeSnapshots.
func New(all ...*request.Snapshot) *Snapshots {
	f := &Snapshots{of: map[string]*request.Snapshot{}, fail: map[string]error{}}
	for _, s := range all {
		f.of[s.Name] = s
	}
	return f
}

// Of returns a VolumeSnapshot that is bound to a content of the driver, with the changes.
func Of(driver, name string, changes ...func(*request.Snapshot)) *request.Snapshot {
	s := &request.Snapshot{
		Namespace: "ns", Name: name, UID: "u-" + types.UID(name), Ready: true, Protected: true,
		ContentName: "content-" + name,
		Content: &request.SnapshotContent{
			Name: "content-" + name, Driver: driver, Handle: "snap-" + name, SnapshotUID: "u-" + types.UID(name),
			Snapshot: types.NamespacedName{Namespace: "ns", Name: name},
		},
	}
	for _, change := range changes {
		change(s)
	}
	return s
}

func (f *Snapshots) did(what, name string) error {
	f.diary = append(f.diary, what+" "+name)
	if f.Before != nil {
		f.Before(what)
	}
	return f.fail[what]
}

// Calls returns the writes so far, as "add" or "remove" and the name.
func (f *Snapshots) Calls() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.diary)
}

// Protected reports whether a snapshot exists and has the finalizer.
func (f *Snapshots) Protected(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.of[name]
	return s != nil && s.Protected
}

// Delete deletes a snapshot, or marks it as terminating while it has the finalizer.
func (f *Snapshots) Delete(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.of[name].Deleting = true
	if !f.of[name].Protected {
		delete(f.of, name)
	}
}

// AddFinalizer implements sources.SnapshotProtector.
func (f *Snapshots) AddFinalizer(_ context.Context, name types.NamespacedName, uid types.UID) error {
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

// RemoveFinalizer implements sources.SnapshotProtector.
func (f *Snapshots) RemoveFinalizer(_ context.Context, name types.NamespacedName, uid types.UID) error {
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

// EachProtected implements sources.SnapshotProtector.
func (f *Snapshots) EachProtected(_ context.Context, visit func(request.Snapshot)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(f.of)) {
		if s := f.of[name]; s.Protected {
			visit(request.Snapshot{Namespace: s.Namespace, Name: s.Name, UID: s.UID, Deleting: s.Deleting, Protected: true})
		}
	}
	return f.fail["list"]
}

// Read implements sources.SnapshotProtector.
func (f *Snapshots) Read(_ context.Context, name types.NamespacedName) (*request.Snapshot, error) {
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

// Put adds a snapshot, or replaces it.
func (f *Snapshots) Put(s *request.Snapshot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.of[s.Name] = s
}

// Lose removes a snapshot despite its finalizer, as a person would by hand.
func (f *Snapshots) Lose(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.of, name)
}

// Fail makes calls of this kind fail: "add", "remove", "list" or "read", until they get a nil error.
func (f *Snapshots) Fail(what string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail[what] = err
}

// Count returns the number of writes of a kind.
func (f *Snapshots) Count(what string) (n int) {
	for _, call := range f.Calls() {
		if strings.HasPrefix(call, what) {
			n++
		}
	}
	return n
}

// ClaimFrom returns a claim that names a snapshot as its source, in dataSource or, with a namespace, in dataSourceRef.
func ClaimFrom(name, snapshot, namespace string) *v1.PersistentVolumeClaim {
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

//go:build unix

package statefulset

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// disk is a claim with its volume, to which something was written.
type disk struct {
	*environment
	claim *objects.Claim
	vol   *objects.Volume
}

// disks are some of them. Subtests add to it side by side.
type disks struct {
	mu  sync.Mutex
	all []disk
}

// write writes to the volume of an ordinal, as its pod does.
func (s *set) write(ordinal int) disk {
	s.T.Helper()
	return s.writeTo(s.claim(ordinal))
}

func (env *environment) writeTo(claim *v1.PersistentVolumeClaim) disk {
	env.T.Helper()
	d := disk{environment: env, claim: env.ClaimOf(claim)}
	var err error
	d.vol, err = d.claim.WaitBound(env.WithTimeout())
	env.Must(err)
	env.Must(os.WriteFile(d.file(), []byte(d.claim.UID), 0o600))
	return d
}

// file is the path of the written data.
func (d disk) file() string { return filepath.Join(d.MockDriver.VolumesDir(), d.vol.Handle, "data") }

// read returns the volume's data, or the empty string.
func (d disk) read() string {
	d.T.Helper()
	data, err := os.ReadFile(d.file())
	if !errors.Is(err, fs.ErrNotExist) {
		d.Must(err)
	}
	return string(data)
}

// isKept checks that the claim is the same, is not being deleted, and that its volume has the data.
func (d disk) isKept() {
	d.T.Helper()
	now, err := d.claim.Get(d.Ctx)
	d.Must(err)
	switch {
	case now == nil:
		d.T.Errorf("WRONG DELETE: claim %s/%s is gone", d.Namespace, d.claim.Name)
	case now.DeletionTimestamp != nil:
		d.T.Errorf("WRONG DELETE: claim %s/%s is being deleted", d.Namespace, d.claim.Name)
	case d.read() != string(d.claim.UID):
		d.T.Errorf("WRONG DELETE: the volume of claim %s/%s has %q", d.Namespace, d.claim.Name, d.read())
	}
}

// expectKept checks that disks are unchanged, now and at the end of the test.
func (env *environment) expectKept(all ...disk) {
	env.T.Helper()
	for _, d := range all {
		d.isKept()
	}
	env.kept.mu.Lock()
	defer env.kept.mu.Unlock()
	env.kept.all = append(env.kept.all, all...)
}

// expectDeleted waits until claims are gone, with their PVs and volumes.
func (env *environment) expectDeleted(all ...disk) {
	env.T.Helper()
	for _, d := range all {
		env.Must(d.claim.WaitGone(env.WithTimeout()))
		env.Must(d.vol.WaitGone(env.WithTimeout()))
		if env.OnDisk(d.vol.Handle) {
			env.T.Errorf("LEAK: volume %s of claim %s is on the driver's disk", d.vol.Handle, d.claim.Name)
		}
	}
}

// expectEmpty checks that the ordinal of a disk has another claim with an empty volume.
func (s *set) expectEmpty(ordinal int, old disk) {
	s.T.Helper()
	claim := s.claim(ordinal)
	if claim == nil || claim.UID == old.claim.UID {
		s.T.Fatalf("ordinal %d has claim %+v, want a new one", ordinal, claim)
	}
	fresh := disk{environment: s.environment, claim: s.ClaimOf(claim)}
	var err error
	fresh.vol, err = fresh.claim.WaitBound(s.WithTimeout())
	s.Must(err)
	if got := fresh.read(); got != "" || fresh.vol.Handle == old.vol.Handle {
		s.T.Errorf("WRONG REUSE: the new volume %s has %q", fresh.vol.Handle, got)
	}
}

// finish checks, after all that volume-guard might do, that the disks to be kept are there.
func (env *environment) finish() {
	env.T.Helper()
	env.barrier()
	for _, d := range env.kept.all {
		d.environment = d.in(env)
		d.isKept()
	}
	env.T.Logf("%d volumes were kept, with their data", len(env.kept.all))
}

// in returns the environment of the disk's namespace for the test that is running.
func (d disk) in(env *environment) *environment {
	sub := *d.environment
	sub.Environment = d.ForSubtest(env.T)
	return &sub
}

// remove removes a disk that the test deletes on purpose later.
func (k *disks) remove(d disk) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.all = slices.DeleteFunc(k.all, func(other disk) bool { return other.claim.UID == d.claim.UID })
}

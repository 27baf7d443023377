package leaks

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	testclock "k8s.io/utils/clock/testing"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/snapshot"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/goroutines"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

const driverName = "disk.csi.example.com"

func TestMain(m *testing.M) { os.Exit(goroutines.Run(m)) }

// world is a storage system and an API server in memory. It calls stir before each read of either.
type world struct {
	*testing.T
	clock    *testclock.FakeClock
	volumes  map[string]bool
	inUse    map[string][]string
	claims   map[string]*v1.PersistentVolumeClaim
	pvs      map[string]*v1.PersistentVolume
	contents map[string]snapshot.Content
	attached []*storagev1.VolumeAttachment
	entries  map[string]inflight.Located // of the in-flight log, by volume
	problems []inflight.LocatedProblem
	stir     func()
	// broken names the reads that fail: see parts.
	broken map[string]bool
	// followers get PVs that are created and deleted, unless blind is set.
	followers []func(volume.PV)
	blind     bool
	// reported lists the Events.
	reported []string
}

var _ cluster = &world{}

// parts are the reads of a leak check.
var parts = []string{"volumes", "snapshots", "attachments", "claims", "log", "pvs"}

func newWorld(t *testing.T) *world {
	return &world{
		T: t, clock: testclock.NewFakeClock(noon), volumes: map[string]bool{}, inUse: map[string][]string{},
		claims: map[string]*v1.PersistentVolumeClaim{}, pvs: map[string]*v1.PersistentVolume{},
		contents: map[string]snapshot.Content{},
		entries:  map[string]inflight.Located{}, stir: func() {}, broken: map[string]bool{},
	}
}

// auditor returns a Controller with two sightings and the default grace, after change.
func (w *world) auditor(change func(*Config)) *Controller {
	w.Helper()
	cfg := Config{Interval: time.Minute, Sightings: 2, PageSize: 2, Clock: w.clock, Volumes: w, Events: &recorder{w: w}}
	if change != nil {
		change(&cfg)
	}
	a, err := newController(w, driverName, w, cfg)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(a.Stop)
	return a
}

var errBroken = errors.New("it cannot be read now")

func (w *world) read(what string) error {
	w.stir()
	if w.broken[what] {
		return errBroken
	}
	return nil
}

func (w *world) ListVolumes(_ context.Context, r *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	if err := w.read("volumes"); err != nil {
		return nil, err
	}
	var next []string
	for _, handle := range slices.Sorted(maps.Keys(w.volumes)) {
		if handle > r.GetStartingToken() {
			next = append(next, handle)
		}
	}
	most := min(len(next), int(r.GetMaxEntries()))
	answer := page("", next[:most]...)
	for _, e := range answer.GetEntries() {
		e.Status = &csi.ListVolumesResponse_VolumeStatus{PublishedNodeIds: w.inUse[e.GetVolume().GetVolumeId()]}
	}
	if most < len(next) {
		answer.NextToken = next[most-1]
	}
	return answer, nil
}

func (w *world) eachClaim(_ context.Context, visit func(*v1.PersistentVolumeClaim)) error {
	if err := w.read("claims"); err != nil {
		return err
	}
	for _, c := range w.claims {
		visit(c)
	}
	return nil
}

func (w *world) eachSnapshot(_ context.Context, visit func(snapshot.Content)) error {
	if err := w.read("snapshots"); err != nil {
		return err
	}
	for _, c := range w.contents {
		visit(c)
	}
	return nil
}

func (w *world) eachAttachment(_ context.Context, visit func(*storagev1.VolumeAttachment)) error {
	if err := w.read("attachments"); err != nil {
		return err
	}
	for _, a := range w.attached {
		visit(a)
	}
	return nil
}

func (w *world) inFlight(context.Context, string) ([]inflight.Located, []inflight.LocatedProblem, error) {
	if err := w.read("log"); err != nil {
		return nil, nil, err
	}
	return slices.Collect(maps.Values(w.entries)), w.problems, nil
}

func (w *world) eachPV(_ context.Context, visit func(*v1.PersistentVolume)) error {
	if err := w.read("pvs"); err != nil {
		return err
	}
	for _, pv := range w.pvs {
		visit(pv)
	}
	return nil
}

func (w *world) Follow(changed func(volume.PV)) { w.followers = append(w.followers, changed) }
func (*world) Synced() bool                     { return true }

func (w *world) passes(pv *v1.PersistentVolume) {
	for _, changed := range w.followers {
		if !w.blind {
			changed(volume.Of(pv))
		}
	}
}

// pvOf returns a PV of a volume of the driver.
func pvOf(name, handle string) *v1.PersistentVolume {
	return &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
		Spec: v1.PersistentVolumeSpec{PersistentVolumeSource: v1.PersistentVolumeSource{
			CSI: &v1.CSIPersistentVolumeSource{Driver: driverName, VolumeHandle: handle}}}}
}

func (w *world) addPV(name, handle string) *v1.PersistentVolume {
	pv := pvOf(name, handle)
	w.pvs[name] = pv
	w.passes(pv)
	return pv
}

func (w *world) removePV(name string) {
	pv := w.pvs[name]
	delete(w.pvs, name)
	w.passes(pv)
}

// addClaim adds a claim that waits for its volume.
func (w *world) addClaim(name string) *v1.PersistentVolumeClaim {
	c := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name),
		Annotations: map[string]string{volume.AnnProvisioner: driverName}}}
	w.claims[name] = c
	return c
}

// addEntry adds an entry to the in-flight log, for a claim that may be gone.
func (w *world) addEntry(claim string) {
	w.entries["pvc-"+claim] = inflight.Located{
		Entry: inflight.Entry{Volume: "pvc-" + claim, Claim: volume.ClaimRef{Namespace: "ns", Name: claim,
			UID: types.UID(claim)}, Begun: w.clock.Now()},
		Location: inflight.Location{Driver: driverName, Lease: types.NamespacedName{Namespace: "ns", Name: "log-1"},
			Annotation: "key"},
	}
}

// rename gives the entry of claim x another volume and UID.
func (w *world) rename(volume string, uid types.UID) {
	const claim = "x"
	e := w.entries["pvc-"+claim]
	e.Volume, e.Claim.UID = volume, uid
	w.entries["pvc-"+claim] = e
}

func (w *world) driverOf(claim, driver string) {
	e := w.entries["pvc-"+claim]
	e.Driver = driver
	w.entries["pvc-"+claim] = e
}

func (w *world) problem(driver string) {
	w.problems = []inflight.LocatedProblem{{Problem: inflight.Problem{Lease: "ns/log-1", Err: inflight.ErrCopy},
		Driver: driver}}
}

// quiet returns a context without logging, because thousands of leak checks run.
func (w *world) quiet() context.Context { return klog.NewContext(w.Context(), klog.Logger{}) }

// check makes a complete leak check and returns the reason of a volume, or "" if it has an owner or is not listed.
func (w *world) check(a *Controller, handle string) Reason {
	w.Helper()
	if err := a.check(w.quiet()); err != nil {
		w.Fatal(err)
	}
	v, _ := a.Report().Find(handle)
	return v.Reason
}

// soak is a cluster with claims that are provisioned and deleted, with snapshots, and with occasional leaks. Each
// step can fall into any moment of a leak check.
type soak struct {
	*world
	dice *rand.Rand
	// lives holds the progress of each claim and snapshot by name.
	lives map[string]int
	n     int
	leaks map[string]bool
}

// live advances a claim: claim created, entry, volume, PV, claim bound, entry settled; then claim, volume and PV
// deleted. Some claims are deleted during the creation of their volume.
func (s *soak) live(name string) {
	handle := "vol-of-" + strings.TrimPrefix(name, "claim-") // without the complete UID of the claim
	switch s.lives[name]++; s.lives[name] {
	case 1:
		s.addClaim(name)
	case 2:
		s.addEntry(name)
	case 3:
		s.volumes[handle] = true
	case 4:
		if s.dice.IntN(4) == 0 {
			delete(s.claims, name)
		}
	case 5:
		s.addPV("pvc-"+name, handle)
	case 6:
		if c := s.claims[name]; c != nil {
			c.Spec.VolumeName = "pvc-" + name
		}
	case 7:
		delete(s.entries, "pvc-"+name)
	case 8:
		delete(s.claims, name)
	case 9:
		delete(s.volumes, handle)
	default:
		s.removePV("pvc-" + name)
		delete(s.lives, name)
	}
}

// snap advances a snapshot, which the driver lists as a volume before its handle is known.
func (s *soak) snap(name string) {
	handle := "snap-of-" + name
	switch s.lives[name]++; s.lives[name] {
	case 1:
		s.contents[name] = snapshot.Content{Name: name, UID: types.UID(name), Driver: driverName, Making: true}
	case 2:
		s.volumes[handle] = true
	case 3:
		s.contents[name] = snapshot.Content{Name: name, UID: types.UID(name), Driver: driverName, Handle: handle}
	case 4:
		delete(s.volumes, handle)
	default:
		delete(s.contents, name)
		delete(s.lives, name)
	}
}

// step advances some lives by a step each, or one life by several steps.
func (s *soak) step() {
	s.clock.Step(time.Second)
	for len(s.lives) < 8 {
		s.n++
		s.lives[fmt.Sprintf("%s-%06d", []string{"claim", "claim", "claim", "snap"}[s.dice.IntN(4)], s.n)] = 0
	}
	names := slices.Sorted(maps.Keys(s.lives))
	one := names[s.dice.IntN(len(names))]
	alone := s.dice.IntN(2) == 0
	for range s.dice.IntN(6) {
		name := one
		if !alone {
			name = names[s.dice.IntN(len(names))]
		}
		if _, lives := s.lives[name]; lives {
			s.advance(name)
		}
	}
}

func (s *soak) advance(name string) {
	if name[0] == 's' {
		s.snap(name)
	} else {
		s.live(name)
	}
}

// TestLifeCycleIsNoSighting advances a claim with an existing volume by some steps before each read of a leak check.
func TestLifeCycleIsNoSighting(t *testing.T) {
	for seed := range uint64(12) { // lives of each kind
		for moment := range len(parts) {
			for steps := 1; steps <= 6; steps++ { // the last step deletes the claim
				aMoment(t, seed, moment, steps)
			}
		}
	}
}

func aMoment(t *testing.T, seed uint64, moment, steps int) {
	t.Helper()
	const name = "claim-000000"
	s := &soak{world: newWorld(t), dice: rand.New(rand.NewPCG(seed, 0)), lives: map[string]int{name: 0}}
	for range 3 {
		s.live(name)
	}
	read := 0
	s.stir = func() {
		if read == moment {
			for range steps {
				s.live(name)
			}
		}
		read++
	}
	a := s.auditor(func(c *Config) { c.Volumes = nil })
	if err := a.check(s.quiet()); err != nil || read != len(parts) {
		t.Fatalf("%v after %d reads", err, read)
	}
	if v, found := a.Report().Find("vol-of-000000"); found && v.Sightings > 0 {
		t.Errorf("seed %d, %d steps before %s were read: %+v", seed, steps, parts[moment], v)
	}
}

// TestSoakSuspectsOnlyLeaks uses the least settings that the rules allow, two sightings and no grace, and no watch of
// PVs. The order of the reads alone must prevent wrong suspicions, and every leak must be found.
func TestSoakSuspectsOnlyLeaks(t *testing.T) {
	dice := chance(t)
	found := 0
	for round := range 60 {
		s := &soak{world: newWorld(t), dice: dice, lives: map[string]int{}, leaks: map[string]bool{}}
		s.stir, s.blind = s.step, true
		a := s.auditor(func(c *Config) { c.Grace = -1 })
		for range 40 {
			if dice.IntN(10) == 0 {
				leak := fmt.Sprintf("leak-%d", len(s.leaks))
				s.leaks[leak], s.volumes[leak] = true, true
			}
			s.broken[parts[dice.IntN(len(parts))]] = dice.IntN(6) == 0
			_ = a.check(s.quiet()) // a failed one is no sighting
			clear(s.broken)
			for _, v := range a.Report().Volumes {
				if v.Suspected && !s.leaks[v.Handle] {
					t.Fatalf("round %d: FALSE LEAK: %+v", round, v)
				}
			}
		}
		// Without new claims and snapshots, all lives end.
		s.stir = func() {
			for _, name := range slices.Sorted(maps.Keys(s.lives)) {
				s.advance(name)
			}
		}
		for range 12 {
			must.OK(t, a.check(s.quiet()))
		}
		if got := a.Report(); got.Suspected != len(s.leaks) {
			t.Fatalf("round %d: %d of %d leaks are suspected: %+v", round, got.Suspected, len(s.leaks), got.Volumes)
		}
		found += len(s.leaks)
	}
	if found < 60 {
		t.Errorf("%d leaks: this test shows little", found)
	}
}

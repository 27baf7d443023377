package leaks

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	testclock "k8s.io/utils/clock/testing"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/snapshot"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

const driverName = "disk.csi.example.com"

// world is a storage system and an API server in tracker. Before each read of either, stir has it change.
type world struct {
	*testing.T
	clock    *testclock.FakeClock
	volumes  map[string]bool
	inUse    map[string][]string
	claims   map[string]*v1.PersistentVolumeClaim
	pvs      map[string]*v1.PersistentVolume
	contents map[string]snapshot.Content
	entries  map[string]inflight.Located // of the in-flight log, by volume
	problems []inflight.LocatedProblem
	stir     func()
	// broken are what cannot be read: see parts.
	broken map[string]bool
	// followers are notified of PVs that come and go, unless blind.
	followers []func(volume.PV)
	blind     bool
	// reported are the Events.
	reported []string
}

var _ cluster = &world{}

// parts are what a leak check reads.
var parts = []string{"volumes", "snapshots", "claims", "log", "pvs"}

func newWorld(t *testing.T) *world {
	return &world{
		T: t, clock: testclock.NewFakeClock(noon), volumes: map[string]bool{}, inUse: map[string][]string{},
		claims: map[string]*v1.PersistentVolumeClaim{}, pvs: map[string]*v1.PersistentVolume{},
		contents: map[string]snapshot.Content{},
		entries:  map[string]inflight.Located{}, stir: func() {}, broken: map[string]bool{},
	}
}

// auditor returns one that asks for two sightings and an hour, unless change says otherwise.
func (w *world) auditor(change func(*Config)) *Controller {
	w.Helper()
	cfg := Config{Interval: time.Minute, Sightings: 2, PageSize: 2, Clock: w.clock, Volumes: w, Events: recorder{w}}
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

func (w *world) inFlight(context.Context) ([]inflight.Located, []inflight.LocatedProblem, error) {
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

func (w *world) addPV(name, handle string) *v1.PersistentVolume {
	pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
		Spec: v1.PersistentVolumeSpec{
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: driverName,
				VolumeHandle: handle}},
		}}
	w.pvs[name] = pv
	w.passes(pv)
	return pv
}

func (w *world) removePV(name string) {
	pv := w.pvs[name]
	delete(w.pvs, name)
	w.passes(pv)
}

// addClaim makes one that waits for its volume.
func (w *world) addClaim(name string) *v1.PersistentVolumeClaim {
	c := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name),
		Annotations: map[string]string{annProvisioner: driverName}}}
	w.claims[name] = c
	return c
}

// addEntry adds one to the in-flight log, for a claim that may be gone.
func (w *world) addEntry(claim string) {
	w.entries["pvc-"+claim] = inflight.Located{
		Entry: inflight.Entry{Volume: "pvc-" + claim, Claim: inflight.Claim{Namespace: "ns", Name: claim,
			UID: types.UID(claim)}, Begun: w.clock.Now()},
		Location: inflight.Location{Driver: driverName, Lease: types.NamespacedName{Namespace: "ns", Name: "log-1"},
			Annotation: "key"},
	}
}

// rename has the entry of claim x be for another volume and UID.
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

// quiet is a context in which nothing is logged: thousands of leak checks are made.
func (w *world) quiet() context.Context { return klog.NewContext(w.Context(), klog.Logger{}) }

// check makes one that is complete, and returns what it thinks of a volume; empty: it is accounted for, or
// not listed.
func (w *world) check(a *Controller, handle string) Reason {
	w.Helper()
	if err := a.check(w.quiet()); err != nil {
		w.Fatal(err)
	}
	v, _ := a.Report().Find(handle)
	return v.Reason
}

// soak is a cluster in which claims are provisioned and deleted and snapshots made, each step at any moment of
// a leak check, and volumes leak now and then.
type soak struct {
	*world
	dice *rand.Rand
	// at is how far each life is, by its name.
	lives map[string]int
	n     int
	leaks map[string]bool
}

// steps of a life: a claim, its entry, its volume, its PV, the claim bound, its entry settled; the claim gone, the
// volume gone, the PV gone. Some claims are deleted while their volume is made.
func (s *soak) live(name string) {
	handle := "vol-of-" + strings.TrimPrefix(name, "claim-") // without all of the claim's UID
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

// snap makes a snapshot, which the driver lists as a volume before anybody knows its name.
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

// step has some lives go on: some by a step each, or one by several.
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

// TestNoMomentOfALifeIsASighting has a claim whose volume is there go on in its life by some steps before each of the
// reads of a leak check.
func TestNoMomentOfALifeIsASighting(t *testing.T) {
	for seed := range uint64(12) { // lives of each kind
		for moment := range len(parts) {
			for steps := 1; steps <= 6; steps++ { // the last: its claim is gone
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

// TestNothingThatIsAccountedForIsSuspected at the least that the rules allow, two sightings and no grace, and
// without a watch of PVs: the order of the reads alone has to see to it. Every leak is found all the same.
func TestNothingThatIsAccountedForIsSuspected(t *testing.T) {
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
			_ = a.check(s.quiet()) // one that fails is no sighting
			clear(s.broken)
			for _, v := range a.Report().Volumes {
				if v.Suspected && !s.leaks[v.Handle] {
					t.Fatalf("round %d: FALSE LEAK: %+v", round, v)
				}
			}
		}
		// With nothing new, whatever is being made comes to its end.
		s.stir = func() {
			for _, name := range slices.Sorted(maps.Keys(s.lives)) {
				s.advance(name)
			}
		}
		for range 12 {
			if err := a.check(s.quiet()); err != nil {
				t.Fatal(err)
			}
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

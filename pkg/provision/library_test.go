package provision

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v10/controller"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/outcome"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
)

func (w *world) provisioned() bool { return w.pv() != nil && !held(w.claim()) }

func (w *world) gone() bool { return w.claim() == nil }

func TestAClaimGetsItsVolume(t *testing.T) {
	w := newWorld(t)
	p := w.start(Config{})
	w.makeClaim()
	w.wait("it is provisioned", w.provisioned)
	p.stop()
	if want := []string{"protect", "create volume", "create PV", "let go"}; !slices.Equal(w.told(), want) {
		t.Errorf("diary: %q\nwant:  %q", w.told(), want)
	}
}

func TestWithoutFinalizersNoClaimIsWrittenTo(t *testing.T) {
	w := newWorld(t)
	p := w.start(Config{NoFinalizer: true})
	w.makeClaim()
	w.wait("it is provisioned", w.provisioned)
	p.stop()
	if want := []string{"create volume", "create PV"}; !slices.Equal(w.told(), want) {
		t.Errorf("diary: %q\nwant:  %q", w.told(), want)
	}
}

func TestManyClaimsAtOnceCostOneCallEach(t *testing.T) {
	w := newWorld(t)
	p := w.start(Config{})
	const many = 50
	for i := range many {
		w.makeClaim(func(c *v1.PersistentVolumeClaim) {
			c.Name = fmt.Sprintf("data-%d", i)
			c.UID = types.UID("uid-" + c.Name)
		})
	}
	w.wait("all are provisioned", func() bool { return w.count("let go") >= many })
	p.stop()
	for _, what := range []string{"protect", "create volume", "create PV", "let go"} {
		if n := w.count(what); n != many {
			t.Errorf("%q %d times, want %d", what, n, many)
		}
	}
}

func TestAnotherDriversClaimIsNotTouched(t *testing.T) {
	w := newWorld(t)
	w.start(Config{})
	w.makeClaim(func(c *v1.PersistentVolumeClaim) { c.Annotations[annProvisioner] = "another.example.com" })
	w.start(Config{}) // its caches being filled shows that the claim was seen
	if len(w.told()) != 0 || held(w.claim()) {
		t.Errorf("diary: %q", w.told())
	}
}

// TestTheHoldOfAnotherDriversSidecarIsLeftToIt: all sidecars hold claims by the same finalizer, and each sees all claims. The one that
// put it on takes it off; else each claim would cost a write for every driver in the cluster.
func TestTheHoldOfAnotherDriversSidecarIsLeftToIt(t *testing.T) {
	for name, c := range map[string]struct {
		pvOf string
		free bool
	}{
		"the PV is that driver's":                   {"another.example.com", false},
		"the PV is ours: the claim was ours before": {driverName, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			_, err := w.client.CoreV1().PersistentVolumes().Create(t.Context(), &v1.PersistentVolume{
				ObjectMeta: metav1.ObjectMeta{Name: "pvc-u1", UID: "pv"},
				Spec: v1.PersistentVolumeSpec{ClaimRef: &v1.ObjectReference{UID: "u1"},
					PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: c.pvOf, VolumeHandle: "vol"}}},
			}, metav1.CreateOptions{})
			w.must(err)
			w.makeClaim(func(claim *v1.PersistentVolumeClaim) {
				claim.Annotations[annProvisioner], claim.Finalizers, claim.Spec.VolumeName = "another.example.com", []string{Finalizer}, "pvc-u1"
			})
			p := w.start(Config{})
			w.makeClaim(func(claim *v1.PersistentVolumeClaim) { claim.Name, claim.UID = "next", "u2" })
			w.wait("the next claim is provisioned", func() bool { return w.count("create PV") == 1 })
			if c.free {
				w.wait("it is let go", func() bool { return !held(w.claim()) })
			}
			p.stop()
			if free := !held(w.claim()); free != c.free {
				t.Errorf("free: %v, diary %q", free, w.told())
			}
		})
	}
}

func TestARefusedClaimIsFree(t *testing.T) {
	for _, c := range []outcome.Class{outcome.Refused, outcome.Unfit, outcome.Exhausted} {
		t.Run(c.String(), func(t *testing.T) {
			w := newWorld(t)
			w.failing(false, class(c))
			w.start(Config{})
			w.makeClaim()
			w.wait("it was refused and is free, twice", func() bool { return w.count("let go") >= 2 })
			w.failing(false, nil)
			w.wait("it is provisioned", w.provisioned)
		})
	}
}

func TestARefusedClaimCanBeDeleted(t *testing.T) {
	w := newWorld(t)
	w.failing(false, class(outcome.Refused))
	w.start(Config{})
	w.makeClaim()
	w.wait("it was refused", func() bool { return w.count("create volume") > 0 })
	w.deleteClaim()
	w.wait("it is gone", w.gone)
}

func TestAVolumeMadeInTheBackgroundIsDeletedWithItsClaim(t *testing.T) {
	w := newWorld(t)
	w.failing(true, class(outcome.Uncertain))
	w.start(Config{})
	w.makeClaim()
	w.wait("the driver was asked twice", func() bool { return w.count("create volume") > 1 })
	w.deleteClaim()
	w.wait("the driver was asked again", func() bool { return w.count("read PV") > 1 })
	if !held(w.claim()) {
		t.Error("the claim was let go while its volume is left")
	}
	w.failing(false, nil)
	w.wait("it is gone", w.gone)
	if left := w.onDisk(); len(left) > 0 || w.pv() != nil {
		t.Errorf("LEAK: %v", left)
	}
}

func TestARefusalAfterAnUnknownOutcomeFreesNobody(t *testing.T) {
	w := newWorld(t)
	w.madeUnseen()
	w.failing(false, class(outcome.Refused))
	n := w.count("create volume")
	w.wait("it was refused", func() bool { return w.count("create volume") > n+1 })
	w.deleteClaim()
	n = w.count("create volume")
	w.wait("it was refused again", func() bool { return w.count("create volume") > n+1 })
	if !held(w.claim()) {
		t.Error("the claim was let go while its volume is left")
	}
	w.failing(false, nil)
	w.wait("it is gone", w.gone)
	if left := w.onDisk(); len(left) > 0 {
		t.Errorf("LEAK: %v", left)
	}
}

func TestNoRoomOnANodeAsksForAnother(t *testing.T) {
	w := newWorld(t)
	_, err := w.client.CoreV1().Nodes().Create(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "full"}}, metav1.CreateOptions{})
	w.must(err)
	w.failing(false, class(outcome.Exhausted))
	w.start(Config{})
	w.makeClaim(func(c *v1.PersistentVolumeClaim) { c.Annotations[annSelectedNode] = "full" })
	w.wait("the node is not selected any more", func() bool {
		_, selected := w.claim().Annotations[annSelectedNode]
		return !selected
	})
}

func TestTheClassGoesWhileTheVolumeIsMade(t *testing.T) {
	w := newWorld(t)
	w.madeUnseen()
	w.deleteClass()
	w.failing(false, nil)
	w.wait("what was begun is finished", w.provisioned)
}

func TestTheClassIsGoneAfterARestart(t *testing.T) {
	w := newWorld(t)
	first := w.madeUnseen()
	first.stop()
	w.deleteClass()
	w.failing(false, nil)
	events := record.NewFakeRecorder(100)
	w.start(Config{Events: events})
	w.deleteClaim()
	if told := <-events.Events; !slices.Contains([]string{"Warning " + string(ReasonOutcomeUnknown) + " " + ReasonOutcomeUnknown.Sentence()}, told) {
		t.Errorf("told %q", told)
	}
	if !held(w.claim()) {
		t.Error("the claim was let go while its volume is left")
	}
	w.makeClass()
	w.wait("it is gone", w.gone)
	if left := w.onDisk(); len(left) > 0 {
		t.Errorf("LEAK: %v", left)
	}
}

// TestACallThatOutlivesThePVIsTold plays a replica that has made the PV meanwhile: its whole life passes while
// a CreateVolume of ours is under way, which makes the volume anew.
func TestACallThatOutlivesThePVIsTold(t *testing.T) {
	w := newWorld(t)
	events := record.NewFakeRecorder(100)
	seen := make(chan *process, 1)
	w.failing(true, func() error {
		claim := w.claim().DeepCopy()
		claim.Spec.VolumeName, claim.Finalizers = "pvc-u1", nil
		_, err := w.client.CoreV1().PersistentVolumeClaims("ns").Update(t.Context(), claim, metav1.UpdateOptions{})
		w.must(err)
		w.deleteClaim()
		p := <-seen
		w.wait("the claim's end is seen", func() bool { return p.provisioner.claims.of(keyOf(claim)) == nil })
		return class(outcome.Uncertain)()
	})
	seen <- w.start(Config{Events: events})
	w.makeClaim()
	for told := range events.Events {
		if strings.HasPrefix(told, "Warning "+string(ReasonOutcomeUnknown)) {
			break
		}
	}
	if w.count("create volume") > 1 || w.count("delete volume") > 0 {
		t.Errorf("a volume that may have been kept is made or deleted: %q", w.told())
	}
}

// TestTheClassComes when nothing about the claim changes any more that would bring it to the library.
func TestTheClassComes(t *testing.T) {
	for name, change := range map[string]func(*v1.PersistentVolumeClaim){
		"to a claim that nobody began":           func(*v1.PersistentVolumeClaim) {},
		"to a claim that is held from a restart": func(c *v1.PersistentVolumeClaim) { c.Finalizers = []string{Finalizer} },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.deleteClass()
			_, err := w.client.StorageV1().StorageClasses().Create(t.Context(), &storagev1.StorageClass{
				ObjectMeta: metav1.ObjectMeta{Name: "slow"}, Provisioner: driverName}, metav1.CreateOptions{})
			w.must(err)
			w.makeClaim(change)
			w.start(Config{})
			w.makeClaim(func(c *v1.PersistentVolumeClaim) {
				slow := "slow"
				c.Name, c.UID, c.Spec.StorageClassName = "next", "u2", &slow
			})
			w.wait("the next claim is provisioned, and the first was looked at before", func() bool { return w.count("create PV") == 1 })
			w.makeClass()
			w.wait("it is provisioned", w.provisioned)
		})
	}
}

func TestTheAnswerToThePVsCreationIsLost(t *testing.T) {
	w := newWorld(t)
	lost := false
	w.client.PrependReactor("create", "persistentvolumes", lose(w, &lost))
	w.start(Config{})
	w.makeClaim()
	w.wait("it is provisioned", w.provisioned)
	if !lost || len(w.onDisk()) != 1 || w.count("delete volume") != 0 {
		t.Errorf("lost %v, volumes %v, diary %q", lost, w.onDisk(), w.told())
	}
}

// pvInTheWay is a PV of the claim's PV's name.
func (w *world) pvInTheWay(driver string, claim types.UID) {
	_, err := w.client.CoreV1().PersistentVolumes().Create(w.t.Context(), &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-u1"},
		Spec: v1.PersistentVolumeSpec{
			ClaimRef:               &v1.ObjectReference{UID: claim},
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: "in the way"}},
		}}, metav1.CreateOptions{})
	w.must(err)
}

func (w *world) clearTheWay() {
	w.must(w.client.CoreV1().PersistentVolumes().Delete(w.t.Context(), "pvc-u1", metav1.DeleteOptions{}))
}

// The library deletes the PV after a Delete that it takes for done.
func TestTheLibraryIsRefusedAllDeletions(t *testing.T) {
	w := newWorld(t)
	provisioner, err := newProvisioner(newWatched(t, w.client), w.client, driverName, &process{world: w}, w.orders, Config{})
	w.must(err)
	var ignored *controller.IgnoredError
	if err := (library{provisioner}).Delete(t.Context(), &v1.PersistentVolume{}); !errors.As(err, &ignored) || len(w.told()) > 0 {
		t.Errorf("answered %v, diary %q", err, w.told())
	}
}

func TestAPVOfTheClaimsNameThatIsAnothersIsNotTaken(t *testing.T) {
	w := newWorld(t)
	w.pvInTheWay(driverName, "u0")
	events := record.NewFakeRecorder(100)
	w.start(Config{Events: events})
	w.makeClaim()
	<-events.Events
	if len(w.told()) > 0 {
		t.Errorf("diary: %q", w.told())
	}
	w.clearTheWay()
	w.wait("it is provisioned", w.provisioned)
}

// The cache shows no PVs of other drivers: one that is in the way is found when the claim's own is
// to be stored.
func TestAnotherDriversPVInTheWay(t *testing.T) {
	for name, of := range map[string]types.UID{"for another claim": "u0", "for this claim": "u1"} {
		inTheWay := func(t *testing.T) *world {
			w := newWorld(t)
			w.pvInTheWay("another.example.com", of)
			w.start(Config{})
			w.makeClaim()
			w.wait("it was found twice", func() bool { return w.count("read PV") > 1 })
			if w.count("let go")+w.count("delete volume") > 0 || !held(w.claim()) {
				t.Errorf("diary: %q", w.told())
			}
			return w
		}
		t.Run(name+", goes", func(t *testing.T) {
			w := inTheWay(t)
			w.clearTheWay()
			w.wait("the claim is provisioned", w.provisioned)
			if len(w.onDisk()) != 1 || w.pv().Spec.CSI.Driver != driverName {
				t.Errorf("volumes %v, PV %+v", w.onDisk(), w.pv())
			}
		})
		t.Run(name+", stays, and the claim goes", func(t *testing.T) {
			w := inTheWay(t)
			w.deleteClaim()
			w.wait("the claim is gone", w.gone)
			if left := w.onDisk(); len(left) > 0 || w.pv() == nil {
				t.Errorf("LEAK: %v, PV in the way %v", left, w.pv())
			}
		})
	}
}

// TestTheWatchIsFasterThanTheAnswer has the watch show a PV before the answer to its creation comes.
func TestTheWatchIsFasterThanTheAnswer(t *testing.T) {
	w := newWorld(t)
	told := make(chan struct{}, 1)
	w.created = func() { <-told }
	p := w.start(Config{})
	p.provisioner.volumes.Follow(func(reclaim.PV) { told <- struct{}{} })
	w.makeClaim()
	w.wait("it is provisioned", w.provisioned)
	p.stop()
	if len(p.provisioner.shelf.stored) > 0 {
		t.Error("what the watch shows is kept for ever")
	}
}

func TestAFinalizerThatOutlivedItsReasonIsTakenOff(t *testing.T) {
	w := newWorld(t)
	_, err := w.client.CoreV1().PersistentVolumes().Create(t.Context(), &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-u1"},
		Spec: v1.PersistentVolumeSpec{ClaimRef: &v1.ObjectReference{UID: "u1"}}}, metav1.CreateOptions{})
	w.must(err)
	w.makeClaim(func(c *v1.PersistentVolumeClaim) { c.Finalizers, c.Spec.VolumeName = []string{Finalizer}, "pvc-u1" })
	w.start(Config{NoFinalizer: true})
	w.wait("it is free", func() bool { return !held(w.claim()) })
	if w.count("create volume")+w.count("delete volume") > 0 {
		t.Errorf("diary: %q", w.told())
	}
}

func TestAClaimBoundElsewhereLosesItsHalfMadeVolume(t *testing.T) {
	w := newWorld(t)
	w.madeUnseen()
	claim := w.claim().DeepCopy()
	claim.Spec.VolumeName = "another"
	_, err := w.client.CoreV1().PersistentVolumeClaims("ns").Update(t.Context(), claim, metav1.UpdateOptions{})
	w.must(err)
	w.wait("that is seen, and its PV looked for", func() bool { return w.count("read PV") > 0 })
	w.failing(false, nil)
	w.wait("it is free", func() bool { return !held(w.claim()) })
	if left := w.onDisk(); len(left) > 0 || w.pv() != nil {
		t.Errorf("LEAK: %v", left)
	}
}

func TestTheSecretIsGoneBeforeTheClaim(t *testing.T) {
	w := newWorld(t)
	w.madeUnseen()
	w.mu.Lock()
	w.secretGone = true
	w.mu.Unlock()
	w.failing(false, nil)
	w.deleteClaim()
	w.wait("it was looked for its PV, twice", func() bool { return w.count("read PV") > 1 })
	if !held(w.claim()) || w.count("delete volume") > 0 {
		t.Errorf("the claim is let go, or the driver asked without its Secret: %q", w.told())
	}
	w.mu.Lock()
	w.secretGone = false
	w.mu.Unlock()
	w.wait("it is gone", w.gone)
	if left := w.onDisk(); len(left) > 0 {
		t.Errorf("LEAK: %v", left)
	}
}

func TestConfigValidate(t *testing.T) {
	for name, c := range map[string]struct {
		cfg Config
		ok  bool
	}{
		"the zero value":         {Config{}, true},
		"negative workers":       {Config{Workers: -1}, false},
		"a delay that shrinks":   {Config{RetryStart: 2, RetryMax: 1}, false},
		"an empty further name":  {Config{AlsoKnownAs: []string{""}}, false},
		"negative clean-up ones": {Config{CleanUpWorkers: -1}, false},
	} {
		if err := c.cfg.Validate(); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

var errLost = errors.New("the answer was lost")

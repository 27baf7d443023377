package provision

import (
	"errors"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// step begins a run that nobody works on by itself, for a claim that is there and held.
func (w *world) step(change ...func(*v1.PersistentVolumeClaim)) *run {
	w.t.Helper()
	p := &process{world: w}
	provisioner, err := newProvisioner(newWatched(w.t, w.client), w.client, driverName, p, w.orders, Config{})
	w.must(err)
	p.inner, provisioner.cluster = provisioner.cluster, p
	w.makeClaim(change...)
	claim := w.claim()
	r := &run{Provisioner: provisioner, claim: claim, life: provisioner.lives.get(keyOf(claim))}
	r.facts.Claim = provisioner.claimOf(claim)
	return r
}

func heldClaim(c *v1.PersistentVolumeClaim) { c.Finalizers = []string{Finalizer} }

// losing has the answer to the next call of a kind be lost.
func (w *world) losing(what string) {
	w.each = func(_ int, did string) death {
		if did == what {
			return after
		}
		return goesOn
	}
}

func TestAfterALetGoWithoutAnswerNothingIsMadeToLookForIt(t *testing.T) {
	w := newWorld(t)
	r := w.step(heldClaim)
	w.losing("let go")
	r.life.volume, r.life.tried = VolumeUnknown, true
	if err := r.act(t.Context(), step(LetGo, ReasonStored)); !errors.Is(err, errDead) {
		t.Fatal(err)
	}
	s := halfMade()
	s.Volume, s.Handle = r.life.volume, r.life.handle
	if d := Decide(s, now()); d.Action != LetGo {
		t.Errorf("next is %v %s", d.Action, d.Reason)
	}
}

func TestAPVStoredAMomentAgoCountsForAnotherClaimOfItsName(t *testing.T) {
	w := newWorld(t)
	w.orders.characters = 2
	r := w.step(heldClaim, func(c *v1.PersistentVolumeClaim) { c.UID = "u1-second" })
	r.life.tried, r.wanted = true, &wanted{class: r.classOf(r.claim)}
	if d := r.next(t.Context()); d.Reason == ReasonNameTaken {
		t.Fatalf("the name is taken before anybody has it: %v", d)
	}
	r.shelf.put(&v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: r.facts.Claim.PVName},
		Spec: v1.PersistentVolumeSpec{
			ClaimRef:               &v1.ObjectReference{UID: "u1-first"},
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: driverName}},
		},
	})
	if d := r.next(t.Context()); d.Action != Wait || d.Reason != ReasonNameTaken {
		t.Errorf("next is %v %s", d.Action, d.Reason)
	}
}

func TestAClaimThatLostItsFinalizerIsNotTakenForUntouched(t *testing.T) {
	for name, c := range map[string]struct {
		life life
		want Volume
	}{
		"nobody had begun":                {life{doubt: true}, VolumeNone},
		"what was begun has ended":        {life{tried: true, volume: VolumeNone}, VolumeNone},
		"a volume may be being made":      {life{tried: true, doubt: true}, VolumeUnknown},
		"a volume is made, and has no PV": {life{tried: true, volume: VolumeMade}, VolumeMade},
	} {
		t.Run(name, func(t *testing.T) {
			r := newWorld(t).step()
			r.life = &c.life
			if err := r.act(t.Context(), step(Protect, ReasonProvision)); err != nil {
				t.Fatal(err)
			}
			if c.life.volume != c.want || c.life.doubt != (c.want == VolumeUnknown) {
				t.Errorf("volume %d, doubt %v", c.life.volume, c.life.doubt)
			}
		})
	}
}

func TestAClaimWhoseClassComesLaterGetsItsVolume(t *testing.T) {
	w := newWorld(t)
	other := "other"
	_, err := w.client.StorageV1().StorageClasses().Create(t.Context(), &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: other}, Provisioner: driverName}, metav1.CreateOptions{})
	w.must(err)
	w.deleteClass()
	w.start(Config{})
	w.makeClaim()
	w.makeClaim(func(c *v1.PersistentVolumeClaim) { c.Name, c.UID, c.Spec.StorageClassName = "next", "u2", &other })
	w.wait("a claim that came later is provisioned", func() bool { return len(w.onDisk()) == 1 })
	w.makeClass()
	w.wait("it is provisioned", w.provisioned)
}

func TestTheEndOfAClaimIsJudgedByItsLastState(t *testing.T) {
	w := newWorld(t)
	r := w.step()
	r.life.tried = true
	if r.look(); r.facts.Claim.Gone {
		t.Error("a claim whose end was not told yet is gone")
	}
	last := r.claim.DeepCopy()
	last.Spec.VolumeName = r.facts.Claim.PVName
	r.ended.Store(keyOf(last), last)
	if r.look(); !r.facts.Claim.Gone || !r.facts.Claim.bound() {
		t.Errorf("a claim that was bound when it went is judged as %+v", r.facts.Claim)
	}
}

func TestAClaimThatIsGoneBeforeAnythingWasBegunIsGone(t *testing.T) {
	w := newWorld(t)
	r := w.step()
	if r.look(); !r.facts.Claim.Gone {
		t.Errorf("judged as %+v", r.facts.Claim)
	}
}

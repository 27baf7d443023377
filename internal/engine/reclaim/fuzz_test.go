package reclaim

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/pvclaim"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// draw turns the bytes of a fuzzer into choices; missing bytes are 0.
type draw struct{ rest []byte }

func (d *draw) of(n int) int {
	if len(d.rest) == 0 {
		return 0
	}
	b := d.rest[0]
	d.rest = d.rest[1:]
	return int(b) % n
}

func (d *draw) yes() bool { return d.of(2) == 1 }

func (d *draw) text(of ...string) string { return of[d.of(len(of))] }

// read returns a read that is valid in most cases.
func (d *draw) read() session.Read {
	return []session.Read{read(1, 0), read(2, time.Second), read(3, 5*time.Second), read(9, 6*time.Second), read(4, 0),
		{}}[d.of(6)]
}

// fuzzPV returns a PV as the API server may hold it: any PV that the bytes are the JSON of, with some fields drawn so
// that it is often close to deletable.
func fuzzPV(data []byte, d *draw) *v1.PersistentVolume {
	o := &v1.PersistentVolume{}
	if json.Unmarshal(data, o) != nil {
		o = &v1.PersistentVolume{}
	}
	if o.Annotations == nil {
		o.Annotations = map[string]string{}
	}
	if !d.yes() {
		o.Name, o.UID = "pv", "pv-uid"
		o.Spec.CSI = &v1.CSIPersistentVolumeSource{Driver: d.text(driver, "other", ""),
			VolumeHandle: d.text("vol-1", "", "\n\x00\U0001F4BE")}
		o.Spec.ClaimRef = &v1.ObjectReference{Namespace: "ns", Name: "claim", UID: types.UID(d.text("claim-uid", ""))}
		o.Spec.PersistentVolumeReclaimPolicy = v1.PersistentVolumeReclaimPolicy(d.text("Delete", "Retain", "Recycle",
			"delete", ""))
		o.Status.Phase = v1.PersistentVolumePhase(d.text("Released", "Failed", "Bound", "Available", "Pending", "released",
			""))
	}
	if d.yes() {
		o.Annotations[volume.AnnProvisionedBy] = d.text(driver, "other", "")
	}
	if d.of(4) == 1 {
		o.Annotations[volume.AnnMigratedTo] = d.text(driver, "other")
	}
	if d.of(4) == 1 {
		o.Annotations[volume.HoldAnnotation] = ""
	}
	if d.of(8) == 1 {
		o.Labels = map[string]string{volume.TwinLabel: "another"}
	}
	o.Finalizers = append(o.Finalizers, []string{volume.Finalizer, volume.CompanionFinalizer, "external-attacher/x",
		"kubernetes.io/pv-protection"}[:d.of(5)]...)
	if d.yes() {
		o.DeletionTimestamp = &metav1.Time{Time: now()}
	}
	return o
}

// fuzzFacts draws all other facts of a decision.
func fuzzFacts(pv volume.PV, d *draw) Facts {
	other := sibling()
	other.Phase, other.TwinOf = volume.Phase(d.of(6)), types.UID(d.text("", string(pv.UID)))
	s := Facts{
		PV: pv, PVRead: d.read(),
		Rules: Rules{
			Driver: driver, Role: volume.Role((d.of(4) + 1) % 4), Mode: Mode(d.of(3)), Scope: Scope(d.of(2)),
			IgnoreStatic: d.yes(), ReclaimUnprotected: d.yes(), NeverAttached: d.yes(),
		},
		Brake:     []Brake{BrakeOff, BrakeOff, BrakeOn, BrakeUnknown}[d.of(4)],
		ClaimRead: d.read(),
		Claim: pvclaim.Result{Of: pv.Claim, Found: d.yes(), UID: types.UID(d.text("claim-uid", "newer")),
			VolumeName: d.text("", "pv", "pv-2")},

		SecretsRead: !d.yes(), AttachmentsCurrent: !d.yes(), Attachments: max(0, d.of(8)-6),
		SiblingsRead: d.read(), PVsListed: d.read(),
		Memory: Memory{Contested: d.yes(), ClaimEndedAt: d.read().Sent,
			History: History{SeenAlive: d.yes(), SeenReleased: d.yes(), SeenProtected: d.yes(), Stripped: d.yes()}},
	}
	if d.of(4) == 1 {
		s.End = End{Gone: true, Final: d.yes(), Shared: d.yes()}
	}
	if d.of(4) == 1 {
		s.Siblings = []volume.PV{other}
	}
	if d.of(4) == 1 {
		s.Done = Done{Protected: d.yes(), VolumeDeleted: d.yes(), Claim: pv.Claim, PVDeleted: d.yes(), Finalized: d.yes()}
	}
	if d.of(4) == 1 {
		s.Claim.Of.Name = "another"
	}
	s.Leading = d.of(8) != 1
	if pv.InTree && pv.MigratedTo != "" {
		s.Rules.Driver = pv.MigratedTo
	}
	s.Rules.Logged, s.Log = d.of(4) == 1, volume.InFlight(d.of(4))
	return s
}

// forbidden returns why the volume of the PV must not be deleted now, empty if it may. It checks the API's own object,
// independently of Decide and of Of.
func forbidden(o *v1.PersistentVolume, s Facts) string {
	_, held := o.Annotations[volume.HoldAnnotation]
	provisioner, migrated, own := o.Annotations[volume.AnnProvisionedBy], o.Annotations[volume.AnnMigratedTo],
		s.Rules.Driver
	ours := slices.Contains(o.Finalizers, volume.Finalizer) && s.Rules.Role != volume.RoleCompanion ||
		slices.Contains(o.Finalizers, volume.CompanionFinalizer)
	terminating := o.DeletionTimestamp != nil
	live := func(r session.Read) bool { return r.Order > 0 && !r.Sent.Before(now().Add(-5*time.Second)) }
	boundElsewhere := provisioner != "" && s.Claim.VolumeName != "" && s.Claim.VolumeName != o.Name
	ref := o.Spec.ClaimRef
	readClaim := ref != nil && live(s.ClaimRead) &&
		s.Claim.Of == (volume.ClaimRef{Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID})
	switch {
	case o.Spec.PersistentVolumeReclaimPolicy != v1.PersistentVolumeReclaimDelete:
		return "its policy is not Delete"
	case o.Status.Phase != v1.VolumeReleased && o.Status.Phase != v1.VolumeFailed:
		return "it is neither Released nor Failed"
	case ref == nil || ref.UID == "":
		return "it is not claimed"
	case held:
		return "it is held"
	case !s.Leading:
		return "the lease is not held"
	case s.Rules.Logged && s.Log != volume.InFlightSettled:
		return "the in-flight log is not known to have no entry"
	case s.Brake != BrakeOff:
		return "the brake is not known to be off"
	case o.Labels[volume.TwinLabel] != "":
		return "it is another PV's twin"
	case migrated != own && provisioner != "" && provisioner != own, o.Spec.CSI == nil && migrated != own:
		return "it is not ours"
	case o.Spec.CSI != nil && (o.Spec.CSI.Driver != own || o.Spec.CSI.VolumeHandle == ""):
		return "it names no volume of ours"
	case s.Done.VolumeDeleted, s.Rules.Mode == ModeRelease, s.Rules.Role == volume.RoleUnknown,
		s.Rules.Role == volume.RoleObserver && !s.End.Gone,
		s.Rules.IgnoreStatic && provisioner == "":
		return "the settings or the past forbid it"
	case readClaim && s.Claim.Found && s.Claim.UID == ref.UID && !boundElsewhere,
		!readClaim && (s.End.Gone || s.ClaimEndedAt.Before(now().Add(-5*time.Second))):
		return "its claim is not proven gone"
	case s.Attachments > 0, !s.SecretsRead:
		return "it is attached, or the Secret was not read"
	case s.End.Gone && (s.End.Shared || !s.End.Final || !s.History.SeenAlive || s.History.SeenProtected ||
		len(s.Siblings) > 0 || !live(s.PVsListed)):
		return "gone, and the volume is not proven unneeded"
	case !s.End.Gone && (!live(s.PVRead) || s.PVRead.Order <= s.ClaimRead.Order):
		return "the PV was not read last"
	case !s.End.Gone && !ours && (terminating || !s.Contested && s.Rules.Mode != ModeRollback):
		return "it is not protected"
	case !s.End.Gone && slices.ContainsFunc(s.Siblings, func(p volume.PV) bool {
		return p.Phase == volume.PhaseBound
	}):
		return "another PV needs the volume"
	}
	return ""
}

// carriedOut adds the result of a successful step to the facts. over: the run ends.
func carriedOut(s Facts, a Action, order int) (_ Facts, over bool) {
	switch a {
	case ListAttachments:
		s.AttachmentsCurrent = true
	case ReadSecrets:
		s.SecretsRead = true
	case ReadClaim:
		s.ClaimRead, s.Claim.Of = read(order, 0), s.PV.Claim
	case ReadSiblings:
		s.SiblingsRead = read(order, 0)
	case ListPVs:
		s.PVsListed = read(order, 0)
	case ReadPV:
		s.PVRead = read(order, 0)
	case DeleteVolume:
		s.Done.VolumeDeleted, s.Done.Claim = true, s.PV.Claim
	case DeletePV:
		s.Done.PVDeleted = true
	case FinalizePV:
		s.Done.Finalized = true
	case Wait, AddFinalizer, AdoptPV, RemoveFinalizer, ListNodes:
		return s, true // Rules.Local is not fuzzed
	}
	return s, false
}

// follow takes a PV through Of and Decide until it rests, without a panic, a forbidden deletion or an endless run.
func follow(t *testing.T, data, facts []byte) (deleted bool) {
	d := &draw{facts}
	o := fuzzPV(data, d)
	s := fuzzFacts(volume.Of(o), d)
	for steps := 0; ; steps++ {
		decision := Decide(s, now())
		if decision != Decide(s, now()) {
			t.Fatal("two decisions on the same facts")
		}
		if decision.Action == DeleteVolume {
			if why := forbidden(o, s); why != "" {
				t.Fatalf("the volume is deleted although %s\nPV %+v\nfacts %+v", why, o, s)
			}
			deleted = true
		}
		if decision.Reason.Sentence() == "" {
			t.Fatalf("%v for a reason without a sentence: %q", decision.Action, decision.Reason)
		}
		var over bool
		if s, over = carriedOut(s, decision.Action, 100+steps); over {
			return deleted
		}
		if steps > 12 {
			t.Fatalf("no rest after %d steps, the last one %v\nfacts %+v", steps, decision.Action, s)
		}
	}
}

func FuzzDecide(f *testing.F) {
	for _, data := range []string{
		"", `{}`, `{"metadata":{"name":"a","uid":"b"},"spec":{"claimRef":{"uid":"claim-uid"},"persistentVolumeReclaimPolicy":"Delete"},"status":{"phase":"Released"}}`, migrated,
	} {
		f.Add([]byte(data), []byte{})
		f.Add([]byte(data), []byte("\x01\x00\x00\x00\x00\x01\x01"))
		f.Add([]byte(data), []byte("\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00"))
	}
	f.Fuzz(func(t *testing.T, data, facts []byte) { follow(t, data, facts) })
}

// migrated is a PV of an in-tree plugin that was migrated to the driver.
const migrated = `{"metadata":{"uid":"u","annotations":{"pv.kubernetes.io/migrated-to":"ebs.csi.aws.com"}},"spec":{"awsElasticBlockStore":{"volumeID":"vol-1"},` +
	`"claimRef":{"uid":"claim-uid"},"persistentVolumeReclaimPolicy":"Delete"},"status":{"phase":"Failed"}}`

// TestRandomPVs does the same as FuzzDecide with bytes from a seed, because a fuzzer that instruments all of client-go
// gets through a hundredth of that in the time. It also shows that deletions happen at all.
func TestRandomPVs(t *testing.T) {
	dice := rand.New(rand.NewPCG(seed(t), 1))
	facts, deletions := make([]byte, 48), 0
	for range 200_000 {
		for i := range facts {
			facts[i] = 0 // mostly a value that speaks for the deletion
			if dice.IntN(5) == 0 {
				facts[i] = byte(dice.IntN(256))
			}
		}
		if follow(t, nil, facts) {
			deletions++
		}
	}
	if deletions < 100 {
		t.Errorf("only %d draws led to a deletion", deletions)
	}
	t.Logf("%d of 200000 draws led to a deletion", deletions)
}

// seed returns a new seed for each run, or $SEED to repeat one.
func seed(t *testing.T) uint64 {
	t.Helper()
	s := uint64(time.Now().UnixNano())
	if text := os.Getenv("SEED"); text != "" {
		var err error
		if s, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("SEED=%d", s)
	return s
}

// FuzzHandles compares the index of handles with a set of pairs, for handles and names of any kind.
func FuzzHandles(f *testing.F) {
	f.Add("vol-1", "vol-2", "a", "b", []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 18, 24, 30})
	f.Add("", "\x00", "a", "a", []byte{0, 4, 8, 12, 1, 5, 9, 13})
	f.Add("x/y\nz", "x/y", "pv.a", "pv", []byte{0, 1, 3, 4, 6, 7, 0, 1, 14, 16, 2, 4})
	f.Fuzz(func(t *testing.T, handle1, handle2, name1, name2 string, steps []byte) {
		index := NewHandles()
		// all has the PVs by handle, and whether they keep its volume.
		all := map[string]map[string]bool{handle1: {}, handle2: {}}
		for _, b := range steps {
			handle := []string{handle1, handle2}[b&1]
			name := []string{name1, name2, name1 + name2}[int(b>>1)%3]
			pvs := all[handle]
			several, kept := len(pvs) > 1, pvs[name]
			var freed bool
			if keeps := (b>>1)/6%2 == 0; (b>>1)/3%2 == 0 && handle != "" {
				pvs[name] = keeps
				freed = index.Set(handle, name, func(pv string) bool { return pvs[pv] })
				kept = kept && !keeps
			} else {
				freed = index.Remove(handle, name)
				delete(pvs, name)
			}
			if freed != (several && kept) {
				t.Fatalf("freed: %t, of several: %t, was kept: %t", freed, several, kept)
			}
			compareHandles(t, &index, all)
		}
		if len(all[handle1])+len(all[handle2]) == 0 && len(index.First)+len(index.More) > 0 {
			t.Fatalf("an empty index holds %v and %v", index.First, index.More)
		}
	})
}

func compareHandles(t *testing.T, index *Handles, all map[string]map[string]bool) {
	t.Helper()
	for handle, pvs := range all {
		names := slices.Sorted(maps.Keys(pvs))
		var keepers []string
		if len(names) > 1 {
			keepers = slices.DeleteFunc(slices.Clone(names), func(pv string) bool { return !pvs[pv] })
		}
		if !slices.Equal(index.Names(handle), names) || !slices.Equal(index.Keepers(handle), keepers) {
			t.Fatalf("%q: PVs %q, keepers %q, want %v", handle, index.Names(handle), index.Keepers(handle), pvs)
		}
		for _, except := range append(names, "none of them") {
			others := slices.ContainsFunc(names, func(pv string) bool { return pv != except })
			if index.Shared(handle, except) != others {
				t.Fatalf("%q without %q: shared %t, want %v", handle, except, !others, pvs)
			}
		}
	}
}

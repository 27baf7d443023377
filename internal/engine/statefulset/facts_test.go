package statefulset

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
)

func now() time.Time { return time.Unix(1_800_000_000, 0) }

func ago(d time.Duration) time.Time { return now().Add(-d) }

// read is a live read that was made just now.
func read(order int) session.Read { return session.Read{Sent: now(), Order: order} }

// old is a live read that has expired.
func old(order int) session.Read {
	return session.Read{Sent: ago(session.LiveFor + time.Second), Order: order}
}

// facts are the facts about the claim of ordinal 1 of a set with two replicas. The field of the set deletes the claims
// of replicas that are scaled away, the pod runs, and the claim has the matching mark.
func facts(change ...func(*Facts)) Facts {
	f := Facts{
		Claim: Claim{
			Namespace: "ns", Name: "data-db-1", UID: "claim", ResourceVersion: "10", Protected: true, Marked: true,
			Mark: Mark{Set: "db", UID: "set", Ordinal: 1, WhenScaled: Delete, Claim: "claim"},
		},
		Ordinal: 1, SetSeen: Found, SetName: "db", PodSeen: Found,
		Set: Set{
			Namespace: "ns", Name: "db", UID: "set", Replicas: 2, Templates: []string{"data"}, Source: SourceField,
			Policy: Policy{WhenScaled: Delete},
		},
		Pod: Pod{
			Namespace: "ns", Name: "db-1", UID: "pod", Controller: "set", Bound: true, Ready: true,
			Claims: []string{"data-db-1"},
		},
	}
	return alter(f, change...)
}

// both combines alterations.
func both(alter ...func(*Facts)) func(*Facts) {
	return func(f *Facts) {
		for _, a := range alter {
			a(f)
		}
	}
}

func unmarked(f *Facts)                   { f.Claim.Mark, f.Claim.Marked = Mark{}, false }
func markRetain(f *Facts)                 { f.Claim.Mark.WhenScaled = Retain }
func copiedMark(f *Facts)                 { f.Claim.Mark.Claim = "claim0" }
func garbageMark(f *Facts)                { f.Claim.Mark = Mark{} }
func held(f *Facts)                       { f.Claim.Hold = true }
func terminatingClaim(f *Facts)           { f.Claim.Terminating = true }
func scaledDown(f *Facts)                 { f.Set.Replicas = 1 }
func startsLater(f *Facts)                { f.Set.Start = 2 }
func annotated(f *Facts)                  { f.Set.Source = SourceAnnotation }
func noPolicy(f *Facts)                   { f.Set.Source, f.Set.Policy = SourceNone, Policy{} }
func retain(f *Facts)                     { f.Set.Policy = Policy{} }
func deleteBoth(f *Facts)                 { f.Set.Policy = Policy{WhenDeleted: Delete, WhenScaled: Delete} }
func deleteWithSet(f *Facts)              { f.Set.Policy = Policy{WhenDeleted: Delete} }
func invalid(f *Facts)                    { f.Set.Invalid = "wrong" }
func shared(f *Facts)                     { f.Shared = true }
func uninstalled(f *Facts)                { f.Rules.Removing = true }
func setUnknown(f *Facts)                 { f.SetSeen, f.Set = Unknown, Set{} }
func setAbsent(f *Facts)                  { f.SetSeen, f.Set = Absent, Set{} }
func setTerminating(f *Facts)             { f.Set.Terminating = true }
func setAgain(f *Facts)                   { f.Set.UID, f.Pod.Controller = "set2", "set2" }
func otherTemplates(f *Facts)             { f.Set.Templates = []string{"logs"} }
func podUnknown(f *Facts)                 { f.PodSeen, f.Pod = Unknown, Pod{} }
func podAbsent(f *Facts)                  { f.PodSeen, f.Pod = Absent, Pod{} }
func podTerminating(f *Facts)             { f.Pod.Terminating = true }
func podForeign(f *Facts)                 { f.Pod.Controller = "" }
func podElsewhere(f *Facts)               { f.Pod.Claims = []string{"data-db-2"} }
func unprotected(f *Facts)                { f.Claim.Protected = false }
func otherPod(f *Facts)                   { f.OtherPod = "backup" }
func claimRead(f *Facts)                  { f.ClaimRead = read(1) }
func podRead(f *Facts)                    { f.PodRead = read(2) }
func setRead(f *Facts)                    { f.SetRead = read(3) }
func allRead(f *Facts)                    { both(claimRead, podRead, setRead)(f) }
func claimAt(r session.Read) func(*Facts) { return func(f *Facts) { f.ClaimRead = r } }
func podAt(r session.Read) func(*Facts)   { return func(f *Facts) { f.PodRead = r } }
func setAt(r session.Read) func(*Facts)   { return func(f *Facts) { f.SetRead = r } }

// added has a tracker remember that this mark was added this often.
func added(mark string, times int) func(*Facts) {
	return func(f *Facts) { f.Sight = Sight{Added: mark, Additions: times} }
}

func abandonedLongAgo(f *Facts) { f.Sight.CondemnedSince = ago(DefaultGrace) }

// left deletes the set, as seen by the watch, and leaves the claim as Kubernetes created it.
func left(f *Facts) {
	f.Last = f.Set
	f.Last.Policy, f.Last.Created = Policy{WhenDeleted: Delete}, ago(time.Hour)
	f.Claim.ByController = ago(time.Hour)
	both(setAbsent, podAbsent, unmarked)(f)
}

func leftLongAgo(f *Facts) { f.Sight.LeftSince = ago(Settling) }
func grace(d time.Duration) func(*Facts) {
	return func(f *Facts) { f.Set.Grace, f.Set.GraceGiven = d, true }
}

// owned adds owner references to the claim.
func owned(refs ...metav1.OwnerReference) func(*Facts) {
	return func(f *Facts) { f.Claim.Owners = append(f.Claim.Owners, refs...) }
}

func setRef(uid types.UID) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", UID: uid}
}

func podRef(uid types.UID) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "db-1", UID: uid}
}

func foreignRef() metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "app", UID: "foreign"}
}

// controlling sets controller=true on a reference.
func controlling(ref metav1.OwnerReference) metav1.OwnerReference {
	yes := true
	ref.Controller = &yes
	return ref
}

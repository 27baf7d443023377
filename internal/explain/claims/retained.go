package claims

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/volumes"
)

// Retained holds the claims of deleted StatefulSets, and of replicas that were scaled away.
type Retained struct {
	// Claims are sorted by namespace, set and ordinal.
	Claims []RetainedClaim `json:"claims"`
	Totals RetainedTotals  `json:"totals"`
	// Unread lists the reads that failed, and the questions they leave open.
	Unread []string `json:"unread,omitempty"`
}

type RetainedTotals struct {
	Claims int    `json:"claims"`
	Size   string `json:"size"`
	// Likely counts the claims without proof of their origin.
	Likely int `json:"likely"`
	// Held counts the claims that a person holds.
	Held int `json:"held"`
	// Owned counts the claims that another object owns.
	Owned int `json:"owned"`
}

// RetainedClaim is a claim that no pod uses, and that its StatefulSet does not need.
type RetainedClaim struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	// StatefulSet is the name of the claim's set, empty if the set is gone and its name is unknown.
	StatefulSet string `json:"statefulSet,omitempty"`
	// SetGone: the set does not exist. Otherwise the claim's replica was scaled away.
	SetGone bool   `json:"setGone"`
	Ordinal int    `json:"ordinal"`
	Size    string `json:"size"`
	// Created is the creationTimestamp. Since is the latest time at which retention can have begun, nil if nothing shows
	// it, and SinceEvidence names its source.
	Created       metav1.Time  `json:"created"`
	Since         *metav1.Time `json:"since,omitempty"`
	SinceEvidence string       `json:"sinceEvidence,omitempty"`
	PV            string       `json:"pv,omitempty"`
	ReclaimPolicy string       `json:"reclaimPolicy,omitempty"`
	StorageClass  string       `json:"storageClass,omitempty"`
	Driver        string       `json:"driver,omitempty"`
	// Likely: no proof shows that a StatefulSet created the claim. Evidence describes the signs or the proof.
	Likely   bool   `json:"likely"`
	Evidence string `json:"evidence"`
	// Held: the claim or its PV has the annotation csi-reclaimer.io/hold.
	Held bool `json:"held"`
	// Owner is the kind and name of an owner other than the set and its pod, empty for none. It may need the claim.
	Owner string `json:"owner,omitempty"`
	// Reason is the word of Events and metrics for keeping the claim, and Text explains it to people.
	Reason string `json:"reason"`
	Text   string `json:"text"`
	// DeleteCommand deletes the claim; it is empty for a likely, held or owned claim. Volume is the fate of its volume
	// after that.
	DeleteCommand string                `json:"deleteCommand,omitempty"`
	Volume        volumes.VolumeOutcome `json:"volume"`

	size resource.Quantity
}

// RetainedOf is a pure function that lists the claims of deleted StatefulSets, and of replicas that were scaled away.
// It omits claims that a pod uses, terminating claims, and claims that garbage collection is about to delete.
func RetainedOf(f Facts) Retained {
	l := Retained{Claims: []RetainedClaim{}, Unread: f.unread()}
	by := f.index()
	var all resource.Quantity
	for _, c := range f.Claims.Value {
		row, is := by.retained(c)
		if !is {
			continue
		}
		l.Claims = append(l.Claims, row)
		all.Add(row.size)
		if row.Likely {
			l.Totals.Likely++
		}
		if row.Held {
			l.Totals.Held++
		}
		if row.Owner != "" {
			l.Totals.Owned++
		}
	}
	slices.SortFunc(l.Claims, func(a, b RetainedClaim) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.StatefulSet, b.StatefulSet),
			cmp.Compare(a.Ordinal, b.Ordinal), cmp.Compare(a.Name, b.Name))
	})
	l.Totals.Claims, l.Totals.Size = len(l.Claims), all.String()
	return l
}

// retained returns the row of a claim, if the claim is retained.
func (i *index) retained(c Claim) (row RetainedClaim, is bool) {
	f, set := i.of(c)
	if !i.facts.Sets.OK() || !i.facts.Pods.OK() || c.Terminating || len(i.users[key{c.Namespace, c.Name}]) > 0 {
		return row, false
	}
	if f.Shared {
		return row, false // another set may need it
	}
	e := statefulset.Explain(f, i.facts.Now)
	switch e.Decision.Reason {
	case statefulset.ReasonOwnerGone, statefulset.ReasonSetDeleted, statefulset.ReasonSetTerminating:
		return row, false // Kubernetes decides about it
	default:
	}
	pv, _ := i.facts.FindPV(c.Volume)
	row = RetainedClaim{
		Namespace: c.Namespace, Name: c.Name, UID: string(c.UID), StatefulSet: e.Set, SetGone: e.Set == "",
		Ordinal: f.Ordinal, Size: c.Size.String(), Created: metav1.NewTime(c.Created), PV: c.Volume, StorageClass: c.Class,
		Reason: string(e.Decision.Reason), Text: e.Text, size: c.Size, Held: c.Hold || pv.Held, Owner: f.OtherOwner(),
		Volume: i.facts.AfterClaim(c.Volume, c.UID),
	}
	row.ReclaimPolicy, row.Driver = i.storage(c)
	if row.SetGone {
		row.StatefulSet = c.Mark.Set
		row.Reason = string(statefulset.ReasonSetGone)
		row.Text = "The StatefulSet is gone, and nothing deletes the claim."
		if row.Owner != "" {
			row.Text = "The StatefulSet is gone. Garbage collection deletes the claim with its owner, " + row.Owner + "."
		}
		row.Evidence, row.Likely = evidenceOfGone(c)
	} else if f.Set.InRange(f.Ordinal) {
		return row, false
	} else {
		row.Evidence, row.Likely = evidenceOf(c, f, set)
	}
	if row.Evidence == "" {
		return row, false
	}
	if row.deletable() {
		row.DeleteCommand = fmt.Sprintf("kubectl delete pvc %s -n %s", c.Name, c.Namespace)
	}
	row.since(c, set, f)
	return row, true
}

func (r RetainedClaim) deletable() bool { return !r.Likely && !r.Held && r.Owner == "" }

// maybeRestored is the evidence of managedFields without proof, see Claim.LikelyByController.
const maybeRestored = "managedFields name kube-controller-manager as its creator, but its volume was not provisioned " +
	"for it: a claim restored from a backup may look the same"

// evidenceOf returns the evidence that a set with a fitting name created the claim. likely: the evidence is no proof.
func evidenceOf(c Claim, f statefulset.Facts, set Set) (evidence string, likely bool) {
	created := !c.ByController.IsZero() && !ownedByPod(c)
	labeled := labels.ValidatedSetSelector(set.Labels).Matches(labels.Set(c.Labels))
	switch {
	case c.OwnMark() && c.Mark.Set == set.Name && c.Mark.UID == set.UID && c.Mark.Ordinal == f.Ordinal:
		return "its annotation " + statefulset.MarkAnnotation + " names the set", false
	case slices.ContainsFunc(c.Owners, func(ref metav1.OwnerReference) bool { return ref.UID == set.UID }):
		return "the set owns it", false
	case created:
		return "it has the name of a claim of the set, and kube-controller-manager created it", false
	case c.LikelyByController && !ownedByPod(c):
		return "it has the name of a claim of the set; " + maybeRestored, true
	case len(set.Labels) > 0 && labeled:
		return "it has the name and the labels of a claim of the set, but nothing shows who created it", true
	}
	return "it has the name of a claim of the set, but neither its labels nor anything else shows who created it", true
}

// evidenceOfGone returns the evidence that a deleted set created the claim, empty for none. Name and labels are none,
// because no set is left to compare them with. likely: the evidence is no proof.
func evidenceOfGone(c Claim) (evidence string, likely bool) {
	_, _, numbered := statefulset.SplitClaimName(c.Name)
	switch {
	case c.OwnMark():
		return fmt.Sprintf("its annotation %s names StatefulSet %s, UID %s", statefulset.MarkAnnotation, c.Mark.Set,
			c.Mark.UID), false
	case !c.ByController.IsZero() && !ownedByPod(c) && numbered:
		return "kube-controller-manager created it, as it does for StatefulSets, and none has a template with its name", false
	case c.LikelyByController && !ownedByPod(c) && numbered:
		return "no StatefulSet has a template with its name; " + maybeRestored, true
	}
	return "", false
}

// ownedByPod reports whether the claim belongs to a generic ephemeral volume.
func ownedByPod(c Claim) bool {
	return slices.ContainsFunc(c.Owners, func(ref metav1.OwnerReference) bool { return ref.Kind == "Pod" })
}

// since sets the latest time at which retention can have begun.
func (r *RetainedClaim) since(c Claim, set Set, f statefulset.Facts) {
	switch {
	case !c.UnusedSince.IsZero():
		r.Since, r.SinceEvidence = &metav1.Time{Time: c.UnusedSince}, "condition Unused of the claim"
	case f.SetSeen == statefulset.Found && !r.SetGone && set.Scaled.After(c.Created):
		r.Since, r.SinceEvidence = &metav1.Time{Time: set.Scaled}, "the last change of spec.replicas of the set"
	}
}

// DeleteCommands returns a command per namespace that deletes its claims with proof of their origin, except held and
// owned ones.
func (l Retained) DeleteCommands() (commands []string) {
	by := map[string][]string{}
	for _, c := range l.Claims {
		if c.deletable() {
			by[c.Namespace] = append(by[c.Namespace], c.Name)
		}
	}
	for _, namespace := range slices.Sorted(maps.Keys(by)) {
		commands = append(commands, fmt.Sprintf("kubectl delete pvc -n %s %s", namespace,
			strings.Join(by[namespace], " ")))
	}
	return commands
}

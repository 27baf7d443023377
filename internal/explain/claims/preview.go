package claims

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/volumes"
	"github.com/csi-reclaimer/csi-reclaimer/internal/plural"
)

// PreviewFacts holds the results of all reads about one StatefulSet and its claims.
type PreviewFacts struct {
	Facts
	Set Set
}

// HasClaim reports whether a template of the set gives a claim this name, and HasPod whether the set gives it to a pod.
func (f PreviewFacts) HasClaim(name string) bool {
	_, ordinal, numbered := statefulset.SplitClaimName(name)
	return numbered && f.Set.Gives(name, ordinal)
}

func (f PreviewFacts) HasPod(name string) bool {
	_, ordinal, numbered := statefulset.SplitClaimName(name)
	return numbered && f.Set.PodName(ordinal) == name
}

// Change is a change of a set that can be previewed.
type Change = statefulset.Change

// ScaleTo changes the number of replicas, Delete deletes the set and its pods, and Orphan deletes the set alone
// (kubectl delete --cascade=orphan).
func ScaleTo(replicas int) Change { return Change{Kind: statefulset.Scale, Replicas: replicas} }
func Delete() Change              { return Change{Kind: statefulset.DeleteSet} }
func Orphan() Change              { return Change{Kind: statefulset.OrphanSet} }

func changeWords(c Change, s Set) string {
	switch c.Kind {
	case statefulset.Scale:
		return fmt.Sprintf("scale from %d to %s", s.Replicas, plural.Count(c.Replicas, "replica"))
	case statefulset.OrphanSet:
		return "delete the set alone (--cascade=orphan)"
	case statefulset.DeleteSet:
	}
	return "delete the set and its pods"
}

// Preview describes the effect of a StatefulSet's change on its claims and their volumes.
type Preview struct {
	StatefulSet string `json:"statefulSet"`
	Change      string `json:"change"`
	Policy      Policy `json:"policy"`
	// Claims are the set's present claims, by template and ordinal.
	Claims []Row  `json:"claims"`
	Totals Totals `json:"totals"`
	// Reasons explains the reasons of the rows.
	Reasons []Reason `json:"reasons,omitempty"`
	// Assumed lists assumptions that cannot be checked from outside.
	Assumed []string `json:"assumed,omitempty"`
	// Warnings need a person's attention.
	Warnings []string `json:"warnings,omitempty"`
	// Unread lists the reads that failed, and the questions they leave open.
	Unread []string `json:"unread,omitempty"`
}

// Policy is the retention policy of a set, as the Kubernetes API spells it.
type Policy struct {
	WhenDeleted string `json:"whenDeleted"`
	WhenScaled  string `json:"whenScaled"`
	// Source is the place of the policy: the field or the annotation.
	Source string `json:"source"`
}

func policyOf(p statefulset.Policy, from statefulset.Source) Policy {
	return Policy{p.WhenDeleted.String(), p.WhenScaled.String(), from.String()}
}

func (p Policy) String() string {
	text := "whenDeleted " + p.WhenDeleted + ", whenScaled " + p.WhenScaled
	if p.Source != statefulset.SourceNone.String() {
		text += " (" + p.Source + ")"
	}
	return text
}

type Row struct {
	Claim    string `json:"claim"`
	Template string `json:"template"`
	Ordinal  int    `json:"ordinal"`
	// Pod is the name of the claim's pod, empty for none.
	Pod  string `json:"pod,omitempty"`
	Size string `json:"size"`
	// PV, ReclaimPolicy, StorageClass and Driver are empty if they do not exist or are unknown.
	PV            string `json:"pv,omitempty"`
	ReclaimPolicy string `json:"reclaimPolicy,omitempty"`
	StorageClass  string `json:"storageClass,omitempty"`
	Driver        string `json:"driver,omitempty"`
	// Fate is the fate of the claim: kept, deleted or unknown. When is the time of its deletion, empty for a claim that
	// is kept.
	Fate   string                `json:"fate"`
	Reason string                `json:"reason"`
	When   string                `json:"when,omitempty"`
	Text   string                `json:"text"`
	Volume volumes.VolumeOutcome `json:"volume"`

	size resource.Quantity
}

type Reason struct {
	Reason   string `json:"reason"`
	Sentence string `json:"sentence"`
}

type Totals struct {
	Claims        int    `json:"claims"`
	Size          string `json:"size"`
	ClaimsDeleted int    `json:"claimsDeleted"`
	// VolumesDeleted, VolumesKept, VolumesWaiting and VolumesUnknown add up to the claims with a volume. SizeDeleted is
	// the size of VolumesDeleted.
	VolumesDeleted int    `json:"volumesDeleted"`
	SizeDeleted    string `json:"sizeDeleted"`
	VolumesKept    int    `json:"volumesKept"`
	VolumesWaiting int    `json:"volumesWaiting"`
	VolumesUnknown int    `json:"volumesUnknown"`
}

func (t Totals) String() string {
	words := []string{fmt.Sprintf("%s deleted (%s)", plural.Count(t.VolumesDeleted, "volume"), t.SizeDeleted)}
	for _, n := range []struct {
		count int
		words string
	}{{t.VolumesKept, "kept"}, {t.VolumesWaiting, "to be deleted, and held up"}, {t.VolumesUnknown, "unknown"}} {
		if n.count > 0 {
			words = append(words, fmt.Sprintf("%d %s", n.count, n.words))
		}
	}
	return fmt.Sprintf("%s, %s: %s deleted; %s", plural.Count(t.Claims, "claim"), t.Size,
		plural.Count(t.ClaimsDeleted, "claim"), strings.Join(words, ", "))
}

// PreviewOf is a pure function that returns the effect of a set's change on its claims in their present state.
func PreviewOf(f PreviewFacts, change Change) Preview {
	p := Preview{StatefulSet: fullName(f.Set.Namespace, f.Set.Name), Claims: []Row{}, Unread: f.unread()}
	switch at := slices.IndexFunc(f.Sets.Value, func(s Set) bool { return s.UID == f.Set.UID }); {
	case !f.Sets.OK():
		f.Sets = explain.Found([]Set{f.Set}) // names that collide are not seen
	case at < 0:
		p.Warnings = append(p.Warnings, "The StatefulSet was deleted while the preview was made: run it again.")
		f.Sets.Value = append(slices.Clone(f.Sets.Value), f.Set)
	default:
		f.Set = f.Sets.Value[at]
	}
	p.Change, p.Policy = changeWords(change, f.Set), policyOf(f.Set.Policy, f.Set.Source)
	w := &previewer{index: f.index(), change: change}
	w.preferred = f.Set.UID
	for _, c := range f.Claims.Value {
		if f.HasClaim(c.Name) {
			p.Claims = append(p.Claims, w.row(c))
		}
	}
	slices.SortFunc(p.Claims, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.Template, b.Template), cmp.Compare(a.Ordinal, b.Ordinal))
	})
	p.Reasons = w.reasons
	p.Assumed = w.assumed()
	p.Totals = totalsOf(p.Claims)
	p.warn(f.Set, change)
	return p
}

func (p *Preview) warn(s Set, change Change) {
	switch {
	case s.Terminating:
		p.Warnings = append(p.Warnings, "The StatefulSet is being deleted already.")
	case s.Invalid != "":
		p.Warnings = append(p.Warnings, statefulset.ReasonInvalidPolicy.Sentence()+" "+s.Invalid)
	case s.Ignored:
		p.Warnings = append(p.Warnings, statefulset.ReasonAnnotationIgnored.Sentence())
	}
	if change.Kind == statefulset.Scale && change.Replicas == s.Replicas {
		p.Warnings = append(p.Warnings, fmt.Sprintf("The StatefulSet has %s already.",
			plural.Count(s.Replicas, "replica")))
	}
}

// reasonNoGuard is the reason of claims that only volume-guard would keep while it does not run. ifGuard is the time
// of a deletion that only volume-guard makes while it does not run: it may be back before anyone notices.
const (
	reasonNoGuard = "VolumeGuardNotRunning"
	ifGuard       = "if volume-guard runs"
)

// previewer makes the rows of a Preview, and collects their common parts.
type previewer struct {
	*index
	change  Change
	reasons []Reason
	// guarded and defaultGrace: a row depends on volume-guard, or on the default of --scale-down-grace.
	guarded, defaultGrace bool
}

func (w *previewer) row(c Claim) Row {
	f, set := w.of(c)
	forecast := statefulset.Foresee(f, w.change)
	r := Row{
		Claim: c.Name, Template: template(set.Set, c, f.Ordinal), Ordinal: f.Ordinal, Size: c.Size.String(), PV: c.Volume,
		StorageClass: c.Class, Fate: forecast.Fate.String(), Reason: string(forecast.Reason), Text: forecast.Text,
		size: c.Size,
	}
	r.ReclaimPolicy, r.Driver = w.storage(c)
	if f.PodSeen == statefulset.Found {
		r.Pod = f.Pod.Name
	}
	sentence := forecast.Reason.Sentence()
	runs, known := w.facts.GuardRuns()
	w.guarded = w.guarded || forecast.Unattended != forecast.Fate
	pending := forecast.Fate == statefulset.Deleted && forecast.Unattended == statefulset.Kept && known && !runs
	if forecast.Fate == statefulset.Kept && forecast.Unattended == statefulset.Deleted && !runs {
		r.Fate, r.Reason = forecast.Unattended.String(), reasonNoGuard
		sentence = "volume-guard, which would keep the claim, does not run, or may not."
		r.Text = fmt.Sprintf("%s It would keep it by %s.", sentence, forecast.Reason)
	}
	r.Volume = w.volume(c, r.Fate, pending)
	if r.When = w.when(r, f, forecast); pending {
		r.When = ifGuard
	}
	w.explain(r.Reason, sentence)
	return r
}

// volume returns the fate of the claim's volume. pending: the claim is deleted only if volume-guard runs.
func (w *previewer) volume(c Claim, fate string, pending bool) volumes.VolumeOutcome {
	switch {
	case c.Volume == "":
		return w.facts.AfterClaim("", c.UID)
	case pending:
		return volumes.VolumeOutcome{Fate: volumes.VolumeWaits, Text: "It stays with its claim, until volume-guard runs."}
	case fate == statefulset.Deleted.String():
		return w.facts.AfterClaim(c.Volume, c.UID)
	case fate == statefulset.Kept.String():
		return volumes.VolumeOutcome{Fate: volumes.VolumeKept, Text: "It stays with its claim."}
	}
	return volumes.VolumeOutcome{Fate: volumes.VolumeUnknown, Text: "It is not known whether the claim is deleted."}
}

// when returns the time of the claim's deletion, empty for a claim that is not deleted.
func (w *previewer) when(r Row, f statefulset.Facts, forecast statefulset.Forecast) string {
	switch {
	case r.Fate != statefulset.Deleted.String():
		return ""
	case f.Claim.Terminating:
		return "already being deleted"
	case forecast.Reason == statefulset.ReasonOwnerGone:
		return "at once"
	case forecast.Grace > 0:
		w.defaultGrace = w.defaultGrace || !f.Set.GraceGiven
		return "after a grace period of " + duration.HumanDuration(forecast.Grace)
	case r.Pod != "":
		return "with pod " + r.Pod
	case w.change.Kind == statefulset.Scale:
		return "at once"
	}
	return "with the set"
}

func (w *previewer) explain(reason, sentence string) {
	if !slices.ContainsFunc(w.reasons, func(r Reason) bool { return r.Reason == reason }) {
		w.reasons = append(w.reasons, Reason{reason, sentence})
		slices.SortFunc(w.reasons, func(a, b Reason) int { return cmp.Compare(a.Reason, b.Reason) })
	}
}

// assumed lists the assumptions of the rows that cannot be checked from outside.
func (w *previewer) assumed() (all []string) {
	if w.guarded {
		switch runs, known := w.facts.GuardRuns(); {
		case runs:
			all = append(all, "volume-guard runs its controller statefulset-claims. That it runs is seen from its Lease, which "+
				"controllers it runs is not.")
		case known:
			all = append(all, "volume-guard does not run: "+explain.NoGuard+". Claims that only its controller "+
				"statefulset-claims deletes are kept until it runs.")
		default:
			all = append(all, "volume-guard runs with its controller statefulset-claims: whether it does could not be read.")
		}
	}
	if w.defaultGrace {
		all = append(all, "volume-guard runs with the default of --scale-down-grace. The annotation "+
			statefulset.GraceAnnotation+" on the set overrides it.")
	}
	return all
}

func totalsOf(rows []Row) Totals {
	t := Totals{Claims: len(rows)}
	var all, deleted resource.Quantity
	for _, r := range rows {
		all.Add(r.size)
		if r.Fate == statefulset.Deleted.String() {
			t.ClaimsDeleted++
		}
		switch r.Volume.Fate {
		case volumes.VolumeDeleted:
			t.VolumesDeleted++
			deleted.Add(r.size)
		case volumes.VolumeKept:
			t.VolumesKept++
		case volumes.VolumeWaits:
			t.VolumesWaiting++
		case volumes.VolumeUnknown:
			t.VolumesUnknown++
		case volumes.VolumeNone:
		}
	}
	t.Size, t.SizeDeleted = all.String(), deleted.String()
	return t
}

package view

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// typeChange is the Type of an Entry about a change that a watch showed.
const (
	typeChange  = "Change"
	sourceWatch = "watch"
)

// fields holds the fields of one object that the timeline reports, by their names for people, with sorted lists joined
// by commas.
type fields map[string]string

// fieldFinalizers is the only field with a list, whose items are reported one by one.
const fieldFinalizers = "finalizers"

func fieldsOf(a Around) map[string]fields {
	all := map[string]fields{}
	for _, o := range a.PVs {
		f := fields{"phase": phaseOf(o), "reclaim policy": string(o.Spec.PersistentVolumeReclaimPolicy), "claim": "none"}
		if ref := o.Spec.ClaimRef; ref != nil {
			f["claim"] = ref.Namespace + "/" + ref.Name
			if ref.UID != "" {
				f["claim"] += " (UID " + string(ref.UID) + ")"
			}
		}
		f.common(&o.ObjectMeta)
		all[Ref{Kind: KindPV, Name: o.Name}.ID()] = f
	}
	for _, o := range a.Claims {
		f := fields{"phase": string(o.Status.Phase), "PV": cmp.Or(o.Spec.VolumeName, "none")}
		f.common(&o.ObjectMeta)
		all[Ref{Kind: KindClaim, Namespace: o.Namespace, Name: o.Name}.ID()] = f
	}
	for i := range a.Attachments {
		o := &a.Attachments[i]
		all[Ref{Kind: KindAttach, Name: o.Name}.ID()] = fields{"state": attachmentState(o), fieldUID: string(o.UID)}
	}
	for i := range a.Pods {
		o := &a.Pods[i]
		f := fields{"phase": string(o.Phase), "node": cmp.Or(o.Node, "none"), fieldUID: string(o.UID)}
		f[fieldFinalizers] = strings.Join(slices.Sorted(slices.Values(o.Finalizers)), ",")
		f["held by volume-guard"] = yesNo(o.Held)
		f["terminating"] = yesNo(o.Terminating)
		all[Ref{Kind: KindPod, Namespace: o.Namespace, Name: o.Name}.ID()] = f
	}
	for _, o := range a.Nodes {
		ready, _ := readyOf(o)
		all[Ref{Kind: KindNode, Name: o.Name}.ID()] = fields{"ready": yesNo(ready), fieldUID: string(o.UID)}
	}
	for _, o := range a.Fences {
		all[Ref{Kind: KindFence, Name: o.Name}.ID()] = fields{"phase": string(cmp.Or(o.Status.Phase, "Requested")),
			fieldUID: string(o.UID)}
	}
	return all
}

// fieldUID is compared, but not reported.
const fieldUID = "uid"

func (f fields) common(o *metav1.ObjectMeta) {
	f[fieldUID] = string(o.UID)
	f["terminating"] = yesNo(o.DeletionTimestamp != nil)
	f[fieldFinalizers] = strings.Join(slices.Sorted(slices.Values(o.Finalizers)), ",")
}

func yesNo(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}

// Diff is a pure function that returns the changes between two looks at an object and the objects related to it, as
// entries without an ID. at is the time of the second look.
func Diff(before, now Around, at time.Time) (all []Entry) {
	old, current := fieldsOf(before), fieldsOf(now)
	report := func(id, reason, format string, args ...any) {
		all = append(all, Entry{Time: metav1.NewTime(at), Source: sourceWatch, Type: typeChange, Reason: reason,
			Text: wordsOf(id) + " " + fmt.Sprintf(format, args...)})
	}
	for _, id := range slices.Sorted(maps.Keys(current)) {
		was, existed := old[id]
		switch {
		case !existed:
			report(id, "Added", "is there")
		case was[fieldUID] != current[id][fieldUID]:
			report(id, "Replaced", "was deleted, and created again")
		default:
			diffFields(was, current[id], func(reason, format string, args ...any) { report(id, reason, format, args...) })
		}
	}
	for _, id := range slices.Sorted(maps.Keys(old)) {
		if _, exists := current[id]; !exists {
			report(id, "Removed", "is gone")
		}
	}
	return all
}

func diffFields(was, is fields, report func(reason, format string, args ...any)) {
	for _, name := range slices.Sorted(maps.Keys(is)) {
		switch {
		case was[name] == is[name]:
		case name == fieldFinalizers:
			added, removed := compare(items(was[name]), items(is[name]))
			for _, finalizer := range added {
				report("FinalizerAdded", "got finalizer %s", finalizer)
			}
			for _, finalizer := range removed {
				report("FinalizerRemoved", "lost finalizer %s", finalizer)
			}
		case name == "terminating" && is[name] == "yes":
			report("Terminating", "is terminating")
		default:
			report("Changed", "has %s %s instead of %s", name, orNone(is[name]), orNone(was[name]))
		}
	}
}

func orNone(text string) string { return cmp.Or(text, "none") }

func items(list string) []string {
	if list == "" {
		return nil
	}
	return strings.Split(list, ",")
}

func compare(was, is []string) (added, removed []string) {
	for _, item := range is {
		if !slices.Contains(was, item) {
			added = append(added, item)
		}
	}
	for _, item := range was {
		if !slices.Contains(is, item) {
			removed = append(removed, item)
		}
	}
	return added, removed
}

// aboutOf returns the object of an Event in words.
func aboutOf(o *v1.ObjectReference) string {
	kind := map[string]string{"PersistentVolume": "PV", "PersistentVolumeClaim": "Claim"}[o.Kind]
	return strings.TrimSpace(cmp.Or(kind, o.Kind) + " " + strings.TrimPrefix(o.Namespace+"/"+o.Name, "/"))
}

func wordsOf(id string) string {
	kind, name, _ := strings.Cut(id, "/")
	words := map[Kind]string{KindPV: "PV", KindClaim: "Claim", KindPod: "Pod", KindNode: "Node", KindFence: "The fence of",
		KindAttach: "VolumeAttachment"}
	return words[Kind(kind)] + " " + name
}

// Begin returns the entries of the first look, which are the creation times of the objects.
func Begin(a Around) (all []Entry) {
	created := func(ref Ref, at metav1.Time) {
		all = append(all, Entry{ID: "created/" + ref.ID(), Time: at, Source: sourceWatch, Type: typeChange,
			Reason: "Created", Text: wordsOf(ref.ID()) + " was created"})
	}
	for _, o := range a.PVs {
		created(Ref{Kind: KindPV, Name: o.Name}, o.CreationTimestamp)
	}
	for _, o := range a.Claims {
		created(Ref{Kind: KindClaim, Namespace: o.Namespace, Name: o.Name}, o.CreationTimestamp)
	}
	for i := range a.Attachments {
		created(Ref{Kind: KindAttach, Name: a.Attachments[i].Name}, a.Attachments[i].CreationTimestamp)
	}
	SortEntries(all)
	return all
}

func EntryOf(e *v1.Event) Entry {
	entry := Entry{ID: "event/" + string(e.UID), Source: cmp.Or(e.ReportingController, e.Source.Component), Type: e.Type,
		Reason: e.Reason, Text: strings.ReplaceAll(e.Message, "\n", " "), About: aboutOf(&e.InvolvedObject),
		Count: int(max(e.Count, 1))}
	switch {
	case e.Series != nil:
		entry.Time, entry.Count = metav1.NewTime(e.Series.LastObservedTime.Time), int(e.Series.Count)
	case !e.LastTimestamp.IsZero():
		entry.Time = e.LastTimestamp
	case !e.EventTime.IsZero():
		entry.Time = metav1.NewTime(e.EventTime.Time)
	default:
		entry.Time = e.CreationTimestamp
	}
	return entry
}

// SortEntries sorts entries as the timeline shows them, the oldest first. Those of one second stand by their objects.
func SortEntries(all []Entry) {
	slices.SortStableFunc(all, func(a, b Entry) int {
		return cmp.Or(a.Time.Compare(b.Time.Time), cmp.Compare(a.About, b.About), cmp.Compare(a.ID, b.ID))
	})
}

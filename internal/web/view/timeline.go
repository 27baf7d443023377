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

// Diff is a pure function that returns the changes between two looks at an object and the objects related to it, as
// entries without an ID. at is the time of the second look. An object that the first look may have lacked is not new;
// its creation time is then an entry, with an ID. The zero value of before stands for no look.
func Diff(before, now Around, at time.Time) (all []Entry) {
	old, current := byID(before), byID(now)
	report := func(id, reason, format string, args ...any) {
		all = append(all, Entry{Time: metav1.NewTime(at), Source: sourceWatch, Type: typeChange, Reason: reason,
			Text: wordsOf(id) + " " + fmt.Sprintf(format, args...)})
	}
	for _, id := range slices.Sorted(maps.Keys(current)) {
		was, is := old[id], current[id]
		switch {
		case was == nil && before.mayLack(is.Kind):
			all = append(all, creationOf(is)...)
		case was == nil:
			report(id, "Added", "is there")
		case was.UID != is.UID:
			report(id, "Replaced", "was deleted, and created again")
		default:
			diffFields(was.fields, is.fields, func(reason, format string, args ...any) { report(id, reason, format, args...) })
		}
	}
	for _, id := range slices.Sorted(maps.Keys(old)) {
		if current[id] == nil {
			report(id, "Removed", "is gone")
		}
	}
	return all
}

// byID returns the objects that exist.
func byID(a Around) map[string]*Related {
	all := map[string]*Related{}
	for i := range a.Objects {
		if o := &a.Objects[i]; o.fields != nil {
			all[o.ID] = o
		}
	}
	return all
}

func diffFields(was, is map[string]string, report func(reason, format string, args ...any)) {
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

// creationOf returns the entry of an object's creation, nil for a kind whose creation the timeline leaves out.
func creationOf(o *Related) []Entry {
	if o.created == nil {
		return nil
	}
	return []Entry{{ID: "created/" + o.ID, Time: *o.created, Source: sourceWatch, Type: typeChange, Reason: "Created",
		Text: wordsOf(o.ID) + " was created"}}
}

// LeftOut returns the entry of a timeline that has no room for more. at is the time of an entry that is left out.
func LeftOut(most int, at metav1.Time) Entry {
	return Entry{ID: "left-out", Time: at, Source: sourceWatch, Type: typeChange, Reason: "TimelineFull",
		Text: fmt.Sprintf("The timeline has %d entries, and leaves others out. Reload the page for the latest.", most)}
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

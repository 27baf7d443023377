package inuse

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Held is an object as read live by a release.
type Held struct {
	Object
	// IfDeleted is the decision for the case that the object is terminating, has the finalizer, and no other program
	// removes it: RemoveFinalizer if the object is not in use.
	IfDeleted Decision
	// Need is the decision for the same case while another program may manage the finalizer: RemoveFinalizer if every
	// such program would remove it. Only then a terminating object that keeps the finalizer proves anything.
	Need Decision
	// ByOthers means that another finalizer holds the object too, so it does not vanish without this one.
	ByOthers bool
}

// HeldOf returns the object without decisions.
func HeldOf(o metav1.Object, finalizer string) Held {
	return Held{Object: ObjectOf(o, finalizer), ByOthers: slices.ContainsFunc(o.GetFinalizers(),
		func(f string) bool { return f != finalizer })}
}

// Decided returns the object with its decisions, where decide decides on it as if it were terminating and had the
// finalizer.
func (h Held) Decided(decide func(Duty) Decision) Held {
	h.IfDeleted = decide(Duty{Mode: ModeFull, Alone: true})
	h.Need = decide(Duty{Mode: ModeFull, Unanswered: true})
	return h
}

func (h Held) unused() bool { return h.IfDeleted.Action == RemoveFinalizer }

// unusedForAll reports whether every program that manages the finalizer takes the object for unused.
func (h Held) unusedForAll() bool { return h.Need.Action == RemoveFinalizer }

// atRelease is a pure function that returns the step of a release for an object, where alone means that no other
// program manages the finalizer, by proof.
//
// A terminating object that is in use keeps the finalizer: without it, the object would be gone at once, under its
// users.
func atRelease(h Held, alone bool) Decision {
	switch {
	case !h.Protected:
		return Rest(ReasonNoFinalizer)
	case !alone:
		return Rest(ReasonLeftToBuiltIn)
	case h.Terminating && !h.unused():
		return h.IfDeleted
	}
	return Step(RemoveFinalizer, reasonRelease)
}

// witness is a pure function that returns the object that shows whether another program manages the finalizer: an
// object with a need, which such a program would answer in moments. An object without a need (see [Object.Needs]) gets
// one when the finalizer is removed from it, which is harmless if the object is not in use or another finalizer keeps
// it too. An object that another program may consider in use proves nothing: that program is right to leave it alone.
func witness(all []Held) (w Held, found bool) {
	for _, h := range all {
		switch {
		case h.Needs():
			if !h.Terminating || h.unusedForAll() {
				return h, true
			}
		case h.Protected && (h.unusedForAll() || h.ByOthers):
			w, found = h, true
		}
	}
	return w, found
}

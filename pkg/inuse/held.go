package inuse

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Held is an object as a release reads it from the API server.
type Held struct {
	Object
	// IfDeleted is what is decided on it once it is terminating, carries the finalizer, and no other program
	// removes it: RemoveFinalizer if the object is not in use.
	IfDeleted Decision
	// ByOthers: another finalizer holds it as well, so it does not vanish without this one.
	ByOthers bool
}

// HeldOf reads all of it but IfDeleted.
func HeldOf(o metav1.Object, finalizer string) Held {
	return Held{Object: ObjectOf(o, finalizer), ByOthers: slices.ContainsFunc(o.GetFinalizers(),
		func(f string) bool { return f != finalizer })}
}

// unused: it is not in use.
func (h Held) unused() bool { return h.IfDeleted.Action == RemoveFinalizer }

// atRelease says what a release does with an object. alone: it is proven that no other program manages the finalizer.
// It is a pure function.
//
// An object that is in use and terminating keeps the finalizer: without it, the object would be gone at once, under
// its users.
func atRelease(h Held, alone bool) Decision {
	switch {
	case !h.Protected:
		return Rest(ReasonNoFinalizer)
	case !alone:
		return Rest(ReasonLeftToBuiltIn)
	case h.Terminating && !h.unused():
		return h.IfDeleted
	}
	return Step(RemoveFinalizer, ReasonRelease)
}

// witness returns the object that is to show whether anybody else manages the finalizer: one with a need, which all who
// do would answer in moments. One that has none yet (see [Object.Needs]) gets one when the finalizer is removed
// from it, and loses nothing by that, because it is not in use or another finalizer keeps it too. It is a pure
// function.
func witness(all []Held) (w Held, found bool) {
	for _, h := range all {
		switch {
		case h.Needs():
			if !h.Terminating || h.unused() {
				return h, true
			}
		case h.Protected && (h.unused() || h.ByOthers):
			w, found = h, true
		}
	}
	return w, found
}

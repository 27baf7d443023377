package inuse

import "testing"

// heldBy is an object as read live by a release, in use or not.
func heldBy(o Object, used, byOthers bool) Held {
	d := Step(RemoveFinalizer, ReasonUnused)
	if used {
		d = Rest(ReasonInUse)
	}
	return Held{Object: o, ByOthers: byOthers}.Decided(func(Duty) Decision { return d })
}

// endedBy is an object that this program takes for unused, and that another program may take for used.
func endedBy(o Object, byOthers bool) Held {
	return Held{Object: o, ByOthers: byOthers}.Decided(func(d Duty) Decision {
		if !d.Alone {
			return Rest(ReasonLeftToBuiltIn)
		}
		return Step(RemoveFinalizer, ReasonUnused)
	})
}

func TestAtRelease(t *testing.T) {
	going, rests := named("a", true, true), named("a", false, true)
	drop := Step(RemoveFinalizer, reasonRelease)
	for sentence, c := range map[string]struct {
		held  Held
		alone bool
		want  Decision
	}{
		"nothing is known":                 {Held{}, true, Rest(ReasonNoFinalizer)},
		"in use":                           {heldBy(rests, true, false), true, drop},
		"not in use":                       {heldBy(rests, false, false), true, drop},
		"in use, and others may manage it": {heldBy(rests, true, false), false, Rest(ReasonLeftToBuiltIn)},
		"without the finalizer": {heldBy(named("a", false, false), false, false), true,
			Rest(ReasonNoFinalizer)},
		"being deleted, not in use":                   {heldBy(going, false, false), true, drop},
		"being deleted, its user has ended":           {endedBy(going, false), true, drop},
		"being deleted, in use":                       {heldBy(going, true, false), true, Rest(ReasonInUse)},
		"being deleted, in use, held by others too":   {heldBy(going, true, true), true, Rest(ReasonInUse)},
		"being deleted, and others may manage it":     {heldBy(going, false, false), false, Rest(ReasonLeftToBuiltIn)},
		"being deleted, and use of it is not decided": {Held{Object: going}, true, Decision{}},
	} {
		t.Run(sentence, func(t *testing.T) {
			if got := atRelease(c.held, c.alone); got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}

// An object in use could be deleted while it lacks the finalizer.
func TestWitnessIsNeverInUse(t *testing.T) {
	used, unused := heldBy(named("used", false, true), true, false), heldBy(named("unused", false, true), false, false)
	firm := heldBy(named("firm", false, true), true, true)
	bare, going := heldBy(named("bare", false, false), true, false), heldBy(named("going", true, true), false, false)
	kept, gone := heldBy(named("kept", true, true), true, true), heldBy(named("gone", true, false), false, true)
	ended, done := endedBy(named("ended", false, true), false), endedBy(named("done", true, true), true)
	for sentence, c := range map[string]struct {
		all  []Held
		want string
	}{
		"there is nothing":                            {nil, ""},
		"all are in use":                              {[]Held{used, used}, ""},
		"an unused object":                            {[]Held{used, unused, used}, "unused"},
		"an object with another finalizer":            {[]Held{used, firm}, "firm"},
		"an object without the finalizer comes first": {[]Held{unused, bare, firm}, "bare"},
		"a terminating unused object comes first":     {[]Held{unused, going, firm}, "going"},
		"not a terminating object in use":             {[]Held{used, kept}, ""},
		"not a terminating object without it":         {[]Held{used, gone}, ""},
		"its user has ended":                          {[]Held{used, ended}, ""},
		"it is terminating, and its user has ended":   {[]Held{done, used}, ""},
		"its user has ended, another finalizer on it": {[]Held{endedBy(ended.Object, true), used}, "ended"},
		"another is unused for all":                   {[]Held{done, ended, unused}, "unused"},
	} {
		t.Run(sentence, func(t *testing.T) {
			if got, found := witness(c.all); got.Name != c.want || found != (c.want != "") {
				t.Errorf("%q, %v, want %q", got.Name, found, c.want)
			}
		})
	}
}

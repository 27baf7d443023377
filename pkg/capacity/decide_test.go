package capacity

import (
	"testing"
	"time"
)

var noon = time.Unix(1_000_000, 0)

func left(bytes int64) Capacity { return Capacity{Available: Size{bytes, true}} }

// good returns the facts of an item that needs no step, with the changes applied.
func good(changes ...func(*Facts)) Facts {
	s := Facts{
		Class: ClassServed, Segment: Present, OwnerKnown: true,
		Capacity: left(5), Answered: noon.Add(-10 * time.Second), PollInterval: time.Minute,
		Objects: []Object{object("csisc-a")},
	}
	for _, change := range changes {
		change(&s)
	}
	return s
}

func object(name string, changes ...func(*Object)) Object {
	o := Object{Name: name, Ours: true, Owned: true, Capacity: left(5)}
	for _, change := range changes {
		change(&o)
	}
	return o
}

func objects(all ...Object) func(*Facts) { return func(s *Facts) { s.Objects = all } }

func TestDecide(t *testing.T) {
	foreign := func(o *Object) { o.Ours = false }
	leaving := func(o *Object) { o.Terminating = true }
	class := func(c Class) func(*Facts) { return func(s *Facts) { s.Class = c } }
	segment := func(p Presence) func(*Facts) { return func(s *Facts) { s.Segment = p } }
	answer := func(c Capacity) func(*Facts) { return func(s *Facts) { s.Capacity = c } }
	answered := func(at time.Time) func(*Facts) { return func(s *Facts) { s.Answered = at } }
	gone, absent := class(ClassGone), segment(Absent)
	unowned := func(s *Facts) { s.OwnerKnown = false }
	stale := func(s *Facts) { s.Stale = true }
	cases := map[string]struct {
		s      Facts
		action Action
		reason Reason
		object string
		over   bool
	}{
		"nothing is known":       {Facts{Objects: []Object{object("a")}}, Wait, ReasonUnknown, "", false},
		"the class is not known": {good(class(ClassUnknown)), Wait, ReasonUnknown, "", false},
		"the place is not known": {good(segment(PresenceUnknown)), Wait, ReasonUnknown, "", false},
		"all is well":            {good(), Wait, ReasonUpToDate, "", false},
		"the class is gone":      {good(gone), Delete, ReasonClassGone, "csisc-a", false},
		"the class binds at once": {good(class(ClassImmediate)), Delete, ReasonImmediateBinding, "csisc-a",
			false},
		"the place is gone":                     {good(absent), Delete, ReasonSegmentGone, "csisc-a", false},
		"the place is gone, owner known or not": {good(absent, unowned), Delete, ReasonSegmentGone, "csisc-a", false},
		"all is gone, and nothing is left":      {good(gone, objects()), Wait, ReasonClassGone, "", true},
		"objects of others stay when ours are gone": {good(gone, objects(object("b", foreign))), Wait, ReasonClassGone, "",
			true},
		"a terminating object is left alone": {good(absent, objects(object("b", leaving))), Wait, ReasonSegmentGone, "",
			true},
		"two objects say the same": {good(objects(object("a"), object("b"))), Delete, ReasonDuplicate, "b", false},
		"an equal object of another owner": {good(objects(object("a"), object("b", foreign))), Wait, ReasonUpToDate, "",
			false},
		"not asked yet":                     {good(answered(time.Time{})), GetCapacity, ReasonDue, "", false},
		"the answer is old":                 {good(answered(noon.Add(-45 * time.Second))), GetCapacity, ReasonDue, "", false},
		"something happened since":          {good(stale), GetCapacity, ReasonDue, "", false},
		"there is no object":                {good(objects()), Create, ReasonMissing, "", false},
		"the only object has another owner": {good(objects(object("b", foreign))), Create, ReasonMissing, "", false},
		"the only object is being deleted":  {good(objects(object("b", leaving))), Create, ReasonMissing, "", false},
		"there is less":                     {good(answer(left(4))), Update, ReasonChanged, "csisc-a", false},
		"there is nothing, which is not nothing said": {good(answer(left(0)),
			objects(object("a", func(o *Object) { o.Capacity = Capacity{} }))), Update, ReasonChanged, "a", false},
		"one volume may have less": {good(answer(Capacity{left(5).Available, Size{1, true}})), Update, ReasonChanged,
			"csisc-a", false},
		"the owner is missing": {good(objects(object("a", func(o *Object) { o.Owned = false }))), Update, ReasonNotOwned,
			"a", false},
		"the owner is not known": {good(unowned, stale, objects()), Wait, ReasonOwnerUnknown, "", false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			d := Decide(c.s, noon)
			if d.Action != c.action || d.Reason != c.reason || d.Object.Name != c.object || d.Gone != c.over {
				t.Errorf("Decide = %v %s %q over %v", d.Action, d.Reason, d.Object.Name, d.Gone)
			}
			if (d.Reason == ReasonUpToDate) != (d.After == 50*time.Second) {
				t.Errorf("to be decided again in %v", d.After)
			}
		})
	}
}

// TestDecideAllCombinations checks the forbidden decisions for every combination of facts, and that carrying out
// decisions always ends in Wait.
func TestDecideAllCombinations(t *testing.T) {
	all := 0
	each := func(visit func(Facts)) {
		for _, class := range []Class{ClassUnknown, ClassServed, ClassImmediate, ClassGone} {
			for _, place := range []Presence{PresenceUnknown, Present, Absent} {
				for bits := range 1 << 9 {
					bit := func(i int) bool { return bits>>i&1 == 1 }
					s := Facts{Class: class, Segment: place, OwnerKnown: bit(0), Stale: bit(1), PollInterval: time.Minute,
						Capacity: left(5)}
					if bit(2) {
						s.Answered = noon
					}
					for i, name := range []string{"a", "b"} {
						if bit(3 + 3*i) {
							o := object(name, func(o *Object) { o.Ours, o.Owned = bit(4+3*i), s.OwnerKnown && bit(5+3*i) })
							if bit(5) {
								o.Capacity = left(1)
							}
							s.Objects = append(s.Objects, o)
						}
					}
					visit(s)
				}
			}
		}
	}
	each(func(s Facts) {
		all++
		for steps := 0; ; steps++ {
			d := Decide(s, noon)
			if d.Action == Wait {
				break
			}
			if steps > 6 {
				t.Fatalf("no rest: %+v, at last %+v", s, d)
			}
			if (d.Action == Delete || d.Action == Update) && (!d.Object.Ours || d.Object.Terminating) {
				t.Fatalf("%v of an object that is not ours: %+v", d.Action, s)
			}
			wanted := s.Class == ClassServed && s.Segment == Present
			known := s.Class != ClassUnknown && s.Segment != PresenceUnknown
			switch {
			case !known:
				t.Fatalf("%v while nothing is known: %+v", d.Action, s)
			case d.Action == Delete && wanted && len(s.ours()) < 2:
				t.Fatalf("deletes what is to be there: %+v", s)
			case d.Action != Delete && !wanted:
				t.Fatalf("%v where nothing is to be: %+v", d.Action, s)
			case (d.Action == Create || d.Action == Update) && (!s.OwnerKnown || s.due(noon)):
				t.Fatalf("%v before all is known: %+v", d.Action, s)
			}
			s = carriedOut(s, d)
		}
	})
	if all != 4*3*512 {
		t.Errorf("%d combinations", all)
	}
}

// carriedOut returns the facts after a step.
func carriedOut(s Facts, d Decision) Facts {
	var rest []Object
	for _, o := range s.Objects {
		if o.Name != d.Object.Name {
			rest = append(rest, o)
		}
	}
	switch d.Action {
	case GetCapacity:
		s.Answered, s.Stale = noon, false
	case Create:
		s.Objects = append(rest, object("new"))
	case Update:
		s.Objects = append(rest, object(d.Object.Name))
	case Delete:
		s.Objects = rest
	case Wait:
	}
	return s
}

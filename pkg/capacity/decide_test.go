package capacity

import (
	"testing"
	"time"
)

var noon = time.Unix(1_000_000, 0)

func left(bytes int64) Answer { return Answer{Left: Size{bytes, true}} }

// good is a spot where all is as it should be, with the changes.
func good(changes ...func(*Snapshot)) Snapshot {
	s := Snapshot{
		Class: ClassServed, Place: Present, OwnerKnown: true,
		Answer: left(5), Answered: noon.Add(-10 * time.Second), PollInterval: time.Minute,
		Objects: []Object{object("csisc-a")},
	}
	for _, change := range changes {
		change(&s)
	}
	return s
}

func object(name string, changes ...func(*Object)) Object {
	o := Object{Name: name, Ours: true, Owned: true, Answer: left(5)}
	for _, change := range changes {
		change(&o)
	}
	return o
}

func objects(all ...Object) func(*Snapshot) { return func(s *Snapshot) { s.Objects = all } }

func TestDecide(t *testing.T) {
	foreign := func(o *Object) { o.Ours = false }
	leaving := func(o *Object) { o.Terminating = true }
	cases := map[string]struct {
		s      Snapshot
		action Action
		reason Reason
		object string
		over   bool
	}{
		"nothing is known":                            {Snapshot{Objects: []Object{object("a")}}, Wait, ReasonUnknown, "", false},
		"the class is not known":                      {good(func(s *Snapshot) { s.Class = ClassUnknown }), Wait, ReasonUnknown, "", false},
		"the place is not known":                      {good(func(s *Snapshot) { s.Place = PresenceUnknown }), Wait, ReasonUnknown, "", false},
		"all is well":                                 {good(), Wait, ReasonUpToDate, "", false},
		"the class is gone":                           {good(func(s *Snapshot) { s.Class = ClassGone }), Delete, ReasonClassGone, "csisc-a", false},
		"the class binds at once":                     {good(func(s *Snapshot) { s.Class = ClassImmediate }), Delete, ReasonImmediateBinding, "csisc-a", false},
		"the place is gone":                           {good(func(s *Snapshot) { s.Place = Absent }), Delete, ReasonPlaceGone, "csisc-a", false},
		"the place is gone, owner known or not":       {good(func(s *Snapshot) { s.Place, s.OwnerKnown = Absent, false }), Delete, ReasonPlaceGone, "csisc-a", false},
		"all is gone, and nothing is left":            {good(func(s *Snapshot) { s.Class = ClassGone }, objects()), Wait, ReasonClassGone, "", true},
		"what is gone leaves somebody else's":         {good(func(s *Snapshot) { s.Class = ClassGone }, objects(object("b", foreign))), Wait, ReasonClassGone, "", true},
		"what is being deleted is left to that":       {good(func(s *Snapshot) { s.Place = Absent }, objects(object("b", leaving))), Wait, ReasonPlaceGone, "", true},
		"two objects say the same":                    {good(objects(object("a"), object("b"))), Delete, ReasonDuplicate, "b", false},
		"somebody else says the same":                 {good(objects(object("a"), object("b", foreign))), Wait, ReasonUpToDate, "", false},
		"nobody asked yet":                            {good(func(s *Snapshot) { s.Answered = time.Time{} }), Ask, ReasonDue, "", false},
		"the answer is old":                           {good(func(s *Snapshot) { s.Answered = noon.Add(-45 * time.Second) }), Ask, ReasonDue, "", false},
		"something happened since":                    {good(func(s *Snapshot) { s.Stale = true }), Ask, ReasonDue, "", false},
		"there is no object":                          {good(objects()), Create, ReasonMissing, "", false},
		"the only object is somebody else's":          {good(objects(object("b", foreign))), Create, ReasonMissing, "", false},
		"the only object is being deleted":            {good(objects(object("b", leaving))), Create, ReasonMissing, "", false},
		"there is less":                               {good(func(s *Snapshot) { s.Answer = left(4) }), Update, ReasonChanged, "csisc-a", false},
		"there is nothing, which is not nothing said": {good(func(s *Snapshot) { s.Answer = left(0) }, objects(object("a", func(o *Object) { o.Answer = Answer{} }))), Update, ReasonChanged, "a", false},
		"one volume may have less":                    {good(func(s *Snapshot) { s.Answer.Largest = Size{1, true} }), Update, ReasonChanged, "csisc-a", false},
		"the owner is missing":                        {good(objects(object("a", func(o *Object) { o.Owned = false }))), Update, ReasonNotOwned, "a", false},
		"the owner is not known":                      {good(func(s *Snapshot) { s.OwnerKnown, s.Stale = false, true }, objects()), Wait, ReasonOwnerUnknown, "", false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			d := Decide(c.s, noon)
			if d.Action != c.action || d.Reason != c.reason || d.Object.Name != c.object || d.Over != c.over {
				t.Errorf("Decide = %v %s %q over %v", d.Action, d.Reason, d.Object.Name, d.Over)
			}
			if (d.Reason == ReasonUpToDate) != (d.Again == 50*time.Second) {
				t.Errorf("to be decided again in %v", d.Again)
			}
		})
	}
}

// TestDecideOverAllThatCanBe holds, for every combination of facts, what must never be decided, and that
// acting on decisions comes to rest.
func TestDecideOverAllThatCanBe(t *testing.T) {
	all := 0
	each := func(visit func(Snapshot)) {
		for _, class := range []Class{ClassUnknown, ClassServed, ClassImmediate, ClassGone} {
			for _, place := range []Presence{PresenceUnknown, Present, Absent} {
				for bits := range 1 << 9 {
					bit := func(i int) bool { return bits>>i&1 == 1 }
					s := Snapshot{Class: class, Place: place, OwnerKnown: bit(0), Stale: bit(1), PollInterval: time.Minute, Answer: left(5)}
					if bit(2) {
						s.Answered = noon
					}
					for i, name := range []string{"a", "b"} {
						if bit(3 + 3*i) {
							o := object(name, func(o *Object) { o.Ours, o.Owned = bit(4+3*i), s.OwnerKnown && bit(5+3*i) })
							if bit(5) {
								o.Answer = left(1)
							}
							s.Objects = append(s.Objects, o)
						}
					}
					visit(s)
				}
			}
		}
	}
	each(func(s Snapshot) {
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
			wanted := s.Class == ClassServed && s.Place == Present
			known := s.Class != ClassUnknown && s.Place != PresenceUnknown
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

// carriedOut returns what is known after a step.
func carriedOut(s Snapshot, d Decision) Snapshot {
	var rest []Object
	for _, o := range s.Objects {
		if o.Name != d.Object.Name {
			rest = append(rest, o)
		}
	}
	switch d.Action {
	case Ask:
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

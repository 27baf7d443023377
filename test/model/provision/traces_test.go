package provision

import (
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/provision"
)

// reaches searches a world breadth first for a state.
func (w *World) reaches(is func(*state) bool, states int) bool {
	k, first := newWorker(w), w.first()
	seen, frontier := map[state]bool{first: true}, []state{first}
	for at := 0; at < len(frontier) && at < states; at++ {
		s := frontier[at]
		if is(&s) {
			return true
		}
		for o := range k.List(&s) {
			if !seen[*o.To] {
				seen[*o.To] = true
				frontier = append(frontier, *o.To)
			}
		}
	}
	return false
}

// The defects that were found by running programs are moments in worlds that are explored whole: from each, all
// promises are kept, and rest is reached.
func TestTheDefectsThatWereSeenArePlayed(t *testing.T) {
	doubt := func(s *state) bool {
		m := s.lines[0].names[0]
		return provision.Log(m.log) == provision.LogOpen && m.record.sent[0] && !m.record.made && m.record.failed &&
			s.volumes[0][0].there
	}
	for name, tc := range map[string]struct {
		world string
		is    func(*state) bool
	}{
		"1a: the volume is in a zone whose last node goes, and the claim waits": {"zone", func(s *state) bool {
			return doubt(s) && !s.zone && s.claims[0].needy()
		}},
		"1a: and the claim is deleted": {"zone", func(s *state) bool { return doubt(s) && !s.zone && !s.claims[0].exists }},
		"1b: another node is selected, and the volume is on the first": {"node", func(s *state) bool {
			m := s.lines[0].names[0]
			return doubt(s) && s.claims[0].node == 2 && s.volumes[0][0].by.node == 1 && m.entry.count == 2 && m.record.next == 1
		}},
		"2: the class has other parameters, its claim is deleted, and the driver answers InvalidArgument": {"class",
			func(s *state) bool {
				return doubt(s) && s.class == 2 && !s.claims[0].exists
			}},
		"2: or the zone's node is gone": {"zone", func(s *state) bool {
			return doubt(s) && !s.zone && !s.claims[0].exists && s.left.Unfit == 0
		}},
		"4: the first CreateVolume is answered AlreadyExists, and the entry is closed": {"occupied", func(s *state) bool {
			m := s.lines[0].names[0]
			return provision.Log(m.log) == provision.LogAbsent && m.backsOff && s.claims[0].exists
		}},
		"4: and the claim is gone as soon as it is deleted": {"occupied", func(s *state) bool {
			return s.lines[0].names[0].backsOff && !s.claims[0].exists
		}},
		"5: the driver refuses in doubt, and the claim is gone as soon as it is deleted": {"refused", func(s *state) bool {
			m := s.lines[0].names[0]
			return provision.Log(m.log) == provision.LogOpen && m.record.failed && !m.record.settled[0] && s.left.Refuse == 0 &&
				!s.claims[0].exists
		}},
		"the driver has no volume for a node that is gone, and one for another": {"node gone", func(s *state) bool {
			m := s.lines[0].names[0]
			return s.gone && s.volumes[0][0].by.node == 2 && m.entry.count == 2 && m.record.sent[0]
		}},
		"the volume was made for a node that is gone, another is selected, and the first one returns": {"node gone",
			func(s *state) bool {
				return doubt(s) && !s.gone && s.left.Leave == 0 && s.claims[0].node == 2 && s.volumes[0][0].by.node == 1
			}},
		"the first request goes on while the log has no room for the second": {"log full", func(s *state) bool {
			l := s.lines[0]
			return l.names[0].secondFailed && provision.Action(l.calls[0].action) == provision.CreateVolume && s.full &&
				s.claims[0].node == 2
		}},
		"there is no room for the first entry": {"log full", func(s *state) bool {
			return s.full && s.lines[0].names[0].backsOff && s.shards[0][0].entry.claim == 0
		}},
		"a request is repeated without its Secret, and there is a volume": {"Secret", func(s *state) bool {
			return doubt(s) && s.lines[0].calls[0].bare
		}},
		"no entry is opened without a Secret": {"Secret", func(s *state) bool {
			return s.noSecret && s.claims[0].needy() && s.shards[0][0].entry.claim == 0 && s.lines[0].calls[0].stage == idle
		}},
		"another version of the driver rejects the request of a volume that there is": {"driver replaced",
			func(s *state) bool {
				now := s.lines[0].calls[0]
				return doubt(s) && now.stage == answered && now.changed
			}},
	} {
		t.Run(name, func(t *testing.T) {
			w := named(t, tc.world)
			if !w.reaches(tc.is, 100_000) {
				t.Error("this does not happen")
			}
		})
	}
}

// Nothing of ours holds a claim: no step adds a finalizer, and a claim that nobody else holds is gone at once.
func TestNoClaimIsHeld(t *testing.T) {
	for _, w := range Worlds() {
		if w.Guarded || w.Deep {
			continue
		}
		t.Run(w.Name, func(t *testing.T) {
			if w.reaches(func(s *state) bool { return s.claims[0].terminating || s.claims[1].terminating }, 2_000) {
				t.Error("a claim is terminating")
			}
		})
	}
}

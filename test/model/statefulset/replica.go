package statefulset

import (
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/clock"
)

// facts returns the facts with which a replica begins, or works in a session.
func (c *transition) facts(n int, s *work) statefulset.Facts {
	m := c.machine
	f := statefulset.Facts{
		Rules: statefulset.Rules{Removing: c.removing},
		Claim: m.claim(n, s.claim), ClaimRead: clock.ReadAt(s.claimRead), Ordinal: n,
		SetSeen: s.setSeen, SetRead: clock.ReadAt(s.setRead), Shared: s.shared,
		PodSeen: s.podSeen, Pod: m.pod(int(s.name), n, s.pod), PodRead: clock.ReadAt(s.podRead),
		Sight: m.sight(s.sight),
	}
	if s.setSeen != statefulset.Unknown {
		f.SetName = c.setName(int(s.name))
	}
	if s.set > 0 {
		f.Set = m.set(int(s.set-1), s.as)
	}
	if s.otherPod {
		f.OtherPod = c.podName(1-int(s.name), n)
	}
	return f
}

// session returns a session in progress as the engine has it.
func (c *transition) session(n int, s *work) (out statefulset.Session) {
	out.ReadCount, out.Steps, out.Facts = int(s.reads), 1, c.facts(n, s)
	out.Decision = statefulset.Decide(out.Facts, c.machine.now)
	return out
}

func (m *machine) sight(s sight) statefulset.Sight {
	return statefulset.Sight{CondemnedSince: s.condemned.Time(), Added: textOf(s.added), Additions: int(s.additions)}
}

func (m *machine) sightOf(s statefulset.Sight) sight {
	out := sight{condemned: clock.AgeOf(s.CondemnedSince)}
	if m.Counts {
		out.added, out.additions = hashOf(s.Added), uint8(s.Additions)
	}
	return out
}

// with loads the records about a claim into the tracker for the call of do.
func (c *transition) with(i, n int, do func(t *statefulset.Tracker)) {
	m, l := c.machine, &c.lines[i]
	uid := claimUID(n, l.seen.claims[n].uid)
	if l.sessions[n].on {
		uid = claimUID(n, l.sessions[n].claim.uid)
	}
	clear(m.tracker.Claims)
	if l.sights[n] != (sight{}) {
		m.tracker.Claims[uid] = m.sight(l.sights[n])
	}
	do(m.tracker)
	if l.seen.claims[n].uid > 0 && uid == claimUID(n, l.seen.claims[n].uid) {
		l.sights[n] = m.sightOf(m.tracker.Claims[uid])
	}
}

// withSet loads the records about a set into the tracker for the call of do.
func (c *transition) withSet(i, name, slot int, do func(t *statefulset.Tracker)) {
	m, l := c.machine, &c.lines[i]
	clear(m.tracker.Sets)
	if l.quiet[name] != never {
		m.tracker.Sets[setUID(slot)] = statefulset.SetSight{QuietSince: l.quiet[name].Time()}
	}
	do(m.tracker)
	l.quiet[name] = clock.AgeOf(m.tracker.Sets[setUID(slot)].QuietSince)
}

package provision

import (
	"testing"
	"time"
)

func now() time.Time { return time.Unix(1_000_000, 0) }

// living is a claim of ours that is to get its volume; nothing is known beyond.
func living() Snapshot {
	return Snapshot{Protects: true, Claim: Claim{Namespace: "ns", Name: "data", UID: "u1", PVName: "pvc-u1", Ours: true, Protected: true}}
}

// halfMade is a claim that was deleted while its volume was made, and all that a deletion of that
// volume needs.
func halfMade() Snapshot {
	s := living()
	s.Claim.Terminating, s.Tried = true, true
	s.Volume, s.Handle = VolumeMade, "vol-1"
	s.PV, s.PVRead = PVAbsent, now()
	return s
}

// unfit is a claim that lives, and whose volume is not the one that was asked for.
func unfit() Snapshot {
	s := halfMade()
	s.Claim.Terminating, s.Unfit = false, true
	return s
}

// few has so few characters of the UID in the name that another claim may have the same.
func few(s *Snapshot) { s.Claim.UID, s.Claim.PVName = "u12345", "pvc-u1" }

func with(s Snapshot, change func(*Snapshot)) Snapshot { change(&s); return s }

// at is a claim as a process sees it that makes the volumes of one node.
func at(s Snapshot, where At, changes ...func(*Snapshot)) Snapshot {
	s.Claim.At = where
	for _, change := range changes {
		change(&s)
	}
	return s
}

func TestDecide(t *testing.T) {
	unknown := with(halfMade(), func(s *Snapshot) { s.Volume, s.Handle = VolumeUnknown, "" })
	cases := map[string]struct {
		facts  Snapshot
		action Action
		reason Reason
	}{
		"nothing is known": {Snapshot{}, Wait, ReasonNotOurs},
		"another driver's claim is left alone, held or not": {with(living(), func(s *Snapshot) { s.Claim.Ours = false }), Wait, ReasonNotOurs},
		"another driver's claim that is deleted is left alone": {with(living(), func(s *Snapshot) {
			s.Claim.Ours, s.Claim.Terminating = false, true
		}), Wait, ReasonNotOurs},
		"another driver's claim whose PV is stored is let go by that driver's": {with(living(), func(s *Snapshot) { s.Claim.Ours, s.PV = false, PVStored }), Wait, ReasonNotOurs},
		"a volume begun for a claim that became another driver's is cleaned up": {with(halfMade(), func(s *Snapshot) {
			s.Claim.Ours, s.Claim.Terminating = false, false
		}), DeleteVolume, ReasonCleanUp},
		"the finalizer of a claim that became another driver's may be that driver's": {with(halfMade(), func(s *Snapshot) {
			s.Claim.Ours, s.Volume = false, VolumeNone
		}), Wait, ReasonNothing},

		"it is settled first what to ask for":                  {with(living(), func(s *Snapshot) { s.Wanted, s.Claim.Protected = true, false }), Compose, ReasonProvision},
		"then the claim gets the finalizer":                    {with(living(), func(s *Snapshot) { s.Wanted, s.Ordered, s.Claim.Protected = true, true, false }), Protect, ReasonProvision},
		"or none, where none are to be used":                   {with(living(), func(s *Snapshot) { s.Wanted, s.Ordered, s.Claim.Protected, s.Protects = true, true, false, false }), CreateVolume, ReasonProvision},
		"after a restart it is settled anew":                   {with(living(), func(s *Snapshot) { s.Wanted = true }), Compose, ReasonProvision},
		"then the driver is asked":                             {with(living(), func(s *Snapshot) { s.Wanted, s.Ordered = true, true }), CreateVolume, ReasonProvision},
		"then the PV is stored":                                {with(living(), func(s *Snapshot) { s.Wanted, s.Volume = true, VolumeMade }), StorePV, ReasonProvision},
		"then the claim is let go":                             {with(living(), func(s *Snapshot) { s.PV = PVStored }), LetGo, ReasonStored},
		"then nothing is left":                                 {with(living(), func(s *Snapshot) { s.PV, s.Claim.Protected = PVStored, false }), Wait, ReasonStored},
		"without being asked nothing is begun":                 {living(), Wait, ReasonLeftToLibrary},
		"a claim that was never touched waits":                 {with(living(), func(s *Snapshot) { s.Claim.Protected = false }), Wait, ReasonNotBegun},
		"a PV under its name that is another's is waited for":  {with(living(), func(s *Snapshot) { s.Wanted, s.PV = true, PVOther }), Wait, ReasonNameTaken},
		"its own PV that is being deleted is waited for":       {with(living(), func(s *Snapshot) { s.Wanted, s.PV = true, PVTerminating }), Wait, ReasonNameTaken},
		"a claim bound to its own PV, not seen yet, is let go": {with(living(), func(s *Snapshot) { s.Claim.VolumeName = "pvc-u1" }), LetGo, ReasonStored},
		"a claim bound to its own PV, which is gone, gets no other": {with(living(), func(s *Snapshot) {
			s.Claim.VolumeName, s.PV, s.PVRead, s.Wanted, s.Ordered = "pvc-u1", PVAbsent, now(), true, true
		}), LetGo, ReasonStored},
		"nor is the volume of that PV deleted with the claim, for it may be kept": {with(halfMade(), func(s *Snapshot) { s.Claim.VolumeName = "pvc-u1" }), Wait, ReasonOutcomeUnknown},
		"nor is it looked for: it may be there anew, and the claim is held":       {with(unknown, func(s *Snapshot) { s.Claim.VolumeName, s.Ordered = "pvc-u1", true }), Wait, ReasonOutcomeUnknown},
		"of a claim that is gone that is told":                                    {with(unknown, func(s *Snapshot) { s.Claim.VolumeName, s.Claim.Gone = "pvc-u1", true }), Wait, ReasonOutcomeUnknown},
		"not before it is known that its PV is gone":                              {with(unknown, func(s *Snapshot) { s.Claim.VolumeName, s.PV, s.PVRead = "pvc-u1", PVUnknown, time.Time{} }), ReadPV, ReasonCleanUp},
		"where its PV is there the claim goes":                                    {with(unknown, func(s *Snapshot) { s.Claim.VolumeName, s.PV = "pvc-u1", PVStored }), LetGo, ReasonStored},
		"and where the driver has said that nothing was made":                     {with(unknown, func(s *Snapshot) { s.Claim.VolumeName, s.Volume = "pvc-u1", VolumeNone }), LetGo, ReasonStored},
		"nor looked for after a restart":                                          {with(unknown, func(s *Snapshot) { s.Claim.VolumeName, s.Tried = "pvc-u1", false }), LetGo, ReasonStored},
		"a claim that is bound, and not held, is none of ours any more": {with(living(), func(s *Snapshot) {
			s.Claim.VolumeName, s.Claim.Protected = "pvc-u1", false
		}), Wait, ReasonStored},

		"a refused claim is free":                               {with(living(), func(s *Snapshot) { s.Volume, s.Failed = VolumeNone, true }), LetGo, ReasonNothing},
		"a claim that was just protected is not let go":         {with(living(), func(s *Snapshot) { s.Volume = VolumeNone }), Wait, ReasonLeftToLibrary},
		"a refusal that leaves a doubt frees nobody":            {with(living(), func(s *Snapshot) { s.Failed = true }), Wait, ReasonLeftToLibrary},
		"class gone, nothing made: the claim is free":           {with(living(), func(s *Snapshot) { s.Volume, s.ClassGone = VolumeNone, true }), LetGo, ReasonNothing},
		"class gone, volume made: its PV is stored":             {with(living(), func(s *Snapshot) { s.Volume, s.ClassGone = VolumeMade, true }), StorePV, ReasonProvision},
		"class gone, order in memory: what was begun is ended":  {with(living(), func(s *Snapshot) { s.ClassGone, s.Tried, s.Ordered = true, true, true }), CreateVolume, ReasonFinish},
		"class gone after a restart: the claim is held":         {with(living(), func(s *Snapshot) { s.ClassGone = true }), Wait, ReasonOutcomeUnknown},
		"class gone, order in memory, never sent: held as well": {with(living(), func(s *Snapshot) { s.ClassGone, s.Ordered = true, true }), Wait, ReasonOutcomeUnknown},

		"a half-made volume of a deleted claim goes":          {halfMade(), DeleteVolume, ReasonCleanUp},
		"and of one that is gone":                             {with(halfMade(), func(s *Snapshot) { s.Claim.Terminating, s.Claim.Gone = false, true }), DeleteVolume, ReasonCleanUp},
		"and of one that is bound to another PV":              {with(halfMade(), func(s *Snapshot) { s.Claim.Terminating, s.Claim.VolumeName = false, "other" }), DeleteVolume, ReasonCleanUp},
		"not of one that lives":                               {with(halfMade(), func(s *Snapshot) { s.Claim.Terminating = false }), StorePV, ReasonProvision},
		"not before it is known that it has no PV":            {with(halfMade(), func(s *Snapshot) { s.PV, s.PVRead = PVUnknown, time.Time{} }), ReadPV, ReasonCleanUp},
		"not by a look that is too old":                       {with(halfMade(), func(s *Snapshot) { s.PVRead = now().Add(-liveFor - 1) }), ReadPV, ReasonCleanUp},
		"not by a look at the cache":                          {with(halfMade(), func(s *Snapshot) { s.PVRead = time.Time{} }), ReadPV, ReasonCleanUp},
		"not where it has its PV: the claim goes":             {with(halfMade(), func(s *Snapshot) { s.PV = PVStored }), LetGo, ReasonStored},
		"not where it has its PV, which is being deleted":     {with(halfMade(), func(s *Snapshot) { s.PV = PVTerminating }), LetGo, ReasonStored},
		"not where a PV of another name has it":               {with(halfMade(), func(s *Snapshot) { s.Shared = true }), LetGo, ReasonHasAnother},
		"not where another's PV of that name has it":          {with(halfMade(), func(s *Snapshot) { s.PV, s.PVHandle = PVOther, "vol-1" }), LetGo, ReasonHasAnother},
		"but where that PV has another volume":                {with(halfMade(), func(s *Snapshot) { s.PV, s.PVHandle = PVOther, "vol-2" }), DeleteVolume, ReasonCleanUp},
		"a volume whose id is not known is found by its name": {with(unknown, func(s *Snapshot) { s.Ordered = true }), CreateVolume, ReasonCleanUp},
		"for which it must be settled what to ask":            {unknown, Compose, ReasonCleanUp},
		"which cannot be where the class is gone: held":       {with(unknown, func(s *Snapshot) { s.ClassGone = true }), Wait, ReasonOutcomeUnknown},
		"but for what is in memory":                           {with(unknown, func(s *Snapshot) { s.ClassGone, s.Ordered = true, true }), CreateVolume, ReasonCleanUp},
		"a claim that was let go by hand is forgotten":        {with(unknown, func(s *Snapshot) { s.ClassGone, s.Claim.Gone = true, true }), Wait, ReasonOutcomeUnknown},
		"when the volume is deleted the claim goes":           {with(halfMade(), func(s *Snapshot) { s.Volume = VolumeNone }), LetGo, ReasonNothing},
		"after a restart a deleted claim is looked into":      {with(unknown, func(s *Snapshot) { s.Tried, s.PV, s.PVRead = false, PVUnknown, time.Time{} }), ReadPV, ReasonCleanUp},
		"a deleted claim that was never touched is nobody's":  {with(unknown, func(s *Snapshot) { s.Tried, s.Claim.Protected = false, false }), Wait, ReasonNotBegun},
		"nor is one that is gone and was held when it was last seen": {with(unknown, func(s *Snapshot) {
			s.Tried, s.Claim.Terminating, s.Claim.Gone = false, false, true
		}), Wait, ReasonNotBegun},
		"a claim that is gone is not written to":                    {with(halfMade(), func(s *Snapshot) { s.Claim.Gone, s.Volume = true, VolumeNone }), Wait, ReasonNothing},
		"without finalizers a volume is cleaned up from memory":     {with(halfMade(), func(s *Snapshot) { s.Protects, s.Claim.Protected, s.Claim.Gone = false, false, true }), DeleteVolume, ReasonCleanUp},
		"a deleted claim is not provisioned, whoever wants it":      {with(unknown, func(s *Snapshot) { s.Wanted, s.Volume = true, VolumeNone }), LetGo, ReasonNothing},
		"nor is a PV stored for it":                                 {with(halfMade(), func(s *Snapshot) { s.Wanted = true }), DeleteVolume, ReasonCleanUp},
		"a volume that is not what was asked for is looked at":      {with(unfit(), func(s *Snapshot) { s.PV, s.PVRead = PVUnknown, time.Time{} }), ReadPV, ReasonDiscard},
		"and deleted, as it has no PV":                              {unfit(), DeleteVolume, ReasonDiscard},
		"not by a look that was too long ago":                       {with(unfit(), func(s *Snapshot) { s.PVRead = now().Add(-liveFor - 1) }), ReadPV, ReasonDiscard},
		"not where it has a PV of another name":                     {with(unfit(), func(s *Snapshot) { s.Shared = true }), Wait, ReasonHasAnother},
		"not where another claim may have it":                       {with(unfit(), few), Wait, ReasonHasAnother},
		"a claim waits while another has its name in hand":          {with(living(), func(s *Snapshot) { few(s); s.Wanted, s.NameInHand = true, true }), Wait, ReasonNameTaken},
		"so does one that is cleaned up":                            {with(halfMade(), func(s *Snapshot) { few(s); s.NameInHand = true }), Wait, ReasonNameTaken},
		"it is let go where the name's PV is another's":             {with(unknown, func(s *Snapshot) { few(s); s.PV, s.PVHandle, s.Ordered = PVOther, "vol-2", true }), LetGo, ReasonHasAnother},
		"and cleaned up where there is none":                        {with(halfMade(), few), DeleteVolume, ReasonCleanUp},
		"on its own node a claim is begun":                          {at(living(), AtHere, func(s *Snapshot) { s.Wanted, s.Ordered, s.Claim.Protected, s.PV = true, true, false, PVAbsent }), Protect, ReasonProvision},
		"before that, the PV is looked for":                         {at(living(), AtHere, func(s *Snapshot) { s.Wanted, s.Ordered, s.Claim.Protected = true, true, false }), ReadPV, ReasonProvision},
		"one that has its PV on another node is not begun":          {at(living(), AtHere, func(s *Snapshot) { s.Wanted, s.Claim.Protected, s.PV = true, false, PVElsewhere }), Wait, ReasonNameTaken},
		"another node's claim is none of this one's":                {at(living(), AtElsewhere, func(s *Snapshot) { s.Claim.Protected, s.Wanted = false, true }), Wait, ReasonOtherNode},
		"nobody's claim is not begun":                               {at(living(), AtNone, func(s *Snapshot) { s.Claim.Protected, s.Wanted = false, true }), Wait, ReasonNotBegun},
		"given back with nothing made: let go":                      {at(living(), AtNone, func(s *Snapshot) { s.Volume = VolumeNone }), LetGo, ReasonNothing},
		"given back in doubt: held until a node is selected":        {at(living(), AtNone), Wait, ReasonLeftToLibrary},
		"given back with the volume made: its PV is stored":         {at(living(), AtNone, func(s *Snapshot) { s.Volume = VolumeMade }), StorePV, ReasonProvision},
		"given to another node: what was made here goes":            {at(unfit(), AtElsewhere), DeleteVolume, ReasonCleanUp},
		"given to another node, after a restart: looked into":       {at(living(), AtElsewhere), ReadPV, ReasonCleanUp},
		"given to another node, whose PV is there":                  {at(halfMade(), AtElsewhere, func(s *Snapshot) { s.PV, s.PVHandle = PVElsewhere, "vol-2" }), DeleteVolume, ReasonCleanUp},
		"selected again, the claim has a PV on another node":        {at(unfit(), AtHere, func(s *Snapshot) { s.PV, s.PVHandle, s.Unfit = PVElsewhere, "vol-2", false }), DeleteVolume, ReasonCleanUp},
		"a PV on another node that names this volume: kept":         {at(halfMade(), AtElsewhere, func(s *Snapshot) { s.PV, s.PVHandle = PVElsewhere, "vol-1" }), LetGo, ReasonHasAnother},
		"given to another node, but its PV is here: the claim goes": {at(unfit(), AtElsewhere, func(s *Snapshot) { s.PV = PVStored }), LetGo, ReasonStored},
		"bound while on another node: which PV it is, is looked at": {at(living(), AtElsewhere, func(s *Snapshot) { s.Claim.VolumeName = "pvc-u1" }), ReadPV, ReasonCleanUp},
		"bound while on another node, the PV gone: held":            {at(halfMade(), AtElsewhere, func(s *Snapshot) { s.Claim.VolumeName = "pvc-u1" }), Wait, ReasonOutcomeUnknown},
		"bound while here: which PV it is, is looked at":            {at(living(), AtHere, func(s *Snapshot) { s.Claim.VolumeName = "pvc-u1" }), ReadPV, ReasonCleanUp},
		"bound while here, to a PV on another node":                 {at(unfit(), AtHere, func(s *Snapshot) { s.Claim.VolumeName, s.PV, s.PVHandle = "pvc-u1", PVElsewhere, "vol-2" }), DeleteVolume, ReasonCleanUp},
		"bound while here, the PV gone: the claim goes":             {at(unfit(), AtHere, func(s *Snapshot) { s.Claim.VolumeName = "pvc-u1" }), LetGo, ReasonStored},
		"bound while on no node, the PV gone: held":                 {at(halfMade(), AtNone, func(s *Snapshot) { s.Claim.VolumeName = "pvc-u1" }), Wait, ReasonOutcomeUnknown},
		"finalizers that were left are taken off when switched off": {with(living(), func(s *Snapshot) { s.Protects, s.PV = false, PVStored }), LetGo, ReasonStored},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if d := Decide(c.facts, now()); d.Action != c.action || d.Reason != c.reason {
				t.Errorf("Decide = %v %s, want %v %s", d.Action, d.Reason, c.action, c.reason)
			}
		})
	}
}

// each calls visit with every combination of facts that Decide looks at.
func each(visit func(Snapshot)) {
	flags := []bool{false, true}
	for _, claim := range everyClaim() {
		for _, pv := range []PV{PVUnknown, PVStored, PVTerminating, PVOther, PVAbsent, PVElsewhere} {
			for _, read := range []time.Time{{}, now().Add(-time.Hour), now()} {
				for _, volume := range []Volume{VolumeUnknown, VolumeMade, VolumeNone} {
					for _, order := range flags {
						for bits := range 1 << 8 {
							bit := func(n int) bool { return flags[bits>>n&1] }
							s := Snapshot{Claim: claim, PV: pv, PVRead: read, Volume: volume, Ordered: order, Protects: bit(0), Wanted: bit(1),
								ClassGone: bit(2), Shared: bit(3), Tried: bit(4), Failed: bit(5), PVHandle: "vol-2", Unfit: bit(7)}
							if volume == VolumeMade {
								s.Handle = "vol-1"
							}
							if bit(6) {
								s.PVHandle = "vol-1"
							}
							visit(s)
						}
					}
				}
			}
		}
	}
}

func everyClaim() []Claim {
	var all []Claim
	for bits := range 1 << 4 {
		for _, bound := range []string{"", "pvc-u1", "other"} {
			for at := AtCluster; at <= AtElsewhere; at++ {
				all = append(all, Claim{At: at, UID: "u1", PVName: "pvc-u1", VolumeName: bound, Ours: bits&1 > 0, Protected: bits&2 > 0, Terminating: bits&4 > 0, Gone: bits&8 > 0})
			}
		}
	}
	return all
}

// TestNoCombinationLosesAVolumeOrAClaim states what must hold in words of its own.
func TestNoCombinationLosesAVolumeOrAClaim(t *testing.T) {
	visited := 0
	each(func(s Snapshot) {
		visited++
		d := Decide(s, now())
		bad := func(what string) { t.Errorf("%s: %v %s for %+v", what, d.Action, d.Reason, s) }
		bound, at := s.Claim.VolumeName == "pvc-u1", s.Claim.At
		whole := at == AtCluster || at == AtHere
		// A node's cache does not show other nodes' PVs.
		boundHere := bound && whole && s.PV != PVElsewhere && (at == AtCluster || s.PV != PVUnknown)
		lives := !s.Claim.Terminating && !s.Claim.Gone && s.Claim.Ours && s.Claim.VolumeName != "other" &&
			s.PV != PVElsewhere && at != AtElsewhere && (boundHere || !bound)
		ended := s.PV == PVStored || s.PV == PVTerminating || boundHere
		others := s.PV == PVOther || s.PV == PVElsewhere
		switch d.Action {
		case DeleteVolume:
			if s.Handle == "" || s.Volume != VolumeMade {
				bad("deletes a volume that is not known")
			}
			if lives && !s.Unfit {
				bad("deletes the volume of a claim that lives")
			}
			if !s.Claim.Protected && !s.Tried && !s.Unfit {
				bad("deletes a volume without having begun")
			}
			if s.PVRead != now() || s.PV != PVAbsent && (!others || s.PVHandle == s.Handle) {
				bad("deletes a volume that has a PV, or may have one")
			}
			if s.Shared {
				bad("deletes a volume that has a PV of another name")
			}
			if ended || bound && s.PV == PVAbsent {
				bad("deletes a volume that had its PV, which may have been kept")
			}
		case LetGo:
			if s.Volume == VolumeUnknown && !ended {
				bad("lets a claim go while a volume may be left")
			}
			if !lives && s.Tried && s.Volume != VolumeNone && s.PVRead.Equal(now()) && s.PV == PVAbsent && !s.Shared {
				bad("lets a claim go whose volume may have been made after the end of its PV")
			}
			represented := s.Shared || others && s.PVHandle == s.Handle
			if s.Volume == VolumeMade && !ended && !represented {
				bad("lets a claim go while a volume is left")
			}
			if s.Volume == VolumeMade && !ended && represented && s.PVRead != now() {
				bad("takes an old look for a PV")
			}
			if !s.Claim.Protected || s.Claim.Gone {
				bad("takes off what is not there")
			}
			if !s.Claim.Ours && (!ended || !s.Tried) {
				bad("takes off what may be another driver's")
			}
		case StorePV:
			if !lives || s.Volume != VolumeMade || s.Unfit {
				bad("stores a PV for a claim that needs none, or without a volume")
			}
		case CreateVolume:
			if !s.Ordered {
				bad("asks for a volume without knowing which")
			}
			if ended {
				bad("asks for the volume of a PV that is stored")
			}
			if s.Protects && (!s.Claim.Protected || s.Claim.Gone) && !s.Tried {
				bad("asks for a first volume of a claim that nothing holds")
			}
			if lives && !s.Wanted && !s.Tried {
				bad("begins what nobody wants")
			}
			if at != AtCluster && s.PV == PVUnknown && s.Volume == VolumeUnknown && d.Reason == ReasonProvision {
				bad("asks for a volume that another node may have made")
			}
			if !whole && !s.Claim.Protected && !s.Tried {
				bad("begins a volume for which this node was not selected")
			}
		case Protect:
			if !lives || s.Claim.Protected || !s.Protects || !s.Wanted || !whole {
				bad("protects a claim that is not to be")
			}
		case SelectNode:
			bad("is no step for a volume")
		case Wait, Compose, ReadPV:
		}
		if d.Over && s.Tried && s.Volume == VolumeUnknown && s.PV == PVAbsent && !lives && s.Claim.Ours && d.Reason != ReasonOutcomeUnknown {
			bad("forgets in silence what may be left")
		}
		if d.Over && s.Claim.Protected && !s.Claim.Gone && s.Claim.Ours {
			bad("forgets a claim that is still held")
		}
		if d.Reason.Sentence() == "" {
			bad("has no sentence")
		}
	})
	if visited < 100_000 {
		t.Errorf("only %d combinations", visited)
	}
}

func TestEveryReasonHasASentence(t *testing.T) {
	for _, r := range Reasons() {
		if r.Sentence() == "" {
			t.Errorf("%s means nothing", r)
		}
	}
}

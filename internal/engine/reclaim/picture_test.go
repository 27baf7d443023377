package reclaim

import (
	"slices"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/docs"
	"github.com/csi-reclaimer/csi-reclaimer/test/docs/picture"
)

// The actors of docs/pictures/orders-of-deletion.svg.
const (
	people = iota
	apiServer
	reclaimer
	csiDriver
)

// told is a scene that is drawn step by step.
type told struct {
	scene
	drawn *picture.Sequence
	last  Reason
}

// happens makes something happen, and draws it together with the decisions that follow.
func (s *told) happens(t *testing.T, what happening) {
	t.Helper()
	if !what.do(&s.scene) {
		t.Fatalf("it cannot happen: %s", what.what)
	}
	s.drawn.Does(people, apiServer, what.what)
	s.drawn.Tell(reclaimer, s.next)
}

func (s *told) next() picture.Step {
	d := Decide(s.s, now())
	step := picture.Step{Reason: string(d.Reason), Sentence: d.Reason.Sentence(), Waits: d.Action == Wait,
		Settled: d.Reason == ReasonGone, Reads: slices.Contains([]Action{ReadSecrets, ReadClaim, ReadPV}, d.Action)}
	step.Words, step.To = inWords(d.Action)
	if !step.Waits {
		carryOut(&s.scene, d)
	}
	s.settle(d)
	s.last = d.Reason
	return step
}

// inWords returns a step in words, and its target.
func inWords(a Action) (words string, to int) {
	switch a {
	case Wait:
		return "", reclaimer
	case AddFinalizer:
		return "adds the finalizer to the PV", apiServer
	case ReadSecrets:
		return "the Secrets", apiServer
	case ReadClaim:
		return "the claim", apiServer
	case ReadPV:
		return "the PV", apiServer
	case DeleteVolume:
		return "DeleteVolume", csiDriver
	case DeletePV:
		return "deletes the PV", apiServer
	case FinalizePV:
		return "removes the finalizer: the PV goes", apiServer
	default:
		panic(a.String() + " is not drawn")
	}
}

// ordersOfDeletion draws both orders, each from a PV that is protected.
func ordersOfDeletion(t *testing.T) *picture.Sequence {
	t.Helper()
	drawn := &picture.Sequence{
		Title: "The two orders of deletion",
		Description: "csi-reclaimer adds a finalizer to a PV once it is bound. If the claim is deleted first, the volume " +
			"is deleted at once. If the PV is deleted first, csi-reclaimer waits until the claim is deleted too. In both " +
			"orders the Secrets, the claim and the PV are read before DeleteVolume, and the PV goes after its volume.",
		Lanes: []string{"people, controllers", "API server", "csi-reclaimer", "CSI driver"},
	}
	drawn.Section("A volume is made")
	s := told{scene: made(), drawn: drawn}
	drawn.Tell(reclaimer, s.next)
	s.happens(t, bindClaim())
	protected := s
	drawn.Section("The claim is deleted first")
	s.happens(t, deleteClaim())
	claimFirst := s.last
	s = protected
	drawn.Section("The PV is deleted first")
	s.happens(t, deletePV())
	s.happens(t, deleteClaim())
	if claimFirst != ReasonGone || s.last != ReasonGone {
		t.Errorf("the stories end with %s and %s", claimFirst, s.last)
	}
	return drawn
}

func TestPictureMatchesDecisions(t *testing.T) {
	docs.CheckPicture(t, "orders-of-deletion", ordersOfDeletion(t))
}

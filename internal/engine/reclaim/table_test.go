package reclaim

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/pvclaim"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/docs"
)

// The tables of docs/explanation/concepts.md are explored, so that no row is written by hand. From a PV that was just
// created, each step of Decide is carried out in a small world, where people and controllers do one thing at a time.

// scene is the state of the world, and the facts about it.
type scene struct {
	s Facts
	// claim: it exists.
	claim bool
}

// happening is an action of others; it returns false where it cannot happen.
type happening struct {
	what string
	do   func(*scene) bool
}

func bindClaim() happening {
	return happening{"the claim is bound", func(w *scene) bool {
		if w.s.PV.Phase != volume.PhaseAvailable || !w.claim {
			return false
		}
		w.s.PV.Phase = volume.PhaseBound
		return true
	}}
}

func deleteClaim() happening {
	return happening{"the claim is deleted", func(w *scene) bool {
		if w.s.PV.Phase != volume.PhaseBound {
			return false
		}
		w.claim, w.s.PV.Phase = false, volume.PhaseReleased
		return true
	}}
}

func deletePV() happening {
	return happening{"the PV is deleted", func(w *scene) bool {
		if w.s.PV.Terminating {
			return false
		}
		w.s.PV.Terminating = true
		return true
	}}
}

func retain() happening {
	return happening{"the policy is turned to Retain", func(w *scene) bool {
		if w.s.PV.Policy == volume.PolicyRetain {
			return false
		}
		w.s.PV.Policy = volume.PolicyRetain
		return true
	}}
}

func hold(held bool, what string) happening {
	return happening{what, func(w *scene) bool {
		if w.s.PV.Held == held || w.s.PV.Policy != volume.PolicyDelete {
			return false
		}
		w.s.PV.Held = held
		return true
	}}
}

func detach() happening {
	return happening{"it is detached", func(w *scene) bool {
		if w.s.Attachments == 0 {
			return false
		}
		w.s.Attachments = 0
		return true
	}}
}

// carryOut carries out a decision with a successful answer.
func carryOut(w *scene, d Decision) {
	s := &w.s
	order := max(s.ClaimRead.Order, s.PVRead.Order, s.PVsListed.Order) + 1
	switch d.Action {
	case AddFinalizer:
		s.PV.HasFinalizer, s.History.SeenProtected = true, true
	case RemoveFinalizer, FinalizePV:
		s.PV.HasFinalizer, s.Done.Finalized = false, d.Action == FinalizePV
	case ReadSecrets:
		s.SecretsRead = true
	case ListAttachments:
		s.AttachmentsCurrent = true
	case ListPVs:
		s.PVsListed = read(order, 0)
	case ReadClaim:
		s.ClaimRead = read(order, 0)
		s.Claim = pvclaim.Result{Of: s.PV.Claim, Found: w.claim, UID: s.PV.Claim.UID}
	case ReadPV:
		s.PVRead = read(order, 0)
	case DeleteVolume:
		s.Done.VolumeDeleted, s.Done.Claim = true, s.PV.Claim
	case DeletePV:
		s.Done.PVDeleted, s.PV.Terminating = true, true
	default:
		panic(d.Action.String() + " is not told")
	}
}

// settle removes a PV that no finalizer holds any more, and forgets the reads of a run at its end. Kubernetes' own
// finalizer holds a bound PV.
func (w *scene) settle(d Decision) {
	s := &w.s
	if s.PV.Terminating && !s.PV.HasFinalizer && s.PV.Phase != volume.PhaseBound && !s.End.Gone {
		s.End = End{Gone: true, Final: true}
	}
	if d.Action == Wait {
		s.Claim, s.ClaimRead, s.PVRead, s.PVsListed = pvclaim.Result{}, session.Read{}, session.Read{}, session.Read{}
		s.SecretsRead, s.AttachmentsCurrent = false, false
	}
}

// diagram is the result of an exploration, by reason.
type diagram struct {
	steps map[Reason][]Action
	edges map[[2]Reason][]string
}

// made returns a PV that a provisioner has just created for a claim.
func made() scene {
	pv := released().PV
	pv.HasFinalizer, pv.Phase = false, volume.PhaseAvailable
	return scene{s: Facts{Rules: owner(), Leading: true, PV: pv, Brake: BrakeOff,
		Memory: Memory{History: History{SeenAlive: true}}}, claim: true}
}

// used returns a PV that is bound and protected, and whose volume is attached to a node.
func used() scene {
	w := made()
	w.s.PV.Phase, w.s.PV.HasFinalizer, w.s.PV.WasAttached, w.s.Attachments,
		w.s.History.SeenProtected = volume.PhaseBound, true, true, 1, true
	return w
}

// explore visits all that can follow. If hasty, others do not wait until a step is carried out.
func explore(first scene, hasty bool, happenings ...happening) diagram {
	g := diagram{map[Reason][]Action{}, map[[2]Reason][]string{}}
	seen := map[string]bool{}
	for open := []scene{first}; len(open) > 0; open = open[1:] {
		w := open[0]
		d := Decide(w.s, now())
		follow := func(next scene, what string) {
			next.settle(d)
			after := Decide(next.s, now())
			if edge := [2]Reason{d.Reason, after.Reason}; d.Reason != after.Reason && !slices.Contains(g.edges[edge], what) {
				g.edges[edge] = append(g.edges[edge], what)
			}
			if key := fmt.Sprintf("%+v", next); !seen[key] {
				seen[key] = true
				open = append(open, next)
			}
		}
		if d.Action != Wait {
			if !slices.Contains(g.steps[d.Reason], d.Action) {
				g.steps[d.Reason] = append(g.steps[d.Reason], d.Action)
			}
			next := w
			carryOut(&next, d)
			follow(next, "`"+d.Action.String()+"`")
		}
		for _, h := range happenings {
			if next := w; (d.Action == Wait || hasty && !w.s.Done.VolumeDeleted) && !w.s.End.Gone && h.do(&next) {
				follow(next, h.what)
			}
		}
	}
	return g
}

// table returns the diagram as a table: the steps for each reason, and the reasons that follow, with their causes.
func (g diagram) table() string {
	var text strings.Builder
	text.WriteString("| reason | steps | what happens | next reason |\n|---|---|---|---|\n")
	for _, from := range Reasons() {
		steps := make([]string, len(g.steps[from]))
		for i, step := range g.steps[from] {
			steps[i] = "`" + step.String() + "`"
		}
		for _, to := range Reasons() {
			if what := g.edges[[2]Reason{from, to}]; len(what) > 0 {
				fmt.Fprintf(&text, "| `%s` | %s | %s | `%s` |\n", from, strings.Join(steps, ", "), strings.Join(what, ", or "), to)
				steps = nil
			}
		}
	}
	return text.String()
}

func TestTablesMatchDecide(t *testing.T) {
	docs.CheckPart(t, "explanation/concepts.md", "both orders", explore(made(), false, bindClaim(), deleteClaim(),
		deletePV()).table())
	docs.CheckPart(t, "explanation/concepts.md", "what keeps a volume", explore(used(), false, deleteClaim(), deletePV(),
		retain(), hold(true, "it is held"), hold(false, "it is not held any more"), detach()).table())
	docs.CheckPart(t, "explanation/concepts.md", "deleted before it was protected",
		explore(made(), true, bindClaim(), deleteClaim(), deletePV()).table())
}

// TestTablesFollowDecide shows that the rows follow the code.
func TestTablesFollowDecide(t *testing.T) {
	g := explore(made(), false, bindClaim(), deleteClaim(), deletePV())
	for _, edge := range [][2]Reason{{ReasonBound, ReasonTerminatingBound}, {ReasonBound, ReasonReclaim},
		{ReasonTerminatingBound, ReasonReclaim}, {ReasonVolumeDeleted, ReasonGone}} {
		if len(g.edges[edge]) == 0 {
			t.Errorf("no row leads from %s to %s", edge[0], edge[1])
		}
	}
	if steps := g.steps[ReasonReclaim]; !slices.Equal(steps, []Action{ReadSecrets, ReadClaim, ReadPV, DeleteVolume}) {
		t.Errorf("the steps of a deletion are told as %v", steps)
	}
	for edge := range g.edges {
		if edge[1] == ReasonReclaim && edge[0] != ReasonBound && edge[0] != ReasonTerminatingBound {
			t.Errorf("a deletion begins after %s", edge[0])
		}
	}
}

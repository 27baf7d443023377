package reclaim

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/search"
)

// Scenario writes a finding down as a scenario that test/faults can play with the real
// programs, the story as comments. What users do, what breaks, and when the watches tell is
// played; when a worker reconciles a PV cannot be seen from outside, and is left to the program.
func (w *World) Scenario(f search.Finding, name string) ([]byte, error) {
	out := &bytes.Buffer{}
	fmt.Fprintf(out, "# %s\n#\n", f.Promise)
	for i, line := range w.Story(f.Moves) {
		fmt.Fprintf(out, "#%4d. %s\n", i+1, line)
	}
	steps, err := w.steps(movesOf(f.Moves))
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(out, "name: %s\ndescription: >-\n  %s.\nsteps:\n", name, f.Promise)
	for _, s := range steps {
		fmt.Fprintf(out, "- {do: %s}\n", s)
	}
	return out.Bytes(), nil
}

// steps returns the steps of a scenario, written after "do: ".
func (w *World) steps(moves []move) (steps []string, err error) {
	k := newWorker(w)
	now := w.first(k.machine)
	for slot, def := range w.PVs {
		if def.Late {
			continue
		}
		steps = append(steps, w.making(slot))
		if !def.Unprotected {
			steps = append(steps, "wait, volume: "+def.Name+", for: protected")
		}
	}
	steps = append(steps, breaking(moves)...)
	held := false
	for i, m := range moves {
		after, err := k.follow(&now, m)
		if err != nil {
			return nil, err
		}
		delivered := i+1 < len(moves) && moves[i+1].verb == watchDelivers
		if after.behind(w) && !held && !delivered && !now.behind(w) {
			steps = append(steps, "hold, resource: persistentvolumes")
			held = true
		}
		if s := w.step(m, after); s != "" {
			steps = append(steps, s)
		}
		if held && !after.behind(w) {
			steps = append(steps, "release, resource: persistentvolumes")
			held = false
		}
		now = *after
	}
	return steps, nil
}

// breaking returns the steps that have calls fail as they do in the story.
func breaking(moves []move) (steps []string) {
	var api, driver []string
	count := map[string]int{}
	for _, m := range moves {
		base := m.verb &^ 31
		if base < readAnswered || base == callAnswered {
			continue
		}
		action := reclaim.Action(m.verb - base)
		verb, resource := requestOf(action)
		if base == readAnswered || base == callArrives {
			count[verb+resource]++
			continue
		}
		// An answer that is lost is one of a call that has arrived, and was counted then.
		effect, after, nth := "reset", "", count[verb+resource]+1
		if base == answerLost {
			effect, after, nth = "drop-answer", ", afterWork: true", nth-1
		} else {
			count[verb+resource]++
		}
		if action == reclaim.DeleteVolume {
			driver = append(driver, fmt.Sprintf("{method: DeleteVolume, nth: %d, action: fail, code: Unavailable%s}", nth,
				after))
		} else {
			api = append(api, fmt.Sprintf("{verb: %s, resource: %s, nth: %d, effect: %s}", verb, resource, nth, effect))
		}
	}
	if len(api) > 0 {
		steps = append(steps, "api, rules: ["+strings.Join(api, ", ")+"]")
	}
	if len(driver) > 0 {
		steps = append(steps, "driver, calls: ["+strings.Join(driver, ", ")+"]")
	}
	return steps
}

func requestOf(action reclaim.Action) (verb, resource string) {
	switch action {
	case reclaim.ReadClaim:
		return "get", "persistentvolumeclaims"
	case reclaim.ReadPV, reclaim.ReadSiblings:
		return "get", "persistentvolumes"
	case reclaim.ListPVs:
		return "list", "persistentvolumes"
	case reclaim.ListAttachments:
		return "list", "volumeattachments"
	case reclaim.DeletePV:
		return "delete", "persistentvolumes"
	case reclaim.DeleteVolume:
		return "DeleteVolume", ""
	default:
		return "patch", "persistentvolumes"
	}
}

// follow makes one move.
func (k *worker) follow(s *state, m move) (*state, error) {
	k.followed, k.result, k.s = &m, nil, s
	k.moves(s)
	if k.result == nil {
		return nil, fmt.Errorf("%q is not possible there", k.tellMove(m))
	}
	return k.result, nil
}

func (s *state) behind(w *World) bool {
	for i := range w.Replicas {
		if s.lines[i].nChanges > 0 {
			return true
		}
	}
	return false
}

func (w *World) making(slot int) string {
	def := w.PVs[slot]
	made := "make, volume: " + def.Name + ", kind: static, policy: " + policyName(def.Policy)
	if def.Dynamic {
		made = strings.Replace(made, "static", "dynamic", 1)
	}
	if first := w.volume(slot); first != slot {
		made += ", of: " + w.PVs[first].Name
	}
	if def.Unprotected {
		made += ", mayLeak: true"
	}
	if def.Late {
		made += ", unclaimed: true"
	}
	return made
}

func policyName(p volume.Policy) string {
	if p == volume.PolicyDelete {
		return "Delete"
	}
	return "Retain"
}

// step returns what a move is in a scenario: nothing for what cannot be seen from outside.
func (w *World) step(m move, after *state) string {
	of := ", volume: " + w.PVs[m.slot].Name
	if after.gens[m.slot] == 0 {
		return "" // a claim of a PV that nobody has brought in yet
	}
	steps := map[verb]string{
		userDeletesPV: "delete-pv", userDeletesClaim: "delete-claim", userRecreatesClaim: "recreate-claim",
		userRestoresClaim: "restore-claim", userBindsAgain: "bind-again", userStrips: "strip-finalizer",
		userTakesBack: "take-back", podAttaches: "attach", podDetaches: "detach",
	}
	if step, ok := steps[m.verb]; ok {
		return step + of
	}
	switch m.verb {
	case userTurnsPolicy:
		return "set-policy" + of + ", policy: " + policyName(after.pvs[m.slot].policy)
	case userCreatesPV:
		return w.making(m.slot)
	case controllerReleases:
		return "wait" + of + ", for: released"
	case controllerBinds:
		return "wait" + of + ", for: bound"
	case processEnds, processNotices:
		return "kill"
	case processStarts:
		return "start"
	case watchStartsAnew:
		return "cut, resource: persistentvolumes"
	default:
		return ""
	}
}

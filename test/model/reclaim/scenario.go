package reclaim

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/search"
)

// Scenario writes a finding down as a scenario that test/faults can play with the real
// programs, the trace as comments. What users do, what breaks, and when the watches tell is
// played; when a worker reconciles a PV cannot be seen from outside, and is left to the program.
func (w *World) Scenario(f search.Finding, name string) []byte {
	out := &bytes.Buffer{}
	fmt.Fprintf(out, "# %s\n#\n", f.Promise)
	for i, line := range f.Trace {
		fmt.Fprintf(out, "#%4d. %s\n", i+1, line)
	}
	fmt.Fprintf(out, "name: %s\ndescription: >-\n  %s.\nsteps:\n", name, f.Promise)
	for _, s := range w.steps(f.Moves) {
		fmt.Fprintf(out, "- {do: %s}\n", s)
	}
	return out.Bytes()
}

// steps returns the steps of a scenario, written after "do: ".
func (w *World) steps(moves []search.Move) (steps []string) {
	for slot, def := range w.PVs {
		if def.Late {
			continue
		}
		steps = append(steps, w.making(slot))
		if !def.Unprotected {
			steps = append(steps, "wait, volume: "+def.Name+", for: protected")
		}
	}
	options := slices.Collect(newWorker(w).Replay(moves))
	steps = append(steps, breaking(options)...)
	held, wasBehind := false, false
	for i, o := range options {
		behind := o.To.behind(w)
		delivered := i+1 < len(options) && options[i+1].Move.verb == watchDelivers
		if behind && !held && !delivered && !wasBehind {
			steps = append(steps, "hold, resource: persistentvolumes")
			held = true
		}
		if s := w.step(o.Move, o.To); s != "" {
			steps = append(steps, s)
		}
		if held && !behind {
			steps = append(steps, "release, resource: persistentvolumes")
			held = false
		}
		wasBehind = behind
	}
	return steps
}

// breaking returns the steps that have calls fail as they do in the trace.
func breaking(options []search.Option[state, move]) (steps []string) {
	var api, driver []string
	count := map[string]int{}
	for _, o := range options {
		outcomes, action := callOf(o.Move.verb)
		verb, resource := requestOf(action)
		if outcomes == arrived {
			count[verb+resource]++
			continue
		}
		if outcomes == noCall {
			continue
		}
		// An answer that is lost is one of a call that has arrived, and was counted then.
		effect, after, nth := "reset", "", count[verb+resource]+1
		if outcomes == lost {
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

// outcome is the effect of a move on a call.
type outcome uint8

const (
	noCall outcome = iota
	// arrived means that the call is carried out, a read together with its answer.
	arrived
	failed
	lost
)

// callOf returns the effect of a move on a call, and the action of the call.
func callOf(v verb) (outcome, reclaim.Action) {
	for of, verbs := range [][]verb{arrived: callArrives, failed: callFails, lost: answerLost} {
		if at := slices.Index(verbs, v); at >= 0 {
			return outcome(of), reclaim.Action(at)
		}
	}
	if at := slices.Index(callAnswered, v); at >= 0 && isRead(reclaim.Action(at)) {
		return arrived, reclaim.Action(at)
	}
	return noCall, 0
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

func (s *state) behind(w *World) bool {
	for i := range w.Replicas {
		if s.lines[i].changes.Len() > 0 {
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

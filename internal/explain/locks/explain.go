package locks

import (
	"fmt"
	"strings"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/pods"
)

// PodFacts holds the results of all reads about one pod, and about the locks that it waits for.
type PodFacts struct {
	pods.Facts
	// Locks holds the facts about the locks of the pod's namespace. They are only read for a pod with the gate.
	Locks explain.Read[Facts]
	// Holder holds the facts about the terminating pod that the pod waits for. The Value is nil if that pod is gone.
	Holder explain.Read[*pods.Facts]
}

func (f PodFacts) waitsForPod() (explain.Pod, bool) {
	i := f.Locks.Value.index()
	p := explain.PodOf(f.Pod)
	return i.waitsForPod(p, i.ofGate(p))
}

// ExplainPod is a pure function that explains a pod, and for a gated pod the reason why it is not scheduled. If the
// pod that it waits for is terminating, Holder explains that pod too, but goes no further.
func ExplainPod(f PodFacts) explain.Explanation {
	s := pods.Explain(f.Facts)
	p := explain.PodOf(f.Pod)
	if !p.Gated || p.Terminating {
		return s
	}
	age := explain.Age(f.Now, p.Created)
	s.AddFact("Gate", "%s, for %s", singlenode.Gate, age)
	explain.NoteUnread(&s, f.Locks, "Locks", "which pod the pod waits for")
	if !f.Locks.OK() {
		return s
	}
	i := f.Locks.Value.index()
	v := i.ofGate(p)
	d := v.decision()
	s.Decision = &d
	s.Unread = append(s.Unread, i.unread()...)
	if v.waitsFor != "" {
		s.AddWait("%s", v.waitsFor)
	}
	i.adviseGuard(&s)
	if other, found := i.waitsForPod(p, v); found && other.Terminating {
		if v.Reason == singlenode.ReasonClaimInUse {
			adviseConfirm(&s, p.Namespace, v.Claim)
		}
	} else if v.Reason == singlenode.ReasonClaimInUse {
		s.Advise("See the lock, and who else waits for it: kubectl reclaim explain pvc/%s -n %s", v.Claim, p.Namespace)
	}
	addHolder(&s, f.Holder)
	s.Headline = fmt.Sprintf("Pod %s/%s has been waiting to be scheduled for %s (%s): %s", p.Namespace, p.Name, age,
		v.Reason, v.text)
	return s
}

// ClaimFacts holds the results of all reads about the lock of one claim.
type ClaimFacts struct {
	Claim Claim
	// Locks holds the facts about the locks of the claim's namespace. They are only read for a claim that has a lock, or
	// may get one.
	Locks explain.Read[Facts]
	// Holder holds the facts about the lock's pod, if it is terminating. The Value is nil if that pod is gone.
	Holder explain.Read[*pods.Facts]
}

// has reports whether the claim has a lock's annotation or finalizer.
func (c Claim) has() bool { return c.Locked || c.Kept }

func (f ClaimFacts) holder() (explain.Pod, bool) { return f.Locks.Value.index().holderOf(f.Claim) }

// AddLock adds to the explanation of a claim the pod that has its lock, the pods that wait for the lock, and the
// condition that frees it. It has no other effect.
func AddLock(s *explain.Explanation, f ClaimFacts) {
	explain.NoteUnread(s, f.Locks, "Locks", "which pod has the lock of the claim, and which wait for it")
	if !f.Locks.OK() {
		return
	}
	i, now := f.Locks.Value.index(), f.Locks.Value.Now
	if !f.Claim.has() {
		s.AddFact("Lock", "%s", i.withoutLock(f.Claim))
		return
	}
	v := i.ofLock(f.Claim)
	waits := waitingOf(ListOf(f.Locks.Value).GatedPods)
	row := i.lockRow(f.Claim, waits[key{f.Claim.Namespace, f.Claim.Name}])
	s.AddFact("Lock", "%s", row.words(now))
	var waiting []string
	for _, w := range row.Waiting {
		waiting = append(waiting, fmt.Sprintf("pod %s for %s", w.Pod, explain.Age(now, w.Since.Time)))
	}
	if len(waiting) > 0 {
		s.AddFact("Waiting", "%s", strings.Join(waiting, ", "))
	}
	s.Unread = append(s.Unread, i.unread()...)
	d := v.decision()
	if s.Decision == nil {
		s.Decision = &d
		if len(waiting) > 0 || v.Reason.Waits() {
			s.Headline = strings.TrimSuffix(s.Headline, ".") + fmt.Sprintf(" (%s): %s", v.Reason, v.text)
		}
	}
	if row.WaitsFor != "" && len(waiting) > 0 {
		s.AddWait("%s, before another pod can use the claim", row.WaitsFor)
	}
	i.adviseGuard(s)
	if holder, found := f.holder(); found && holder.Terminating && v.Action == singlenode.Wait {
		adviseConfirm(s, f.Claim.Namespace, f.Claim.Name)
	}
	addHolder(s, f.Holder)
}

func (i *index) withoutLock(c Claim) string {
	if i.claim(c).Unasked {
		return "none: no lock is requested"
	}
	return "none: no pod has it"
}

// words describes the lock's holder, its node and age, and the reason.
func (l Lock) words(now time.Time) string {
	text := "names no pod"
	if l.Holder != "" {
		text = "pod " + l.Holder
	}
	if l.Node != "" {
		text += ", node " + l.Node
	}
	if l.Since != nil {
		text += ", for " + explain.Age(now, l.Since.Time)
	}
	return text + " (" + l.Reason + ")"
}

func (i *index) adviseGuard(s *explain.Explanation) {
	if explain.GuardIsAway(i.Guards, i.Now) {
		s.Advise("Start volume-guard with the controller single-node: without it no lock is freed, and no pod with the " +
			"gate is scheduled")
	}
}

func adviseConfirm(s *explain.Explanation, namespace, claim string) {
	s.Advise("Only if you know that the processes of the pod that has the lock cannot run, and nothing else helps: "+
		"kubectl reclaim confirm pvc/%s -n %s", claim, namespace)
}

func addHolder(s *explain.Explanation, holder explain.Read[*pods.Facts]) {
	explain.NoteUnread(s, holder, "The pod that is waited for", "why it waits")
	if holder.Value != nil {
		its := pods.Explain(*holder.Value)
		s.Holder = &its
	}
}

// Confirmable is a pure function that returns the terminating pod that keeps the lock of a claim, so that a person's
// confirmation of the end of its processes frees the lock. It returns an [explain.RefusalError] if the claim has no
// such pod.
func Confirmable(f Facts, namespace, claim string) (explain.Pod, error) {
	what, of := "claim "+namespace+"/"+claim, " -n "+namespace
	refuse := func(cause, next string) (explain.Pod, error) {
		return explain.Pod{}, &explain.RefusalError{Cause: what + ": " + cause, Next: next}
	}
	i := f.index()
	c, found := i.claims[key{namespace, claim}]
	if !found {
		return refuse("no claim has this name", "find its name: kubectl reclaim locks"+of)
	}
	v := i.ofLock(c)
	holder, exists := i.holderOf(c)
	of = holder.Name + of
	switch {
	case v.Reason == singlenode.ReasonFree:
		return refuse("no pod has its lock, so there is nothing to confirm",
			"see which pods use it: kubectl reclaim explain pvc/"+claim+" -n "+namespace)
	case v.Action == singlenode.FreeLock, !exists:
		return refuse("volume-guard frees its lock by itself: "+v.text, "see whether it has: kubectl reclaim locks -n "+
			namespace)
	case holder.Terminating:
		return holder, nil
	case holder.Node == "":
		return refuse("pod "+holder.Name+" has its lock, and waits to be scheduled: it has no processes that could run on",
			fmt.Sprintf("see why it waits: kubectl reclaim explain pod/%s; or delete it: kubectl delete pod %s", of, of))
	}
	return refuse(fmt.Sprintf("pod %s has its lock, and is not being deleted: %s", holder.Name, v.text),
		fmt.Sprintf("delete the pod, which waits for the end of its processes: kubectl delete pod %s; then, if it stays and "+
			"you know that they cannot run, run the same command again", of))
}

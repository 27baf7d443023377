package locks

import (
	"fmt"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
)

// RefusalError is the reason why a lock's pod cannot be confirmed, and the next step.
type RefusalError struct{ Cause, Next string }

func (r *RefusalError) Error() string { return r.Cause }

// NextStep returns the action open to a person.
func (r *RefusalError) NextStep() string { return r.Next }

// Confirmable is a pure function that returns the terminating pod that keeps the lock of a claim, so that a person's
// confirmation of the end of its processes frees the lock. It returns a [RefusalError] if the claim has no such pod.
func Confirmable(f Facts, namespace, claim string) (explain.Pod, error) {
	what, of := "claim "+namespace+"/"+claim, " -n "+namespace
	refuse := func(cause, next string) (explain.Pod, error) {
		return explain.Pod{}, &RefusalError{Cause: what + ": " + cause, Next: next}
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

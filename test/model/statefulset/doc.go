// Package statefulset explores, to exhaustion within named bounds, the claims of StatefulSets, and checks each step:
//
//   - S1: no claim is deleted that its policy keeps, neither by volume-guard nor through an owner reference from
//     volume-guard. A claim goes when its set, of the same UID, said Delete while the claim had a pod, says Delete, and
//     does not have the ordinal; or when the set says Delete and is deleted with its dependents. A grace period passes
//     before a claim without a pod is deleted. Claims that have had no pod stay, including restored claims with the
//     annotations of another claim. Held claims, claims with another owner, and all claims of a set that is deleted
//     without its dependents stay as well.
//   - S2: every deleted claim and pod is the one that was judged.
//   - L1: every state leads to rest, and at rest no claim is left that the policy condemns.
//   - L2: at rest no set lacks a pod, unless it waits for a person, which is reported.
//   - L3: at rest nothing of volume-guard is left on claims and sets that do not need it.
//
// The model runs the shipped code of volume-guard: the records of its tracker, its decisions, and the calls and replies
// of its sessions. The model plays everything around it: the API server with its watches, which lag separately for each
// object and replica; the StatefulSet controller of kube-controller-manager 1.36, with and without the feature gate
// StatefulSetAutoDeletePVC; the garbage collector, PVC protection, the scheduler and the kubelet; users and
// administrators; and chance, which breaks every component that can break.
//
// The model keeps its own history of each claim. For set and pod, the last read of the deleting session counts, since
// the API server has no precondition across objects. If a user changes the set after that, the consequences are
// excused: the claim is terminating while the set is scaled up again, which is reported, or it has an owner that is
// gone by now. The preconditions of a write to the claim make everything else exact. A pod counts until volume-guard
// has seen that it is gone, so a change of the policy at that moment is as good as one before it.
//
// # What is taken for granted
//
// Watches can skip states, as after a list. A sync of the StatefulSet controller is one move. It decides from lagging
// caches, so an event between its writes is equivalent to an event after them. Other controllers read the objects of
// their decisions. The StatefulSet controller does its pending work before volume-guard takes the set for quiet. Reads
// do not become too old, which only lets more happen, and waits do not differ in length: a grace period has passed or
// not. A write with an older resourceVersion counts as up to date if the object has the same content again. Sets have
// one template, because the decision about a claim does not depend on another claim.
//
// Every world has further constants, and names them. worlds.go has the bounds, and world.go the contents of a world.
// manager.go, cluster.go, people.go and guard.go have the moves, and objects.go and replica.go make facts of the
// engine. invariants.go has the promises, independently of their implementation, and trace.go prints the history of a
// finding. The histories in traces_test.go show observations of Kubernetes, and the same situations with volume-guard.
package statefulset

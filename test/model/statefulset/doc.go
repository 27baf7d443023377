// Package statefulset explores, to exhaustion within named bounds, what can happen to the claims of StatefulSets,
// and judges each step:
//
//   - S1: no claim is deleted that its policy keeps, neither by volume-guard nor through an owner reference that it
//     has added. A claim goes when its set, of the same UID, said Delete while the claim had a pod, says Delete, and
//     does not have the ordinal; or when the set says Delete and is deleted with its dependents. Before a claim
//     without a pod is deleted a grace period passes. Claims that have had no pod stay, also restored ones with
//     the annotations of another; and so do those that somebody holds or that have another owner, and all claims of a
//     set that is deleted without its dependents.
//   - S2: no claim and no pod is deleted other than the one that was judged.
//   - L1: every state leads to rest, and at rest no claim is left that the policy condemns.
//   - L2: at rest no set lacks a pod, unless that waits for a person, which is reported.
//   - L3: at rest nothing of volume-guard is left on claims and sets that do not need it.
//
// volume-guard in it is the code that ships: what its tracker records, what it
// decides, and what its sessions ask and learn. Played are those who answer: the API server with its watches, which
// lag for each object and replica on their own; the StatefulSet controller of kube-controller-manager 1.36, with and
// without the feature gate StatefulSetAutoDeletePVC; the garbage collector, PVC protection, the scheduler and the
// kubelet; users and administrators; and chance, which breaks what can break.
//
// The judge keeps its own history of each claim. Of set and pod counts what the session that deletes has read last:
// the API server has no precondition across objects. What follows if a user changes the set after that is excused:
// the claim is terminating while the set is scaled up again, which is reported, or has an owner that has gone
// meanwhile. What binds a write to the claim makes the rest exact. A pod counts until volume-guard has seen that it
// is gone, so that a policy that is turned at that moment is as good as one that was turned before it.
//
// # What is taken for granted
//
// Watches can skip what was between two states, as after a list. A sync of the StatefulSet controller is one move:
// it decides from caches, which lag, so what happens between its writes is as if it had happened after it. Other
// controllers read what they decide on. The StatefulSet controller, if it has something to do, does it before
// volume-guard takes the set for quiet. Reads do not become too old, which only lets more happen, and neither do
// waits differ in length: a grace period has passed or not. A write whose resourceVersion is an older one counts as
// up to date if the object is the same again. Sets have one template: what is decided of a claim does not depend on
// another.
//
// Every world holds more constant, and says what. worlds.go has the bounds; world.go is what exists in one;
// manager.go, cluster.go, people.go and guard.go are the moves; objects.go and replica.go make facts of the engine;
// judge.go holds the promises, apart from how the code keeps them; story.go says how something came about. The
// histories of stories_test.go show what was seen of Kubernetes, and what volume-guard makes of it.
package statefulset

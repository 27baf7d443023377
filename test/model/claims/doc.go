// Package claims explores, to exhaustion within named bounds, what can happen to claims while their
// volumes are made, and judges each step: no volume is left that neither a PV nor a held claim
// remembers (P1), no volume is deleted that a living claim has or gets (P2), and every state leads to
// rest, with no claim held but one of which nothing can be known (P5).
//
// The provisioner in it is the code that ships: [provision.Decide], what a run does and learns, what
// the event handlers wake. Played are those who answer: the API server with its watches, which lag for
// each replica and kind of object on their own; kube-controller-manager; users; the driver; the lease;
// the library, whose queue, retries and claims in progress are as in its ProvisionController; and
// chance, which breaks what can break. So is whoever reclaims, simply and faithfully: the volume of a
// PV whose claim is gone is deleted, and then the PV; what becomes of PVs otherwise is the matter of
// test/model. There are no clones, Secrets and nodes here.
//
// A step that waits for an answer is kept as what went in, and is carried out anew when the answer is
// there: the code that ships is called as it is.
//
// # What is taken for granted
//
// A driver keeps the calls for one volume name apart, as the CSI specification has it (ABORTED): while a call
// of a process that has ended is at work, others are told so, and it may still do its work. And a
// leader whose lease another has taken sends the driver nothing new, whatever it still writes to
// the API server: a process that stalls between its decision and its CreateVolume for longer than its
// lease could make a volume for a claim that is gone, and nobody would know.
//
// worlds.go lists the bounds; world.go is what exists in one; cluster.go and sidecar.go are the
// moves; judge.go holds the promises, told apart from how the code keeps them; story.go tells how
// something came about.
//
// All of it needs the build tag model, which opens pkg/provision to it.
package claims

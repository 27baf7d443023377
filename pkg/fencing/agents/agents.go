package agents

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// hashed returns a name for an object that is unique to the fence and to of.
func hashed(prefix string, ask fencing.Ask, of any) string {
	hash := fnv.New64a()
	_, _ = fmt.Fprintf(hash, "%s/%v", ask.UID, of) // never fails
	return fmt.Sprintf("%s-%016x", prefix, hash.Sum64())
}

func action(ask fencing.Ask) string {
	if ask.Run.Undo {
		return "unfence"
	}
	return "fence"
}

const (
	// FenceLabel on the object of an agent is the UID of its NodeFence.
	FenceLabel = "csi-reclaimer.io/fence"
	// nodeAnnotation is the name of the node, which may be too long for a label.
	nodeAnnotation = "csi-reclaimer.io/fence-node"
	// attemptAnnotation is the number of the attempt that has created the object.
	attemptAnnotation = "csi-reclaimer.io/fence-attempt"
	// bootAnnotation is the boot ID of the node at the beginning of that attempt.
	bootAnnotation = "csi-reclaimer.io/fence-boot-id"
)

func labelsOf(ask fencing.Ask) map[string]string {
	return map[string]string{FenceLabel: string(ask.UID), kube.NoBackup: "true"} // restored, it would fence by itself
}

func annotationsOf(ask fencing.Ask) map[string]string {
	return map[string]string{nodeAnnotation: ask.Node, attemptAnnotation: attempt(ask), bootAnnotation: ask.BootID}
}

func attempt(ask fencing.Ask) string { return strconv.Itoa(int(ask.Run.Attempt)) }

// owner returns an owner reference to the NodeFence, so that the object of a run is deleted with it.
func owner(ask fencing.Ask) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeFence", Name: ask.Node,
		UID: ask.UID}
}

// errForeign means that an object with the expected name was not created for this fence.
var errForeign = errors.New("it was not created for this NodeFence: delete it, or give one of the two another name")

// owns reports whether an object was created for the fence.
func owns(ask fencing.Ask, o metav1.Object) bool { return o.GetLabels()[FenceLabel] == string(ask.UID) }

// only returns options that restrict a deletion to this very object.
func only(o metav1.Object) metav1.DeleteOptions {
	return metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(o.GetUID()))}
}

// Runner starts agents and reads their results from the API server. Its methods are safe for concurrent use.
type Runner struct {
	clients kubernetes.Interface
	dynamic dynamic.Interface
	mapper  meta.RESTMapper
	// discoveries limits how often a kind that the mapper lacks has it discover all kinds again.
	discoveries flowcontrol.RateLimiter
}

// NewRunner returns a Runner with these clients, and a mapper that finds the resource of a kind.
func NewRunner(clients kubernetes.Interface, dynamic dynamic.Interface, mapper meta.RESTMapper) *Runner {
	return &Runner{clients: clients, dynamic: dynamic, mapper: mapper,
		discoveries: flowcontrol.NewTokenBucketRateLimiter(float32(1/discoveryGap.Seconds()), 1)}
}

// kind is the common interface of the three kinds of agents, for calls about the object of one run.
type kind interface {
	read(ctx context.Context, ask fencing.Ask) (fencing.RunFacts, error)
	// start starts the run, and succeeds if it was already started.
	start(ctx context.Context, ask fencing.Ask) error
	// stop ends the run, and succeeds if it does not exist.
	stop(ctx context.Context, ask fencing.Ask) error
}

var errNoKind = errors.New("it has neither job nor remediation nor networkFence")

func (a *Runner) kind(agent v1alpha1.Agent) (kind, error) {
	switch {
	case agent.Job != nil:
		return jobs{a.clients}, nil
	case agent.Remediation != nil:
		return remediations{a}, nil
	case agent.NetworkFence != nil:
		return networkFences{a}, nil
	}
	return nil, errNoKind
}

// Read returns the state of the run of ask. If the read fails, the state is RunUnknown and the message is the error,
// and the run still ends at its time limit.
func (a *Runner) Read(ctx context.Context, ask fencing.Ask) fencing.RunFacts {
	k, err := a.kind(ask.Agent)
	var facts fencing.RunFacts
	if err == nil {
		facts, err = k.read(ctx, ask)
	}
	if err != nil {
		return fencing.RunFacts{Message: explain("read", ask, err).Error()}
	}
	return facts
}

// Start starts the run of ask, and succeeds if it was already started.
func (a *Runner) Start(ctx context.Context, ask fencing.Ask) error {
	k, err := a.kind(ask.Agent)
	if err == nil {
		err = k.start(ctx, ask)
	}
	return explain("start", ask, err)
}

// Stop ends the run of ask, and succeeds if it does not exist. It removes the object of a run that has ended.
func (a *Runner) Stop(ctx context.Context, ask fencing.Ask) error {
	k, err := a.kind(ask.Agent)
	if err == nil {
		err = k.stop(ctx, ask)
	}
	return explain("stop", ask, err)
}

func explain(what string, ask fencing.Ask, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s agent %q of NodeFence %q: %w", what, ask.Run.Agent, ask.Node, err)
}

var notStarted, unknown = fencing.RunFacts{State: fencing.RunAbsent}, fencing.RunFacts{}

func facts(state fencing.RunState, message string) (fencing.RunFacts, error) {
	return fencing.RunFacts{State: state, Message: message}, nil
}

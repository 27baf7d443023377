package main

import (
	"errors"
	"net"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/nodes"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/leaks"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
)

// withNextStep formats an error in one line, followed by the next step if one is known.
func withNextStep(err error) string {
	text := printers.EscapeTerminal(strings.ReplaceAll(suggesting(err.Error()), "\n", "; "))
	if step := nextStep(err); step != "" {
		return text + "\nnext: " + step
	}
	return text
}

// suggesting puts cobra's suggestions for a command, which have a line each, into one.
func suggesting(text string) string {
	text, suggested, found := strings.Cut(text, "\n\nDid you mean this?\n")
	if !found {
		return text
	}
	return text + ": did you mean " + strings.Join(strings.Fields(suggested), " or ") + "?"
}

// flagError is an error of a command's flags.
type flagError struct {
	error
	command string
}

func (e *flagError) Unwrap() error { return e.error }

// NextStep names the help.
func (e *flagError) NextStep() string { return "see its flags: " + e.command + " --help" }

func nextStep(err error) string {
	var network net.Error
	var address *url.Error
	var advising interface{ NextStep() string }
	if errors.As(err, &advising) {
		return advising.NextStep()
	}
	for _, known := range ownSteps() {
		if errors.Is(err, known.err) {
			return known.step
		}
	}
	switch {
	case strings.HasPrefix(err.Error(), "unknown command "):
		return "see the commands: kubectl reclaim --help"
	case apierrors.IsNotFound(err):
		return "find its name: kubectl get pv, or kubectl get pvc,pod,statefulset -A (set the namespace with -n)"
	case apierrors.IsForbidden(err):
		return "ask for the permission (docs/reference/kubectl-reclaim-permissions.md lists them), or use another " +
			"--context or --as"
	case apierrors.IsUnauthorized(err):
		return "log in to the cluster again, or use another --context"
	case errors.As(err, &network), errors.As(err, &address):
		return "check the connection to the cluster: kubectl cluster-info (--kubeconfig, --context, --server)"
	}
	return ""
}

type errorStep struct {
	err  error
	step string
}

// ownSteps lists the errors of this program, which may wrap an error of the API server. The first match counts.
func ownSteps() []errorStep {
	const look = "kubectl reclaim explain node/NAME"
	return []errorStep{
		{errReplaced, "see whether a new pod has its name: kubectl get pod -o wide"},
		{errChanged, "run the same command again, to see the current risks of a force deletion"},
		{errNodeChanged, "run the same command again, to see its current effect"},
		{errNoTerminal, "run it in a terminal, or add --yes; --dry-run=server only tries it"},
		{errNotConfirmed, "answer as the question says, or add --yes; --dry-run changes nothing"},
		{errNoObject, "name its kind and namespace: kubectl reclaim explain node/NAME, or pvc/NAME -n NAMESPACE; to list " +
			"waiting objects: kubectl reclaim list -A"},
		{errNoReport, "check that csi-reclaimer runs there with --leak-check-interval and --http-endpoint (--port), and is " +
			"the leader; or fetch the report yourself: docs/how-to/find-leaks.md"},
		{reclaim.ErrFinalizerRestored, "remove that policy or webhook, or the driver from it, and run the same command " +
			"again: it continues with the remaining PVs"},
		{leaks.ErrRefused, "see the volume in the report: kubectl reclaim leaks -o wide"},
		{leaks.ErrNotReleased, "check that kube-controller-manager runs, and run the same command again"},
		{explain.ErrNoFencing, "install deploy/manifests/node-fencing-crd.yaml, and run volume-guard with " +
			"--controllers=*,node-fencing"},
		{nodes.ErrFenced, "see why it waits: " + look + "; to end it: kubectl reclaim unfence NAME"},
		{nodes.ErrNotFenced, "see which nodes have one: kubectl reclaim fences; to ask for one: kubectl reclaim fence NAME"},
		{nodes.ErrEnding, "see how far it is: " + look},
		{nodes.ErrReady, "look at the node: " + look + "; if you mean it, add --even-if-ready"},
		{nodes.ErrControlPlane, "if you mean it, and the other nodes have a quorum without it, add --allow-control-plane"},
		{nodes.ErrNoNode, "find its name: kubectl get nodes"},
		{errNotGone, "check that volume-guard runs with --controllers=*,node-fencing, and run the same command again"},
		{errNotProven, "read the reports of the agents: " + look},
		{errWaitOver, "read the reports of the agents: " + look},
		{errFenceOver, "see its final state: " + look},
	}
}

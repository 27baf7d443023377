package cli

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

// ErrorText formats an error in one line, followed by the next step if one is known.
func ErrorText(err error) string {
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

// stepError is an error with its next step. An error that wraps it, and has a step of its own, goes before it.
type stepError struct {
	error
	step string
}

func (e *stepError) Unwrap() error { return e.error }

// NextStep returns the step, as the errors of internal/explain do.
func (e *stepError) NextStep() string { return e.step }

// NewError returns an error of this program and its next step.
func NewError(text, step string) error { return WithStep(errors.New(text), step) }

// WithStep adds the next step to an error.
func WithStep(err error, step string) error { return &stepError{err, step} }

func nextStep(err error) string {
	var network net.Error
	var address *url.Error
	var advising interface{ NextStep() string }
	if errors.As(err, &advising) {
		return advising.NextStep()
	}
	for _, known := range foreignSteps() {
		if errors.Is(err, known.error) {
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

// foreignSteps lists the errors of other packages, which may wrap an error of the API server. The first match counts.
func foreignSteps() []stepError {
	const look = "kubectl reclaim explain node/NAME"
	return []stepError{
		{reclaim.ErrFinalizerRestored, "remove that policy or webhook, or the driver from it, and run the same command " +
			"again: it continues with the remaining PVs"},
		{leaks.ErrRefused, "see the volume in the report: kubectl reclaim leaks -o wide"},
		{leaks.ErrNotReleased, "check that kube-controller-manager runs, and run the same command again"},
		{explain.ErrNoFencing, "install deploy/manifests/node-fencing-crd.yaml, and run volume-guard with " +
			"--controllers=*,node-fencing"},
		{nodes.ErrFenced, "see why it waits: " + look + "; to end it: kubectl reclaim unfence NAME"},
		{nodes.ErrNotFenced, "see which nodes have one: kubectl reclaim fences; to ask for one: kubectl reclaim fence NAME " +
			"--reason=TEXT"},
		{nodes.ErrEnding, "see how far it is: " + look},
		{nodes.ErrReady, "look at the node: " + look + "; if you mean it, add --even-if-ready"},
		{nodes.ErrControlPlane, "if you mean it, and the other nodes have a quorum without it, add --allow-control-plane"},
		{nodes.ErrNoNode, "find its name: kubectl get nodes"},
	}
}

package main

import (
	"errors"
	"net"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/leaks"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
)

// withNextStep returns an error in one line, with the next step where it is known.
func withNextStep(err error) string {
	text := printers.EscapeTerminal(strings.ReplaceAll(err.Error(), "\n", "; "))
	if step := nextStep(err); step != "" {
		return text + "\nnext: " + step
	}
	return text
}

func nextStep(err error) string {
	var network net.Error
	var address *url.Error
	var unfinished *unfinishedError
	switch {
	case errors.As(err, &unfinished):
		return unfinished.nextStep()
	case errors.Is(err, errReplaced):
		return "see whether a new pod has its name: kubectl get pod -o wide"
	case errors.Is(err, errChanged):
		return "run the same command again, to see what a force deletion risks now"
	case errors.Is(err, errNoTerminal):
		return "run it in a terminal, or add --yes; --dry-run=server only tries it"
	case errors.Is(err, errNoReport):
		return "check that csi-reclaimer runs there with --leak-check-interval and --http-endpoint (--port), and is the " +
			"leader; or fetch the report yourself: docs/how-to/find-leaks.md"
	case apierrors.IsNotFound(err):
		return "find its name: kubectl get pv, or kubectl get pvc,pod -A (for a claim or a pod, set its namespace with -n)"
	case apierrors.IsForbidden(err):
		return "ask for the permission (docs/reference/kubectl-reclaim.md lists what each command needs), or use another " +
			"--context or --as"
	case apierrors.IsUnauthorized(err):
		return "log in to the cluster again, or use another --context"
	case errors.Is(err, reclaim.ErrFinalizerRestored):
		return "remove that policy or webhook, or the driver from it, and run the same command again: it continues with " +
			"the remaining PVs"
	case errors.Is(err, leaks.ErrRefused):
		return "see the volume in the report: kubectl reclaim leaks -o wide"
	case errors.Is(err, leaks.ErrNotReleased):
		return "check that kube-controller-manager runs, and run the same command again"
	case errors.Is(err, errNotConfirmed):
		return "answer as the question says, or add --yes; --dry-run changes nothing"
	case errors.As(err, &network), errors.As(err, &address):
		return "check the connection to the cluster: kubectl cluster-info (--kubeconfig, --context, --server)"
	}
	return ""
}

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

// withNextStep returns an error in one line, and what a person can do about it where that is known.
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
	switch {
	case errors.Is(err, errNoReport):
		return "see whether csi-reclaimer runs there with --audit-interval and --http-endpoint (--port), and leads; or fetch the report yourself: docs/how-to/find-leaks.md"
	case apierrors.IsNotFound(err):
		return "look for its name: kubectl get pv, or kubectl get pvc -A (a claim wants its namespace: -n)"
	case apierrors.IsForbidden(err):
		return "ask for the right to read it (docs/reference/kubectl-reclaim.md names the rights), or use another --context or --as"
	case apierrors.IsUnauthorized(err):
		return "log in to the cluster again, or use another --context"
	case errors.Is(err, reclaim.ErrPutBack):
		return "remove that policy or webhook, or the driver from it, and run the same command again: it goes on with what is left"
	case errors.Is(err, leaks.ErrRefused):
		return "see what the report says of it: kubectl reclaim audit -o wide"
	case errors.Is(err, leaks.ErrNotReleased):
		return "see whether kube-controller-manager runs, and run the same command again"
	case errors.Is(err, errNotConfirmed):
		return "answer y, or add --yes; --dry-run shows the plan alone"
	case errors.As(err, &network), errors.As(err, &address):
		return "see whether the cluster can be reached: kubectl cluster-info (--kubeconfig, --context, --server)"
	}
	return ""
}

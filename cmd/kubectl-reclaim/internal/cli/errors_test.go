package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/nodes"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/leaks"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
)

func TestErrorNextSteps(t *testing.T) {
	own := NewError("x", "as it says")
	pvs := schema.GroupResource{Resource: "persistentvolumes"}
	for sentence, c := range map[string]struct {
		err  error
		want string
	}{
		"not there":     {apierrors.NewNotFound(pvs, "a"), "kubectl get pv"},
		"not allowed":   {apierrors.NewForbidden(pvs, "a", errors.New("x")), "ask for the permission"},
		"not known":     {apierrors.NewUnauthorized("x"), "log in"},
		"put back":      {reclaim.ErrFinalizerRestored, "run the same command again"},
		"refused":       {leaks.ErrRefused, "kubectl reclaim leaks"},
		"not released":  {leaks.ErrNotReleased, "kube-controller-manager"},
		"not confirmed": {ErrNotConfirmed, "--yes"},
		"no fencing":    {fmt.Errorf("x: %w", explain.ErrNoFencing), "--controllers=*,node-fencing"},
		"fenced":        {nodes.ErrFenced, "kubectl reclaim unfence"},
		"not fenced":    {nodes.ErrNotFenced, "kubectl reclaim fences"},
		"ending":        {nodes.ErrEnding, "kubectl reclaim explain"}, "ready": {nodes.ErrReady, "--even-if-ready"},
		"control plane": {nodes.ErrControlPlane, "--allow-control-plane"}, "no node": {nodes.ErrNoNode, "kubectl get nodes"},
		"own and fenced":    {errors.Join(own, nodes.ErrFenced), "as it says"},
		"own and not there": {fmt.Errorf("x: %w: %w", own, apierrors.NewNotFound(pvs, "a")), "as it says"},
		"no terminal":       {ErrNoTerminal, "--yes"},
		"no answer":         {context.DeadlineExceeded, "kubectl cluster-info"},
		"something else":    {errors.New("a\nb"), "a; b"},
		"deep in another":   {fmt.Errorf("read: %w", apierrors.NewNotFound(pvs, "a")), "kubectl get pv"},
	} {
		if got := ErrorText(c.err); !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", sentence, got, c.want)
		}
	}
}

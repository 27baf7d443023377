package confirm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/kubectl-reclaim/internal/cli"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/nodes"
)

// errNodeChanged means that the facts behind the shown plan have changed.
var errNodeChanged = cli.NewError("the node, its pods or its fence changed since they were shown: nothing was changed",
	"run the same command again, to see its current effect")

// fenceChange is the common part of the commands that change a fence: they show the effect, ask, and make the change.
type fenceChange struct{ cli.Change }

func newFenceChange(s *cli.Plugin) fenceChange { return fenceChange{cli.Change{Plugin: s}} }

func (c *fenceChange) flags(cmd *cobra.Command) { c.AddFlags(cmd, "Do not ask.", "request") }

// check returns the effect of a change on these facts, or an error if it should not be made.
type check func(nodes.Facts) (nodes.Plan, error)

// agree shows the node and the effect of the change, and asks, except with --dry-run and --yes. It returns the last
// facts read, on which the change still has the shown effect.
func (c *fenceChange) agree(ctx context.Context, f nodes.Facts, of check) (nodes.Facts, nodes.Plan, error) {
	plan, err := of(f)
	if err != nil {
		return f, plan, err
	}
	_ = cli.WriteExplanation(c.Out, nodes.Explain(f), false) // an error means that the output is closed
	c.show(plan)
	if asks, err := c.MustAsk(); !asks || err != nil {
		return f, plan, err
	}
	if err := c.MustType(ctx, fmt.Sprintf("To do this, type the name of the node (%s):", f.Name), f.Name); err != nil {
		return f, plan, err
	}
	f, err = c.again(ctx, f, plan, of)
	return f, plan, err
}

func (c *fenceChange) show(p nodes.Plan) {
	fmt.Fprintln(c.Out)
	for _, effect := range p.Effects {
		cli.PrintLine(c.Out, "- "+effect, false)
	}
	cli.PrintWarnings(c.Out, p.Costs)
}

// again reads the node again, and returns an error if the change no longer has the shown effect, or if the node has
// another fence.
func (c *fenceChange) again(ctx context.Context, f nodes.Facts, shown nodes.Plan, of check) (nodes.Facts, error) {
	now := nodes.Read(ctx, c.Cluster, f.Name)
	plan, err := of(now)
	if err != nil || !reflect.DeepEqual(plan, shown) || uidOf(now) != uidOf(f) {
		return f, errors.Join(errNodeChanged, err)
	}
	return now, nil
}

// carryOut shows the effect of a change to the spec of a node's fence, asks, and makes the change. spec gets the UID of
// the NodeFence.
func (c *fenceChange) carryOut(ctx context.Context, node, what string, of check,
	spec func(uid types.UID) map[string]any) error {
	f, plan, err := c.agree(ctx, nodes.Read(ctx, c.Cluster, node), of)
	if errors.Is(err, nodes.ErrDone) {
		cli.PrintLine(c.Out, fmt.Sprintf("Node %s: %v.", node, err), false)
		return nil
	}
	var text []byte
	if err == nil {
		text, err = json.Marshal(spec(uidOf(f)))
	}
	if err == nil {
		err = c.patch(ctx, f, plan, of, string(text))
	}
	switch {
	case err != nil:
		return fmt.Errorf("%s node %q: %w", what, node, err)
	case c.Tries():
		fmt.Fprintf(c.Out, "\nThe NodeFence of node %s would be changed (server dry run). Nothing was changed.\n", node)
		return nil
	}
	fmt.Fprintf(c.Out, "\nThe NodeFence of node %s was changed. See how far it is: kubectl reclaim explain node/%s\n",
		node, node)
	return nil
}

// uidOf returns the UID of the NodeFence, empty if the node has none.
func uidOf(f nodes.Facts) types.UID {
	if fence := f.Existing(); fence != nil {
		return fence.UID
	}
	return ""
}

// maxPatchTries limits the attempts to change a NodeFence, because volume-guard's status writes conflict with it.
const maxPatchTries = 5

// patch applies spec, which is JSON, to the NodeFence that was read, and to no other.
func (c *fenceChange) patch(ctx context.Context, f nodes.Facts, shown nodes.Plan, of check, spec string) error {
	for try := 1; ; try++ {
		fence := f.Existing()
		patch := fmt.Appendf(nil, `{"metadata":{"uid":%q,"resourceVersion":%q},"spec":%s}`, fence.UID,
			fence.ResourceVersion, spec)
		_, err := c.Cluster.Fencing.Fences.Patch(ctx, f.Name, types.MergePatchType, patch,
			metav1.PatchOptions{FieldManager: cli.Name, DryRun: c.Dry()})
		switch {
		case err == nil:
			return nil
		case !isGone(err) || try == maxPatchTries:
			return fmt.Errorf("change NodeFence %q: %w", f.Name, c.unclear(f.Name, err))
		}
		if f, err = c.again(ctx, f, shown, of); err != nil {
			return err
		}
	}
}

// unclear returns the error of a write of a NodeFence. Unless the API server refused the write, or only checked it, the
// write may stand, and the next step is to look.
func (c *fenceChange) unclear(node string, err error) error {
	if c.Tries() || isRefused(err) {
		return explain.FencingError(err)
	}
	return cli.WithStep(fmt.Errorf("it may have been written: %w", err), seeOrEnd(node))
}

// seeOrEnd is the next step where the fence of a node may go on.
func seeOrEnd(node string) string {
	return fmt.Sprintf("see the fence: kubectl reclaim explain node/%[1]s; to end it: kubectl reclaim unfence %[1]s", node)
}

const (
	// waitPoll is the interval of reads of an awaited NodeFence.
	waitPoll = time.Second
	// goneTimeout limits the time that volume-guard has to remove its finalizer from an ended NodeFence.
	goneTimeout = 30 * time.Second
)

// errNotGone means that the ended NodeFence still exists.
var errNotGone = cli.NewError("a finalizer keeps it",
	"check that volume-guard runs with --controllers=*,node-fencing, and run the same command again")

// replace deletes an ended NodeFence, and waits until it is gone.
func (c *fenceChange) replace(ctx context.Context, node string, uid types.UID) error {
	err := c.Cluster.Fencing.Fences.Delete(ctx, node,
		metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(uid))})
	switch {
	case err == nil, apierrors.IsNotFound(err):
		return previous("was deleted", c.awaitGone(ctx, node, uid))
	case isRefused(err):
		return fmt.Errorf("delete NodeFence %q, which has ended: %w", node, err)
	}
	return previous("may have been deleted", fmt.Errorf("delete NodeFence %q, which has ended: %w", node, err))
}

// previous adds the state of the NodeFence that a new one replaces to an error, which may be nil.
func previous(state string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w; the previous NodeFence %s: run the same command again", err, state)
}

func (c *fenceChange) awaitGone(ctx context.Context, node string, uid types.UID) error {
	ctx, cancel := context.WithTimeoutCause(ctx, goneTimeout, errNotGone)
	defer cancel()
	for {
		switch read := c.Cluster.Fence(ctx, node); {
		case read.OK() && (read.Value == nil || read.Value.UID != uid):
			return nil
		case read.Err != nil && ctx.Err() == nil:
			return fmt.Errorf("read NodeFence %q: %w", node, read.Err)
		case !cli.Sleep(ctx, waitPoll):
			return fmt.Errorf("replace NodeFence %q: %w", node, context.Cause(ctx))
		}
	}
}

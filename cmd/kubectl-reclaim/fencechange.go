package main

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/nodes"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// errNodeChanged means that the facts behind the shown plan have changed.
var errNodeChanged = errors.New("the node, its pods or its fence changed since they were shown: nothing was changed")

// fenceChange is the common part of the commands that change a fence: they show the effect, ask, and make the change.
type fenceChange struct {
	*shared
	yes    bool
	dryRun string

	cluster explain.Cluster
}

func (c *fenceChange) flags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.BoolVarP(&c.yes, "yes", "y", false, "Do not ask. Required where the input is no terminal.")
	fs.StringVar(&c.dryRun, "dry-run", dryRunNone,
		"none, or server: the API server checks the request, and changes nothing.")
	fs.Lookup("dry-run").NoOptDefVal = dryRunServer
	mustComplete(cmd, "dry-run", []string{dryRunNone, dryRunServer})
}

func (c *fenceChange) prepare() (err error) {
	if !slices.Contains([]string{dryRunNone, dryRunServer}, c.dryRun) {
		return fmt.Errorf("--dry-run=%s: must be %s or %s", c.dryRun, dryRunNone, dryRunServer)
	}
	c.cluster, err = c.live()
	return err
}

func (c *fenceChange) dry() []string {
	if c.dryRun == dryRunServer {
		return []string{metav1.DryRunAll}
	}
	return nil
}

// check returns the effect of a change on these facts, or an error if it should not be made.
type check func(nodes.Facts) (nodes.Plan, error)

// agree shows the node and the effect of the change, and asks, except with --dry-run and --yes. It returns the last
// facts read, on which the change still has the shown effect.
func (c *fenceChange) agree(ctx context.Context, f nodes.Facts, of check) (nodes.Facts, nodes.Plan, error) {
	plan, err := of(f)
	if err != nil {
		return f, plan, err
	}
	_ = writeExplanation(c.Out, nodes.Explain(f), false) // an error means that the output is closed
	c.show(plan)
	switch {
	case c.dryRun == dryRunServer, c.yes:
		return f, plan, nil
	case !c.isTerminal(c.In):
		return f, plan, errNoTerminal
	}
	fmt.Fprintln(c.ErrOut)
	if c.answer(ctx, fmt.Sprintf("To do this, type the name of the node (%s):", f.Name)) != f.Name {
		return f, plan, errNotConfirmed
	}
	f, err = c.again(ctx, f, plan, of)
	return f, plan, err
}

func (c *fenceChange) show(p nodes.Plan) {
	fmt.Fprintln(c.Out)
	for _, effect := range p.Effects {
		printLine(c.Out, "- "+effect, false)
	}
	for _, cost := range p.Costs {
		printLine(c.Out, "! "+cost, true)
	}
}

// again reads the node again, and returns an error if the change no longer has the shown effect, or if the node has
// another fence.
func (c *fenceChange) again(ctx context.Context, f nodes.Facts, shown nodes.Plan, of check) (nodes.Facts, error) {
	now := nodes.Read(ctx, c.cluster, f.Name)
	plan, err := of(now)
	if err != nil || !reflect.DeepEqual(plan, shown) || uidOf(now) != uidOf(f) {
		return f, errors.Join(errNodeChanged, err)
	}
	return now, nil
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
		_, err := c.cluster.Fencing.Fences.Patch(ctx, f.Name, types.MergePatchType, patch,
			metav1.PatchOptions{FieldManager: name, DryRun: c.dry()})
		switch {
		case err == nil:
			return nil
		case !isGone(err) || try == maxPatchTries:
			return fmt.Errorf("change NodeFence %q: %w", f.Name, err)
		}
		if f, err = c.again(ctx, f, shown, of); err != nil {
			return err
		}
	}
}

const (
	// waitPoll is the interval of reads of an awaited NodeFence.
	waitPoll = time.Second
	// goneTimeout limits the time that volume-guard has to remove its finalizer from an ended NodeFence.
	goneTimeout = 30 * time.Second
)

// errNotGone means that the ended NodeFence still exists.
var errNotGone = errors.New("the previous NodeFence was deleted, but a finalizer keeps it")

// replace deletes an ended NodeFence, and waits until it is gone.
func (c *fenceChange) replace(ctx context.Context, node string, uid types.UID) error {
	err := c.cluster.Fencing.Fences.Delete(ctx, node,
		metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(uid))})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete NodeFence %q, which has ended: %w", node, err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, goneTimeout, errNotGone)
	defer cancel()
	for {
		switch read := c.cluster.Fence(ctx, node); {
		case read.OK() && (read.Value == nil || read.Value.UID != uid):
			return nil
		case read.Err != nil && ctx.Err() == nil:
			return fmt.Errorf("read NodeFence %q: %w", node, read.Err)
		case !sleep(ctx, waitPoll):
			return fmt.Errorf("replace NodeFence %q: %w", node, context.Cause(ctx))
		}
	}
}

// sleep waits, and reports whether the whole time has passed.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

func stateOf(o *v1alpha1.NodeFence) string { return explain.FenceWords(o, time.Now()) }

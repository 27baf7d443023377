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
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/nodes"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/client"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// errNodeChanged: what was shown of a node is not so any more.
var errNodeChanged = errors.New("the node, its pods or its fence changed since they were shown: nothing was changed")

// fenceChange is what the commands have in common that change a fence: they show what the change means, ask, and make
// it.
type fenceChange struct {
	*shared
	yes    bool
	dryRun string

	reader *nodes.Reader
	fences *client.Fences
}

func (c *fenceChange) flags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.BoolVarP(&c.yes, "yes", "y", false, "Do not ask. Required where the input is no terminal.")
	fs.StringVar(&c.dryRun, "dry-run", dryRunNone,
		"none, or server: the API server checks the request, and changes nothing.")
	fs.Lookup("dry-run").NoOptDefVal = dryRunServer
	mustComplete(cmd, "dry-run", []string{dryRunNone, dryRunServer})
}

// prepare checks the flags, and makes what reads and writes the cluster.
func (c *fenceChange) prepare() error {
	if !slices.Contains([]string{dryRunNone, dryRunServer}, c.dryRun) {
		return fmt.Errorf("--dry-run=%s: must be %s or %s", c.dryRun, dryRunNone, dryRunServer)
	}
	config, err := c.config()
	if err != nil {
		return err
	}
	clients, err := client.New(config)
	if err != nil {
		return err
	}
	c.fences = clients.Fences
	c.reader, err = nodes.New(config, nodes.Config{})
	return err
}

// dry returns the DryRun of a request.
func (c *fenceChange) dry() []string {
	if c.dryRun == dryRunServer {
		return []string{metav1.DryRunAll}
	}
	return nil
}

// check returns what a change means on these facts, or why it is not made.
type check func(nodes.Facts) (nodes.Plan, error)

// agree shows the node and what the change means, and asks. It returns the facts that were read last, on which the
// change means what was shown. With --dry-run and --yes it does not ask.
func (c *fenceChange) agree(ctx context.Context, f nodes.Facts, of check) (nodes.Facts, nodes.Plan, error) {
	plan, err := of(f)
	if err != nil {
		return f, plan, err
	}
	_ = printers.WriteEscaped(c.Out, nodes.Explain(f).Text(false)) // the end of what reads it is no reason to stop
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

// show prints what a change means, and what it may cost.
func (c *fenceChange) show(p nodes.Plan) {
	fmt.Fprintln(c.Out)
	for _, effect := range p.Effects {
		printLine(c.Out, "- "+effect, false)
	}
	for _, cost := range p.Costs {
		printLine(c.Out, "! "+cost, true)
	}
}

// again reads the node again, and returns an error if the change does not mean what was shown, or if the node has
// another fence.
func (c *fenceChange) again(ctx context.Context, f nodes.Facts, shown nodes.Plan, of check) (nodes.Facts, error) {
	now := c.reader.Node(ctx, f.Name)
	plan, err := of(now)
	if err != nil || !reflect.DeepEqual(plan, shown) || uidOf(now) != uidOf(f) {
		return f, errors.Join(errNodeChanged, err)
	}
	return now, nil
}

// uidOf returns the UID of the NodeFence that was read, empty for none.
func uidOf(f nodes.Facts) types.UID {
	if fence := f.Existing(); fence != nil {
		return fence.UID
	}
	return ""
}

// maxPatchTries bounds how often a change of a NodeFence is tried: volume-guard writes its status in between.
const maxPatchTries = 5

// patch changes the spec of the NodeFence that was read, and no other. spec is JSON.
func (c *fenceChange) patch(ctx context.Context, f nodes.Facts, shown nodes.Plan, of check, spec string) error {
	for try := 1; ; try++ {
		fence := f.Existing()
		patch := fmt.Appendf(nil, `{"metadata":{"uid":%q,"resourceVersion":%q},"spec":%s}`, fence.UID,
			fence.ResourceVersion, spec)
		_, err := c.fences.Patch(ctx, f.Name, types.MergePatchType, patch,
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
	// waitPoll is how often a NodeFence is read that is waited for.
	waitPoll = time.Second
	// goneTimeout is how long volume-guard has to remove its finalizer from a NodeFence that has ended.
	goneTimeout = 30 * time.Second
)

// errNotGone: the NodeFence that has ended is still there.
var errNotGone = errors.New("the NodeFence of before was deleted and is still there: it has a finalizer")

// replace deletes a NodeFence that has ended, and waits until it is gone.
func (c *fenceChange) replace(ctx context.Context, node string, uid types.UID) error {
	err := c.fences.Delete(ctx, node, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(uid))})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete NodeFence %q, which has ended: %w", node, err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, goneTimeout, errNotGone)
	defer cancel()
	for {
		o, err := c.fences.Get(ctx, node, metav1.GetOptions{})
		read := explain.FenceRead(o, err, node)
		switch {
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

// stateOf is how far a fence is.
func stateOf(o *v1alpha1.NodeFence) string { return explain.FenceWords(o, time.Now()) }

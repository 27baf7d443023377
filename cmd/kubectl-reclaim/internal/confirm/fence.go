// Package confirm has the commands that a person confirms after they have shown the possible damage: fence, unfence,
// confirm and delete-pod.
package confirm

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/kubectl-reclaim/internal/cli"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/nodes"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// Commands returns the commands of this package.
func Commands(s *cli.Plugin) []*cobra.Command {
	return []*cobra.Command{fenceCommand(s), unfenceCommand(s), confirmCommand(s), deletePodCommand(s)}
}

type fenceOptions struct {
	fenceChange
	reason, agentsOf, file string
	manual, wait           bool
	timeout                time.Duration
	request                nodes.FenceRequest
}

func fenceCommand(s *cli.Plugin) *cobra.Command {
	o := &fenceOptions{fenceChange: newFenceChange(s)}
	cmd := &cobra.Command{
		Use:   "fence NODE --reason=TEXT [--agents-of=POLICY | -f FILE | --manual]",
		Short: "Ask for a node to be fenced, so that the pods and volumes on it are released",
		Long: `Creates a NodeFence. volume-guard's controller node-fencing then has agents fence the node. It releases the pods and
volumes that wait for the node once an agent has proven that nothing on the node writes any more.

The command shows the node, the objects that wait for it, the actions of the agents and the possible damage, and asks
you to type the name of the node. It refuses nodes that are Ready without --even-if-ready, and nodes of the control
plane without --allow-control-plane.

The agents come from a FencePolicy (--agents-of) or a file (-f). With --manual, a person alone fences the node, and then
runs "kubectl reclaim confirm". Default: the agents of the only FencePolicy whose nodeSelector selects the node.

The command replaces a NodeFence that has ended. If the node has another one, it changes nothing.`,
		Example: `  # a preview
  kubectl reclaim fence worker-2 --reason="rack without power" --dry-run

  # by the agents of a policy, and wait for the proof
  kubectl reclaim fence worker-2 --agents-of=default --reason="kernel hangs" --wait

  # after you pulled the plug
  kubectl reclaim fence worker-2 --manual --reason="mainboard broken"
  kubectl reclaim confirm node/worker-2 --because="both power cables are out"`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: s.CompleteNames(cli.KindNode),
		RunE:              func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args[0]) },
	}
	o.flags(cmd)
	fs := cmd.Flags()
	fs.StringVar(&o.reason, "reason", "", "Why the node is fenced, for people. Required.")
	fs.StringVar(&o.agentsOf, "agents-of", "", "Name of the FencePolicy whose agents fence the node.")
	fs.StringVarP(&o.file, "filename", "f", "", "File with agents, as YAML or JSON. -: standard input.")
	fs.BoolVar(&o.manual, "manual", false, "No agent fences the node: a person does, and confirms it.")
	fs.BoolVar(&o.request.AllowControlPlane, "allow-control-plane", false,
		"Fence the node even if it is a control-plane node.")
	fs.BoolVar(&o.request.EvenIfReady, "even-if-ready", false, "Fence the node even if it is Ready.")
	fs.BoolVar(&o.wait, "wait", false, "Wait until it is proven that the node is fenced.")
	fs.DurationVar(&o.timeout, "timeout", 15*time.Minute, "How long to wait with --wait. The fence goes on after that.")
	cmd.MarkFlagsMutuallyExclusive("agents-of", "filename", "manual")
	cmd.MarkFlagsMutuallyExclusive("wait", "dry-run")
	cli.MustComplete(cmd, "agents-of", s.NamesOf(cli.KindPolicy))
	return cmd
}

func (o *fenceOptions) run(ctx context.Context, node string) error {
	switch {
	case o.reason == "":
		return errors.New("--reason is missing: explain why the node is fenced")
	case o.timeout <= 0:
		return fmt.Errorf("--timeout=%s: must be above 0", o.timeout)
	case o.file == "-" && !o.Yes && !o.Tries():
		return errors.New("-f -: the agents are read from standard input, so the question cannot be answered there: add " +
			"--yes")
	}
	if err := o.Begin(); err != nil {
		return err
	}
	f := nodes.Read(ctx, o.Cluster, node)
	of := func(f nodes.Facts) (nodes.Plan, error) { return nodes.CheckFence(f, o.request) }
	// The node is checked before the agents, so that its error comes first.
	_, err := of(f)
	if err == nil {
		o.request.Agents, err = o.agents(ctx, f)
	}
	var plan nodes.Plan
	if err == nil {
		_, plan, err = o.agree(ctx, f, of)
	}
	if err != nil {
		return fmt.Errorf("fence node %q: %w", node, err)
	}
	return o.create(ctx, node, plan)
}

func (o *fenceOptions) agents(ctx context.Context, f nodes.Facts) ([]v1alpha1.Agent, error) {
	switch {
	case o.manual:
		return nodes.ManualAgents(), nil
	case o.agentsOf != "":
		p, err := nodes.ReadPolicy(ctx, o.Cluster, o.agentsOf)
		if err != nil {
			return nil, err
		}
		return p.Spec.Agents, nil
	case o.file == "":
		agents, policy, err := nodes.DefaultAgents(f)
		if err == nil {
			fmt.Fprintf(o.ErrOut, "Agents of FencePolicy %s are used.\n", policy)
		}
		return agents, err
	}
	text, err := o.ReadFile(o.file)
	if err != nil {
		return nil, fmt.Errorf("read agents: %w", err)
	}
	return nodes.ParseAgents(text)
}

// create creates the NodeFence, after deleting an ended one of the same name.
func (o *fenceOptions) create(ctx context.Context, node string, plan nodes.Plan) error {
	if o.Tries() && plan.Replaces != "" {
		fmt.Fprintf(o.Out, "\nThe NodeFence of node %s would be replaced. It was not tried: the name is taken.\n", node)
		return nil
	}
	if plan.Replaces != "" {
		if err := o.replace(ctx, node, plan.Replaces); err != nil {
			return err
		}
	}
	fence := &v1alpha1.NodeFence{
		ObjectMeta: metav1.ObjectMeta{Name: node, Labels: map[string]string{kube.NoBackup: "true"}},
		Spec: v1alpha1.NodeFenceSpec{
			Reason: o.reason, Agents: o.request.Agents, AllowControlPlane: o.request.AllowControlPlane}}
	made, err := o.Cluster.Fencing.Fences.Create(ctx, fence, metav1.CreateOptions{FieldManager: cli.Name, DryRun: o.Dry()})
	switch {
	case apierrors.IsAlreadyExists(err):
		return fmt.Errorf("fence node %q: %w: another user or program has created it: %w", node, nodes.ErrFenced, err)
	case err != nil:
		err = fmt.Errorf("create NodeFence %q: %w", node, o.unclear(node, err))
		if plan.Replaces != "" {
			err = previous("was deleted", err)
		}
		return err
	case o.Tries():
		fmt.Fprintf(o.Out, "\nNode %s would be fenced (server dry run). Nothing was changed.\n", node)
		return nil
	}
	fmt.Fprintf(o.Out, "\nNodeFence %s was created. See how far it is: kubectl reclaim explain node/%s\n", node, node)
	if o.manual {
		fmt.Fprintf(o.Out, "It waits for you: kubectl reclaim confirm node/%s --because=TEXT\n", node)
	}
	if !o.wait {
		return nil
	}
	return o.waitFenced(ctx, made)
}

var (
	// errNotProven means that no agent could prove that the node is fenced.
	errNotProven = cli.NewError("no agent could prove that the node is fenced; all are tried again later", readReports)
	// errWaitOver means that --timeout has passed.
	errWaitOver = cli.NewError("it is not proven yet that the node is fenced (--timeout); the fence goes on", readReports)
	// errUnread means that the node may be fenced.
	errUnread = cli.NewError("the fence goes on, and its state could not be read (--timeout)", readReports)
	// errFenceOver means that the awaited fence has ended or was replaced.
	errFenceOver = cli.NewError("the fence has ended before it was proven that the node is fenced",
		"see its final state: kubectl reclaim explain node/NAME")
)

const readReports = "read the reports of the agents: kubectl reclaim explain node/NAME"

// waitFenced waits for the proof, and prints each phase.
func (o *fenceOptions) waitFenced(ctx context.Context, fence *v1alpha1.NodeFence) error {
	ctx, cancel := context.WithTimeoutCause(ctx, o.timeout, errWaitOver)
	defer cancel()
	last := ""
	var unread error
	for {
		read := o.Cluster.Fence(ctx, fence.Name)
		switch {
		case read.OK():
			unread = nil
			if over, err := o.waited(fence, read.Value, &last); over || err != nil {
				return err
			}
		case apierrors.IsForbidden(read.Err), apierrors.IsUnauthorized(read.Err):
			return fmt.Errorf("wait for the fence of node %q, which goes on: %w", fence.Name, read.Err)
		case ctx.Err() == nil:
			unread = read.Err
		}
		if !cli.Sleep(ctx, waitPoll) {
			return fmt.Errorf("wait for the fence of node %q: %w", fence.Name, waitEnded(ctx, fence.Name, unread))
		}
	}
}

// waitEnded returns why the wait for a proof ended with ctx. unread is the error of the last read, nil if it succeeded.
func waitEnded(ctx context.Context, node string, unread error) error {
	cause := context.Cause(ctx)
	switch {
	case !errors.Is(cause, errWaitOver):
		return cli.WithStep(errors.New("interrupted: the fence goes on"), seeOrEnd(node))
	case unread != nil:
		return fmt.Errorf("%w: %w", errUnread, unread)
	}
	return cause
}

// waited prints a new phase of the fence, and reports whether the wait is over.
func (o *fenceOptions) waited(fence, now *v1alpha1.NodeFence, last *string) (over bool, err error) {
	if now == nil || now.UID != fence.UID || explain.FenceEnded(now) {
		return true, fmt.Errorf("fence node %q: %w", fence.Name, errFenceOver)
	}
	if phase := string(now.Status.Phase); phase != *last {
		cli.PrintLine(o.Out, "Node "+fence.Name+": "+explain.FenceWords(now, time.Now()), false)
		*last = phase
	}
	switch {
	case meta.IsStatusConditionTrue(now.Status.Conditions, v1alpha1.ConditionFenced):
		return true, nil
	case now.Status.Phase == v1alpha1.PhaseFailed:
		return true, fmt.Errorf("fence node %q: %w", fence.Name, errNotProven)
	}
	return false, nil
}

type unfenceOptions struct {
	fenceChange
	whenReleased, abandon bool
}

func unfenceCommand(s *cli.Plugin) *cobra.Command {
	o := &unfenceOptions{fenceChange: newFenceChange(s)}
	cmd := &cobra.Command{
		Use:   "unfence NODE [--when-released | --abandon]",
		Short: "End the fence of a node",
		Long: `Ends the fence of a node (spec.unfence of its NodeFence). A fence ends by itself when the node has booted again and
nothing from before needs it. This command is for a node without evidence of that, and for agents that keep a node
off.

Without flags, the proof ends at once, the agents undo their work, and then the taint is removed.
With --when-released, the agents undo it when no held pod and no volume remains on the node; the taint stays until the
node has booted again. With --abandon, the proof ends at once, and the agents undo nothing.

The command shows the possible damage, and asks you to type the name of the node.`,
		Example: `  # the machine was replaced
  kubectl reclaim unfence worker-2

  # power it on again once its pods run elsewhere
  kubectl reclaim unfence worker-2 --when-released

  # an agent cannot undo it, and you have
  kubectl reclaim unfence worker-2 --abandon`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: s.CompleteNames(cli.KindFence),
		RunE:              func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args[0]) },
	}
	o.flags(cmd)
	cmd.Flags().BoolVar(&o.whenReleased, "when-released", false,
		"Have the agents undo the fence when nothing from before remains on the node.")
	cmd.Flags().BoolVar(&o.abandon, "abandon", false, "Have the agents undo nothing: you have, or they cannot "+
		"because the machine is gone. The addresses of a NetworkFence stay blocked, also for a later node.")
	cmd.MarkFlagsMutuallyExclusive("when-released", "abandon")
	return cmd
}

func (o *unfenceOptions) to() v1alpha1.Unfence {
	switch {
	case o.whenReleased:
		return v1alpha1.UnfenceWhenReleased
	case o.abandon:
		return v1alpha1.UnfenceAbandon
	}
	return v1alpha1.UnfenceNow
}

func (o *unfenceOptions) run(ctx context.Context, node string) error {
	if err := o.Begin(); err != nil {
		return err
	}
	of := func(f nodes.Facts) (nodes.Plan, error) { return nodes.CheckUnfence(f, o.to()) }
	return o.carryOut(ctx, node, "unfence", of, func(types.UID) map[string]any {
		return map[string]any{"unfence": o.to()}
	})
}

package confirm

import (
	"context"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/kubectl-reclaim/internal/cli"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/nodes"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

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
nothing from before remains on it. This command is for a node without evidence of that, and for agents that keep a node
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
	cmd.Flags().BoolVar(&o.abandon, "abandon", false, "Have the agents undo nothing: you have, or the machine is gone.")
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
	if err := o.prepare(); err != nil {
		return err
	}
	of := func(f nodes.Facts) (nodes.Plan, error) { return nodes.CheckUnfence(f, o.to()) }
	return o.carryOut(ctx, node, "unfence", of, func(types.UID) map[string]any {
		return map[string]any{"unfence": o.to()}
	})
}

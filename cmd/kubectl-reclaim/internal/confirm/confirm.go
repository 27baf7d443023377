package confirm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/kubectl-reclaim/internal/cli"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/locks"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/nodes"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/pods"
)

type confirmOptions struct {
	fenceChange
	because     string
	evenIfReady bool
}

func confirmCommand(s *cli.Plugin) *cobra.Command {
	o := &confirmOptions{fenceChange: newFenceChange(s)}
	cmd := &cobra.Command{
		Use:   "confirm node/NODE --because=TEXT | pvc/NAME",
		Short: "Confirm that no process on a node, or of the pod that has a claim's lock, writes any more",
		Long: `Confirms that no process on a node can write, until its fence ends (spec.confirmation of its NodeFence). That is a
proof: the pods of the node are released, and its volumes are detached, as if an agent had proven it. It overrides the
results of the agents, and stops a running agent. The command refuses nodes that are Ready, without --even-if-ready.

For a claim, confirms that the processes of the pod that has its lock cannot run, and force-deletes that pod, like
"kubectl reclaim delete-pod POD --force". With the pod, the lock goes, and the next pod is scheduled. Delete the pod
first: the command refuses a pod that is not being deleted.

Your confirmation is not verified. The command shows the possible damage, and asks you to type the name of the node or
the pod. For a pod without a lock: kubectl reclaim delete-pod POD --force`,
		Example: `  kubectl reclaim confirm node/worker-2 --because="powered off in the data center, checked on the console"

  # which pod has the lock, why it has not ended, and the possible damage
  kubectl reclaim explain pvc/data -n shop
  kubectl reclaim confirm pvc/data -n shop`,
		Args: cobra.ExactArgs(1),
		ValidArgsFunction: cli.CompleteFirst(func(ctx context.Context, begun string) []string {
			return slices.Concat(s.CompleteObject(ctx, begun, cli.KindNode, cli.KindFence),
				s.CompleteObject(ctx, begun, cli.KindClaim, cli.KindClaim))
		}),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args[0]) },
	}
	o.flags(cmd)
	cmd.Flags().StringVar(&o.because, "because", "",
		"How you know that no process on the node writes. Required for a node.")
	cmd.Flags().BoolVar(&o.evenIfReady, "even-if-ready", false, "Confirm it even if the node is Ready.")
	return cmd
}

func (o *confirmOptions) run(ctx context.Context, arg string) error {
	kind, object, err := cli.ParseObject(arg)
	switch {
	case err == nil && kind == cli.KindPod:
		return errors.New("a pod is confirmed while it is deleted: kubectl reclaim delete-pod " + object + " --force")
	case err == nil && kind == cli.KindClaim:
		return o.confirmLock(ctx, object)
	case err != nil || kind != cli.KindNode:
		return fmt.Errorf("%q cannot be confirmed: write node/NAME or pvc/NAME", arg)
	case strings.TrimSpace(o.because) == "":
		return errors.New("--because is missing: say how you know that no process on the node writes")
	}
	if err := o.Begin(); err != nil {
		return err
	}
	of := func(f nodes.Facts) (nodes.Plan, error) { return nodes.CheckConfirm(f, o.because, o.evenIfReady) }
	return o.carryOut(ctx, object, "confirm", of, func(uid types.UID) map[string]any {
		return map[string]any{"confirmation": o.because, "confirmationUID": uid}
	})
}

// confirmLock force-deletes the pod that has the lock of a claim, after a person has confirmed that its processes
// cannot run.
func (o *confirmOptions) confirmLock(ctx context.Context, claim string) error {
	if o.because != "" || o.evenIfReady {
		return errors.New("--because and --even-if-ready are for nodes: leave them out for a claim")
	}
	namespace, err := o.Namespace(false)
	if err != nil {
		return err
	}
	pod := deletePodOptions{Change: o.Change, force: true}
	if err := pod.Begin(); err != nil {
		return err
	}
	facts, err := locks.ReadList(ctx, pod.Cluster, namespace)
	if err != nil {
		return err
	}
	holder, err := locks.Confirmable(facts, namespace, claim)
	if err != nil {
		return err
	}
	its, err := pods.Read(ctx, pod.Cluster, namespace, holder.Name)
	switch {
	case err != nil:
		return err
	case its.Pod.UID != holder.UID:
		return fmt.Errorf("force-delete pod %q: %w", fullName(its.Pod), errReplaced)
	}
	fmt.Fprintf(o.Out, "Pod %s has the lock of claim %s.\n\n", holder.Name, claim)
	return pod.forceDelete(ctx, its)
}

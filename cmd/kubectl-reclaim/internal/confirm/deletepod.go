package confirm

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/kubectl-reclaim/internal/cli"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/pods"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
)

type deletePodOptions struct {
	cli.Change
	force bool
}

func deletePodCommand(s *cli.Plugin) *cobra.Command {
	o := &deletePodOptions{Change: cli.Change{Plugin: s}}
	cmd := &cobra.Command{
		Use:   "delete-pod NAME",
		Short: "Delete a pod, and show why it stays; with --force, show the risk, ask, and confirm",
		Long: `Deletes a pod like "kubectl delete pod", and shows the steps that are left until the pod is gone.

With --force it does not wait for the processes of the pod to end: they may run on and write to the volumes while a
replacement does. It shows the risks in this case, asks you to type the name of the pod, and then
  1. confirms that the processes cannot run: annotation csi-reclaimer.io/confirm-force-delete, with the UID of the pod
  2. deletes the pod with grace period 0, if it still has that UID.
The confirmation counts for this pod alone: a new pod of the name is never touched. If only the first step was done,
the error says how to continue, and how to undo it.`,
		Example: `  # a normal deletion
  kubectl reclaim delete-pod db-0 -n shop

  # only show the risks of a force deletion
  kubectl reclaim explain pod/db-0 -n shop

  # on a node whose machine you know to be off
  kubectl reclaim delete-pod db-0 -n shop --force

  # in a script
  kubectl reclaim delete-pod db-0 -n shop --force --yes`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: s.CompleteNames(cli.KindPod),
		RunE:              func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args[0]) },
	}
	cmd.Flags().BoolVar(&o.force, "force", false,
		"Do not wait for the processes of the pod to end. Needs a confirmation.")
	o.AddFlags(cmd, "With --force: do not ask.", "requests")
	return cmd
}

func (o *deletePodOptions) run(ctx context.Context, name string) error {
	namespace, err := o.Namespace(false)
	if err != nil {
		return err
	}
	if err := o.Begin(); err != nil {
		return err
	}
	facts, err := pods.Read(ctx, o.Cluster, namespace, name)
	switch {
	case err != nil:
		return err
	case o.force:
		return o.forceDelete(ctx, facts)
	}
	return o.delete(ctx, facts)
}

func (o *deletePodOptions) podsOf(pod *v1.Pod) corev1.PodInterface {
	return o.Cluster.Core.Pods(pod.Namespace)
}

// delete deletes the pod with its own grace period.
func (o *deletePodOptions) delete(ctx context.Context, f pods.Facts) error {
	pod := f.Pod
	if pod.DeletionTimestamp != nil {
		fmt.Fprintf(o.Out, "Pod %s was deleted before. Nothing was changed.\n\n", fullName(pod))
		o.show(pods.Explain(f))
		return nil
	}
	err := o.podsOf(pod).Delete(ctx, pod.Name, metav1.DeleteOptions{
		Preconditions: metav1.NewUIDPreconditions(string(pod.UID)), DryRun: o.Dry(),
	})
	switch {
	case isGone(err):
		return fmt.Errorf("delete pod %q: %w: %w", fullName(pod), errReplaced, err)
	case err != nil:
		return fmt.Errorf("delete pod %q: %w", fullName(pod), err)
	}
	o.report(ctx, pod, "deleted")
	return nil
}

// report prints the result of the deletion, and the conditions that the pod still waits for.
func (o *deletePodOptions) report(ctx context.Context, pod *v1.Pod, done string) {
	if o.Tries() {
		fmt.Fprintf(o.Out, "Pod %s would be %s (server dry run). Nothing was changed.\n", fullName(pod), done)
		return
	}
	f, err := pods.Read(ctx, o.Cluster, pod.Namespace, pod.Name)
	switch {
	case kube.AnyAbsent(err), err == nil && f.Pod.UID != pod.UID:
		fmt.Fprintf(o.Out, "Pod %s was %s, and is gone.\n", fullName(pod), done)
	case err != nil:
		cli.PrintLine(o.Out, fmt.Sprintf("Pod %s was %s. Whether it is gone could not be read: %v", fullName(pod), done, err),
			true)
	default:
		fmt.Fprintf(o.Out, "Pod %s was %s. It is still there:\n\n", fullName(pod), done)
		o.show(pods.Explain(f))
	}
}

func (o *deletePodOptions) show(e explain.Explanation) {
	_ = cli.WriteExplanation(o.Out, e, false) // an error means that the output is closed
}

var (
	// errReplaced means that the pod with the shown UID is gone. Another pod may have its name.
	errReplaced = cli.NewError("the pod that was shown is gone, and no other was touched",
		"see whether a new pod has its name: kubectl get pod -o wide")
	// errChanged means that the facts behind the shown risk have changed.
	errChanged = cli.NewError("the pod, its node or the users of its claims changed since they were shown: nothing was "+
		"changed", "run the same command again, to see the current risks of a force deletion")
)

// unfinished returns the error of a force deletion whose confirmation was written, or may have been, but whose deletion
// is uncertain. It names the ways to continue, and to undo the confirmation.
func unfinished(pod *v1.Pod, state string, err error) error {
	return cli.WithStep(fmt.Errorf("force-delete pod %q: %s: %w", fullName(pod), state, err),
		fmt.Sprintf("to continue, run the same command again; to undo: kubectl annotate pod %s -n %s %s- "+
			"(volume-guard may have released the pod before)", pod.Name, pod.Namespace, pods.ConfirmAnnotation))
}

// forceDelete shows the risk, asks, confirms, and deletes without a grace period.
func (o *deletePodOptions) forceDelete(ctx context.Context, f pods.Facts) error {
	shown := pods.Explain(f)
	o.show(shown)
	fmt.Fprintln(o.Out)
	if len(shown.Risks) == 0 {
		fmt.Fprintln(o.Out, "There is evidence that the processes of the pod have ended: a force deletion risks nothing "+
			"that is known.")
	} else {
		cli.PrintLine(o.Out, "A force deletion does not wait for the processes of the pod to end. \"Force risks\" lists the "+
			"possible damage.", true)
	}
	asks, err := o.MustAsk()
	switch {
	case err != nil:
		return err
	case o.Tries():
		return o.tryForceDelete(ctx, f)
	case asks:
		if err := o.MustType(ctx, fmt.Sprintf("To force-delete it, type the name of the pod (%s):", f.Pod.Name),
			f.Pod.Name); err != nil {
			return err
		}
		if f, err = o.again(ctx, f.Pod, shown); err != nil {
			return err
		}
	}
	pod, err := o.confirmPod(ctx, f, shown)
	if err != nil {
		return err
	}
	if err := o.deleteNow(ctx, pod); err != nil && !isGone(err) {
		return unfinished(pod, "it is confirmed, and the deletion failed", err)
	}
	o.report(ctx, pod, "confirmed and force-deleted")
	return nil
}

// again reads the pod again, and returns an error if it was replaced or no longer matches the shown explanation.
func (o *deletePodOptions) again(ctx context.Context, pod *v1.Pod, shown explain.Explanation) (pods.Facts, error) {
	f, err := pods.Read(ctx, o.Cluster, pod.Namespace, pod.Name)
	switch {
	case kube.AnyAbsent(err), err == nil && f.Pod.UID != pod.UID:
		return pods.Facts{}, fmt.Errorf("force-delete pod %q: %w", fullName(pod), errReplaced)
	case err != nil:
		return pods.Facts{}, err
	}
	if now := pods.Explain(f); !slices.Equal(now.Risks, shown.Risks) || now.Decision.Reason != shown.Decision.Reason {
		return pods.Facts{}, fmt.Errorf("force-delete pod %q: %w", fullName(pod), errChanged)
	}
	return f, nil
}

// maxConfirmTries limits the attempts to write the confirmation, because the kubelet's status writes conflict with it.
const maxConfirmTries = 5

// confirmPod writes the confirmation, bound to the pod's UID and to the resourceVersion of the read on which the shown
// risk is based. It returns the pod of the last such read.
func (o *deletePodOptions) confirmPod(ctx context.Context, f pods.Facts, shown explain.Explanation) (*v1.Pod, error) {
	for try := 1; ; try++ {
		if f.Pod.Annotations[pods.ConfirmAnnotation] == string(f.Pod.UID) {
			return f.Pod, nil
		}
		err := o.patchConfirmation(ctx, f.Pod)
		switch {
		case err == nil:
			return f.Pod, nil
		case isGone(err) || apierrors.IsInvalid(err):
			if try == maxConfirmTries {
				return nil, fmt.Errorf("confirm pod %q: %w", fullName(f.Pod), err)
			}
			if f, err = o.again(ctx, f.Pod, shown); err != nil {
				return nil, err
			}
		case isRefused(err):
			return nil, fmt.Errorf("confirm pod %q: %w", fullName(f.Pod), err)
		default:
			return nil, unfinished(f.Pod, "it may be confirmed, and was not deleted", err)
		}
	}
}

func (o *deletePodOptions) patchConfirmation(ctx context.Context, pod *v1.Pod) error {
	patch := fmt.Appendf(nil, `{"metadata":{"uid":%q,"resourceVersion":%q,"annotations":{%q:%q}}}`,
		pod.UID, pod.ResourceVersion, pods.ConfirmAnnotation, pod.UID)
	_, err := o.podsOf(pod).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{
		FieldManager: cli.Name, DryRun: o.Dry(),
	})
	return err
}

// deleteNow deletes the pod without a grace period, if it still has the UID.
func (o *deletePodOptions) deleteNow(ctx context.Context, pod *v1.Pod) error {
	options := metav1.NewDeleteOptions(0)
	options.Preconditions, options.DryRun = metav1.NewUIDPreconditions(string(pod.UID)), o.Dry()
	return o.podsOf(pod).Delete(ctx, pod.Name, *options)
}

// tryForceDelete lets the API server check both requests. If the namespace enforces pod safety, the deletion is
// skipped, because the API server would refuse it without a stored confirmation.
func (o *deletePodOptions) tryForceDelete(ctx context.Context, f pods.Facts) error {
	if err := o.patchConfirmation(ctx, f.Pod); err != nil {
		return fmt.Errorf("confirm pod %q: %w", fullName(f.Pod), err)
	}
	if f.ForceDeletionRefused() {
		fmt.Fprintln(o.Out, "The deletion was not tried: this namespace refuses it until the confirmation is stored.")
	} else if err := o.deleteNow(ctx, f.Pod); err != nil {
		return fmt.Errorf("delete pod %q: %w", fullName(f.Pod), err)
	}
	o.report(ctx, f.Pod, "confirmed and force-deleted")
	return nil
}

// isGone reports whether a request failed because the pod does not match it: the pod is gone, was replaced, or has
// changed.
func isGone(err error) bool { return kube.AnyAbsent(err) || apierrors.IsConflict(err) }

// isRefused reports whether the API server refused a request as a client error, so that it had no effect.
func isRefused(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code/100 == 4
}

func fullName(pod *v1.Pod) string { return pod.Namespace + "/" + pod.Name }

package driver

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/kubectl-reclaim/internal/cli"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/plural"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

type settleOptions struct {
	cli.Change
	allNamespaces, all bool
	driver, class      string
	olderThan          time.Duration
}

func settleCommand(s *cli.Plugin) *cobra.Command {
	o := &settleOptions{Change: cli.Change{Plugin: s}}
	cmd := &cobra.Command{
		Use:   "settle [VOLUME]...",
		Short: "End the tries to create volumes whose outcome the driver does not tell",
		Long: `Has csi-reclaimer drop entries from the in-flight log at its next try, before it calls the driver or creates a PV,
or when it starts. It called CreateVolume for these volumes, and the driver has not answered whether it created them, or
they cannot get their PV. If a PV names such a volume, keep it: a pod may use it, and this command only ends the tries
to create it. Without its entry and without a PV, a volume that exists nevertheless is known to the storage system
alone. So look there for these names before you answer, and delete the volumes that no PV names. Delete the claims that
wait for them as well, or csi-reclaimer begins again for them.

The command lists PVs, and says which of the volumes they name.

Entries are chosen by the names of their volumes, or by namespace, StorageClass, driver and age of all that are in
flight. An entry that changes after it was shown stays in the log.`,
		Example: `  # which volumes are in flight, and for how long; only show them
  kubectl reclaim settle -A --all --dry-run

  # one volume
  kubectl reclaim settle pvc-0a6b4f4c-6f0e-4a55-9c5e-2f2d6f7b8a01

  # the volumes of a namespace and a class that have been in flight for more than an hour; only show them
  kubectl reclaim settle -n shop --storage-class=fast --older-than=1h --dry-run

  # all volumes of a driver that is gone
  kubectl reclaim settle -A --driver=disk.csi.example.com --all`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
	}
	fs := cmd.Flags()
	fs.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "Choose volumes of claims in all namespaces.")
	fs.BoolVar(&o.all, "all", false, "Choose all volumes that the other flags leave.")
	o.DriverFlag(cmd, &o.driver, "Choose only volumes of this driver.")
	fs.StringVar(&o.class, "storage-class", "", "Choose only volumes of this StorageClass.")
	fs.DurationVar(&o.olderThan, "older-than", 0, "Choose only volumes in flight for longer than this.")
	o.AddFlags(cmd, "Do not ask.", "requests")
	return cmd
}

// validate returns an error for flags and volumes that conflict or are missing.
func (o *settleOptions) validate(volumes []string) error {
	if err := o.Validate(); err != nil {
		return err
	}
	byFlags := o.all || o.class != "" || o.olderThan > 0
	switch {
	case o.olderThan < 0:
		return fmt.Errorf("--older-than=%s: must not be negative", o.olderThan)
	case len(volumes) > 0 && byFlags:
		return errors.New("name volumes, or choose them by --all, --storage-class and --older-than, not both")
	case len(volumes) == 0 && !byFlags:
		return errors.New("name the volumes to settle, as \"kubectl reclaim settle -A --all --dry-run\" shows them, " +
			"or choose them by --storage-class, --older-than or --all")
	}
	return nil
}

func (o *settleOptions) run(ctx context.Context, volumes []string) error {
	if err := o.validate(volumes); err != nil {
		return err
	}
	namespace, err := o.Namespace(len(volumes) > 0 || o.allNamespaces)
	if err != nil {
		return err
	}
	api, err := o.API()
	if err != nil {
		return err
	}
	leases, err := inflight.List(ctx, api.Coordination, metav1.ListOptions{}, nil)
	if err != nil {
		return err
	}
	if err := o.CheckDriver(ctx, o.driver); err != nil {
		return err
	}
	entries, problems := inflight.Locate(leases, nil)
	chosen, err := o.choose(entries, volumes, namespace, time.Now())
	if err != nil {
		return errors.Join(err, unreadableOf(problems))
	}
	if err := unreadableOf(problems); err != nil {
		cli.PrintLine(o.ErrOut, "Part of the in-flight log is "+err.Error(), true)
	}
	return o.settle(ctx, api, chosen)
}

// unreadableOf returns an error that names the unreadable entries, nil for none.
func unreadableOf(problems []inflight.LocatedProblem) error {
	if len(problems) == 0 {
		return nil
	}
	lines := make([]string, len(problems))
	for i, p := range problems {
		lines[i] = p.String()
	}
	return fmt.Errorf("not read: %s", strings.Join(lines, "; "))
}

// choose returns the entries to settle, the oldest first. A named volume that is not in flight is an error.
func (o *settleOptions) choose(entries []inflight.Located, volumes []string, namespace string,
	now time.Time) ([]inflight.Located, error) {
	var chosen []inflight.Located
	for _, e := range entries {
		switch {
		case len(volumes) > 0 && !slices.Contains(volumes, e.Volume),
			namespace != metav1.NamespaceAll && e.Claim.Namespace != namespace,
			o.driver != "" && e.Driver != o.driver,
			o.class != "" && classOf(e) != o.class,
			now.Sub(e.Begun) < o.olderThan:
			continue
		}
		chosen = append(chosen, e)
	}
	for _, volume := range volumes {
		if !slices.ContainsFunc(chosen, func(e inflight.Located) bool { return e.Volume == volume }) {
			return nil, fmt.Errorf("volume %q is not in flight: \"kubectl reclaim settle -A --all --dry-run\" "+
				"shows which are", volume)
		}
	}
	slices.SortStableFunc(chosen, func(a, b inflight.Located) int {
		return cmp.Or(a.Begun.Compare(b.Begun), cmp.Compare(a.Volume, b.Volume))
	})
	return chosen, nil
}

// nodeOf returns the node on which the volume of an entry is if it exists, "-" if no node is known.
func nodeOf(e inflight.Located) string {
	if e.Node == nil {
		return "-"
	}
	return e.Node.Name
}

func classOf(e inflight.Located) string { return e.Requests[0].PV.Spec.StorageClassName }

// inStorage says which of the volumes must stay in the storage system, and which to look for there. It lists PVs once,
// because there may be hundreds of entries, and a volume can have its PV under one of several names. A PV of another
// node can have such a name, too. If PVs cannot be read, each of the volumes may have one.
func inStorage(ctx context.Context, core corev1.PersistentVolumesGetter, entries []inflight.Located) string {
	pvs, found, apart := sets.Set[string]{}, make([]bool, len(entries)), make([]string, len(entries))
	err := kube.EachOf(ctx, core.PersistentVolumes().List, metav1.ListOptions{}, func(o *v1.PersistentVolume) {
		for i, e := range entries {
			if !strings.HasPrefix(o.Name, e.Volume) || !e.Of(o.Name) {
				continue
			}
			pvs.Insert(o.Name)
			if pv := volume.Of(o); e.Names(pv) {
				found[i] = true
			} else {
				apart[i] = fmt.Sprintf(" PV %s names the volume at %s: look on node %s for another one named %s first.",
					pv.Name, pv.Affinity, e.Node.Name, e.Volume)
			}
		}
	})
	if err != nil {
		return fmt.Sprintf(" PVs could not be read (%v), so a PV may name any of these volumes, and a pod may use it. Keep "+
			"each in the storage system until you know that no PV names it.", err)
	}
	text, names, unnamed, others := "", "these names", false, ""
	for i := range entries {
		switch {
		case found[i]:
		case apart[i] != "":
			others += apart[i]
		default:
			unnamed = true
		}
	}
	if len(pvs) > 0 {
		names = "the other names"
		text = " Keep the volumes that these PVs name in the storage system: " + strings.Join(sets.List(pvs), ", ") + "."
	}
	if unnamed {
		text += " If the driver has created one that no PV names, only the storage system knows it: look there for " +
			names + " first."
	}
	return text + others
}

// waitingClaims says which claims of the entries wait for a volume, empty for none. It lists the claims of each
// namespace once, because there may be hundreds of entries.
func waitingClaims(ctx context.Context, core corev1.PersistentVolumeClaimsGetter, entries []inflight.Located) string {
	chosen := map[string]sets.Set[volume.ClaimRef]{}
	for _, e := range entries {
		if chosen[e.Claim.Namespace] == nil {
			chosen[e.Claim.Namespace] = sets.Set[volume.ClaimRef]{}
		}
		chosen[e.Claim.Namespace].Insert(e.Claim)
	}
	waits, unread := sets.Set[string]{}, sets.Set[string]{}
	for namespace, claims := range chosen {
		err := kube.EachOf(ctx, core.PersistentVolumeClaims(namespace).List, metav1.ListOptions{},
			func(claim *v1.PersistentVolumeClaim) {
				if claims.Has(volume.ClaimRef{Namespace: namespace, Name: claim.Name, UID: claim.UID}) &&
					claim.DeletionTimestamp == nil && claim.Spec.VolumeName == "" {
					waits.Insert(namespace + "/" + claim.Name)
				}
			})
		if err != nil {
			for claim := range claims {
				unread.Insert(namespace + "/" + claim.Name)
			}
		}
	}
	var text string
	if len(waits) > 0 {
		text = " It begins again for claims that wait for a volume, unless you delete them first: " +
			strings.Join(sets.List(waits), ", ") + "."
	}
	if len(unread) > 0 {
		text += " It begins again for these claims if they still wait for a volume, which could not be read: " +
			strings.Join(sets.List(unread), ", ") + "."
	}
	return text
}

func (o *settleOptions) settle(ctx context.Context, api explain.API, entries []inflight.Located) error {
	if len(entries) == 0 {
		fmt.Fprintln(o.ErrOut, "No such volume is in flight.")
		return nil
	}
	if err := showEntries(o.Out, entries, time.Now()); err != nil {
		return err
	}
	count := plural.Count(len(entries), "volume")
	cli.PrintLine(o.Out, "\ncsi-reclaimer gives up "+count+"."+inStorage(ctx, api.Core, entries)+
		waitingClaims(ctx, api.Core, entries), true)
	asks, err := o.MustAsk()
	if err == nil && asks {
		err = o.Confirm(ctx, "Settle "+count+"?")
	}
	if err != nil {
		return err
	}
	byLease := map[types.NamespacedName][]inflight.Located{}
	var order []types.NamespacedName
	for _, e := range entries {
		if len(byLease[e.Lease]) == 0 {
			order = append(order, e.Lease)
		}
		byLease[e.Lease] = append(byLease[e.Lease], e)
	}
	settled, failed := 0, []error(nil)
	for _, lease := range order {
		if err := o.patch(ctx, api.Coordination, lease, byLease[lease]); err != nil {
			failed = append(failed, err)
			continue
		}
		settled += len(byLease[lease])
	}
	if o.Tries() {
		fmt.Fprintf(o.Out, "%s would be settled (server dry run). Nothing was changed.\n", plural.Count(settled, "volume"))
	} else {
		fmt.Fprintf(o.Out, "csi-reclaimer drops %s from its log at its next try, or when it starts.\n",
			plural.Count(settled, "volume"))
	}
	return errors.Join(failed...)
}

// patch settles all of a Lease's entries, or none: each entry must be unchanged since it was shown.
func (o *settleOptions) patch(ctx context.Context, client coordinationv1.LeasesGetter, lease types.NamespacedName,
	entries []inflight.Located) error {
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value string `json:"value"`
	}
	var patch []operation
	for _, e := range entries {
		key, value := e.Settle()
		patch = append(patch, operation{"test", pathOf(e.Annotation), e.Stored}, operation{"add", pathOf(key), value})
	}
	data, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("settle volumes in Lease %s: %w", lease, err)
	}
	_, err = client.Leases(lease.Namespace).Patch(ctx, lease.Name, types.JSONPatchType, data,
		metav1.PatchOptions{DryRun: o.Dry()})
	switch {
	case apierrors.HasStatusCause(err, metav1.CauseType(field.ErrorTypeTooLong)):
		return fmt.Errorf("settle volumes in Lease %s: it has no room to mark %s, so all of its entries stay: settle fewer "+
			"at a time, by their names, and go on once csi-reclaimer has dropped these: %w", lease,
			plural.Count(len(entries), "volume"), err)
	case apierrors.IsInvalid(err), apierrors.IsNotFound(err):
		return fmt.Errorf("settle volumes in Lease %s: an entry changed or is gone since it was shown, so all entries of "+
			"this Lease stay; run the command again: %w", lease, err)
	case err != nil:
		return fmt.Errorf("settle volumes in Lease %s: %w", lease, err)
	}
	return nil
}

func pathOf(annotation string) string {
	return "/metadata/annotations/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(annotation)
}

func showEntries(w io.Writer, entries []inflight.Located, now time.Time) error {
	// Each node may have an entry for a volume of one name.
	columns := []string{"Volume", "Claim", "StorageClass", "Driver", "In flight"}
	ofNodes := slices.ContainsFunc(entries, func(e inflight.Located) bool { return e.Node != nil })
	if ofNodes {
		columns = append(columns, "Node")
	}
	t := cli.NewTable(false, columns, nil)
	for _, e := range entries {
		row := []any{e.Volume, e.Claim.Namespace + "/" + e.Claim.Name, classOf(e), e.Driver, explain.Age(now, e.Begun)}
		if ofNodes {
			row = append(row, nodeOf(e))
		}
		t.Add("", row...)
	}
	return (&cli.Output{}).Table(w, t)
}

package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/leaks"
)

// formatCSV is one more format of -o.
const formatCSV = "csv"

// auditOptions is what the command line of audit says.
type auditOptions struct {
	*shared
	out    output
	source reportSource

	adopt, reclaim string
	size           string
	pv             leaks.PVOptions
	dryRun, yes    bool
}

func auditCommand(s *shared) *cobra.Command {
	o := &auditOptions{shared: s, source: reportSource{shared: s}}
	cmd := &cobra.Command{
		Use:   "audit --driver=DRIVER [--adopt=HANDLE | --reclaim=HANDLE]",
		Short: "Show the volumes that nothing in the cluster accounts for, bring one back, or have one deleted",
		Long: `Shows the volumes of a driver that csi-reclaimer suspects to be leaks: it lists them and no PV, claim or snapshot of the
cluster accounts for them. csi-reclaimer has to run beside the driver with --audit-interval; the report is read from the
pod that holds its Lease, through the API server.

A suspect may be another cluster's, where several use the same storage. Look at it in the storage system first.

--adopt makes a PV that keeps the volume, for a claim to take. --reclaim makes one by which the volume is deleted, as that
of any released PV is: for good. Both show the PV and ask. csi-reclaimer itself does neither.`,
		Example: `  # what is suspected, and what is not yet
  kubectl reclaim audit --driver=disk.csi.example.com -o wide

  # bring a volume back
  kubectl reclaim audit --driver=disk.csi.example.com --adopt=vol-1

  # from a report that was fetched otherwise
  curl -s localhost:8080/audit?format=json | kubectl reclaim audit --from=-`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	o.out.flags(cmd, formatCSV)
	cmd.Flags().Lookup("output").Usage = "What is printed: table, wide (with the volumes that are no suspects), json, yaml or csv."
	o.source.flags(cmd)
	fs := cmd.Flags()
	fs.StringVar(&o.adopt, "adopt", "", "Make a PV that keeps the volume with this handle, and that a claim can take.")
	fs.StringVar(&o.reclaim, "reclaim", "", "Make a PV by which the volume with this handle is deleted.")
	cmd.MarkFlagsMutuallyExclusive("adopt", "reclaim")
	fs.StringVar(&o.size, "size", "", "With --adopt: the volume's size, such as 10Gi. Default: what the driver tells.")
	fs.StringVar(&o.pv.StorageClass, "storage-class", "", "StorageClass of the PV. With --reclaim it names the Secret for the deletion, as for volumes that were made by it. Default: none, and no Secret.")
	fs.StringVar(&o.pv.FSType, "fs-type", "", "With --adopt: the filesystem on the volume. Default: the driver decides.")
	fs.StringToStringVar(&o.pv.Attributes, "attribute", nil, "With --adopt: an attribute that the driver wants to know when the volume is mounted, as KEY=VALUE; may be repeated. Reports do not have them.")
	fs.BoolVar(&o.pv.Block, "block", false, "With --adopt: the volume is a raw device.")
	fs.BoolVar(&o.dryRun, "dry-run", false, "Show the PV and make none.")
	fs.BoolVarP(&o.yes, "yes", "y", false, "Do not ask.")
	return cmd
}

func (o *auditOptions) run(ctx context.Context) error {
	csv := o.out.format == formatCSV
	if !csv {
		if err := o.out.prepare(); err != nil {
			return err
		}
	}
	if err := o.validate(); err != nil {
		return err
	}
	report, err := o.source.read(ctx)
	if err != nil {
		return err
	}
	switch {
	case o.adopt != "":
		return o.remedy(ctx, report, leaks.Adopt, o.adopt)
	case o.reclaim != "":
		return o.remedy(ctx, report, leaks.Reclaim, o.reclaim)
	case csv:
		return report.WriteCSV(o.Out)
	}
	return o.out.print(o.Out, "AuditReport", report, func(w io.Writer) error { return report.WriteTable(w, o.out.wide()) })
}

func (o *auditOptions) validate() error {
	if o.size == "" {
		return o.source.validate()
	}
	size, err := resource.ParseQuantity(o.size)
	if err != nil || size.Sign() <= 0 {
		return fmt.Errorf("--size=%s: want a size above 0, such as 10Gi", o.size)
	}
	o.pv.Bytes = size.Value()
	return o.source.validate()
}

// remedy shows the PV of a remedy, asks, and carries it out.
func (o *auditOptions) remedy(ctx context.Context, report leaks.Report, to leaks.Remedy, handle string) error {
	found, reported := report.Find(handle)
	if !reported { // a PV that was made for it already accounts for it
		found = leaks.Found{Handle: handle}
	}
	pv, err := o.make(report.Driver, to, found, reported)
	if err != nil {
		return err
	}
	config, err := o.config()
	if err != nil {
		return err
	}
	mender, err := leaks.NewMender(config)
	if err != nil {
		return err
	}
	step, made, err := mender.Check(ctx, report, to, pv)
	if err != nil {
		return err
	}
	show := pv
	if made != nil { // by an earlier run, which this one goes on with
		show = made
		show.SetGroupVersionKind(pv.GroupVersionKind())
	}
	if err := o.showPV(show, to, found); err != nil || o.dryRun {
		return err
	}
	if !o.yes && step != leaks.Finished {
		if err := o.confirm(ctx, question(to, found)); err != nil {
			return err
		}
	}
	made, err = mender.Carry(ctx, report, to, pv)
	if err != nil {
		return err
	}
	o.sayMade(to, made)
	return nil
}

// make returns the PV of a remedy. Of a volume that is not reported none is created, and only one that was is looked for:
// its size does not matter.
func (o *auditOptions) make(driver string, to leaks.Remedy, found leaks.Found, reported bool) (*v1.PersistentVolume, error) {
	if to == leaks.Reclaim {
		return leaks.ReclaimPV(driver, found, o.pv), nil
	}
	if !reported {
		found.Bytes = 1
	}
	return leaks.AdoptPV(driver, found, o.pv)
}

// showPV prints what would be made: for people with a word about it, for programs alone.
func (o *auditOptions) showPV(pv *v1.PersistentVolume, to leaks.Remedy, found leaks.Found) error {
	printer := o.out.printer
	if printer == nil {
		printer = &printers.OmitManagedFieldsPrinter{Delegate: &printers.YAMLPrinter{}}
	}
	if err := printer.PrintObj(pv, o.Out); err != nil {
		return fmt.Errorf("print the PV: %w", err)
	}
	if o.out.printer == nil && to == leaks.Reclaim {
		sayLine(o.ErrOut, fmt.Sprintf("! Once the PV is Released its policy is turned to Delete, and the volume %q is deleted for good. "+
			"Nothing in this cluster accounts for it; whether another one uses it is not known.", found.Handle), true)
	}
	return nil
}

// question asks for a remedy.
func question(to leaks.Remedy, found leaks.Found) string {
	if to == leaks.Reclaim {
		return fmt.Sprintf("Delete volume %q?", found.Handle)
	}
	return fmt.Sprintf("Make this PV for volume %q?", found.Handle)
}

// sayMade says what was done, and how to stop it or to go on.
func (o *auditOptions) sayMade(to leaks.Remedy, pv *v1.PersistentVolume) {
	if to == leaks.Reclaim {
		sayLine(o.Out, fmt.Sprintf("PV %s is Released with policy Delete: its volume is deleted. kubectl reclaim explain pv/%s tells how far it is; to stop it, if it is not too late: "+
			`kubectl patch pv %s -p '{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}'`, pv.Name, pv.Name, pv.Name), false)
		return
	}
	sayLine(o.Out, fmt.Sprintf("PV %s keeps the volume. A claim takes it by spec.volumeName: %s, with the same storageClassName (%q), size and mode.",
		pv.Name, pv.Name, pv.Spec.StorageClassName), false)
}

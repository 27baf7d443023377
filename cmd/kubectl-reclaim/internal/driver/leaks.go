package driver

import (
	"context"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/kubectl-reclaim/internal/cli"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/leaks"
)

const formatCSV = "csv"

type leaksOptions struct {
	cli.Output
	source reportSource

	adopt, reclaim string
	size, claim    string
	pv             leaks.PVOptions
	dryRun, yes    bool
}

func leaksCommand(s *cli.Plugin) *cobra.Command {
	o := &leaksOptions{Output: cli.Output{Plugin: s}, source: reportSource{Plugin: s}}
	cmd := &cobra.Command{
		Use:   "leaks --driver=DRIVER [--adopt=HANDLE | --reclaim=HANDLE]",
		Short: "Show the volumes that nothing in the cluster accounts for; adopt one, or have one deleted",
		Long: `Shows the volumes of a driver that csi-reclaimer suspects to be leaks: the driver lists them, and no PV,
claim or snapshot of the cluster accounts for them. Run csi-reclaimer beside the driver with --leak-check-interval.
The command reads the report from the pod that holds its Lease, through the API server.

A suspect may belong to another cluster, if several use the same storage. Check it in the storage system first.

--adopt creates a PV with policy Retain, to which a claim can bind. With --claim, only that claim can, which may not
exist yet. Without it, the PV has no StorageClass, and any claim without a class can take it. --reclaim creates a PV
whose volume is deleted like the volume of any released PV: permanently. Both show the PV and ask. csi-reclaimer itself
does neither.`,
		Example: `  # suspects, and volumes that are not suspected yet
  kubectl reclaim leaks --driver=disk.csi.example.com -o wide

  # adopt a volume for a claim
  kubectl reclaim leaks --driver=disk.csi.example.com --adopt=vol-1 --storage-class=fast --claim=shop/data

  # from a report that you fetched yourself
  curl -s 'localhost:8080/leaks?format=json' | kubectl reclaim leaks --from=-`,
		Args: cobra.NoArgs,
		RunE: o.Run(func(ctx context.Context, _ []string) error { return o.run(ctx) }),
	}
	o.AddOutput(cmd, formatCSV)
	cmd.Flags().Lookup("output").Usage = "Output format: table, wide (with the volumes that are not suspected), json, " +
		"yaml or csv."
	o.source.flags(cmd)
	fs := cmd.Flags()
	fs.StringVar(&o.adopt, "adopt", "",
		"Create a PV that keeps the volume with this handle, and to which a claim can bind.")
	fs.StringVar(&o.reclaim, "reclaim", "", "Create a PV through which the volume with this handle is deleted.")
	cmd.MarkFlagsMutuallyExclusive("adopt", "reclaim")
	fs.StringVar(&o.size, "size", "",
		"With --adopt: the volume's size, such as 10Gi. Default: the size that the driver reports.")
	fs.StringVar(&o.pv.StorageClass, "storage-class", "",
		"StorageClass of the PV. With --adopt, --claim is required then. With --reclaim, it names the Secret for the "+
			"deletion. Default: none, and no Secret.")
	fs.StringVar(&o.claim, "claim", "",
		"With --adopt: the claim that the PV is reserved for, as NAMESPACE/NAME. It may not exist yet.")
	fs.StringVar(&o.pv.FSType, "fs-type", "", "With --adopt: the filesystem on the volume. Default: the driver decides.")
	fs.StringToStringVar(&o.pv.Attributes, "attribute", nil,
		"With --adopt: a volume attribute that the driver needs to mount the volume, as KEY=VALUE; may be repeated. "+
			"Reports do not contain them.")
	fs.BoolVar(&o.pv.Block, "block", false, "With --adopt: the volume has volume mode Block.")
	fs.BoolVar(&o.dryRun, "dry-run", false, "Show the PV and create nothing.")
	fs.BoolVarP(&o.yes, "yes", "y", false, "Do not ask for confirmation.")
	return cmd
}

func (o *leaksOptions) run(ctx context.Context) error {
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
	case o.Format == formatCSV && report.Completed.IsZero():
		return fmt.Errorf("-o %s: the table would look as if there were no leaks: %s", formatCSV, report.Headline())
	case o.Format == formatCSV:
		cli.PrintLine(o.ErrOut, report.Headline(), report.Failure != "")
		return report.WriteCSV(o.Out)
	}
	return o.Print("LeakReport", report, func(w io.Writer) error { return report.WriteTable(w, o.Wide()) })
}

func (o *leaksOptions) validate() error {
	if err := o.validateClaim(); err != nil {
		return err
	}
	if o.size == "" {
		return o.source.validate()
	}
	size, err := resource.ParseQuantity(o.size)
	if err != nil || size.Sign() <= 0 || size.CmpInt64(math.MaxInt64) > 0 {
		return fmt.Errorf("--size=%s: must be a size above 0 and below 8Ei, such as 10Gi", o.size)
	}
	o.pv.Bytes = size.Value()
	return o.source.validate()
}

// validateClaim parses --claim. A PV with a class and without a claim is free for the next claim of the class.
func (o *leaksOptions) validateClaim() error {
	if o.claim == "" {
		if o.adopt != "" && o.pv.StorageClass != "" {
			return fmt.Errorf("--claim is missing: with --storage-class=%s, the next claim of the class, in any namespace, "+
				"would get the volume and its data; name the claim that it is for as NAMESPACE/NAME", o.pv.StorageClass)
		}
		return nil
	}
	namespace, name, _ := strings.Cut(o.claim, "/")
	switch {
	case namespace == "" || name == "" || strings.Contains(name, "/"):
		return fmt.Errorf("--claim=%s: must be NAMESPACE/NAME", o.claim)
	case o.adopt == "":
		return fmt.Errorf("--claim=%s: only --adopt reserves a volume for a claim", o.claim)
	}
	o.pv.Claim = types.NamespacedName{Namespace: namespace, Name: name}
	return nil
}

// remedy shows the PV of a remedy, asks, and carries the remedy out.
func (o *leaksOptions) remedy(ctx context.Context, report leaks.Report, to leaks.Remediation, handle string) error {
	found, reported := report.Find(handle)
	if !reported { // an existing PV may account for it
		found = leaks.Found{Handle: handle}
	}
	pv, err := o.make(report.Driver, to, found, reported)
	if err != nil {
		return err
	}
	config, err := o.Config()
	if err != nil {
		return err
	}
	if o.source.from != "" {
		cli.PrintLine(o.ErrOut, "! The report has to be one of this cluster, "+config.Host+": whether a volume is in use in "+
			"another cluster is not checked.", true)
	}
	mender, err := leaks.NewRemediator(config)
	if err != nil {
		return err
	}
	step, made, err := mender.Check(ctx, report, to, pv)
	if err != nil {
		return err
	}
	show := pv
	if made != nil { // an earlier run made the PV, and this run continues it
		show = made
		show.SetGroupVersionKind(pv.GroupVersionKind())
	}
	if err := o.showPV(show, to, found); err != nil {
		return err
	}
	if err := o.ShowCluster(); err != nil || o.dryRun {
		return err
	}
	if !o.yes && step != leaks.Finished {
		if err := o.Confirm(ctx, question(to, found, pv)); err != nil {
			return err
		}
	}
	made, err = mender.Carry(ctx, report, to, pv)
	if err != nil {
		return err
	}
	o.printResult(to, made)
	return nil
}

// make returns the PV of a remedy. For an unreported volume it is only compared with an existing PV and never created,
// so its size does not matter.
func (o *leaksOptions) make(driver string, to leaks.Remediation, found leaks.Found,
	reported bool) (*v1.PersistentVolume, error) {
	if to == leaks.Reclaim {
		return leaks.ReclaimPV(driver, found, o.pv), nil
	}
	if !reported {
		found.Bytes = 1
	}
	return leaks.AdoptPV(driver, found, o.pv)
}

// showPV prints the PV that would be created, with a warning for people.
func (o *leaksOptions) showPV(pv *v1.PersistentVolume, to leaks.Remediation, found leaks.Found) error {
	printer := o.Printer
	if printer == nil {
		printer = &printers.OmitManagedFieldsPrinter{Delegate: &printers.YAMLPrinter{}}
	}
	if err := printer.PrintObj(pv, o.Out); err != nil {
		return fmt.Errorf("print the PV: %w", err)
	}
	if o.Printer == nil && to == leaks.Reclaim {
		cli.PrintLine(o.ErrOut, fmt.Sprintf("! Once the PV is Released, its policy is set to Delete, and the volume %q is "+
			"deleted permanently. Nothing in this cluster accounts for it. It is not known whether another cluster uses it, "+
			"nor whether a pod template, such as a Deployment's with 0 replicas, names it inline.", found.Handle), true)
	}
	return nil
}

func question(to leaks.Remediation, found leaks.Found, pv *v1.PersistentVolume) string {
	if to == leaks.Reclaim {
		return fmt.Sprintf("Delete volume %q?", found.Handle)
	}
	if claim := pv.Spec.ClaimRef; claim != nil {
		return fmt.Sprintf("Create this PV for volume %q, reserved for claim %s/%s?", found.Handle, claim.Namespace,
			claim.Name)
	}
	return fmt.Sprintf("Create this PV for volume %q?", found.Handle)
}

// printResult prints the result, and the way to stop or to continue.
func (o *leaksOptions) printResult(to leaks.Remediation, pv *v1.PersistentVolume) {
	line := func(format string, args ...any) { cli.PrintLine(o.Messages(), fmt.Sprintf(format, args...), false) }
	if to == leaks.Reclaim {
		line("PV %s is Released with policy Delete: its volume is deleted. See the progress with kubectl reclaim explain "+
			"pv/%[1]s. To stop it, if it is not too late: "+
			`kubectl patch pv %[1]s -p '{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}'`, pv.Name)
		return
	}
	whose, claim := ". A claim", pv.Spec.ClaimRef
	if claim != nil {
		whose = fmt.Sprintf(" for claim %s/%s alone. The claim", claim.Namespace, claim.Name)
	}
	if policy := pv.Spec.PersistentVolumeReclaimPolicy; policy != v1.PersistentVolumeReclaimRetain {
		line("PV %s has policy %s now: its volume is not kept after its claim. To keep it: "+
			`kubectl patch pv %[1]s -p '{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}'`, pv.Name, policy)
		return
	}
	line("PV %s keeps the volume%s binds to it with spec.volumeName: %[1]s, and the same storageClassName (%[3]q), size "+
		"and mode.", pv.Name, whose, pv.Spec.StorageClassName)
}

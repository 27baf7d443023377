package waiting

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/kubectl-reclaim/internal/cli"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/web/view"
	"github.com/csi-reclaimer/csi-reclaimer/internal/web/watch"
)

type listOptions struct {
	cli.Output
	reasons       []string
	driver        string
	allNamespaces bool
	watch         bool
}

// waiting is the output of the command.
type waiting struct {
	// Objects lists the waiting objects: the ones that need a person first, then by the length of the wait.
	Objects []view.Row `json:"objects"`
	// Unread lists the kinds that could not be read, and the questions that this leaves open.
	Unread []string `json:"unread,omitempty"`

	now time.Time
	// elsewhere counts the objects in other namespaces or in none; others counts, by reason, what --reason leaves out.
	elsewhere int
	others    map[string]int
	// unknown is an error if nothing but the objects names --driver.
	unknown error
}

func listCommand(s *cli.Plugin) *cobra.Command {
	o := &listOptions{Output: cli.Output{Plugin: s}}
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the PVs, claims, pods, locks and fences that wait, with reason, age and next step",
		Long: `Lists the waiting objects of a namespace in one table: PVs and claims that are due for deletion or creation, pods that
are held or on a node that is down, locks of claims that pods wait for, and volumes in flight whose claim is gone. With
-A it lists all namespaces, and objects without a namespace: fences of nodes, and PVs without a claim.

A PV stands under the name of its claim. Rows that need a person come first, then the longest wait. REASON is the word
of Events, metrics and "kubectl reclaim explain"; WAITS FOR is the next event that has to happen. Ask about a row
with "kubectl reclaim explain", or about all of them with "kubectl reclaim explain --all".

Each kind is listed once, page by page, so that the number of requests does not depend on the number of objects. With
--watch, the kinds are watched.`,
		Example: `  # in the current namespace
  kubectl reclaim list

  # in all namespaces, with whole names and the sentence of each reason
  kubectl reclaim list -A -o wide

  # the PVs that were deleted while their claims use them
  kubectl reclaim list -A --reason=TerminatingBound

  # of one driver, as it changes, until interrupted
  kubectl reclaim list -A --driver=disk.csi.example.com --watch

  # the three objects with the longest wait
  kubectl reclaim list -A -o json | jq -r '.objects | sort_by(.since)[:3][] | "\(.since) \(.id)"'`,
		Args: cobra.NoArgs,
		RunE: o.Run(func(ctx context.Context, _ []string) error { return o.run(ctx) }),
	}
	o.AddOutput(cmd, cli.FormatName)
	fs := cmd.Flags()
	fs.StringSliceVar(&o.reasons, "reason", nil,
		"List only objects that wait for one of these reasons, such as Attached,Held. Case is ignored.")
	cli.MustComplete(cmd, "reason", cli.Words(reasonWords()...))
	o.DriverFlag(cmd, &o.driver, "List only the PVs, claims, pods and locks of this driver.")
	fs.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false,
		"List the objects of all namespaces, and objects without a namespace.")
	fs.BoolVarP(&o.watch, "watch", "w", false,
		"Continue until interrupted, and print changes. This also needs permission to watch the listed kinds.")
	return cmd
}

func (o *listOptions) run(ctx context.Context) error {
	if err := checkReasons(o.reasons); err != nil {
		return err
	}
	namespace, err := o.Namespace(o.allNamespaces)
	if err != nil {
		return err
	}
	c, err := snapshot(o.Plugin, namespace, o.driver)
	switch {
	case err != nil:
		return err
	case o.watch:
		return o.follow(ctx, c, namespace)
	}
	if err := c.Load(ctx); err != nil {
		return err
	}
	l := o.listOf(ctx, c, namespace)
	// A brake that could not be read would count as none.
	if err := cmp.Or(context.Cause(ctx), c.Failure()); err != nil {
		return err
	}
	if l.unknown != nil && len(l.Objects) == 0 {
		return l.unknown
	}
	return o.show(l, namespace, false)
}

// snapshot returns caches of the cluster that are still empty.
func snapshot(s *cli.Plugin, namespace, driver string) (*watch.Cluster, error) {
	role, err := s.AsRole()
	if err != nil {
		return nil, err
	}
	config, err := s.Config()
	if err != nil {
		return nil, err
	}
	return watch.New(config, watch.Config{Role: role, Namespace: namespace, Driver: driver, Locks: true})
}

// followGap is the minimum time between two tables of --watch.
const followGap = time.Second

// follow shows the list at each change, until ctx ends.
func (o *listOptions) follow(ctx context.Context, c *watch.Cluster, namespace string) error {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.Run(ctx)
	}()
	defer func() {
		cancel()
		<-ended
	}()
	var last *waiting
	lost := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.Changed():
		}
		if err := c.Failure(); err != nil && last == nil {
			return err
		}
		now := o.listOf(ctx, c, namespace)
		state := c.State(ctx)
		if !state.Synced { // the list also starts the reads of Leases
			continue
		}
		again := o.notice(state, &lost) || last == nil
		if again || !reflect.DeepEqual(now.Objects, last.Objects) || !slices.Equal(now.Unread, last.Unread) {
			if err := o.show(now, namespace, last != nil); err != nil {
				return err
			}
		}
		last = &now
		if !cli.Sleep(ctx, followGap) {
			return nil
		}
	}
}

// notice reports once that the table is not current. It returns whether the table is current again.
func (o *listOptions) notice(s view.State, lost *bool) (again bool) {
	if !s.Connected && !*lost {
		since := ""
		if s.Since != nil {
			since = " since " + s.Since.Format(time.TimeOnly)
		}
		cli.PrintLine(o.ErrOut, "Not current"+since+": "+s.Problem, true)
	}
	again = s.Connected && *lost
	*lost = !s.Connected
	return again
}

// listOf returns what waits in a namespace, or everywhere if namespace is empty.
func (o *listOptions) listOf(ctx context.Context, c *watch.Cluster, namespace string) waiting {
	facts := c.Facts(ctx)
	l := waiting{Objects: []view.Row{}, Unread: c.Unread(), now: facts.Now, others: map[string]int{},
		unknown: facts.CheckDriver(o.driver)}
	for _, row := range listed(view.Waiting(view.RowsOf(facts))) {
		switch {
		case o.driver != "" && row.Driver != o.driver:
		case namespace != "" && row.Namespace != namespace && !strings.HasPrefix(row.Claim, namespace+"/"):
			l.elsewhere++
		case !o.wants(row.Reason):
			l.others[row.Reason]++
		default:
			l.Objects = append(l.Objects, row)
		}
	}
	return l
}

func (o *listOptions) wants(reason string) bool {
	return len(o.reasons) == 0 ||
		slices.ContainsFunc(o.reasons, func(want string) bool { return strings.EqualFold(want, reason) })
}

// listed returns the rows that the command lists: all but nodes, which kubectl lists, and volumes in flight whose claim
// is among the rows.
func listed(rows []view.Row) []view.Row {
	claims := map[string]bool{}
	for _, row := range rows {
		if row.Kind == view.KindClaim {
			claims[rowName(row)] = true
		}
	}
	return slices.DeleteFunc(rows, func(row view.Row) bool {
		return row.Kind == view.KindNode || row.Kind == view.KindInFlight && claims[row.Claim]
	})
}

func (o *listOptions) show(l waiting, namespace string, again bool) error {
	if o.Format == cli.FormatName {
		for _, name := range resourceNames(l.Objects) {
			fmt.Fprintln(o.Out, name)
		}
		if len(l.Objects) == 0 {
			fmt.Fprintln(o.ErrOut, o.nothing(l, namespace))
		}
		o.leftOut(o.ErrOut, l)
		return nil
	}
	return o.Print("Waiting", l, func(w io.Writer) error {
		cli.BeginAgain(w, again)
		if err := o.TableOr(w, waitingTable(l, o.Wide()), o.nothing(l, namespace)); err != nil {
			return err
		}
		o.leftOut(w, l)
		return nil
	})
}

// leftOut counts the objects elsewhere, and names the kinds that could not be read.
func (o *listOptions) leftOut(w io.Writer, l waiting) {
	if l.elsewhere > 0 {
		fmt.Fprintf(o.ErrOut, "At least %d more wait in other namespaces, whose pods and claims were not read, or belong to "+
			"none: -A lists them.\n", l.elsewhere)
	}
	cli.PrintUnread(w, l.Unread)
}

// nothing says that the list is empty, and which reasons --reason has left out.
func (o *listOptions) nothing(l waiting, namespace string) string {
	text := "Nothing waits " + cli.Within(namespace)
	if len(l.Unread) > 0 {
		text = "Nothing that could be read waits " + cli.Within(namespace)
	}
	if o.driver != "" {
		text += " for driver " + o.driver
	}
	if len(o.reasons) == 0 {
		return text + "."
	}
	text += " for " + strings.Join(o.reasons, " or ") + "."
	if len(l.others) > 0 {
		text += " Reasons there: " + strings.Join(slices.Sorted(maps.Keys(l.others)), ", ") + "."
	}
	return text
}

// kindWords names the kinds of rows, as kubectl does where it can.
var kindWords = map[view.Kind]string{view.KindPV: "pv", view.KindClaim: "pvc", view.KindPod: "pod",
	view.KindLock: "lock", view.KindFence: "fence", view.KindInFlight: "in flight"}

func waitingTable(l waiting, wide bool) *cli.Table {
	t := cli.NewTable(false, []string{"Kind", "Name", "PV", "Reason", "Age", "Driver", "Waits for"},
		[]string{"Node", "Why"})
	for _, row := range l.Objects {
		age := ""
		if row.Since != nil {
			age = duration.HumanDuration(l.now.Sub(row.Since.Time))
		}
		name, pv := rowNames(row)
		if !wide {
			pv = explain.ShortName(pv)
		}
		t.Add("", kindWords[row.Kind], name, cli.OrDash(pv), cli.OrDash(row.Reason), cli.OrDash(age), cli.OrDash(row.Driver),
			cli.OrDash(row.WaitsFor), cli.OrDash(row.Node), cli.OrDash(row.Text))
	}
	return t
}

func rowName(row view.Row) string { return strings.TrimPrefix(row.Namespace+"/"+row.Name, "/") }

// rowNames returns the name under which people know the object, which is the claim's for a PV, and the name of the PV
// if it is another one.
func rowNames(row view.Row) (name, pv string) {
	switch {
	case row.Kind == view.KindClaim:
		return rowName(row), row.PV
	case row.Claim != "" && (row.Kind == view.KindPV || row.Kind == view.KindInFlight):
		return row.Claim, row.Name
	}
	return rowName(row), ""
}

// resources names the kinds of objects, as kubectl's -o name does. Of a node, the rows name the fence.
var resources = map[cli.Kind]string{cli.KindPV: "persistentvolume", cli.KindClaim: "persistentvolumeclaim",
	cli.KindPod: "pod", cli.KindNode: "nodefence.csi-reclaimer.io"}

// resourceNames returns the objects as kubectl's -o name does: each once, without its namespace. The lock and the
// volume in flight of a claim are named by the claim.
func resourceNames(rows []view.Row) (names []string) {
	for _, o := range objectsOf(rows) {
		names = append(names, resources[o.kind]+"/"+o.name)
	}
	return names
}

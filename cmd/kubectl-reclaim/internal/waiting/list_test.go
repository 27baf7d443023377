package waiting

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/kubectl-reclaim/internal/cli"
	"github.com/csi-reclaimer/csi-reclaimer/internal/web/view"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/commandline"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/explained"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

var root = commandline.Root(cli.Root(Commands))

func TestList(t *testing.T) {
	for name, c := range map[string]struct {
		args string
		// want are beginnings of lines, in this order; a line may follow that is not named.
		want []string
		not  []string
	}{
		"of a namespace": {args: "", want: []string{"KIND NAME PV REASON AGE DRIVER WAITS FOR",
			"pod shop/db-0 - NodeUnreachable 15m " + commandline.Driver + " node n1 to return",
			"pv shop/data-db-0 pvc-8a5c0f1e… TerminatingBound 3h",
			"lock shop/data - HolderRuns 20m " + commandline.Driver + " pod web to end",
			"pvc shop/new - - 11m - StorageClass fast, which does not exist",
			"At least 1 more wait in other namespaces, whose pods and claims were not read, or belong to none: -A"}},
		"of all namespaces": {args: "-A", want: []string{"pv shop/data-db-0", "fence n1 -"}, not: []string{"more wait"}},
		"wide": {args: "-A -o wide", want: []string{"KIND NAME PV REASON AGE DRIVER WAITS FOR NODE WHY",
			"pv shop/data-db-0 " + commandline.LongPVName}},
		"of a reason": {args: "--reason=terminatingbound", want: []string{"KIND", "pv shop/data-db-0"},
			not: []string{"lock", "shop/new"}},
		"of a reason for which nothing waits": {args: "--reason=Attached",
			want: []string{"Nothing waits in namespace shop for Attached. Reasons there: ", "At least 1 more"},
			not:  []string{"KIND"}},
		"of a driver": {args: "--driver=" + commandline.Driver, want: []string{"pv shop/data-db-0", "lock shop/data"},
			not: []string{"shop/new"}},
		"names": {args: "-A -o name", want: []string{"pod/db-0", "persistentvolume/" + commandline.LongPVName,
			"persistentvolumeclaim/data", "persistentvolumeclaim/new", "nodefence.csi-reclaimer.io/n1"}},
		"yaml": {args: "-o yaml", want: []string{"apiVersion: csi-reclaimer.io/v1alpha1", "kind: Waiting", "objects:"}},
	} {
		t.Run(name, func(t *testing.T) {
			out := must.Get(root.Against(t, commandline.SomethingWaits(t), &commandline.Typing{},
				strings.Fields("list "+c.args)...))(t)
			lines := strings.Split(out, "\n")
			for _, want := range c.want {
				for len(lines) > 0 && !strings.HasPrefix(strings.Join(strings.Fields(lines[0]), " "), want) {
					lines = lines[1:]
				}
				if len(lines) == 0 {
					t.Fatalf("no line, or not in this order: %q, in\n%s", want, out)
				}
			}
			for _, not := range c.not {
				if strings.Contains(out, not) {
					t.Errorf("%q is said in\n%s", not, out)
				}
			}
		})
	}
}

// TestListNeedsLeases covers an API server that fails over the Leases alone, which show whether a brake is on.
func TestListNeedsLeases(t *testing.T) {
	whole := commandline.SomethingWaits(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if path.Base(r.URL.Path) == "leases" && r.URL.Query().Get("fieldSelector") != "" {
			http.Error(w, "etcd is away", http.StatusInternalServerError)
			return
		}
		whole.ServeHTTP(w, r)
	}))
	defer server.Close()
	streams, _, out, _ := genericiooptions.NewTestIOStreams()
	cmd := root(streams, func(any) bool { return false })
	cmd.SetArgs([]string{"list", "-A", "--reason=DeletionsPaused", commandline.Kubeconfig(t, server.URL)})
	if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "leases") {
		t.Errorf("%v, and printed %q", err, out)
	}
}

// TestListNames reads standard output as a script does. Standard error names the kinds that the list lacks.
func TestListNames(t *testing.T) {
	next := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "new", UID: "bank-new"},
		Spec: v1.PersistentVolumeClaimSpec{StorageClassName: ptr.To("fast")}}
	for name, c := range map[string]struct {
		server    *commandline.Server
		forbidden []string
		args      string
		claims    int // how many are named new
		says      []string
	}{
		"nothing": {&commandline.Server{}, nil, "", 0, []string{"Nothing waits in namespace shop.\n", "!Not read"}},
		"nothing for a reason": {commandline.SomethingWaits(t), nil, "--reason=Attached", 0,
			[]string{"Nothing waits in namespace shop for Attached. Reasons there: ", "At least 1 more wait in other"}},
		"nothing that could be read": {&commandline.Server{}, []string{"persistentvolumes"}, "", 0,
			[]string{"Nothing that could be read waits in namespace shop.", "Not read: PVs: "}},
		"without PVs": {commandline.SomethingWaits(t), []string{"persistentvolumes", "nodes", "nodefences", "namespaces"}, "",
			1, []string{"Not read: PVs: ", "Not read: Nodes: ", "!Nothing"}},
		"two namespaces": {commandline.SomethingWaits(t), nil, "-A", 2, []string{"!Not read", "!Nothing", "!more wait"}},
	} {
		if c.claims == 2 {
			c.server.Add("persistentvolumeclaims", next)
		}
		c.server.Forbidden = c.forbidden
		server := httptest.NewServer(c.server)
		streams, _, out, errOut := genericiooptions.NewTestIOStreams()
		cmd := root(streams, func(any) bool { return false })
		cmd.SetArgs(append(strings.Fields("list -o name -n shop "+c.args), commandline.Kubeconfig(t, server.URL)))
		err := cmd.ExecuteContext(t.Context())
		server.Close()
		if names := out.String(); err != nil || strings.Count(names, "persistentvolumeclaim/new\n") != c.claims ||
			strings.Contains(names, " ") {
			t.Errorf("%s: %v, %q", name, err, names)
		}
		explained.Expect(t, errOut.String(), c.says...)
	}
}

// TestFormerPlugin has a PV whose in-tree plugin the API server's version lacks.
func TestFormerPlugin(t *testing.T) {
	for args, want := range map[string]string{
		"list -A":          "a person, because Kubernetes removed the in-tree plugin rbd",
		"explain --all -A": "is stuck: no program removes kubernetes.io/pv-controller, because Kubernetes removed",
	} {
		pv, claim := commandline.BoundPV("rbd", "bank", "data")
		pv.Annotations = map[string]string{volume.AnnProvisionedBy: "kubernetes.io/rbd"}
		pv.DeletionTimestamp, pv.Finalizers = commandline.Since(time.Hour), []string{"kubernetes.io/pv-controller"}
		pv.Spec.PersistentVolumeReclaimPolicy = v1.PersistentVolumeReclaimDelete
		pv.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{RBD: &v1.RBDPersistentVolumeSource{RBDImage: "x"}}
		s := &commandline.Server{}
		s.Add("persistentvolumes", pv)
		s.Add("persistentvolumeclaims", claim)
		out, err := root.Against(t, s, &commandline.Typing{}, strings.Fields(args)...)
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v, want %q in\n%s", args, err, want, out)
		}
	}
}

func TestListEmptyCluster(t *testing.T) {
	for args, want := range map[string]string{
		"list":    "Nothing waits in namespace shop.\n",
		"list -A": "Nothing waits in any namespace.\n",
	} {
		out, err := root.Against(t, &commandline.Server{}, &commandline.Typing{}, strings.Fields(args)...)
		if err != nil || out != want {
			t.Errorf("%s: %q, %v", args, out, err)
		}
	}
}

// TestListForbiddenKinds has a caller read claims and pods of his namespace alone.
func TestListForbiddenKinds(t *testing.T) {
	s := commandline.SomethingWaits(t)
	s.Forbidden = []string{"persistentvolumes", "nodes", "nodefences", "namespaces"}
	out := must.Get(root.Against(t, s, &commandline.Typing{}, "list"))(t)
	explained.Expect(t, out, "shop/new", "Not read: PVs: ", "Not read: Nodes: ")
	for _, request := range s.Requests() {
		path, resource := path.Split(request)
		if (resource == "pods" || resource == "persistentvolumeclaims") && path != "GET /api/v1/namespaces/shop/" {
			t.Errorf("%s goes beyond the namespace", request)
		}
	}
}

// Objects that may not be read do not count as objects that do not wait.
func TestExplainAllForbiddenKinds(t *testing.T) {
	for _, format := range []string{"table", "json"} {
		s := &commandline.Server{Forbidden: []string{"persistentvolumes", "nodes"}}
		out := must.Get(root.Against(t, s, &commandline.Typing{}, "explain", "--all", "-o", format))(t)
		explained.Expect(t, out, "Nothing that could be read waits in namespace shop.", "Not read: PVs: ")
	}
}

// TestListDoesNotReadObjectsOneByOne has 10,000 PVs of which each waits, and whose claims are gone or not.
func TestListDoesNotReadObjectsOneByOne(t *testing.T) {
	s := commandline.SomethingWaits(t)
	const many = 10000
	for i := range many {
		pv, claim := commandline.BoundPV(fmt.Sprintf("pv-%d", i), "shop", fmt.Sprintf("claim-%d", i))
		pv.Status.Phase, pv.DeletionTimestamp = "Released", commandline.Since(time.Hour)
		if s.Add("persistentvolumes", pv); i%2 == 0 {
			s.Add("persistentvolumeclaims", claim)
		}
	}
	out := must.Get(root.Against(t, s, &commandline.Typing{}, "list", "-A"))(t)
	for reason, want := range map[string]int{"ClaimStillExists": many / 2, "Reclaim": many / 2} {
		if got := strings.Count(out, reason); got < want {
			t.Errorf("%d rows of %s, want %d", got, reason, want)
		}
	}
	for _, resource := range []string{"persistentvolumes", "persistentvolumeclaims", "pods", "nodes"} {
		if gets := s.Gets(resource); len(gets) > 0 {
			t.Errorf("%d GETs of %s", len(gets), resource)
		}
	}
	if len(s.Requests()) > many/2/50+60 { // claims are listed in pages of 50
		t.Errorf("%d requests", len(s.Requests()))
	}
}

// TestListEndsWithAnUnreachableAPIServer does not wait for it, with and without --watch.
func TestListEndsWithAnUnreachableAPIServer(t *testing.T) {
	for _, args := range [][]string{{"list"}, {"list", "--watch"}} {
		_, err := root.Run(t, append(args, "--server=http://127.0.0.1:1", "--kubeconfig=/dev/null")...)
		if err == nil || !strings.Contains(cli.ErrorText(err), "check the connection to the cluster") {
			t.Errorf("%v: %v", args, err)
		}
	}
}

// A table that stays on the screen is not taken for the present.
func TestListWatchReportsALostConnection(t *testing.T) {
	var said bytes.Buffer
	o := &listOptions{Output: cli.Output{Plugin: &cli.Plugin{IOStreams: genericiooptions.IOStreams{ErrOut: &said}}}}
	at, lost := metav1.NewTime(time.Unix(0, 0)), false
	gone := view.State{Since: &at, Problem: "Unauthorized"}
	for i, step := range []struct {
		state view.State
		again bool
	}{{view.State{Connected: true}, false}, {gone, false}, {gone, false}, {view.State{Connected: true}, true},
		{view.State{Connected: true}, false}} {
		if again := o.notice(step.state, &lost); again != step.again {
			t.Errorf("step %d: shown again: %v", i, again)
		}
	}
	if got := said.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, ": Unauthorized") {
		t.Errorf("%q", got)
	}
}

// TestListWatch reads the first table, and interrupts the command.
func TestListWatch(t *testing.T) {
	read, write := io.Pipe()
	cmd := root.Command(t, write, commandline.SomethingWaits(t), &commandline.Typing{}, "list", "--watch")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		err := cmd.ExecuteContext(ctx)
		_ = write.Close()
		done <- err
	}()
	lines := bufio.NewScanner(read)
	for lines.Scan() && !strings.Contains(lines.Text(), "TerminatingBound") {
		continue
	}
	cancel()
	go func() { _, _ = io.Copy(io.Discard, read) }()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

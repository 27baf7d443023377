package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/nodes"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/volumes"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/leaks"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
)

// run runs a command line and returns its output.
func run(t *testing.T, args ...string) (stdout string, err error) {
	t.Helper()
	streams, _, out, _ := genericiooptions.NewTestIOStreams()
	cmd := newCommand(streams)
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestInvalidCommandLines(t *testing.T) {
	for sentence, c := range map[string]struct {
		args []string
		want string
	}{
		"no object":                  {[]string{"explain"}, "nothing to explain"},
		"a kind without a name":      {[]string{"explain", "pv"}, "write pv NAME or pv/NAME"},
		"an object without any name": {[]string{"explain", ""}, "an empty name"},
		"an object of another kind": {[]string{"explain", "secret/a"},
			"write pv/NAME, pvc/NAME, pod/NAME, namespace/NAME, node/NAME or statefulset/NAME"},
		"all objects and one":           {[]string{"explain", "--all", "pv/a"}, "leave --all out"},
		"one object, in all namespaces": {[]string{"explain", "pvc/a", "-A"}, "only with --all"},
		"an object without a name":      {[]string{"explain", "pv/"}, "cannot be explained"},
		"a name with a slash":           {[]string{"explain", "pvc/ns/data"}, "cannot be explained"},
		"the second object is wrong":    {[]string{"explain", "pv/a", "b"}, `"b" cannot be explained`},
		"an output that does not exist": {[]string{"explain", "pv/a", "-o", "xml"},
			"must be one of table, wide, json, yaml"},
		"a role that does not exist": {[]string{"explain", "pv/a", "--role=king"},
			"must be one of owner, companion, observer"},
		"a status of something":           {[]string{"status", "pv/a"}, "unknown command"},
		"looks without a pause":           {[]string{"status", "--interval=0s"}, "must be above 0"},
		"a release of no driver":          {[]string{"release"}, "--driver is missing"},
		"a release without workers":       {[]string{"release", "--driver=d", "--workers=0"}, "must be at least 1"},
		"a release at a negative pace":    {[]string{"release", "--driver=d", "--qps=-1"}, "must not be negative"},
		"a command that there is none of": {[]string{"heal"}, "unknown command"},
		"a preview of nothing":            {[]string{"preview", "--delete"}, "accepts 1 arg"},
		"a preview of another kind": {[]string{"preview", "deploy/a", "--delete"},
			"write statefulset/NAME or sts/NAME"},
		"a preview of no name":   {[]string{"preview", "sts/", "--delete"}, "cannot be previewed"},
		"a preview of no change": {[]string{"preview", "sts/a"}, "[replicas delete cascade]"},
		"a preview of two changes": {[]string{"preview", "sts/a", "--replicas=1", "--delete"},
			"[replicas delete]"},
		"a preview of a cascade of a scale": {[]string{"preview", "sts/a", "--replicas=1", "--cascade=orphan"},
			"[replicas cascade]"},
		"a preview of fewer than no replicas": {[]string{"preview", "sts/a", "--replicas=-1"}, "must not be negative"},
		"a preview of no deletion": {[]string{"preview", "sts/a", "--delete=false"},
			"set --replicas=N or --delete"},
		"a cascade that there is none of": {[]string{"preview", "sts/a", "--cascade=later"},
			"must be background, foreground or orphan"},
		"retained claims of a driver": {[]string{"status", "--retained", "--driver=d"}, "[retained driver]"},
		"retained claims, watched":    {[]string{"status", "--retained", "--watch"}, "[retained watch]"},
		"a status of all namespaces":  {[]string{"status", "-A"}, "without --retained"},
		"pods of a name":              {[]string{"pods", "db-0"}, "unknown command"},
		"the deletion of no pod":      {[]string{"delete-pod"}, "accepts 1 arg"},
		"the deletion of two pods":    {[]string{"delete-pod", "a", "b"}, "accepts 1 arg"},
		"a dry run of another kind":   {[]string{"delete-pod", "a", "--dry-run=client"}, "must be none or server"},
		"a fence without a reason":    {[]string{"fence", "n1"}, "--reason is missing"},
		"a fence of two nodes":        {[]string{"fence", "a", "b"}, "accepts 1 arg"},
		"a fence by two ways": {[]string{"fence", "n1", "--reason=x", "--manual", "--agents-of=p"},
			"[agents-of filename manual]"},
		"a fence that is waited for and tried": {[]string{"fence", "n1", "--reason=x", "--wait", "--dry-run"},
			"[dry-run wait]"},
		"a fence with no time to wait":      {[]string{"fence", "n1", "--reason=x", "--timeout=0s"}, "must be above 0"},
		"agents and answers from one input": {[]string{"fence", "n1", "--reason=x", "-f", "-"}, "add --yes"},
		"a fence that is tried in another way": {[]string{"fence", "n1", "--reason=x", "--dry-run=client"},
			"must be none or server"},
		"two ends of a fence":       {[]string{"unfence", "n1", "--when-released", "--abandon"}, "[abandon when-released]"},
		"a confirmation of nothing": {[]string{"confirm", "n1", "--because=x"}, "write node/NAME or pvc/NAME"},
		"a confirmation of a pod": {[]string{"confirm", "pod/a", "--because=x"},
			"kubectl reclaim delete-pod a --force"},
		"a confirmation that says nothing": {[]string{"confirm", "node/n1", "--because= "}, "--because is missing"},
		"a confirmation of a claim, with the words for a node": {[]string{"confirm", "pvc/a", "--because=x"},
			"leave them out for a claim"},
		"a confirmation of a claim on a Ready node": {[]string{"confirm", "pvc/a", "--even-if-ready"},
			"leave them out for a claim"},
		"a confirmation of a claim that is tried in another way": {[]string{"confirm", "pvc/a", "--dry-run=client"},
			"must be none or server"},
		"a list of a name":       {[]string{"list", "data"}, "unknown command"},
		"a list in no format":    {[]string{"list", "-o", "csv"}, "must be one of table, wide, json, yaml, name"},
		"locks of a name":        {[]string{"locks", "data"}, "unknown command"},
		"fences of a name":       {[]string{"fences", "n1"}, "unknown command"},
		"fences without a pause": {[]string{"fences", "--interval=0s"}, "must be above 0"},
		"leaks of no driver":     {[]string{"leaks"}, "--driver is missing"},
		"leaks in no format": {[]string{"leaks", "-o", "xml"},
			"must be one of table, wide, json, yaml, csv"},
		"leaks on no port":    {[]string{"leaks", "--driver=d", "--port=0"}, "must be a port"},
		"leaks of half a pod": {[]string{"leaks", "--driver=d", "--pod=p"}, "must be NAMESPACE/NAME"},
		"both remedies at once": {[]string{"leaks", "--driver=d", "--adopt=a", "--reclaim=a"},
			"[adopt reclaim]"},
		"a size that is none":               {[]string{"leaks", "--driver=d", "--adopt=a", "--size=big"}, "--size=big"},
		"a report that is not there":        {[]string{"leaks", "--from=/nowhere/report"}, "/nowhere/report"},
		"a cluster that cannot be reached":  {[]string{"explain", "pv/a", "--server=http://127.0.0.1:1"}, `read PV "a"`},
		"a kubeconfig file that is missing": {[]string{"status", "--kubeconfig=/nowhere/kubeconfig"}, "nowhere"},
	} {
		if _, err := run(t, c.args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", sentence, err, c.want)
		}
	}
}

func TestErrorNextSteps(t *testing.T) {
	pvs := schema.GroupResource{Resource: "persistentvolumes"}
	for sentence, c := range map[string]struct {
		err  error
		want string
	}{
		"not there":     {apierrors.NewNotFound(pvs, "a"), "kubectl get pv"},
		"not allowed":   {apierrors.NewForbidden(pvs, "a", errors.New("x")), "ask for the permission"},
		"not known":     {apierrors.NewUnauthorized("x"), "log in"},
		"put back":      {reclaim.ErrFinalizerRestored, "run the same command again"},
		"no report":     {fmt.Errorf("%w: %w", errNoReport, apierrors.NewNotFound(pvs, "a")), "--leak-check-interval"},
		"refused":       {leaks.ErrRefused, "kubectl reclaim leaks"},
		"not released":  {leaks.ErrNotReleased, "kube-controller-manager"},
		"not confirmed": {errNotConfirmed, "--yes"},
		"no fencing":    {fmt.Errorf("x: %w", explain.ErrNoFencing), "--controllers=*,node-fencing"},
		"fenced":        {nodes.ErrFenced, "kubectl reclaim unfence"},
		"not fenced":    {nodes.ErrNotFenced, "kubectl reclaim fences"},
		"ending":        {nodes.ErrEnding, "kubectl reclaim explain"}, "ready": {nodes.ErrReady, "--even-if-ready"},
		"control plane": {nodes.ErrControlPlane, "--allow-control-plane"}, "no node": {nodes.ErrNoNode, "kubectl get nodes"},
		"not gone": {errNotGone, "volume-guard runs"}, "not proven": {errNotProven, "kubectl reclaim explain"},
		"too late": {errWaitOver, "kubectl reclaim explain"}, "over": {errFenceOver, "kubectl reclaim explain"},
		"changed and fenced": {errors.Join(errNodeChanged, nodes.ErrFenced), "run the same command again"},
		"no terminal":        {errNoTerminal, "--yes"},
		"replaced":           {fmt.Errorf("x: %w: %w", errReplaced, apierrors.NewNotFound(pvs, "a")), "kubectl get pod"},
		"changed":            {errChanged, "run the same command again"},
		"half done": {&unfinishedError{&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db-0"}}, "x",
			context.Canceled}, "to undo: kubectl annotate pod db-0 -n shop csi-reclaimer.io/confirm-force-delete-"},
		"no answer":       {context.DeadlineExceeded, "kubectl cluster-info"},
		"something else":  {errors.New("a\nb"), "a; b"},
		"deep in another": {fmt.Errorf("read: %w", apierrors.NewNotFound(pvs, "a")), "kubectl get pv"},
	} {
		if got := withNextStep(c.err); !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", sentence, got, c.want)
		}
	}
}

func TestShellCompletion(t *testing.T) {
	for line, want := range map[string]string{
		"explain ": "pv/\npvc/\npod/\nnamespace/\nnode/\nstatefulset/\n", "confirm ": "node/\npvc/\n",
		"fence a --dry-run=": "none\nserver\n", "unfence a ": ":4\n", "fence a ": ":4\n",
		"delete-pod a --dry-run=": "none\nserver\n",
		"preview --delete ":       "statefulset/\n", "preview sts/a --cascade ": "background\nforeground\norphan\n",
		"status --role ": "owner\ncompanion\nobserver\n",
	} {
		said, err := run(t, append([]string{"__complete"}, strings.Split(line, " ")...)...)
		if err != nil || !strings.HasPrefix(said, want) {
			t.Errorf("%q is completed by %q, %v", line, said, err)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if said, err := run(t, "completion", shell); err != nil || !strings.Contains(said, name) {
			t.Errorf("completion %s: %v", shell, err)
		}
	}
}

func TestShellCompletionOfOutput(t *testing.T) {
	want := map[string]struct {
		args    []string
		formats []string
	}{
		"explain": {[]string{"pv/a"}, []string{"table", "wide", "json", "yaml"}},
		"status":  {nil, []string{"table", "wide", "json", "yaml"}},
		"fences":  {nil, []string{"table", "wide", "json", "yaml"}},
		"list":    {nil, []string{"table", "wide", "json", "yaml", "name"}},
		"version": {nil, []string{"table", "wide", "json", "yaml"}},
		"locks":   {nil, []string{"table", "wide", "json", "yaml"}},
		"pods":    {nil, []string{"table", "wide", "json", "yaml"}},
		"preview": {[]string{"sts/a", "--delete"}, []string{"table", "wide", "json", "yaml"}},
		"release": {[]string{"--driver=d"}, []string{"table", "wide", "json", "yaml"}},
		"leaks":   {[]string{"--driver=d"}, []string{"table", "wide", "json", "yaml", "csv"}},
	}
	for _, cmd := range newCommand(genericiooptions.NewTestIOStreamsDiscard()).Commands() {
		c, known := want[cmd.Name()]
		if flag := cmd.Flags().Lookup("output"); known != (flag != nil) {
			t.Errorf("%s: it has --output: %t, and formats of it are known here: %t", cmd.Name(), flag != nil, known)
		}
		if !known {
			continue
		}
		delete(want, cmd.Name())
		line := append([]string{cmd.Name()}, c.args...)
		said, err := run(t, append(append([]string{"__complete"}, line...), "-o", "")...)
		if err != nil || !strings.HasPrefix(said, strings.Join(c.formats, "\n")+"\n:") {
			t.Errorf("%s -o is completed by %q, %v, want %q", cmd.Name(), said, err, c.formats)
		}
		for _, format := range c.formats {
			// The server does not answer, so the error must be about the connection and not about the format.
			_, err := run(t, append(line, "--server=http://127.0.0.1:1", "-o", format)...)
			if err == nil || strings.Contains(err.Error(), "--output") {
				t.Errorf("%s -o %s: %v", cmd.Name(), format, err)
			}
			if usage := cmd.Flags().Lookup("output").Usage; !strings.Contains(usage, format) {
				t.Errorf("the help of %s does not name -o %s: %s", cmd.Name(), format, usage)
			}
		}
	}
	for name := range want {
		t.Errorf("there is no command %s", name)
	}
}

// some is a status with a value in each column.
func some() volumes.Status {
	return volumes.Status{
		Drivers: []volumes.DriverStatus{{
			Driver: "d", Role: "owner", PVs: 4, Protected: 2, Unprotected: 1, Terminating: 1, Waiting: map[string]int{
				"Held": 1},
			Oldest: &volumes.Oldest{PV: "old", Since: metav1.Unix(0, 0)},
		}, {Driver: "idle"}},
		Warnings: []string{"look\x1b[2J"}, Unread: []string{"Leases"},
	}
}

func TestPrintStatus(t *testing.T) {
	for format, want := range map[string][]string{
		"table": {"DRIVER", "OLDEST TERMINATING", "Held 1", "60m, old", "\n! look^[[2J\n", "Not read: Leases", "idle"},
		"wide":  {"ROLE", "ADMISSION", "owner"},
		"json": {`"apiVersion": "csi-reclaimer.io/v1alpha1"`, `"kind": "Status"`, `"pvs": 4`,
			`"since": "1970-01-01T00:00:00Z"`},
		"yaml": {"kind: Status", "pvs: 4", "Held: 1"},
	} {
		var out bytes.Buffer
		o := &statusOptions{shared: &shared{IOStreams: genericiooptions.IOStreams{Out: &out, ErrOut: io.Discard}},
			out: output{format: format}}
		if err := o.out.prepare(); err != nil {
			t.Fatal(err)
		}
		if err := o.show(some(), time.Unix(3600, 0), false); err != nil {
			t.Fatal(err)
		}
		for _, words := range want {
			if !strings.Contains(out.String(), words) {
				t.Errorf("-o %s lacks %q:\n%s", format, words, out.String())
			}
		}
		if format == "table" && strings.Contains(out.String(), "ROLE") {
			t.Errorf("-o table is wide:\n%s", out.String())
		}
	}
}

func TestPrintReleasePlan(t *testing.T) {
	p := volumes.Plan{Driver: "d", Role: "owner", Abandoned: []string{"pv-0"}, Obstacles: []string{"stop it"},
		Unread: []string{"Leases"}}
	for i := range 12 {
		p.PVs = append(p.PVs, fmt.Sprintf("pv-%d", i))
	}
	var out bytes.Buffer
	if err := writePlan(&out, p); err != nil {
		t.Fatal(err)
	}
	for _, words := range []string{"12 PVs of d", "  pv-9\n  and 2 more\n", "PV pv-0 is terminating", "! stop it",
		"Not read: Leases"} {
		if !strings.Contains(out.String(), words) {
			t.Errorf("%q is missing:\n%s", words, out.String())
		}
	}
}

func TestReleaseNamesWayOut(t *testing.T) {
	t.Parallel()
	err := inFlight(volumes.Plan{Driver: "d", InFlight: []explain.InFlight{{Volume: "pvc-1"}}})
	if err == nil || !strings.Contains(err.Error(), inflight.ToSettle) || inFlight(volumes.Plan{}) != nil {
		t.Error(err)
	}
}

func TestReleaseWithoutPVsFailsAtObstacle(t *testing.T) {
	t.Parallel()
	begins, err := begin(volumes.Plan{Driver: "d", Obstacles: []string{"part of the log cannot be read"}})
	if begins || err == nil || !strings.Contains(err.Error(), "part of the log cannot be read") {
		t.Errorf("%v, %v", begins, err)
	}
	if begins, err := begin(volumes.Plan{Driver: "d"}); begins || err != nil {
		t.Errorf("nothing to release: %v, %v", begins, err)
	}
	if begins, err := begin(volumes.Plan{Driver: "d", PVs: []string{"pv"}}); !begins || err != nil {
		t.Errorf("a PV to release: %v, %v", begins, err)
	}
}

func TestConfirmNeedsYes(t *testing.T) {
	for input, want := range map[string]error{"y\n": nil, "Yes\n": nil, "y": nil, "n\n": errNotConfirmed,
		"\n": errNotConfirmed, "": errNotConfirmed, "yesterday\n": errNotConfirmed} {
		o := &releaseOptions{shared: &shared{IOStreams: genericiooptions.IOStreams{In: strings.NewReader(input),
			ErrOut: io.Discard}}}
		if err := o.confirm(t.Context(), "Sure?"); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", input, err, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	in, stop := io.Pipe()
	defer func() { _ = stop.Close() }()
	o := &releaseOptions{shared: &shared{IOStreams: genericiooptions.IOStreams{In: in, ErrOut: io.Discard}}}
	if err := o.confirm(ctx, "Sure?"); !errors.Is(err, errNotConfirmed) {
		t.Errorf("interrupted while it waits for an answer: %v", err)
	}
}

func TestProgressBar(t *testing.T) {
	var out bytes.Buffer
	b := newBar(&out, 40)
	for i := range 40 {
		b.show(i, min(i, 1), 41)
	}
	b.show(40, 1, 41)
	b.end()
	if lines := strings.Count(out.String(), "\n"); lines != 11 || !strings.HasSuffix(out.String(),
		"40 of 41 released, 1 failed\n") {
		t.Errorf("%d lines:\n%s", lines, out.String())
	}
	out.Reset()
	b = &bar{w: &out, redraw: true, drawn: -1}
	b.show(1, 0, 2)
	b.show(1, 0, 2)
	b.show(2, 0, 2)
	b.end()
	want := "\r[" + strings.Repeat("#", 20) + strings.Repeat(".", 20) + "] 1 of 2 released\r[" +
		strings.Repeat("#", 40) + "] 2 of 2 released\n"
	if out.String() != want {
		t.Errorf("drawn %q", out.String())
	}
}

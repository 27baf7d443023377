package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/kubectl-reclaim/internal/cli"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/commandline"
)

var root = commandline.Root(newCommand)

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
		"a list of a name":    {[]string{"list", "data"}, "unknown command"},
		"a list in no format": {[]string{"list", "-o", "csv"}, "must be one of table, wide, json, yaml, name"},
		"a list of a misspelled reason": {[]string{"list", "--reason=Held,atached"},
			"--reason=atached: there is no such reason: did you mean Attached?"},
		"a list of no reason at all": {[]string{"list", "--reason=xyzzy"}, "--reason=xyzzy: there is no such reason"},
		"locks of a name":            {[]string{"locks", "data"}, "unknown command"},
		"fences of a name":           {[]string{"fences", "n1"}, "unknown command"},
		"fences without a pause":     {[]string{"fences", "--interval=0s"}, "must be above 0"},
		"leaks of no driver":         {[]string{"leaks"}, "--driver is missing"},
		"leaks in no format": {[]string{"leaks", "-o", "xml"},
			"must be one of table, wide, json, yaml, csv"},
		"leaks on no port":    {[]string{"leaks", "--driver=d", "--port=0"}, "must be a port"},
		"leaks of half a pod": {[]string{"leaks", "--driver=d", "--pod=p"}, "must be NAMESPACE/NAME"},
		"both remedies at once": {[]string{"leaks", "--driver=d", "--adopt=a", "--reclaim=a"},
			"[adopt reclaim]"},
		"a size that is none": {[]string{"leaks", "--driver=d", "--adopt=a", "--size=big"}, "--size=big"},
		"a size of 2^64 + 1":  {[]string{"leaks", "--driver=d", "--adopt=a", "--size=18446744073709551617"}, "below 8Ei"},
		"a claim without a namespace": {[]string{"leaks", "--driver=d", "--adopt=a", "--claim=b"},
			"must be NAMESPACE/NAME"},
		"a claim of no volume": {[]string{"leaks", "--driver=d", "--reclaim=a", "--claim=b/c"},
			"only --adopt reserves"},
		"a report that is not there":        {[]string{"leaks", "--from=/nowhere/report"}, "/nowhere/report"},
		"a cluster that cannot be reached":  {[]string{"explain", "pv/a", "--server=http://127.0.0.1:1"}, `read PV "a"`},
		"a kubeconfig file that is missing": {[]string{"status", "--kubeconfig=/nowhere/kubeconfig"}, "nowhere"},
	} {
		if _, err := root.Run(t, c.args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", sentence, err, c.want)
		}
	}
}

func TestShellCompletion(t *testing.T) {
	for line, want := range map[string]string{
		"explain ": "pv/\npvc/\npod/\nnamespace/\nnode/\nstatefulset/\n", "confirm ": "node/\npvc/\n",
		"fence a --dry-run=": "none\nserver\n", "unfence a ": ":4\n", "fence a ": ":4\n",
		"delete-pod a --dry-run=": "none\nserver\n",
		"preview --delete ":       "statefulset/\n", "preview sts/a --cascade ": "background\nforeground\norphan\n",
		"status --role ": "owner\ncompanion\nobserver\n", "list --reason ": "APIReadFailed\n",
	} {
		said, err := root.Run(t, append([]string{"__complete"}, strings.Split(line, " ")...)...)
		if err != nil || !strings.HasPrefix(said, want) {
			t.Errorf("%q is completed by %q, %v", line, said, err)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if said, err := root.Run(t, "completion", shell); err != nil || !strings.Contains(said, cli.Name) {
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
	for _, cmd := range root.Discard().Commands() {
		c, known := want[cmd.Name()]
		if flag := cmd.Flags().Lookup("output"); known != (flag != nil) {
			t.Errorf("%s: it has --output: %t, and formats of it are known here: %t", cmd.Name(), flag != nil, known)
		}
		if !known {
			continue
		}
		delete(want, cmd.Name())
		line := append([]string{cmd.Name()}, c.args...)
		said, err := root.Run(t, append(append([]string{"__complete"}, line...), "-o", "")...)
		if err != nil || !strings.HasPrefix(said, strings.Join(c.formats, "\n")+"\n:") {
			t.Errorf("%s -o is completed by %q, %v, want %q", cmd.Name(), said, err, c.formats)
		}
		for _, format := range c.formats {
			// The server does not answer, so the error must be about the connection and not about the format.
			_, err := root.Run(t, append(line, "--server=http://127.0.0.1:1", "-o", format)...)
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

// zsh takes a word with an unquoted question mark for a pattern, which names no file.
func TestExamplesQuotePatterns(t *testing.T) {
	quoted := regexp.MustCompile(`'[^']*'|"[^"]*"|(?m:^ *#.*$)`)
	for _, cmd := range root.Discard().Commands() {
		if strings.ContainsAny(quoted.ReplaceAllString(cmd.Example, ""), "?*") {
			t.Errorf("%s: %s", cmd.Name(), cmd.Example)
		}
	}
}

package terminal

import (
	"slices"
	"testing"
)

func TestCommands(t *testing.T) {
	const page = "Type `kubectl get pv NAME -o yaml`, or `kubectl get`.\n\n    make demo     # shows it\n    pvc-1   Bound\n\n    $ kubectl reclaim status\n    DRIVER  1\n\n" +
		"    csi-reclaimer is output\n\n    kubectl get pv \\\n        -o json\n\n" +
		"```sh\nhelm list --all\n```\n\n```yaml\nkubectl: is no command\n```\n\n      - {name: kubectl}\n"
	want := []string{"kubectl get pv NAME -o yaml", "make demo", "kubectl reclaim status", "kubectl get pv -o json",
		"helm list --all"}
	if got := Commands(page); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestSteps(t *testing.T) {
	got, err := Steps("# Page\n\ntext\n\n## One\n\n```sh\na\nb\n```\n\nprints\n\n```text\nc\n```\n\n```sh\nd\n```\n\n## Two\n\n```sh\ne\n```\n")
	want := []Step{{"One", 8, "a\nb\n", "c\n"}, {"One", 19, "d\n", ""}, {"Two", 25, "e\n", ""}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	for what, page := range map[string]string{
		"code that would not run":   "    kubectl get pv\n",
		"another language":          "```yaml\na: b\n```\n",
		"output of nothing":         "```text\na\n```\n",
		"output of another section": "# A\n```sh\na\n```\n# B\n```text\na\n```\n",
		"a second output":           "```sh\na\n```\n```text\na\n```\n```text\na\n```\n",
		"no end":                    "```sh\na\n",
	} {
		if steps, err := Steps(page); err == nil {
			t.Errorf("%s: accepted as %+v", what, steps)
		}
	}
}

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		shown, output string
		want          bool
	}{
		{"a b\n", "a b\n", true},
		{"NAME   AGE\npvc-…  …\n", "NAME AGE\npvc-1234   3s\n", true},
		{"a\n…\nd\n", "a\nb\nc\nd\n", true},
		{"a\n…\nd\n", "a\nd\n", true},
		{"a\n", "a\nb\n", false},
		{"a\nb\n", "a\n", false},
		{"a.c\n", "abc\n", false},
		{"a…c\n", "a\nc\n", false},
		{"a\n", "", false},
		{"PV … is gone\n", "PV a is gone, not\n", false},
	} {
		if err := Match(c.shown, c.output); (err == nil) != c.want {
			t.Errorf("%q shown, %q printed: %v, want a match: %v", c.shown, c.output, err, c.want)
		}
	}
}

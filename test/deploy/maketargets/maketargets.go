// Package maketargets says how each target of the Makefile is tested. Its test runs the targets that take seconds, and
// has "make -n" check the others.
package maketargets

import "strings"

// run are the targets that the test of this package runs.
func run() []string { return []string{"help", "plugin", "images", "clean", "fmt"} }

// onlyChecked has the reason for each target that "make -n" alone checks. A line with variables can have one, too.
func onlyChecked() map[string]string {
	const (
		suite = "it is a suite of tests, of which this test is a part or for which it would wait"
		hours = "it takes hours"
	)
	return map[string]string{
		"images VERSION=v0.1.0 PUSH=registry.example.com/storage": "it pushes to a registry that does not exist; the " +
			"tests of tools/images push to one of their own",
		"build":   "TestBuiltProgramsStart of test/build runs it",
		"krew":    "it compiles the plugin for five platforms; test/deploy runs it for one",
		"release": "it needs a checkout without changes; TestRelease of test/deploy runs it in one of its own",

		"demo": "it compiles and starts control planes of its own; test/demo tests its parts, and test/e2e what it shows",
		"tour": "it takes a quarter of an hour, and nodes; test/tour tests its parts, test/e2e and test/nodes what it shows",

		"test": suite, "test-full": suite, "test-race": suite, "flakes": hours,
		"test-unit": suite, "test-model": suite, "test-deploy": suite, "test-controlplane": suite,
		"test-apiserver": suite, "test-sanity": suite, "test-e2e": suite, "test-e2e-oldest": suite, "test-nodes": suite,
		"test-web": suite, "e2e-versions": "it takes a quarter of an hour for each Kubernetes version",
		"model": "it takes up to 20 minutes; test/model explores the beginning of each world", "model-deep": hours,
		"mutants": hours, "faults": "it takes up to 20 minutes; test/faults plays each scenario",
		"fuzz":         "it takes half a minute for each of many targets; their seeds are unit tests",
		"controlplane": "it compiles Kubernetes; test/framework/controlplane compiles what it tests",
		"conformance":  "it compiles Kubernetes' own suite, and takes an hour; test/conformance tests its parts",
		"bench": "it takes hours, or minutes for one family, and tests beside it would spoil its figures; test/bench " +
			"tests its parts",
		"bench-plot": "it writes into this checkout",

		"lint":        "it takes minutes, and .ci/run runs it with each change",
		"house":       "lint runs it with each change; test/house tests it in trees of its own",
		"apis":        "it writes into this checkout; lint checks that it would change nothing",
		"docs":        "it writes into this checkout; the tests that it runs check that it would change nothing",
		"screenshots": "it writes into this checkout; make test-web takes the pictures",
		"dashboard": "it downloads a package with npm; test/deploy checks the dashboard against the schema that was " +
			"downloaded",
	}
}

// Why returns the reason why a line, without the word make, is not run. A line that is run has none; known reports
// whether its target has an entry.
func Why(line string) (why string, known bool) {
	if why, known = onlyChecked()[line]; known {
		return why, known
	}
	target, _, _ := strings.Cut(line, " ")
	if why, known = onlyChecked()[target]; known {
		return why, known
	}
	for _, name := range run() {
		known = known || name == target
	}
	return "", known
}

// Command house measures the tree: its lines, functions, names and prose. It compares each figure with its limit in
// limits.txt, and fails if one got worse.
//
//	go run ./test/house [--update] [ROOT]
//
// It prints a table of the figures with their limits and goals, and for a figure that got worse the places that weigh
// most. --update writes the limits of figures that got better; it never loosens one. A figure within its goal may
// move. The program reads files alone, without git or network. The exit status is 1 if a figure got worse or has no
// limit, and 2 on an error.
//
// The figures:
//   - Shipped Go is all Go outside test/ except tests, with the tools, without generated files. The harness is the Go
//     in test/.
//   - Functions and complexity count as funlen and cyclop do in .golangci.yml.
//   - Folders count by their files of shipped Go.
//   - A controller is a folder in pkg/ that imports internal/controller. Its role files are those that each controller
//     has, such as config.go and metrics.go.
//   - Mirrors are structs in shipped Go, outside internal/objects and pkg/apis, with the name of an API kind, such as
//     Pod or podFacts. The name alone decides.
//   - A package with a queue of client-go has a control loop of its own: internal/controller has the only one.
//   - Public names are exported top-level names and methods in pkg/, outside internal packages.
//   - Prose is the comments of shipped Go, and the text of pages without tables, code and headings. Docs are all pages
//     except DESIGN.md.
//   - Riddles are names of tests with What, Which, Whose, Where, That or Nothing.
//
// A limit of lines is a multiple of 500, so that it has room for a small change.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// limitsFile is the path of the limits from the root of the tree.
const limitsFile = "test/house/limits.txt"

func main() { os.Exit(runMain(os.Args[1:], os.Stdout, os.Stderr)) }

func runMain(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("house", flag.ContinueOnError)
	flags.SetOutput(stderr)
	update := flags.Bool("update", false, "write the limits of the figures that got better")
	if err := flags.Parse(args); err != nil || flags.NArg() > 1 {
		fmt.Fprintln(stderr, "usage: house [--update] [ROOT]")
		return 2
	}
	root := "."
	if flags.NArg() == 1 {
		root = flags.Arg(0)
	}
	worse, err := run(root, *update, stdout)
	switch {
	case err != nil:
		fmt.Fprintln(stderr, "house:", err)
		return 2
	case worse:
		return 1
	}
	return 0
}

// run measures the tree at root, and prints the figures and their changes. It reports whether one got worse.
func run(root string, update bool, out io.Writer) (worse bool, err error) {
	file := filepath.Join(root, filepath.FromSlash(limitsFile))
	limits, err := readLimits(file)
	if err != nil {
		return false, err
	}
	figures, err := measure(root)
	if err != nil {
		return false, err
	}
	if update {
		limits = tighten(figures, limits)
		if err := os.WriteFile(file, []byte(format(figures, limits)), 0o644); err != nil {
			return false, err
		}
	}
	printTable(out, figures, limits)
	return report(out, figures, limits), nil
}

// Command images builds the OCI images of the programs, without a container engine. Each image holds one static
// program and no other file. Beside the images the command writes an SBOM and a provenance statement, and it can push
// everything to a registry.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/google/go-containerregistry/pkg/logs"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

const usage = `Builds an OCI image of each program, without a container engine ("make images").

  images --version=VERSION [flags] -- [flags of go build]

Each image holds one static program, which runs as user 65532:65532. For each program, the folder of the
output has:

  oci/                        an OCI image layout: all platforms as one index, SBOMs, provenance
  PROGRAM.tar                 the same as an archive, for "ctr images import"
  PROGRAM-OS-ARCH.spdx.json   the SBOM of a platform's program (SPDX 2.3)
  PROGRAM.provenance.json     how it was built (in-toto statement, SLSA provenance v1, not signed)

The same commit, version, flags and Go toolchain give the same digests on each machine.

With --push, each program goes to REGISTRY/PATH/PROGRAM:VERSION, with SBOMs and provenance as OCI referrers.
Credentials come from docker's configuration ("docker login", or $DOCKER_CONFIG). A tag that exists with
another digest is refused; --overwrite moves it.

Examples:
  make images                                           all programs, for linux/amd64 and linux/arm64
  make images ONLY=volume-guard IMAGE_PLATFORMS=linux/arm64
  make images VERSION=v1.2.3 PUSH=registry.example.com/storage
  ctr -n k8s.io images import .build/images/volume-guard/volume-guard.tar

Environment:
  SOURCE_DATE_EPOCH   the time in images and SBOMs, in seconds since 1970; default: the time of the commit
  DOCKER_CONFIG       the folder with docker's config.json

Flags:
`

type options struct {
	root, output, version, revision, push string
	overwrite                             bool
	platforms                             []v1.Platform
	programs                              []program
	goCommand                             string
	buildFlags                            []string
	// epoch is the value of the environment variable SOURCE_DATE_EPOCH, or empty.
	epoch string
	// out receives the table, and progress the messages during the run.
	out, progress io.Writer
}

func main() { os.Exit(start()) }

func start() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	logs.Warn = log.New(os.Stderr, "registry: ", 0) // the library reports retries
	o, err := parse(os.Args[1:], os.Stdout, os.Stderr)
	if err == nil {
		o.epoch = os.Getenv("SOURCE_DATE_EPOCH")
		err = run(ctx, o)
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "images: %v\n", err)
		return 1
	}
	return 0
}

// parse parses the command line, or for --help prints the help and returns flag.ErrHelp.
func parse(args []string, out, progress io.Writer) (options, error) {
	o := options{out: out, progress: progress}
	flags := flag.NewFlagSet("images", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // errors are returned
	flags.StringVar(&o.version, "version", "", "version of the images and their `tag`; required")
	flags.StringVar(&o.root, "root", ".", "`folder` of the checkout")
	flags.StringVar(&o.output, "output", ".build/images", "`folder` to write to; replaces the output of an earlier run")
	flags.StringVar(&o.revision, "revision", "", "source `revision`; default: the commit of the checkout")
	flags.StringVar(&o.push, "push", "", "`registry/path` to push to; default: push nothing")
	flags.BoolVar(&o.overwrite, "overwrite", false, "with --push: move a tag that exists with another digest")
	flags.StringVar(&o.goCommand, "go", "go", "the go `command`")
	platforms := flags.String("platforms", "linux/amd64,linux/arm64", "`os/arch,...` to build for")
	only := flags.String("only", "", "`program,...` to build; default: all")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(out, usage)
		flags.SetOutput(out)
		flags.PrintDefaults()
		return options{}, err
	} else if err != nil {
		return options{}, fmt.Errorf("%w; --help lists all flags", err)
	}
	o.buildFlags = flags.Args()
	var err error
	if o.platforms, err = parsePlatforms(*platforms); err != nil {
		return options{}, err
	}
	if o.programs, err = choose(*only); err != nil {
		return options{}, err
	}
	return o, checkVersion(o.version)
}

// separated splits a list at commas and spaces, because Make's lists have spaces.
func separated(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

func parsePlatforms(list string) (all []v1.Platform, err error) {
	for _, one := range separated(list) {
		system, architecture, _ := strings.Cut(one, "/")
		if system != "linux" || architecture == "" || strings.Contains(architecture, "/") {
			return nil, fmt.Errorf("platform %q is not linux/ARCH, such as linux/amd64", one)
		}
		platform := v1.Platform{OS: system, Architecture: architecture}
		if slices.ContainsFunc(all, platform.Equals) {
			return nil, fmt.Errorf("platform %q is named twice", one)
		}
		all = append(all, platform)
	}
	if len(all) == 0 {
		return nil, errors.New("no platform to build for: name one, such as linux/amd64")
	}
	return all, nil
}

// run builds all images before it pushes any, so that a failed build leaves the registry unchanged.
func run(ctx context.Context, o options) error {
	from, err := readSource(ctx, o)
	if err != nil {
		return err
	}
	if from.modified {
		fmt.Fprintf(o.progress, "warning: %s has uncommitted changes; revision: %s\n", o.root, from.revision)
	}
	target, err := parseDestination(o.push, from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.output, 0o755); err != nil {
		return fmt.Errorf("make the output folder: %w", err)
	}
	var rows []row
	for _, p := range o.programs {
		made, err := makeProgram(ctx, o, from, p, target.name(p.name))
		if err != nil {
			return fmt.Errorf("image of %s: %w", p.name, err)
		}
		rows = append(rows, made...)
	}
	fmt.Fprintln(o.progress, "written to", filepath.Clean(o.output))
	if o.push != "" {
		if err := target.push(ctx, o); err != nil {
			return err
		}
	}
	return table(o.out, rows)
}

// program is a program of this repository that gets an image.
type program struct{ name, pkg, description string }

// programs lists all programs with an image.
var programs = []program{
	{"csi-reclaimer", "./cmd/csi-reclaimer",
		"Sidecar of a CSI driver: deletes volumes in any order of deletion of PV and claim"},
	{"volume-guard", "./cmd/volume-guard",
		"Reclaims and protects volumes where Kubernetes does not; runs once per cluster"},
	{"kubectl-reclaim", "./cmd/kubectl-reclaim",
		"kubectl plugin: explains why PVs, claims and pods are still there"},
	{"mock-driver", "./mock-driver",
		"CSI driver for tests: its volumes are directories"},
}

// choose returns the programs with these names, or all programs for an empty list.
func choose(list string) ([]program, error) {
	names := separated(list)
	if len(names) == 0 {
		return programs, nil
	}
	var chosen []program
	for _, p := range programs {
		if at := slices.Index(names, p.name); at >= 0 {
			names = slices.Delete(names, at, at+1)
			chosen = append(chosen, p)
		}
	}
	if len(names) > 0 {
		var all []string
		for _, p := range programs {
			all = append(all, p.name)
		}
		return nil, fmt.Errorf("no image of %q, or named twice; known images: %s", names[0],
			strings.Join(all, ", "))
	}
	return chosen, nil
}

// tag matches a valid tag in the grammar of the distribution specification.
var tag = regexp.MustCompile(`^[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}$`)

func checkVersion(version string) error {
	switch {
	case version == "":
		return errors.New("no version: make images VERSION=vX.Y.Z, or --version=vX.Y.Z")
	case !tag.MatchString(version):
		return fmt.Errorf("version %q cannot be the tag of an image: it may have letters, digits, \"_\", \".\" and \"-\", "+
			"up to 128, and begins with none of the last two", version)
	}
	return nil
}

// Command release gathers all parts of a release in one folder, without publishing them: images, charts, manifests,
// the kubectl plugin, release notes and checksums.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

const usage = `Gathers a release in one folder ("make release"). It publishes nothing.

  release --version=vX.Y.Z [flags]

The folder OUTPUT/VERSION has:

  images/PROGRAM/    image archives, SBOMs and provenance, as "make images" makes them
  images/digests.txt digests of the images
  charts/            Helm charts; they install the images of the version
  manifests/         deploy/manifests, with the images of the version
  kustomize/         deploy/kustomize, for these manifests
  install/           the objects of each kustomize base in one file, for "kubectl apply -f"
  monitoring/        alerts and the Grafana dashboard
  krew/              archives of the kubectl plugin and its man pages, krew manifest, as "make krew" makes them
  RELEASE_NOTES.md   the section of the version in CHANGELOG.md
  LICENSE
  SHA256SUMS         checksums of all other files, for "sha256sum -c"
  SHA256SUMS.sig     with COSIGN_KEY: its signature, for "cosign verify-blob"

The checkout must have no uncommitted changes, and CHANGELOG.md a section of the version with its date, except for a
trial.
The folder appears when all is made: a run that fails or is interrupted leaves none. The same commit, version,
platforms and Go toolchain give the same checksums.

Examples:
  make release VERSION=v1.2.3
  make release VERSION=v1.2.3-rc.1 IMAGE_PLATFORMS=linux/amd64 PLATFORMS=linux/amd64
  make release VERSION=v1.2.3 TRIAL=1

Environment:
  COSIGN_PASSWORD     the password of the key in --cosign-key
  SOURCE_DATE_EPOCH   the time in archives, in seconds since 1970; default: the time of the commit

Flags:
`

type options struct {
	root, output, version string
	// trial allows uncommitted changes and a version without a section in CHANGELOG.md.
	trial bool
	// platforms and pluginPlatforms are the platforms of the images and of the plugin, as lists of the Makefile.
	platforms, pluginPlatforms string
	makeCommand, goCommand     string
	// helmCommand is the helm program; by default helm is compiled.
	helmCommand string
	// cosignKey is a file with a private key of cosign, empty for no signature. cosignPassword is the value of the
	// environment variable COSIGN_PASSWORD.
	cosignKey, cosignPassword string
	// epoch is the value of the environment variable SOURCE_DATE_EPOCH, or empty.
	epoch string
	// out receives the path of the finished folder, and progress the messages during the run.
	out, progress io.Writer
}

func main() { os.Exit(start()) }

func start() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o, err := parse(os.Args[1:], os.Stdout, os.Stderr)
	if err == nil {
		o.epoch, o.cosignPassword = os.Getenv("SOURCE_DATE_EPOCH"), os.Getenv("COSIGN_PASSWORD")
		err = run(ctx, o)
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "release: %v\n", err)
		return 1
	}
	return 0
}

// parse parses the command line, or for --help prints the help and returns flag.ErrHelp.
func parse(args []string, out, progress io.Writer) (options, error) {
	o := options{out: out, progress: progress}
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // errors are returned
	flags.StringVar(&o.version, "version", "", "`version` of the release, such as v1.2.3; required")
	flags.StringVar(&o.root, "root", ".", "`folder` of the checkout")
	flags.StringVar(&o.output, "output", ".build/release", "`folder` in which the folder of the release is made")
	flags.BoolVar(&o.trial, "trial", false, "make it to look at, and not to publish: take uncommitted changes, and the "+
		"changes in \"Unreleased\" if CHANGELOG.md has no section of the version")
	flags.StringVar(&o.platforms, "platforms", "linux/amd64,linux/arm64", "`os/arch,...` of the images")
	flags.StringVar(&o.pluginPlatforms, "plugin-platforms", "linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 "+
		"windows/amd64",
		"`os/arch ...` of the kubectl plugin")
	flags.StringVar(&o.cosignKey, "cosign-key", "", "`file` with the private key of cosign that signs the checksums; "+
		"default: nothing is signed")
	flags.StringVar(&o.makeCommand, "make", "make", "the make `command`")
	flags.StringVar(&o.helmCommand, "helm", "", "the helm `command`; default: compiled, in the version of the tests of "+
		"the charts")
	flags.StringVar(&o.goCommand, "go", "go", "the go `command`")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(out, usage)
		flags.SetOutput(out)
		flags.PrintDefaults()
		return options{}, err
	} else if err != nil {
		return options{}, fmt.Errorf("%w; --help lists all flags", err)
	}
	if flags.NArg() > 0 {
		return options{}, fmt.Errorf("unexpected argument %q: all settings are flags, see --help", flags.Arg(0))
	}
	return o, checkVersion(o.version)
}

//go:build unix

// Command controlplane compiles and runs the test control planes by hand.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane/fakenode"
)

const usage = `usage: controlplane build [--version v1.37,v1.30|edges|all]
       controlplane up [--version v1.37] [flags]

build compiles the control planes of these versions, where that was not done before.
up runs one until it is interrupted. Flags: controlplane up --help
`

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	switch err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "controlplane:", err)
		cancel()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	if len(args) == 0 {
		_, _ = fmt.Fprint(progress, usage)
		return errors.New("no command given")
	}
	switch command := args[0]; command {
	case "build":
		return runBuild(ctx, args[1:], out, progress)
	case "up":
		return runUp(ctx, args[1:], out, progress)
	case "help", "-h", "-help", "--help":
		_, _ = fmt.Fprint(out, usage)
		return nil
	default:
		_, _ = fmt.Fprint(progress, usage)
		return fmt.Errorf("unknown command %q", command)
	}
}

func runBuild(ctx context.Context, args []string, out, progress io.Writer) error {
	flags := newFlags("build", progress)
	versions := flags.String("version", string(controlplane.Newest), "versions to build, separated by commas; edges: "+
		"the newest and the oldest, on which each change is tested; all: also those in between")
	if err := parse(flags, args); err != nil {
		return err
	}
	wanted, err := parseVersions(*versions)
	if err != nil {
		return err
	}
	for _, version := range wanted {
		binary, err := controlplane.Build(ctx, version, progress)
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(out, "%s %s\n", version, binary)
	}
	return nil
}

// parseVersions reads the value of the flag --version of build.
func parseVersions(value string) (wanted []controlplane.Version, err error) {
	switch value {
	case "edges":
		return controlplane.Edges(), nil
	case "all":
		return controlplane.Versions(), nil
	}
	for name := range strings.SplitSeq(value, ",") {
		version, err := controlplane.ParseVersion(name)
		if err != nil {
			return nil, err
		}
		wanted = append(wanted, version)
	}
	return wanted, nil
}

func runUp(ctx context.Context, args []string, out, progress io.Writer) (err error) {
	flags := newFlags("up", progress)
	name := flags.String("version", string(controlplane.Newest), "Kubernetes version")
	node := flags.String("node", "", "also play a node of this name")
	controllers := flags.String("controllers", "*", "what the controller manager runs, as its own flag has it")
	var options controlplane.Options
	flags.BoolVar(&options.Scheduler, "scheduler", false, "run kube-scheduler too")
	flags.BoolVar(&options.Snapshots, "snapshots", false, "serve VolumeSnapshots; nothing makes them")
	flags.BoolVar(&options.HostPathProvisioner, "hostpath-provisioner", false,
		"provision kubernetes.io/host-path volumes under /tmp/hostpath_pv")
	flags.IntVar(&options.ControllerManagerQPS, "controller-manager-qps", 0,
		"each controller's limit on requests a second, 20 in Kubernetes (0: 200)")
	flags.BoolVar(&options.AuditLog, "audit-log", false, "log each request to audit.log")
	flags.StringVar(&options.Dir, "dir", "", "empty folder for data, keys and logs (default: a temporary one)")
	flags.BoolVar(&options.Keep, "keep", false, "leave the folder in place at the end")
	if err := parse(flags, args); err != nil {
		return err
	}
	version, err := controlplane.ParseVersion(*name)
	if err != nil {
		return err
	}
	options.Controllers = strings.Split(*controllers, ",")
	options.Progress = progress
	cp, err := controlplane.Start(ctx, version, options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cp.Stop()) }()

	kubeconfig := filepath.Join(cp.Dir(), "admin.kubeconfig")
	if err := controlplane.WriteKubeconfig(kubeconfig, cp.Admin()); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "export KUBECONFIG=%s\n", kubeconfig)
	_, _ = fmt.Fprintf(progress, "Kubernetes %s is up: %s, logs in %s. Ctrl-C stops it.\n", version, cp.URL(), cp.Dir())
	if *node == "" {
		<-ctx.Done()
		return nil
	}
	return runNode(ctx, cp, *node)
}

func runNode(ctx context.Context, cp *controlplane.ControlPlane, name string) error {
	config, err := cp.ConfigFor(fakenode.User(name), fakenode.Group)
	if err != nil {
		return err
	}
	node, err := fakenode.New(config, name, fakenode.Config{})
	if err != nil {
		return err
	}
	return node.Run(ctx)
}

func newFlags(command string, out io.Writer) *flag.FlagSet {
	flags := flag.NewFlagSet("controlplane "+command, flag.ContinueOnError)
	flags.SetOutput(out)
	return flags
}

func parse(flags *flag.FlagSet, args []string) error {
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	return nil
}

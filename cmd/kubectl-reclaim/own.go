package main

import (
	"context"
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"k8s.io/client-go/discovery"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/kubectl-reclaim/internal/cli"
	"github.com/csi-reclaimer/csi-reclaimer/internal/version"
)

// own returns the commands about the plugin itself.
func own(s *cli.Plugin) []*cobra.Command { return []*cobra.Command{versionCommand(s), manCommand()} }

// versions is the output of the command.
type versions struct {
	Plugin   string `json:"pluginVersion"`
	Go       string `json:"goVersion"`
	Platform string `json:"platform"`
	// Kubernetes is the version of the API server, empty if it was not asked.
	Kubernetes string `json:"kubernetesVersion,omitempty"`
}

func versionCommand(s *cli.Plugin) *cobra.Command {
	out := cli.Output{Plugin: s}
	var client bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show the versions of the plugin and of Kubernetes",
		Example: `  kubectl reclaim version

  # only the version of the plugin, without a request to the cluster
  kubectl reclaim version --client -o json`,
		Args: cobra.NoArgs,
		RunE: out.Run(func(context.Context, []string) error {
			v := versions{Plugin: version.Get(), Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
			var failed error
			if !client {
				v.Kubernetes, failed = kubernetesVersion(s)
			}
			if err := out.Print("Version", v, func(w io.Writer) error { return v.write(w, out.Wide()) }); err != nil {
				return err
			}
			return failed // after the known versions are printed, as by kubectl
		}),
	}
	out.AddOutput(cmd)
	cmd.Flags().BoolVar(&client, "client", false, "Show only the version of the plugin.")
	return cmd
}

func (v versions) write(w io.Writer, wide bool) error {
	fmt.Fprintln(w, "Plugin version:", v.Plugin)
	if wide {
		fmt.Fprintln(w, "Go version:", v.Go)
		fmt.Fprintln(w, "Platform:", v.Platform)
	}
	if v.Kubernetes != "" {
		cli.PrintLine(w, "Kubernetes version: "+v.Kubernetes, false)
	}
	return nil
}

func kubernetesVersion(s *cli.Plugin) (string, error) {
	config, err := s.Config()
	if err != nil {
		return "", err
	}
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return "", fmt.Errorf("create the client: %w", err)
	}
	found, err := client.ServerVersion()
	if err != nil {
		return "", fmt.Errorf("ask for the version of Kubernetes: %w", err)
	}
	return found.GitVersion, nil
}

// manCommand writes man pages for "make krew", with the date of SOURCE_DATE_EPOCH.
func manCommand() *cobra.Command {
	return &cobra.Command{
		Use: "man FOLDER", Short: "Write the man pages of all commands into a folder", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			root.DisableAutoGenTag = true
			// The default has the home directory of the user who makes the pages.
			root.PersistentFlags().Lookup("cache-dir").DefValue = "$HOME/.kube/cache"
			return doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: version.Get(), Manual: cli.Name}, args[0])
		},
	}
}

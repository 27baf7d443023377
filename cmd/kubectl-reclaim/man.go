package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/kubectl-reclaim/internal/cli"
	"github.com/csi-reclaimer/csi-reclaimer/internal/version"
)

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

package waiting

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/kubectl-reclaim/internal/cli"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/intree"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/provision"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse"
)

// reasonWords returns the words of all tables of reasons, sorted.
func reasonWords() []string {
	all := slices.Concat(words(reclaim.Reasons()), words(provision.Reasons()), words(intree.Reasons()),
		words(inuse.Reasons()), words(podsafety.Reasons()), words(singlenode.Reasons()), words(statefulset.Reasons()),
		words(fencing.Reasons()))
	slices.Sort(all)
	return slices.Compact(all)
}

func words[R ~string](reasons []R) []string {
	all := make([]string, len(reasons))
	for i, reason := range reasons {
		all[i] = string(reason)
	}
	return all
}

// checkReasons returns an error for a word that no table of reasons has, because an empty list would look as if nothing
// waited.
func checkReasons(asked []string) error {
	known := reasonWords()
	for _, word := range asked {
		if slices.ContainsFunc(known, func(reason string) bool { return strings.EqualFold(reason, word) }) {
			continue
		}
		text := fmt.Sprintf("--reason=%s: there is no such reason", word)
		if others := near(word, known); len(others) > 0 {
			text += ": did you mean " + strings.Join(others, " or ") + "?"
		}
		return cli.NewError(text, "see the reasons of the waiting objects: kubectl reclaim list -A")
	}
	return nil
}

// near returns the words of which a word may be a misspelling, by cobra's rule for commands.
func near(word string, among []string) []string {
	root := &cobra.Command{SuggestionsMinimumDistance: 2}
	for _, other := range among {
		root.AddCommand(&cobra.Command{Use: other, Run: func(*cobra.Command, []string) {}})
	}
	return root.SuggestionsFor(word)
}

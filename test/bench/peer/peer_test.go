//go:build unix

package peer

import (
	"context"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

// TestPeersHaveSameFlags compiles both peers, because only the benchmark starts the peer with v13.
func TestPeersHaveSameFlags(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	flags := map[string]string{}
	for name, build := range map[string]func(context.Context, io.Writer) (string, error){"v10": Build, "v13": BuildV13} {
		binary := must.Get(build(ctx, os.Stderr))(t)
		var help strings.Builder
		// flag.ErrHelp is an error of the program.
		_ = process.Run(ctx, process.Command{Path: binary, Args: []string{"--help"}, Tee: &help})
		if flags[name] = help.String(); !strings.Contains(help.String(), "-csi-address") {
			t.Errorf("the peer with %s has no --csi-address:\n%s", name, help.String())
		}
	}
	if flags["v10"] != flags["v13"] {
		t.Errorf("flags with v10:\n%s\nwith v13:\n%s", flags["v10"], flags["v13"])
	}
}

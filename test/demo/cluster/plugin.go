//go:build unix

package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
)

// BuildPlugin compiles the plugin.
func (c *Cluster) BuildPlugin(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, BuildPatience)
	defer cancel()
	c.Plugin, err = program.Build(ctx, "kubectl-reclaim", c.Printer.Out)
	return err
}

// AskPlugin runs kubectl reclaim with all permissions, and reads its answer.
func (c *Cluster) AskPlugin(ctx context.Context, answer any, args ...string) error {
	var stdout, stderr bytes.Buffer
	command := exec.CommandContext(ctx, c.Plugin, append(args, "-o=json", "--kubeconfig="+c.Admin)...)
	command.Stdout, command.Stderr = &stdout, &stderr
	err := command.Run()
	if err == nil {
		err = json.Unmarshal(stdout.Bytes(), answer)
	}
	if err != nil {
		return fmt.Errorf("kubectl reclaim %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return nil
}

//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
)

// askPlugin runs kubectl reclaim with a kubeconfig, and reads its answer.
func askPlugin(ctx context.Context, binary, kubeconfig string, answer any, args ...string) error {
	var stdout, stderr bytes.Buffer
	command := exec.CommandContext(ctx, binary, append(args, "-o=json", "--kubeconfig="+kubeconfig)...)
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

// pluginText records the plugin's output in lines that fit.
func (t *timeline) pluginText(text string) {
	for _, line := range wrap(text, 78) {
		t.plugin(line)
	}
}

// explainNode shows the plugin's output for the first node: the objects that wait for it, and the policy's action.
func (play *podPlay) explainNode(ctx context.Context) error {
	play.t.user("kubectl reclaim explain node/" + podNode1)
	var said explain.Explanation
	if err := askPlugin(ctx, play.plugin, play.admin, &said, "explain", "node/"+podNode1); err != nil {
		return err
	}
	play.t.pluginText(said.Headline)
	for _, fact := range said.Facts {
		if fact.Name == "Policy" {
			play.t.pluginText(fact.Name + " " + fact.Text)
		}
	}
	return nil
}

// wrap breaks a text into lines of at most so many bytes, save for longer words.
func wrap(text string, width int) (lines []string) {
	for _, word := range strings.Fields(text) {
		if last := len(lines) - 1; last >= 0 && len(lines[last])+1+len(word) <= width {
			lines[last] += " " + word
		} else {
			lines = append(lines, word)
		}
	}
	return lines
}

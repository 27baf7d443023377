//go:build controlplane && unix

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/explain"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/leaks"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
)

// TestPluginShowsEachReasonOfKeptCluster plays the demo, and asks the plugin in the cluster that it leaves.
func TestPluginShowsEachReasonOfKeptCluster(t *testing.T) {
	env, err := setUp(t.Context(), newPrinter(t.Output(), false), controlplane.Options{})
	t.Cleanup(func() {
		if err := env.tearDown(); err != nil {
			t.Error(err)
		}
	})
	if err := errors.Join(err, env.runScenarios(t.Context())); err != nil {
		t.Fatal(err)
	}
	l := &living{setsAct: &setsAct{environment: env}}
	t.Cleanup(func() {
		if err := l.stop(); err != nil {
			t.Error(err)
		}
	})
	if err := l.populate(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.introduce()
	for _, s := range l.specimens() {
		t.Run(s.object(), func(t *testing.T) {
			var said explain.Explanation
			l.eventually(t, func(ctx context.Context) error {
				var now explain.Explanation
				err := askPlugin(ctx, l.plugin, l.admin, &now, "explain", s.object())
				if err == nil {
					said = now
				}
				return err
			}, func() bool { return gives(said, s.reason) }, &said)
		})
	}
	t.Run("status", func(t *testing.T) {
		var said explain.Status
		l.eventually(t, func(ctx context.Context) error {
			said = explain.Status{}
			return askPlugin(ctx, l.plugin, l.admin, &said, "status", "--driver="+driverName)
		}, func() bool {
			if len(said.Drivers) != 1 {
				return false
			}
			waiting := said.Drivers[0].Waiting
			return waiting["Held"] == 1 && waiting["Attached"] == 1 && waiting["SharedHandle"] == 1 &&
				waiting["TerminatingBound"] == 1 && said.Drivers[0].InFlight == 1
		}, &said)
	})
	t.Run("status --retained", func(t *testing.T) {
		var said struct{ Claims []pluginClaim }
		l.eventually(t, func(ctx context.Context) error {
			said.Claims = nil
			return askPlugin(ctx, l.plugin, l.admin, &said, "status", "--retained")
		}, func() bool { return len(said.Claims) == 1 && said.Claims[0].Name == "data-db-1" }, &said)
	})
	t.Run("leaks", func(t *testing.T) {
		report := filepath.Join(t.TempDir(), "report.json")
		var said leaks.Report
		l.eventually(t, func(ctx context.Context) error {
			text, err := l.program.Get(ctx, "/leaks?format=json")
			if err != nil {
				return nil // no check has ended yet
			}
			if err := os.WriteFile(report, []byte(text), 0o600); err != nil {
				return err
			}
			said = leaks.Report{}
			return askPlugin(ctx, l.plugin, l.admin, &said, "leaks", "--from="+report)
		}, func() bool {
			return said.Suspected == 1 && len(said.Volumes) > 0 && strings.HasPrefix(said.Volumes[0].Handle, "leak-")
		}, &said)
	})
}

// gives reports whether an explanation has a reason: as the decision, in its first line, or as an Event.
func gives(said explain.Explanation, reason string) bool {
	if said.Decision != nil && said.Decision.Reason == reason || strings.Contains(said.Headline, "("+reason+")") {
		return true
	}
	return strings.Contains(strings.Join(said.Events, "\n"), ": "+reason+": ")
}

// eventually asks until the answer is so.
func (l *living) eventually(t *testing.T, ask func(context.Context) error, so func() bool, said any) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 200*time.Millisecond, patience, true,
		func(ctx context.Context) (bool, error) {
			err := ask(ctx)
			return err == nil && so(), err
		})
	if err != nil {
		t.Errorf("%v; the plugin says %+v", err, said)
	}
}

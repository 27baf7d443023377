//go:build controlplane && unix

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/volumes"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/leaks"
	"github.com/csi-reclaimer/csi-reclaimer/test/demo/cluster"
	"github.com/csi-reclaimer/csi-reclaimer/test/demo/scenarios"
	"github.com/csi-reclaimer/csi-reclaimer/test/demo/stage"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

// TestPluginShowsEachReasonOfKeptCluster plays the demo with KEEP, and runs the plugin in the remaining cluster.
func TestPluginShowsEachReasonOfKeptCluster(t *testing.T) {
	suite.Deep(t, suite.OwnControlPlane)
	p := stage.NewPrinter(t.Output(), false)
	err := scenarios.Show(t.Context(), p, controlplane.Options{}, func(ctx context.Context, c *cluster.CSI) error {
		l := &living{CSI: c}
		if err := l.populate(ctx); err != nil {
			return err
		}
		l.introduce()
		l.testPlugin(ctx, t)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// testPlugin runs the commands that introduce names.
func (l *living) testPlugin(ctx context.Context, t *testing.T) {
	for _, s := range l.specimens() {
		t.Run(s.object(), func(t *testing.T) {
			var said explain.Explanation
			l.eventually(ctx, t, &said, func() bool { return gives(said, s.reason) }, "explain", s.object())
		})
	}
	t.Run("status", func(t *testing.T) {
		var said volumes.Status
		l.eventually(ctx, t, &said, func() bool {
			if len(said.Drivers) != 1 {
				return false
			}
			of := said.Drivers[0]
			return of.Waiting["Held"] == 1 && of.Waiting["Attached"] == 1 && of.Waiting["SharedHandle"] == 1 &&
				of.Waiting["TerminatingBound"] == 1 && of.InFlight == 1
		}, "status", "--driver="+l.Maker.Driver)
	})
	t.Run("status --retained", func(t *testing.T) {
		var said struct{ Claims []struct{ Name string } }
		l.eventually(ctx, t, &said, func() bool { return len(said.Claims) == 1 && said.Claims[0].Name == "data-db-1" },
			"status", "--retained")
	})
	t.Run("leaks", func(t *testing.T) { l.testLeaks(ctx, t) })
}

// testLeaks gives the plugin csi-reclaimer's report, once the report has a suspect.
func (l *living) testLeaks(ctx context.Context, t *testing.T) {
	var report string
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, cluster.Patience, true,
		func(ctx context.Context) (bool, error) {
			var err error
			report, err = l.Program.Get(ctx, "/leaks?format=json")
			return err == nil && strings.Contains(report, string(leaks.ReasonLeakSuspected)), nil
		})
	file := filepath.Join(t.TempDir(), "report.json")
	if err := errors.Join(err, os.WriteFile(file, []byte(report), 0o600)); err != nil {
		t.Fatalf("%v; the report is %s", err, report)
	}
	var said leaks.Report
	l.eventually(ctx, t, &said, func() bool {
		return said.Suspected == 1 && strings.HasPrefix(said.Volumes[0].Handle, "leak-")
	}, "leaks", "--from="+file)
}

// gives reports whether an explanation has a reason: as the decision, in its first line, or as an Event.
func gives(said explain.Explanation, reason string) bool {
	if said.Decision != nil && said.Decision.Reason == reason || strings.Contains(said.Headline, "("+reason+")") {
		return true
	}
	return strings.Contains(strings.Join(said.Events, "\n"), ": "+reason+": ")
}

// eventually asks the plugin until its answer is so.
func (l *living) eventually(ctx context.Context, t *testing.T, said any, so func() bool, args ...string) {
	t.Helper()
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, cluster.Patience, true,
		func(ctx context.Context) (bool, error) {
			// Fields that an answer omits would keep the values of the former answer.
			answer := reflect.New(reflect.TypeOf(said).Elem())
			if err := l.AskPlugin(ctx, answer.Interface(), args...); err != nil {
				return false, err
			}
			reflect.ValueOf(said).Elem().Set(answer.Elem())
			return so(), nil
		})
	if err != nil {
		t.Errorf("%v; the plugin says %+v", err, said)
	}
}

package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/app"
	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/health"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
)

// Run runs the program until ctx ends or an error occurs that waiting cannot fix.
func (o *options) Run(ctx context.Context, stdout io.Writer) error {
	return app.AtEnd(ctx, o.releaseFinalizers, o.work(ctx, stdout))
}

func (o *options) work(ctx context.Context, stdout io.Writer) error {
	config, err := o.cluster.Config(name)
	if err != nil {
		return err
	}
	if o.releaseFinalizers {
		return o.release(ctx, config, stdout)
	}
	metrics := prometheus.NewRegistry()
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	clock := o.leader.Clock(o.settings.DryRun)
	events, stopEvents, err := app.EventRecorder(background, config, clock, name, metrics)
	if err != nil {
		return err
	}
	defer stopEvents()
	all, err := o.installed(ctx, app.LeaderConfig(config, clock), events, metrics)
	if err != nil {
		return err
	}
	hooks, err := o.newWebhooks(config, metrics)
	if err != nil {
		return err
	}
	begun, checkers := all.begun, all.checkers()
	ctx, end := context.WithCancel(ctx)
	defer end()
	broken := make(chan error, 1)
	if hooks != nil {
		checkers = append(checkers, hooks.checkers()...)
		begun = func() error { return cmp.Or(all.begun(), hooks.begun()) }
		running.Go(func() {
			broken <- hooks.run(background)
			end()
		})
	}
	state := health.NewState(begun)
	needs, err := o.serve(background, &running, config, state, metrics)
	if err != nil {
		return err
	}
	elector, err := o.leader.Elector(config, name, clock)
	if err != nil {
		return err
	}
	running.Go(func() { app.ReturnMemory(background, all.waitSynced) })
	err = app.Process[guard]{
		Controllers: all, Election: elector, State: state, Grace: o.grace, Checkers: append(checkers, needs...),
		Lacking: func(missing []permission.Permission) { state.Lack(app.BlockingPermissions(missing)...) },
	}.Run(ctx, background, &running)
	select {
	case unserved := <-broken:
		return errors.Join(err, unserved)
	default:
		return err
	}
}
